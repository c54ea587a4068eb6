//! Loss recovery: the sending half of a flow, with fast retransmit and fast recovery (NewReno, SACK, RACK-TLP), as
//! a state machine. ACKs and timeouts go in, segment numbers come out. It knows nothing of packets or of the network.

use crate::ack::Ack;
use crate::bitset::Bitset;
use crate::congestion_control::CongestionWindow;
use crate::rack::Rack;
use crate::retransmission_timeout::Rto;
use crate::{LossRecovery, Settings};

mod time_based;

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the segment.
    pub number: u32,
    /// It was sent before.
    pub is_retransmission: bool,
}

/// Sends one flow: congestion control and loss recovery.
#[derive(Debug)]
pub struct Sender {
    /// How many segments there are.
    pub segments: u32,
    /// The first that is not acknowledged.
    una: u32,
    /// The next to be sent; after a timeout, to be retransmitted.
    next: u32,
    /// The first that was never sent.
    fresh: u32,
    /// The congestion window.
    pub window: CongestionWindow,
    /// The retransmission timeout.
    pub rto: Rto,
    recovery: LossRecovery,
    threshold: u32,
    duplicates: u32,
    excludes_limited_transmit: bool,
    /// Segments that duplicate ACKs let go beyond the window (RFC 3042), since the last that was new.
    limited_transmit: u32,
    /// The sender is in fast recovery, until `recover` is acknowledged.
    recovering: bool,
    /// First segment beyond what was sent when a recovery or a timeout began. Until more than that
    /// is acknowledged, duplicate ACKs start no recovery: they may be of what was sent twice (RFC
    /// 6582 §3.2 step 2). 0 before the first.
    recover: u32,
    /// The first missing segment is to be retransmitted, whatever the window says.
    retransmit_first: bool,
    /// Nothing goes but the SYN, until it is acknowledged.
    handshaking: bool,
    sack: Scoreboard,
    /// Not there with another recovery, which simulations have many senders with.
    rack: Option<Box<Rack>>,
}

/// Scoreboard of segments beyond the first missing one (RFC 6675).
#[derive(Debug, Default)]
struct Scoreboard {
    received: Bitset,
    /// The three highest: what is below all of them has three above, and counts as lost.
    highest: [u32; 3],
    /// Below this all that is missing counts as lost since a timeout.
    timed_out: u32,
    /// Below this all that was lost has been retransmitted (`HighRxt`).
    resent: u32,
}

impl Sender {
    /// A sender of so many segments, none of which was sent.
    pub fn new(segments: u32, settings: &Settings) -> Self {
        Self {
            segments,
            una: 0,
            next: 0,
            fresh: 0,
            window: CongestionWindow::new(settings),
            rto: if settings.handshake {
                Rto::with_handshake(settings.rto_min_us * 1000)
            } else {
                Rto::new(settings.rto_min_us * 1000)
            },
            recovery: settings.recovery,
            threshold: settings.dupack_threshold,
            duplicates: 0,
            excludes_limited_transmit: settings.excludes_limited_transmit,
            limited_transmit: 0,
            recovering: false,
            recover: 0,
            retransmit_first: false,
            handshaking: settings.handshake,
            sack: Scoreboard::default(),
            rack: (settings.recovery == LossRecovery::Rack).then(Box::default),
        }
    }

    /// Something waits for an acknowledgement.
    #[inline]
    pub fn awaits_ack(&self) -> bool {
        self.una < self.fresh
    }

    /// Returns the segment to send now, if the window lets one go.
    #[inline]
    pub fn poll(&mut self) -> Option<Segment> {
        if self.handshaking {
            return self.poll_syn();
        }
        match self.recovery {
            LossRecovery::NewReno => self.poll_newreno(),
            LossRecovery::Sack => self.poll_sack(),
            LossRecovery::Rack => self.poll_rack(),
        }
    }

    /// Returns whether [`poll`](Self::poll) would send a new segment if there was one.
    pub fn wants_segments(&self) -> bool {
        self.next == self.segments && self.in_flight() < self.window.segments()
    }

    /// Takes an ACK. In congestion avoidance the window grows by `coupled` a segment, if there is
    /// such a limit. Returns whether it acknowledged something new.
    #[inline]
    pub fn on_ack(&mut self, ack: Ack, coupled: Option<u64>) -> bool {
        // What is acknowledged for the second time says nothing of round trips: it may have been discarded.
        let is_measured = ack.missing > self.una || ack.trigger >= self.una;
        if is_measured || self.rack.is_none() {
            self.rto.measured(ack.round_trip_ns);
        }
        if self.handshaking {
            return self.on_syn_ack(ack.round_trip_ns);
        }
        let new = ack.missing > self.una;
        let acked = ack.missing.saturating_sub(self.una);
        self.una = self.una.max(ack.missing);
        self.next = self.next.max(self.una);
        let smoothed_ns = self.rto.smoothed_ns();
        let round_trips_ns = (ack.round_trip_ns, smoothed_ns);
        self.window
            .on_time(ack.now_ns, round_trips_ns, (self.una, self.next));
        let may_grow = self
            .window
            .on_echo(ack.marked, self.una, self.next, self.recovering);
        let is_open = self.is_open();
        if let Some(rack) = &mut self.rack {
            if rack.on_ack(ack, self.una, smoothed_ns, !is_open) && is_open {
                self.window.on_loss(self.window.segments());
            }
            self.on_time_based(ack, (acked, coupled), may_grow);
            return new;
        }
        let tells_more = match self.recovery {
            // One that was overtaken by a later ACK is no duplicate of that (RFC 5681 §2).
            LossRecovery::NewReno => ack.missing == self.una,
            // What says nothing new is no duplicate ACK (RFC 6675 §2).
            LossRecovery::Sack | LossRecovery::Rack => self.sack.on_ack(ack, self.una),
        };
        if new {
            self.on_progress(acked, coupled, may_grow);
        } else if tells_more && self.awaits_ack() {
            self.on_duplicate();
        }
        new
    }

    /// Takes note that the retransmission timer went off.
    pub fn on_timeout(&mut self) {
        if self.handshaking {
            // The window stays as it is: Linux begins with one segment only where more than one SYN was lost.
            self.rto.back_off();
            self.next = 0;
            return;
        }
        self.window
            .on_timeout(self.in_flight(), self.rto.is_backed_off());
        self.rto.back_off();
        self.duplicates = 0;
        self.limited_transmit = 0;
        self.recovering = false;
        self.retransmit_first = false;
        self.recover = self.fresh;
        // Go back: what was in flight is retransmitted as the window opens, unless it is known to
        // have arrived.
        self.next = self.una;
        self.sack.timed_out = self.fresh;
        self.sack.resent = self.una;
        if let Some(rack) = &mut self.rack {
            self.next = self.fresh;
            // However much else is under way still.
            self.retransmit_first = true;
            rack.on_timeout(self.rto.smoothed_ns());
        }
    }

    /// Nothing is being recovered, and no timeout is being made up for.
    fn is_open(&self) -> bool {
        !self.recovering && self.una >= self.recover
    }

    fn in_flight(&self) -> u32 {
        self.next - self.una
    }

    fn poll_syn(&mut self) -> Option<Segment> {
        let is_due = self.next == 0 && self.segments > 0;
        is_due.then(|| {
            let is_retransmission = self.fresh > 0;
            (self.next, self.fresh) = (1, 1);
            Segment {
                number: 0,
                is_retransmission,
            }
        })
    }

    /// Its round trip is known now; the window grows by segments with data (RFC 5681 §3.1).
    fn on_syn_ack(&mut self, round_trip_ns: u64) -> bool {
        self.handshaking = false;
        (self.una, self.next) = (1, 1);
        if let Some(rack) = &mut self.rack {
            rack.begin(1, round_trip_ns);
        }
        true
    }

    /// What a loss halves (RFC 5681 eqn 4).
    fn flight_size(&self) -> u32 {
        let excluded = match self.excludes_limited_transmit {
            true => self.limited_transmit,
            false => 0,
        };
        self.in_flight().saturating_sub(excluded)
    }

    fn on_progress(&mut self, acked: u32, coupled: Option<u64>, may_grow: bool) {
        self.duplicates = 0;
        self.limited_transmit = 0;
        if !self.recovering {
            if may_grow {
                self.window.grow(acked, coupled);
            }
            return;
        }
        if self.una >= self.recover {
            self.recovering = false;
            self.window.back_to_threshold();
            return;
        }
        if self.recovery == LossRecovery::NewReno {
            // A partial ACK: the next one is lost as well (RFC 6582 §3.2 step 3).
            self.retransmit_first = true;
            self.window.inflate(1 - i64::from(acked));
        }
    }

    fn on_duplicate(&mut self) {
        self.duplicates += 1;
        if self.recovering {
            if self.recovery == LossRecovery::NewReno {
                self.window.inflate(1);
            }
            return;
        }
        let lost = self.duplicates >= self.threshold
            || (self.recovery == LossRecovery::Sack && self.sack.lost_below() > self.una);
        if lost && self.may_recover() {
            self.recovering = true;
            self.recover = self.fresh;
            self.retransmit_first = true;
            self.window.on_loss(self.flight_size());
            if self.recovery == LossRecovery::NewReno {
                self.window.inflate(i64::from(self.threshold));
            }
        }
    }

    /// Returns whether duplicate ACKs indicate a loss.
    fn may_recover(&self) -> bool {
        match self.recovery {
            LossRecovery::NewReno => self.recover == 0 || self.una > self.recover,
            // With SACK they cannot be of what was sent twice.
            LossRecovery::Sack | LossRecovery::Rack => self.una >= self.recover,
        }
    }

    fn poll_newreno(&mut self) -> Option<Segment> {
        if std::mem::take(&mut self.retransmit_first) {
            return Some(Segment {
                number: self.una,
                is_retransmission: true,
            });
        }
        // Limited transmit: the first duplicates let new segments go (RFC 3042).
        let extra = if self.recovering {
            0
        } else {
            self.duplicates.min(self.threshold.saturating_sub(1)).min(2)
        };
        if self.in_flight() >= self.window.segments() + extra || self.next >= self.segments {
            return None;
        }
        if self.in_flight() >= self.window.segments() {
            self.limited_transmit += 1;
        }
        let number = self.next;
        self.next += 1;
        let is_retransmission = number < self.fresh;
        self.fresh = self.fresh.max(self.next);
        Some(Segment {
            number,
            is_retransmission,
        })
    }

    fn poll_sack(&mut self) -> Option<Segment> {
        if self.sack.received.is_empty() && self.sack.timed_out <= self.una && !self.recovering {
            self.next = self.fresh;
            return self.poll_newreno();
        }
        // The first missing segment goes at once (RFC 6675 §5 step 4.3).
        if std::mem::take(&mut self.retransmit_first) {
            return Some(self.retransmit(self.una));
        }
        if self.pipe() >= self.window.segments() {
            return None;
        }
        // RFC 6675 NextSeg() rule 1: the first lost one that was not retransmitted.
        let after_timeout = self.sack.timed_out > self.una;
        if (self.recovering || after_timeout)
            && let Some(number) = self.sack.next_lost(self.una)
        {
            return Some(self.retransmit(number));
        }
        // Rule 2: something new.
        if self.fresh < self.segments {
            if !self.recovering && self.in_flight() >= self.window.segments() {
                self.limited_transmit += 1;
            }
            let number = self.fresh;
            self.fresh += 1;
            self.next = self.fresh;
            return Some(Segment {
                number,
                is_retransmission: false,
            });
        }
        // Rule 3: what is missing below the highest that arrived.
        if self.recovering {
            let number = self
                .sack
                .received
                .first_missing(self.sack.resent.max(self.una));
            if number < self.sack.highest[0] {
                return Some(self.retransmit(number));
            }
        }
        None
    }

    fn retransmit(&mut self, number: u32) -> Segment {
        self.sack.resent = number + 1;
        self.next = self.fresh;
        Segment {
            number,
            is_retransmission: true,
        }
    }

    /// Segments thought to be in flight (RFC 6675 `SetPipe`).
    fn pipe(&self) -> u32 {
        let edge = self.sack.edge().clamp(self.una, self.fresh);
        let resent = self.sack.resent.clamp(self.una, edge);
        let missing = |from, to| to - from - self.sack.received.count(from, to);
        missing(self.una, resent) + missing(edge, self.fresh)
    }
}

impl Scoreboard {
    /// Returns whether the ACK reports a segment that was not known to have arrived.
    fn on_ack(&mut self, ack: Ack, una: u32) -> bool {
        let new = ack.trigger >= una && self.received.insert(ack.trigger);
        if new {
            let mut number = ack.trigger;
            for place in &mut self.highest {
                if number > *place {
                    std::mem::swap(place, &mut number);
                }
            }
        }
        self.received.remove_below(una);
        new
    }

    /// Segments missing below have three above them that arrived (RFC 6675 `IsLost`).
    fn lost_below(&self) -> u32 {
        self.highest[2]
    }

    fn edge(&self) -> u32 {
        self.lost_below().max(self.timed_out)
    }

    fn next_lost(&self, una: u32) -> Option<u32> {
        let number = self.received.first_missing(self.resent.max(una));
        (number < self.edge()).then_some(number)
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
