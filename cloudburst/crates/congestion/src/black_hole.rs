//! Black-hole detection: evidence that a path has failed while others to the same address deliver.

use core::time::Duration;

use cloudburst_wire::Time;

/// How long nothing may get through, while others deliver, before a path is abandoned: a path that
/// changes takes a second or less.
const DEAD_FOR: Duration = Duration::from_secs(1);
/// How many pings must have been lost meanwhile: these, and so many that with what others lose it
/// is chance with this probability only.
const LEAST_PROBES: u16 = 3;
const CHANCE: f64 = 1e-5;
/// Between two looks no more time than this counts: nobody looks while nothing is sent.
const MOST_LOOK: Duration = Duration::from_millis(250);
/// What is lost is judged over so many datagrams and so long at least,
const WINDOW_DATAGRAMS: u32 = 32;
const WINDOW: Duration = Duration::from_secs(1);
/// and is too much from this share on, if others lose less than a part of that,
const MUCH_LOSS: f64 = 0.25;
const OTHERS_PART: f64 = 0.25;
/// so many times in a row.
const LOSSY_WINDOWS: u8 = 3;

/// Fate of what goes by other paths to the same address meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPaths {
    /// It arrives.
    Deliver,
    /// It did when something was last sent.
    Quiet,
    /// Nothing arrives by any path: none has failed.
    Dead,
}

/// Black-hole detector of a path: evidence that it has failed while others deliver.
#[derive(Clone, Copy, Debug)]
pub struct BlackHoleDetector {
    /// For how long it has been dead while others delivered, in microseconds.
    dead_for_us: u32,
    looked_at: Time,
    /// Pings lost meanwhile, and when the last of them was sent.
    probes: u16,
    probed_at: Time,
    /// Pings that must be lost before it is enough.
    needed: u16,
    window_since: Time,
    sent: u32,
    received: u32,
    /// Windows in a row in which too much was lost.
    lossy: u8,
}

impl BlackHoleDetector {
    /// Begins with nothing against the path.
    pub const fn new(now: Time) -> Self {
        Self {
            dead_for_us: 0,
            looked_at: now,
            probes: 0,
            probed_at: now,
            needed: LEAST_PROBES,
            window_since: now,
            sent: 0,
            received: 0,
            lossy: 0,
        }
    }

    /// Takes note that the peer has reported on datagrams that were sent by the path.
    pub fn heard(&mut self, sent: u32, received: u32) {
        self.dead_for_us = 0;
        self.probes = 0;
        self.sent = self.sent.saturating_add(sent);
        self.received = self.received.saturating_add(received);
    }

    /// Takes note of a ping that goes by the path, which is dead.
    pub fn probed(&mut self, now: Time) {
        self.probes = self.probes.saturating_add(1);
        self.probed_at = now;
    }

    /// Looks at the path now and then while something is sent, with the share that others lose.
    pub fn look(&mut self, now: Time, is_dead: bool, others: OtherPaths, loss: f64) {
        let elapsed = now.since(self.looked_at).min(MOST_LOOK);
        self.looked_at = now;
        match others {
            OtherPaths::Deliver if is_dead => {
                self.dead_for_us = self.dead_for_us.saturating_add(elapsed.as_micros() as u32);
                self.needed = needed_probes(loss);
            }
            OtherPaths::Deliver | OtherPaths::Quiet => {}
            OtherPaths::Dead => {
                self.dead_for_us = 0;
                self.probes = 0;
                self.lossy = 0;
            }
        }
    }

    /// Returns true if there is enough to judge by what is lost.
    pub fn is_window_full(&self, now: Time) -> bool {
        self.sent >= WINDOW_DATAGRAMS && now.since(self.window_since) >= WINDOW
    }

    /// Judges by what is lost, with the share that others lose.
    pub fn close_window(&mut self, now: Time, others: f64) {
        let lost = self.sent.saturating_sub(self.received);
        let share = f64::from(lost) / f64::from(self.sent.max(1));
        let is_lossy = share >= MUCH_LOSS && others < share * OTHERS_PART;
        let lossy = self.lossy.saturating_add(1);
        self.lossy = if is_lossy { lossy } else { 0 };
        self.window_since = now;
        (self.sent, self.received) = (0, 0);
    }

    /// Returns true if the path is to be abandoned. An answer takes `ack_timeout`.
    pub fn is_enough(&self, now: Time, ack_timeout: Duration) -> bool {
        let is_dead = Duration::from_micros(self.dead_for_us.into()) >= DEAD_FOR
            && self.probes >= self.needed
            && now.since(self.probed_at) >= ack_timeout;
        is_dead || self.lossy >= LOSSY_WINDOWS
    }
}

/// Pings of which each, or its answer, is lost if both paths lose this share.
fn needed_probes(loss: f64) -> u16 {
    let through = (1.0 - loss).max(0.0);
    let lost = 1.0 - through * through;
    if lost <= 0.0 {
        return LEAST_PROBES;
    }
    // More than fit is never, which is right where all is lost.
    let needed = (CHANCE.ln() / lost.ln()).abs().ceil();
    (needed as u16).max(LEAST_PROBES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK_TIMEOUT: Duration = Duration::from_millis(20);

    /// Looks every 100 ms for so long, with a ping at each look.
    fn watch(black_hole: &mut BlackHoleDetector, now: &mut Time, looks: u32, others: OtherPaths) {
        for _ in 0..looks {
            *now = *now + Duration::from_millis(100);
            black_hole.look(*now, true, others, 0.01);
            black_hole.probed(*now);
        }
    }

    #[test]
    fn a_second_of_silence_while_others_deliver_is_enough() {
        let mut now = Time::ZERO;
        let mut black_hole = BlackHoleDetector::new(now);
        watch(&mut black_hole, &mut now, 9, OtherPaths::Deliver);
        assert!(!black_hole.is_enough(now + ACK_TIMEOUT, ACK_TIMEOUT));
        watch(&mut black_hole, &mut now, 1, OtherPaths::Deliver);
        assert!(
            !black_hole.is_enough(now, ACK_TIMEOUT),
            "the last may be answered"
        );
        assert!(black_hole.is_enough(now + ACK_TIMEOUT, ACK_TIMEOUT));
        black_hole.heard(1, 1);
        assert!(!black_hole.is_enough(now + ACK_TIMEOUT, ACK_TIMEOUT));
    }

    #[test]
    fn more_pings_are_needed_where_others_lose_some() {
        let needed = [0.0, 0.01, 0.05, 0.3, 0.6, 1.0].map(needed_probes);
        assert_eq!(needed, [3, 3, 5, 18, 67, u16::MAX]);
    }

    #[test]
    fn nothing_counts_while_all_are_dead_or_nothing_is_sent() {
        let mut now = Time::ZERO;
        let mut black_hole = BlackHoleDetector::new(now);
        watch(&mut black_hole, &mut now, 100, OtherPaths::Dead);
        assert!(!black_hole.is_enough(now + ACK_TIMEOUT, ACK_TIMEOUT));
        watch(&mut black_hole, &mut now, 9, OtherPaths::Deliver);
        now = now + Duration::from_secs(3_600);
        watch(&mut black_hole, &mut now, 1, OtherPaths::Quiet);
        assert!(!black_hole.is_enough(now + ACK_TIMEOUT, ACK_TIMEOUT));
        now = now + Duration::from_secs(3_600);
        watch(&mut black_hole, &mut now, 1, OtherPaths::Deliver);
        assert!(black_hole.is_enough(now + ACK_TIMEOUT, ACK_TIMEOUT));
    }

    #[test]
    fn much_loss_is_enough_if_it_lasts_and_others_lose_little() {
        let windows = |lost: [u32; 3], others: f64| {
            let mut now = Time::ZERO;
            let mut black_hole = BlackHoleDetector::new(now);
            for lost in lost {
                black_hole.heard(40, 40 - lost);
                assert!(!black_hole.is_window_full(now), "it is too early");
                now = now + WINDOW;
                assert!(black_hole.is_window_full(now));
                black_hole.close_window(now, others);
            }
            black_hole.is_enough(now, ACK_TIMEOUT)
        };
        assert!(windows([12, 16, 40], 0.01));
        assert!(!windows([12, 2, 40], 0.01), "it was better meanwhile");
        assert!(!windows([12, 16, 20], 0.1), "others lose, too");
        assert!(!windows([4, 4, 4], 0.0), "10 % are what codes are for");
    }
}
