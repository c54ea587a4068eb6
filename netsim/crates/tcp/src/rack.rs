//! RACK-TLP (RFC 8985) as Linux does it: a segment is lost when one sent later has arrived and it is overdue since, a
//! probe goes when no ACK comes, and a reduction of the window that proves needless is undone.

use std::collections::VecDeque;

use crate::ack::Ack;
use crate::rate_reduction::RateReduction;
use crate::retransmission_timeout::Rto;

/// No timer of it goes off earlier (Linux, `TCP_TIMEOUT_MIN_US`).
const LEAST_TIMER_NS: u64 = 2_000_000;
/// So many segments beyond a missing one say that it is lost, as long as nothing came out of order (RFC 8985 §6.2).
const DUPLICATES: u32 = 3;
/// The reordering window that spurious retransmissions have widened stays for so many recoveries.
const PERSISTENCE: u32 = 16;
const MOST_STEPS: u64 = 255;

/// State of RACK-TLP: the segments that are not acknowledged, and what is known of their order.
#[derive(Debug, Default)]
pub(crate) struct Rack {
    now_ns: u64,
    /// Since when timeout and probe are waited for.
    armed_ns: u64,
    /// Number of the first segment of `segments`.
    first: u32,
    segments: VecDeque<Sent>,
    delivered: u32,
    lost: u32,
    /// The segment sent last of those that arrived: when it was sent, and its number (`RACK.xmit_ts`).
    latest: (u64, u32),
    /// Of what arrived last (`RACK.rtt`).
    round_trip_ns: u64,
    least_round_trip_ns: Option<u64>,
    /// One beyond the highest that arrived (`RACK.fack`).
    beyond: u32,
    /// The same before the ACK that is being taken. An ACK that reports several segments says nothing of their order.
    beyond_before: u32,
    is_reordered: bool,
    /// Quarters of the least round trip that the reordering window has beside the first.
    steps: u64,
    persistence: u32,
    /// The window is not widened again before this segment is acknowledged.
    widened_until: u32,
    /// Segments that are overdue then are lost.
    reordering_ns: Option<u64>,
    probe: Probe,
    undo: Option<Undo>,
    /// Segments that have arrived, and that were found lost, since the window of a recovery went by them.
    arrived: u32,
    found_lost: u32,
    reduction: Option<RateReduction>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at_ns: u64,
    state: State,
    was_resent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Delivered,
    Lost,
}

/// The tail loss probe: one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Probe {
    #[default]
    None,
    /// It is to go, whatever the window says.
    Due,
    /// It went; all below `end` is to be acknowledged before the next one, and of what went again more than that: until
    /// then nobody knows if it repaired a loss.
    Sent { end: u32, is_resent: bool },
}

/// State that would restore the window, should all that was retransmitted prove to have been delayed.
#[derive(Clone, Copy, Debug)]
struct Undo {
    window: (u64, u64),
    /// Retransmissions that no duplicate has answered.
    pending: u32,
    first_resent_ns: Option<u64>,
}

/// Event that the timer of a sender stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    Reordering,
    Probe,
    Retransmission,
}

impl Rack {
    /// Takes the time, before anything is sent.
    pub(crate) fn on_clock(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Segments before this one have gone, and are none of what is looked after: a handshake, which took so long.
    pub(crate) fn begin(&mut self, first: u32, round_trip_ns: u64) {
        self.first = first;
        self.least_round_trip_ns = Some(round_trip_ns);
    }

    /// Takes a segment that the ACK which is taken next reports beside the one that caused it.
    pub(crate) fn on_report(&mut self, number: u32) {
        self.deliver(number);
    }

    /// Takes an ACK after which `una` is the first that is missing. Returns whether a probe has repaired a loss, which
    /// nothing else has noticed.
    pub(crate) fn on_ack(
        &mut self,
        ack: Ack,
        una: u32,
        smoothed_ns: u64,
        is_recovering: bool,
    ) -> bool {
        self.now_ns = ack.now_ns;
        let least_ns = self.least_round_trip_ns.unwrap_or(u64::MAX);
        self.least_round_trip_ns = Some(least_ns.min(ack.round_trip_ns));
        if ack.is_duplicate {
            self.on_duplicate(una);
        }
        self.deliver(ack.trigger);
        while self.first < una {
            self.deliver(self.first);
            self.segments.pop_front();
            self.delivered = self.delivered.saturating_sub(1);
            self.first += 1;
        }
        self.beyond_before = self.beyond;
        let has_repaired = self.is_repaired_by_probe(ack, una);
        self.detect(smoothed_ns, is_recovering);
        has_repaired
    }

    /// RFC 8985 §7.4.2: a probe of what had been sent is needless if it comes as a duplicate, and has repaired a loss if
    /// more than all before it is acknowledged without.
    fn is_repaired_by_probe(&mut self, ack: Ack, una: u32) -> bool {
        let Probe::Sent { end, is_resent } = self.probe else {
            return false;
        };
        let is_needless = ack.is_duplicate && ack.trigger + 1 == end;
        if una < end || (is_resent && una == end && !is_needless) {
            return false;
        }
        self.probe = Probe::None;
        is_resent && !is_needless
    }

    /// A segment has arrived, if that is new.
    fn deliver(&mut self, number: u32) {
        let index = number.checked_sub(self.first);
        let Some(it) = index.and_then(|it| self.segments.get_mut(it as usize)) else {
            return;
        };
        match it.state {
            State::Delivered => return,
            State::Lost => self.lost -= 1,
            State::InFlight => (),
        }
        it.state = State::Delivered;
        self.delivered += 1;
        self.arrived += 1;
        // RFC 8985 §6.2 step 3.
        self.is_reordered |= number + 1 < self.beyond_before && !it.was_resent;
        self.beyond = self.beyond.max(number + 1);
        // Sooner than any round trip it is not what was sent again that has come (RFC 8985 §6.2 step 2).
        let round_trip_ns = self.now_ns.saturating_sub(it.at_ns);
        let is_earlier = it.was_resent && Some(round_trip_ns) < self.least_round_trip_ns;
        if is_earlier {
            return;
        }
        // That of each, however late it comes.
        self.round_trip_ns = round_trip_ns;
        self.latest = self.latest.max((it.at_ns, number));
    }

    /// A segment that had arrived came once more: it was sent again for nothing (DSACK).
    fn on_duplicate(&mut self, una: u32) {
        if let Some(undo) = &mut self.undo {
            undo.pending = undo.pending.saturating_sub(1);
        }
        if una >= self.widened_until {
            self.widened_until = self.first + self.segments.len() as u32;
            self.steps = (self.steps + 1).min(MOST_STEPS);
        }
        self.persistence = PERSISTENCE;
    }

    /// Finds what is lost (RFC 8985 §6.2 step 5).
    fn detect(&mut self, smoothed_ns: u64, is_recovering: bool) {
        let window_ns = self.reordering_window_ns(smoothed_ns, is_recovering);
        let mut due_ns = None;
        for (number, it) in (self.first..).zip(&mut self.segments) {
            // What follows was sent later still.
            if it.at_ns > self.latest.0 && !it.was_resent {
                break;
            }
            if it.state != State::InFlight || (it.at_ns, number) >= self.latest {
                continue;
            }
            let overdue_ns = it.at_ns + self.round_trip_ns + window_ns;
            if overdue_ns <= self.now_ns {
                it.state = State::Lost;
                self.lost += 1;
                self.found_lost += 1;
            } else {
                due_ns = due_ns.max(Some(overdue_ns));
            }
        }
        self.reordering_ns = due_ns.map(|it| it + LEAST_TIMER_NS);
    }

    fn reordering_window_ns(&self, smoothed_ns: u64, is_recovering: bool) -> u64 {
        if !self.is_reordered && (is_recovering || self.delivered >= DUPLICATES) {
            return 0;
        }
        let quarter_ns = self.least_round_trip_ns.unwrap_or(0) / 4;
        (quarter_ns * (1 + self.steps)).min(smoothed_ns)
    }

    /// True if something is lost that was not sent again since.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Segments in flight, as far as is known.
    pub(crate) fn pipe(&self) -> u32 {
        self.segments.len() as u32 - self.delivered - self.lost
    }

    /// A new segment is sent now.
    pub(crate) fn send(&mut self) {
        self.count_sent();
        if self.segments.is_empty() {
            self.arm(self.now_ns);
        }
        self.segments.push_back(Sent {
            at_ns: self.now_ns,
            state: State::InFlight,
            was_resent: false,
        });
    }

    /// The first that is lost, to be sent again now.
    pub(crate) fn resend_lost(&mut self) -> Option<u32> {
        let is_lost = |it: &Sent| it.state == State::Lost;
        let index = (self.lost > 0).then(|| self.segments.iter().position(is_lost))??;
        self.lost -= 1;
        self.resend(index);
        Some(self.first + index as u32)
    }

    fn count_sent(&mut self) {
        if let Some(it) = &mut self.reduction {
            it.on_send();
        }
    }

    fn resend(&mut self, index: usize) {
        self.count_sent();
        self.segments[index] = Sent {
            at_ns: self.now_ns,
            state: State::InFlight,
            was_resent: true,
        };
        if let Some(undo) = &mut self.undo {
            undo.pending += 1;
            undo.first_resent_ns.get_or_insert(self.now_ns);
        }
    }

    /// True if a probe is to go now, which is new data where there are some (RFC 8985 §7.3). `end`: one beyond all that
    /// has been sent then.
    pub(crate) fn take_probe(&mut self, end: u32) -> bool {
        let is_due = self.probe == Probe::Due;
        if is_due {
            let is_resent = false;
            self.probe = Probe::Sent { end, is_resent };
        }
        is_due
    }

    /// The last segment, to be sent again as a probe; nothing if all have arrived.
    pub(crate) fn resend_last(&mut self) -> Option<u32> {
        let index = self.segments.len().checked_sub(1)?;
        if self.segments[index].state != State::InFlight {
            return None;
        }
        self.resend(index);
        let number = self.first + index as u32;
        self.probe = Probe::Sent {
            end: number + 1,
            is_resent: true,
        };
        Some(number)
    }

    /// From now on timeout and probe are waited for.
    pub(crate) fn arm(&mut self, now_ns: u64) {
        self.armed_ns = now_ns;
    }

    /// Returns when the timer goes off, and what for. `is_open`: nothing is being recovered.
    pub(crate) fn deadline(&self, rto: &Rto, is_open: bool) -> (u64, Expired) {
        if let Some(at_ns) = self.reordering_ns {
            return (at_ns, Expired::Reordering);
        }
        let timeout_ns = rto.timeout_ns();
        if is_open && self.delivered == 0 && self.probe == Probe::None && rto.smoothed_ns() > 0 {
            // The receiver may wait for a second segment before it answers (RFC 8985 §7.2).
            let ack_delay_ns = match self.segments.len() {
                1 => rto.min_ns(),
                _ => LEAST_TIMER_NS,
            };
            let probe_ns = 2 * rto.smoothed_ns() + ack_delay_ns;
            // One that would come after the timeout comes in its place.
            return (self.armed_ns + probe_ns.min(timeout_ns), Expired::Probe);
        }
        (self.armed_ns + timeout_ns, Expired::Retransmission)
    }

    /// The timer went off for what is out of order.
    pub(crate) fn on_reordering_timer(&mut self, smoothed_ns: u64, is_recovering: bool) {
        self.detect(smoothed_ns, is_recovering);
        self.reordering_ns = None;
    }

    /// The timer went off for a probe.
    pub(crate) fn on_probe_timer(&mut self) {
        self.probe = Probe::Due;
    }

    /// The retransmission timer went off: the first that is missing is lost, and what has been under way for as long as a
    /// round trip and what is allowed for reordering (RFC 8985 §6.3).
    pub(crate) fn on_timeout(&mut self, smoothed_ns: u64) {
        let allowed_ns = self.round_trip_ns + self.reordering_window_ns(smoothed_ns, true);
        let now_ns = self.now_ns;
        for (index, it) in self.segments.iter_mut().enumerate() {
            let is_lost = index == 0 || it.at_ns + allowed_ns <= now_ns;
            if it.state == State::InFlight && is_lost {
                it.state = State::Lost;
                self.lost += 1;
            }
        }
        (self.reordering_ns, self.probe, self.undo) = (None, Probe::None, None);
        self.reduction = None;
    }

    /// A recovery begins, from such a window and threshold. No probe is waited for any more (RFC 8985 §7.1).
    pub(crate) fn on_recovery(&mut self, window: (u64, u64)) {
        self.probe = Probe::None;
        self.undo = Some(Undo {
            window,
            pending: 0,
            first_resent_ns: None,
        });
    }

    /// In the recovery that has begun the window shrinks from one to another.
    pub(crate) fn reduce(&mut self, before: u32, threshold: u32) {
        self.reduction = Some(RateReduction::new(before, threshold));
    }

    /// An ACK was taken, or a timer has found something lost: the window of a recovery goes by what has arrived.
    pub(crate) fn on_window(&mut self, is_recovering: bool, is_progress: bool) {
        let arrived = std::mem::take(&mut self.arrived);
        let found_lost = std::mem::take(&mut self.found_lost);
        let pipe = self.pipe();
        if !is_recovering {
            self.reduction = None;
        } else if let Some(it) = &mut self.reduction {
            it.on_ack(arrived, pipe, is_progress && found_lost == 0);
        }
    }

    /// How many segments may be in flight during a recovery; nothing out of one.
    pub(crate) fn allowed(&self) -> Option<u32> {
        self.reduction.map(|it| it.allowed())
    }

    /// A recovery has ended.
    pub(crate) fn on_recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.steps = 0;
        }
    }

    /// Returns window and threshold of before, if the ACK proves that nothing was lost: it answers what was sent before the
    /// first retransmission (Eifel, RFC 3522), or all retransmissions have come as duplicates.
    pub(crate) fn take_undo(&mut self, ack: Ack, is_new: bool) -> Option<(u64, u64)> {
        let Undo {
            window,
            pending,
            first_resent_ns,
        } = self.undo?;
        let first_ns = first_resent_ns?;
        // What is under way for the second time is waited for (Linux, `tcp_try_undo_partial`).
        let is_resent = |it: &Sent| it.was_resent && it.state == State::InFlight;
        if self.segments.iter().any(is_resent) {
            return None;
        }
        let was_delayed = is_new && ack.now_ns - ack.round_trip_ns < first_ns;
        if !was_delayed && pending > 0 {
            return None;
        }
        self.undo = None;
        for it in self
            .segments
            .iter_mut()
            .filter(|it| it.state == State::Lost)
        {
            it.state = State::InFlight;
        }
        self.lost = 0;
        Some(window)
    }
}
