//! Adaptive congestion control: a window that finds what the bottleneck gives, and keeps to its
//! share beside others.
//!
//! Beside others it grows and shrinks as CUBIC does (RFC 9438). Where delays show that nothing
//! stands in a queue it grows faster, and takes a few losses for chance; where they show a queue it
//! ends slow start before anything is lost (after HyStart++, RFC 9406).

mod flows;
mod growth;
mod recovery;
mod start;

use core::time::Duration;

use self::{
    flows::Flows,
    recovery::{Recovery, Signal},
    start::Start,
};
use super::{
    Acknowledged, MAX_QUEUES, PathRates,
    chance::Chance,
    cubic::{BETA, Cubic},
    round::Rounds,
};
use crate::{
    MIN_DATAGRAM_BYTES,
    attempts::{ANY, Attempts, MOST_PAUSE},
    pacer::Pacer,
};
use cloudburst_wire::Time;

/// Datagrams that a peer of which nothing is known is sent at first (RFC 6928).
const INITIAL_DATAGRAMS: f64 = 10.0;
/// The least window, in datagrams: what is paced does not need two.
const LEAST_DATAGRAMS: f64 = 0.25;
/// Windows below this grow by less, or they would lose a tenth of what they hold and more (a loss
/// in 1.5 squares of the window, RFC 5348 §3.1), and leave one datagram at a time.
const SMALL_DATAGRAMS: f64 = 8.0;
/// How much faster than a window in a round trip is sent (RFC 9002 §7.7), at first and later.
const STARTING_GAIN: f64 = 2.0;
const PACING_GAIN: f64 = 1.25;
/// Datagrams that may leave together however slow the path is.
const BURST_DATAGRAMS: f64 = 2.0;
/// And so many by each bottleneck, up to four times as many, where that takes no longer than this at the rate, and no
/// more than this share of a round trip: a host that wakes for each pair does little else. Beside bulk transfers a message's
/// rate is two datagrams in a millisecond.
const WIDE_DATAGRAMS: f64 = 4.0 * BURST_DATAGRAMS;
const WIDE_TIME: Duration = Duration::from_millis(4);
const WIDE_SHARE: f64 = 0.25;
/// Trains that a longer burst leaves in, each by another path: a call of the system for each is what a message costs most.
const TRAINS: usize = 2;
/// The pause in rounds between reductions for losses without a queue, and the share from which on
/// they are heeded always, unless they were found to be chance.
const CHANCE_ROUNDS: u32 = 8;
const HEAVY_LOSS: f64 = 0.2;
/// Least window, in datagrams, that losses by chance leave; and one for each bottleneck, up to so many (RFC 6356 §3:
/// each has one of its own).
const CHANCE_DATAGRAMS: [f64; 2] = [2.0, 4.0];
/// Least window, in datagrams, that losses leave where less was in flight than a window allows: a pair in flight is not
/// all of it then. A peer of which nothing is known is sent ten (RFC 6928).
const UNUSED_DATAGRAMS: f64 = 4.0;
/// Rounds after a reduction from which on a queue is not that from before.
const EMPTIED_ROUNDS: u32 = 2;
/// Losses are averaged over so many datagrams, and more than this share is no link that is used.
const LOSS_DATAGRAMS: f64 = 8.0;
const MOST_LOSS: f64 = 0.75;
/// The most that a report counts for: one burst that finds no place in a queue says nothing of the next.
const MOST_WEIGHT: f64 = 0.5;
/// How long a receiver may wait before it acknowledges the end of a burst, besides a round trip.
const FEEDBACK_DELAY: Duration = Duration::from_millis(1);
/// How long a window is believed that was not used (RFC 7661 §4.4.3).
const VALID_FOR: Duration = Duration::from_secs(300);

/// Congestion control of a peer: a window, paced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdaptiveController {
    /// Bytes that may be in flight.
    window: f64,
    /// The window up to which it doubles each round trip.
    threshold: f64,
    in_flight: f64,
    datagram: f64,
    bottlenecks: f64,
    flows: Flows,
    round_trip: Duration,
    pacer: Pacer,
    cubic: Cubic,
    rounds: Rounds,
    /// Rounds in a row without a queue.
    calm: u32,
    /// Rounds since losses or marks last reduced the window.
    clean: u32,
    /// Rate of the bottlenecks together, as far as it was seen; 0 if it is not known.
    carried_bytes_per_s: f64,
    /// Rounds since losses without a queue last reduced the window.
    since_chance: u32,
    chance: Chance,
    /// Losses and marks of what was sent before this do not reduce it again, by the queue that it went through.
    recovery_until: [Time; MAX_QUEUES],
    recovery: Recovery,
    last_sent: Time,
    /// Anything was ever heard.
    is_heard: bool,
    /// The window has not been used since it was learnt.
    is_unvalidated: bool,
    back_off: Option<BackOff>,
    start: Start,
    /// Until then an empty queue is what a smaller window has left, unless one stands again from
    /// that round on.
    emptied: (Time, u32),
    /// The time at which a tail loss is probed for if the window is full, and the pause after that.
    probe: (Time, Duration),
    /// The share of losses of late, over some eight datagrams.
    loss: f64,
}

/// Retransmission timeouts in a row.
#[derive(Clone, Copy, Debug)]
struct BackOff {
    began: Time,
    attempts: Attempts,
    /// The window and its threshold before.
    before: (f64, f64),
}

impl AdaptiveController {
    pub(super) fn new(now: Time, round_trip: Duration) -> Self {
        let datagram = MIN_DATAGRAM_BYTES as f64;
        let mut controller = Self {
            window: INITIAL_DATAGRAMS * datagram,
            threshold: f64::INFINITY,
            in_flight: 0.0,
            datagram,
            bottlenecks: 1.0,
            flows: Flows::default(),
            round_trip,
            pacer: Pacer::new(now, 1.0),
            cubic: Cubic::default(),
            rounds: Rounds::new(now),
            calm: 0,
            clean: 0,
            carried_bytes_per_s: 0.0,
            since_chance: CHANCE_ROUNDS,
            chance: Chance::new(now),
            recovery_until: [now; MAX_QUEUES],
            recovery: Recovery::default(),
            last_sent: now,
            is_heard: false,
            is_unvalidated: false,
            back_off: None,
            start: Start::Alone,
            emptied: (now, 0),
            probe: (now, MOST_PAUSE),
            loss: 0.0,
        };
        controller.pace(now);
        controller
    }

    pub(super) fn credit(&self, now: Time) -> usize {
        if let Some(back_off) = self.back_off {
            return back_off.attempts.credit(now);
        }
        if !self.has_window() {
            return if now >= self.probe.0 { ANY } else { 0 };
        }
        // Of a window of one datagram two may leave, as symbols are cut somewhat shorter. Cut down to one, messages of
        // 93 kB of many senders to one in a rack had a p99 of 29 ms instead of 21.
        let window = (self.window - self.in_flight).max(self.datagram);
        self.pacer.credit(now).min(window as usize)
    }

    pub(super) fn window_datagrams(&self) -> usize {
        (self.window / self.datagram).max(1.0) as usize
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.pacer.bytes_per_s()
    }

    fn has_window(&self) -> bool {
        let fits = self.in_flight <= 0.0 || self.in_flight + self.datagram <= self.window;
        fits && !self.is_hopeless()
    }

    pub(super) fn ready_at(&self) -> Time {
        match self.back_off {
            Some(back_off) => back_off.attempts.next_at(),
            None if self.has_window() => self.pacer.ready_at(),
            None => self.probe.0,
        }
    }

    pub(super) fn sent(&mut self, now: Time, bytes: usize) {
        if self.in_flight <= 0.0 && !self.is_hopeless() {
            self.probe.0 = now + self.probe.1;
        } else if !self.has_window() && now >= self.probe.0 {
            self.probe.1 = self.probe.1.saturating_mul(2).min(MOST_PAUSE);
            self.probe.0 = now + self.probe.1;
        }
        self.in_flight += bytes as f64;
        self.last_sent = now;
        self.pacer.sent(now, bytes);
        if let Some(back_off) = &mut self.back_off {
            back_off.attempts.sent(now);
        }
    }

    /// Paths have died, or are others. Before anything is heard that says nothing of a path.
    pub(super) fn set_in_flight(&mut self, bytes: u64) {
        if self.is_heard {
            self.in_flight = bytes as f64;
        }
    }

    /// Begins as if nothing had been sent, where nothing was heard yet: it was not taken (RFC 9002 §6.3).
    pub(super) fn discount_losses(&mut self, now: Time) {
        if !self.is_heard {
            self.in_flight = 0.0;
            if let Some(back_off) = self.back_off.take() {
                (self.window, self.threshold) = back_off.before;
            }
            self.probe = (now, MOST_PAUSE);
            self.pacer = Pacer::new(now, 1.0);
            self.pace(now);
        }
    }

    /// The peer was restarted: that nothing was heard told of its absence, and nothing of the network.
    pub(super) fn discount_silence(&mut self, now: Time) {
        if let Some(back_off) = self.back_off.take() {
            let (window, threshold) = back_off.before;
            (self.window, self.threshold) = if now.since(back_off.began) > VALID_FOR {
                let initial = INITIAL_DATAGRAMS * self.datagram;
                (window.min(initial), threshold.min(window))
            } else {
                (window, threshold)
            };
            self.recovery_until = [now; MAX_QUEUES];
            self.rounds.restart(now);
            self.pace(now);
        }
    }

    /// A message is sent after nothing was under way.
    pub(super) fn restart(&mut self, now: Time) {
        let idle = now.since(self.last_sent);
        if idle > MOST_PAUSE {
            self.loss = 0.0;
        }
        if idle > self.round_trip {
            self.rounds.restart(now);
            self.cubic.pause();
            (self.calm, self.clean) = (0, 0);
            self.is_unvalidated = true;
        }
        let initial = INITIAL_DATAGRAMS * self.datagram;
        if idle > VALID_FOR {
            self.flows.forget_due();
        }
        if idle > VALID_FOR && self.window > initial {
            self.threshold = self.threshold.min(self.window);
            self.window = initial;
            self.pace(now);
        }
    }

    /// The time that a datagram takes at the rate of the window where queues are empty; each
    /// bottleneck has its share of that.
    fn datagram_time(&self) -> Duration {
        let share = self.bottlenecks * self.datagram / self.window;
        let empty = self.rounds.base().unwrap_or(self.round_trip);
        empty.min(self.round_trip).mul_f64(share.min(1.0))
    }

    pub(super) fn acknowledged(&mut self, now: Time, news: &Acknowledged, paths: &PathRates) {
        if paths.datagram_bytes > 0 {
            self.datagram = paths.datagram_bytes as f64;
        }
        self.carried_bytes_per_s = paths.bytes_per_s.unwrap_or(0.0);
        self.bottlenecks = paths.bottlenecks.max(1) as f64;
        let known = (!self.is_starting()).then_some(self.window);
        self.flows.take(paths.shares, known);
        if let Some(bytes_per_s) = paths.bytes_per_s {
            let seconds = self.bottlenecks * self.datagram / bytes_per_s.max(1.0);
            self.rounds.transmission = Duration::from_secs_f64(seconds);
        }
        self.rounds.is_rate_known = paths.bytes_per_s.is_some();
        self.round_trip = paths.round_trip.unwrap_or(self.round_trip);
        let weight = MOST_WEIGHT.min(f64::from(news.sent) / LOSS_DATAGRAMS);
        self.loss += weight * (share(news.lost, news.sent) - self.loss);
        if news.sent > 0 && paths.round_trip.is_some() {
            let pause = paths.ack_timeout.max(self.round_trip.saturating_mul(2));
            let pause = pause.saturating_add(FEEDBACK_DELAY);
            let pause = pause.max(self.lasting_pause());
            self.probe = (now + pause, pause);
        }
        self.is_heard = true;
        let before = self.in_flight;
        self.in_flight = news.in_flight as f64;
        if news.received > 0 || news.round_trip.is_some() {
            self.end_back_off(now, news);
        }
        self.rounds.is_small = self.is_small();
        let datagram = self.datagram_time();
        if self.rounds.take(now, news, (before, datagram)) {
            let was_empty = self.rounds.was_empty(self.datagram_time());
            self.calm = if was_empty {
                self.calm.saturating_add(1)
            } else {
                0
            };
            self.since_chance = self.since_chance.saturating_add(1);
            self.clean = self.clean.saturating_add(1);
            if self.calm == 0 && self.rounds.number >= self.emptied.1 {
                self.emptied.0 = now;
            }
            self.start_round(now, news);
        }
        let is_new = self.is_new(news.newest_sent_at, news.queues);
        self.recover(is_new, news);
        let has_lost = news.lost > 0 && self.has_new_losses(news);
        let is_marked = news.marked > 0 && self.is_new(news.newest_sent_at, news.marking);
        let queues = self.queues();
        if let Some((window, threshold)) = self.chance.take(now, news, queues) {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
            self.rounds.is_small = self.is_small();
        }
        if has_lost && !self.is_chance(now) {
            self.reduce(now, news, (Signal::Loss, before));
        } else if is_marked {
            self.reduce(now, news, (Signal::Mark, before));
        } else if is_new && (has_lost || news.lost == 0) && self.back_off.is_none() {
            // By chance, if any.
            self.grow(now, news);
        }
        self.pace(now);
    }

    /// Whether what is lost may be lost by chance: nothing stands in a queue, and what came behind
    /// it has not met one that was full; or no more is lost where one stands.
    fn is_chance(&mut self, now: Time) -> bool {
        if self.is_hopeless() {
            // Rounds of a datagram or two show no queue, whatever is lost.
            return false;
        }
        let (lost, sent) = self.rounds.loss();
        let (has_queue, has_met) = self.queues();
        if has_queue || has_met {
            // A small window tells little of queues: most of what others have in them is there always.
            let is_apart = self.window >= SMALL_DATAGRAMS * self.datagram
                && self.chance.is_apart_from_queues(now, (lost, sent));
            if has_queue && !is_apart {
                self.chance.forget(now);
            }
            return is_apart;
        }
        let share = share(lost, sent);
        let is_due = self.since_chance >= CHANCE_ROUNDS && !self.is_starting();
        let is_chance = if is_due {
            self.chance.is_usual(now, (lost, self.chance.judged(sent)))
        } else {
            share <= HEAVY_LOSS
                || lost < 2
                || self.chance.is_found(now) && self.chance.is_usual(now, (lost, sent))
        };
        if !is_chance {
            self.since_chance = 0;
            let before = (self.window, self.threshold);
            self.chance.try_less(now, share, before);
        }
        is_chance
    }

    /// Whether a queue stands, and whether what came last has met one.
    fn queues(&self) -> (bool, bool) {
        let has_met = self.rounds.has_met(8, Duration::ZERO);
        (self.rounds.has_queue(), has_met)
    }

    fn is_small(&self) -> bool {
        self.window < SMALL_DATAGRAMS * self.datagram
    }

    /// Most of what was sent of late is lost. What is in flight says nothing then: it is forgotten with each path that dies.
    fn is_hopeless(&self) -> bool {
        self.loss > MOST_LOSS
    }

    fn is_starting(&self) -> bool {
        self.window < self.threshold
    }

    /// The pause that one datagram that got through does not end, while most are lost (Karn's algorithm, RFC 6298 §5.7).
    fn lasting_pause(&self) -> Duration {
        if self.is_hopeless() {
            self.probe.1
        } else {
            Duration::ZERO
        }
    }

    /// Something is heard again after timeouts.
    fn end_back_off(&mut self, now: Time, news: &Acknowledged) {
        let Some(back_off) = self.back_off.take() else {
            return;
        };
        if self.is_hopeless() {
            self.probe.1 = self.probe.1.max(back_off.attempts.pause());
        }
        let elapsed = now.since(back_off.began);
        let was_sent_before = news.round_trip.is_some_and(|(sample, _)| sample > elapsed);
        if was_sent_before && news.lost == 0 && news.marked == 0 {
            // It only took longer (after Eifel, RFC 4015), and nothing says that it did for congestion.
            (self.window, self.threshold) = back_off.before;
        }
        // What was lost meanwhile is known.
        self.recovery_until = [now; MAX_QUEUES];
        self.rounds.restart(now);
    }

    pub(super) fn timed_out(&mut self, now: Time, paths: &PathRates) {
        self.in_flight = 0.0;
        if self.back_off.is_some() {
            return;
        }
        // RFC 6298 §2.1: a second, while no round trip was measured.
        let is_known = paths.round_trip.is_some();
        let lasting = self.lasting_pause();
        let pause = if is_known {
            paths.ack_timeout.max(lasting).min(MOST_PAUSE)
        } else {
            MOST_PAUSE
        };
        let next_at = if is_known && lasting.is_zero() {
            now
        } else {
            self.last_sent + pause
        };
        self.back_off = Some(BackOff {
            began: now,
            attempts: Attempts::new(next_at, pause),
            before: (self.window, self.threshold),
        });
        self.flows.forget_due();
        self.cubic.reduced(self.window, BETA, BETA);
        self.threshold = self.window * BETA;
        self.window = self.window.min(self.datagram);
        self.recovery_until = [now; MAX_QUEUES];
        self.recovery = Recovery::default();
        self.rounds.restart(now);
        self.pace(now);
    }

    fn pace(&mut self, now: Time) {
        let gain = match self.start {
            Start::Doubt { .. } => 1.0,
            _ if self.is_starting() => STARTING_GAIN,
            _ => PACING_GAIN,
        };
        let round_trip = self.round_trip.max(Duration::from_micros(10));
        let bytes_per_s = gain * self.window / round_trip.as_secs_f64();
        let burst = self.burst_bytes(bytes_per_s);
        self.pacer.set_pace(now, bytes_per_s, burst);
    }

    /// Bytes that may leave together.
    fn burst_bytes(&self, bytes_per_s: f64) -> usize {
        if self.is_small() {
            return self.datagram as usize;
        }
        let time = WIDE_TIME.min(self.round_trip.mul_f64(WIDE_SHARE));
        let most = (BURST_DATAGRAMS * self.bottlenecks).min(WIDE_DATAGRAMS);
        let bytes = bytes_per_s * time.as_secs_f64();
        bytes.clamp(BURST_DATAGRAMS * self.datagram, most * self.datagram) as usize
    }

    /// Bytes that leave by one path in a row where others are as fast: half of what leaves together, if that is more than
    /// a pair for each path. Nothing in front of a queue, which a longer train would find no place in.
    pub(super) fn train_bytes(&self) -> Option<usize> {
        let burst = self.pacer.depth_bytes();
        let is_wide = burst as f64 > WIDE_DATAGRAMS * self.datagram;
        (is_wide && !self.rounds.has_queue()).then_some(burst / TRAINS)
    }
}

/// The share of datagrams that were lost.
fn share(lost: u32, sent: u32) -> f64 {
    f64::from(lost) / f64::from(sent.max(1))
}

#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod tests;
