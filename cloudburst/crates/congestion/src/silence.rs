//! Silence of a peer that a rate is reserved for: attempts while nothing is heard, and slow start from the first word on.

use cloudburst_wire::Time;

use crate::{
    Acknowledged, MIN_DATAGRAM_BYTES, PathRates,
    attempts::{Attempts, MOST_PAUSE},
};

/// Datagrams that may be sent in the first round trip after a silence (RFC 9002 §7.6.2).
const FIRST_DATAGRAMS: usize = 2;

/// Peer of which nothing was heard by any path, and which is not sent to at its rate yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Pauses are not shortened by one word: most may be lost still (after Karn's algorithm, RFC 6298 §5.7).
    attempts: Attempts,
    /// Something was heard since.
    slow_start: Option<SlowStart>,
}

/// Window that a round trip has to confirm before more is sent (RFC 5681 §3.1, RFC 9002 §7.3.1).
#[derive(Clone, Copy, Debug)]
struct SlowStart {
    window_bytes: usize,
    /// Bytes of it that are not sent yet.
    credit_bytes: usize,
    /// A report on what was sent from then on ends the round trip.
    began: Time,
    /// Datagrams that were reported on in it, and those of them that arrived.
    sent: u32,
    received: u32,
}

impl Silence {
    /// Begins with nothing heard, and one datagram at once.
    pub(crate) fn new(now: Time, paths: &PathRates) -> Self {
        let pause = paths.ack_timeout.min(MOST_PAUSE);
        Self {
            attempts: Attempts::new(now, pause),
            slow_start: None,
        }
    }

    /// Returns the bytes that may be sent now, where pacing allows so many.
    pub(crate) fn credit(&self, now: Time, paced: usize) -> usize {
        match self.window() {
            Some(left) => left.min(paced),
            None => self.attempts.credit(now),
        }
    }

    /// Returns the time at which something may be sent again, where pacing allows it at a time.
    pub(crate) fn ready_at(&self, paced: Time) -> Time {
        match self.window() {
            Some(_) => paced,
            None => self.attempts.next_at(),
        }
    }

    /// Bytes of the window that are not sent yet. Once none are left one datagram is sent after a pause: all of them
    /// may have been lost.
    fn window(&self) -> Option<usize> {
        let left = self.slow_start?.credit_bytes;
        (left > 0).then_some(left)
    }

    /// Counts a train that is sent now.
    pub(crate) fn sent(&mut self, now: Time, bytes: usize) {
        match &mut self.slow_start {
            Some(start) if start.credit_bytes > 0 => {
                start.credit_bytes = start.credit_bytes.saturating_sub(bytes);
                self.attempts.postpone(now);
            }
            _ => self.attempts.sent(now),
        }
    }

    /// Notes that nothing is heard by any path, again.
    pub(crate) fn timed_out(&mut self) {
        self.slow_start = None;
    }

    /// Takes losses of this round trip for none of the paths.
    pub(crate) fn discount_losses(&mut self) {
        if let Some(start) = &mut self.slow_start {
            (start.sent, start.received) = (0, 0);
        }
    }

    /// Takes a report. Returns true once the peer may be sent to at its rate: so many bytes per second, as long as no
    /// larger share is lost than `most_loss`.
    pub(crate) fn acknowledged(
        &mut self,
        now: Time,
        news: &Acknowledged,
        paths: &PathRates,
        (bytes_per_s, most_loss): (f64, f64),
    ) -> bool {
        let datagram_bytes = paths.datagram_bytes.max(MIN_DATAGRAM_BYTES);
        let least = datagram_bytes.saturating_mul(FIRST_DATAGRAMS);
        let Some(start) = &mut self.slow_start else {
            let is_heard = news.received > 0 || news.round_trip.is_some();
            self.slow_start = is_heard.then(|| SlowStart::new(now, least));
            return false;
        };
        start.sent = start.sent.saturating_add(news.sent);
        start.received = start.received.saturating_add(news.received);
        if news.newest_sent_at.is_none_or(|at| at < start.began) {
            return false;
        }
        // A path's first report tells of what was lost before the silence as well.
        let sent_bytes = start.window_bytes.saturating_sub(start.credit_bytes);
        let sent_since = sent_bytes.div_ceil(datagram_bytes);
        let sent_since = u32::try_from(sent_since).unwrap_or(u32::MAX);
        let lost = start.sent.saturating_sub(start.received).min(sent_since);
        let is_excessive = f64::from(lost) > most_loss * f64::from(start.sent);
        let round_trip = paths.round_trip.unwrap_or(paths.ack_timeout);
        let window = start.window_bytes;
        if !is_excessive && window as f64 >= bytes_per_s * round_trip.as_secs_f64() {
            return true;
        }
        let window = if is_excessive {
            window.checked_div(2).unwrap_or(window).max(least)
        } else {
            // A window that was not used does not grow (RFC 7661 §4.3).
            let arrived = datagram_bytes.saturating_mul(start.received as usize);
            window.saturating_add(arrived.min(window))
        };
        *start = SlowStart::new(now, window);
        false
    }
}

impl SlowStart {
    const fn new(now: Time, window_bytes: usize) -> Self {
        Self {
            window_bytes,
            credit_bytes: window_bytes,
            began: now,
            sent: 0,
            received: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(10);
    /// 400 datagrams in a round trip.
    const BYTES_PER_S: f64 = 400.0 * MIN_DATAGRAM_BYTES as f64 * 100.0;
    const MOST_LOSS: f64 = 0.2;

    fn paths() -> PathRates {
        PathRates {
            datagram_bytes: MIN_DATAGRAM_BYTES,
            ack_timeout: ROUND_TRIP * 2,
            round_trip: Some(ROUND_TRIP),
            ..PathRates::default()
        }
    }

    struct Rig {
        silence: Silence,
        now: Time,
        is_over: bool,
    }

    impl Rig {
        /// A peer of which something is heard again.
        fn new() -> Self {
            let now = Time::ZERO + Duration::from_secs(1);
            let mut rig = Self {
                silence: Silence::new(now, &paths()),
                now,
                is_over: false,
            };
            assert_eq!(rig.send(8), 1, "an attempt");
            rig.report(1, 0);
            rig
        }

        /// Sends what may be sent at once, `most` datagrams at most. How many were sent.
        fn send(&mut self, most: u32) -> u32 {
            let mut sent = 0;
            while sent < most && self.silence.credit(self.now, usize::MAX) > 0 {
                self.silence.sent(self.now, MIN_DATAGRAM_BYTES);
                sent += 1;
            }
            sent
        }

        fn report(&mut self, sent: u32, lost: u32) {
            let news = Acknowledged {
                sent,
                received: sent - lost,
                newest_sent_at: Some(self.now),
                ..Acknowledged::default()
            };
            self.now = self.now + ROUND_TRIP;
            let target = (BYTES_PER_S, MOST_LOSS);
            self.is_over = self.silence.acknowledged(self.now, &news, &paths(), target);
        }

        /// A round trip in which so many of a hundred are lost. How many were sent.
        fn round(&mut self, lost: u32) -> u32 {
            let sent = self.send(u32::MAX);
            self.report(sent, sent * lost / 100);
            sent
        }
    }

    #[test]
    fn what_is_sent_doubles_with_each_round_trip_that_gets_through_up_to_the_rate() {
        let mut rig = Rig::new();
        let sent: Vec<u32> = (0..8).map(|_| rig.round(10)).collect();
        assert_eq!(sent, [2, 4, 8, 16, 31, 59, 113, 215]);
        assert!(!rig.is_over, "it would be 400 in a round trip");
        rig.round(10);
        assert!(rig.is_over);
    }

    #[test]
    fn round_trip_of_too_much_loss_halves_what_may_be_sent() {
        let mut rig = Rig::new();
        let sent: Vec<u32> = [0, 0, 0, 50, 50, 50, 50, 50]
            .into_iter()
            .map(|lost| rig.round(lost))
            .collect();
        assert_eq!(sent, [2, 4, 8, 16, 8, 4, 2, 2]);
        assert!(!rig.is_over);
    }

    #[test]
    fn losses_of_before_the_silence_do_not_halve_what_may_be_sent() {
        let mut rig = Rig::new();
        assert_eq!(rig.send(u32::MAX), 2);
        rig.report(40, 38);
        assert_eq!(rig.send(u32::MAX), 4);
    }

    #[test]
    fn what_is_little_used_does_not_grow_by_more() {
        let mut rig = Rig::new();
        for _ in 0..20 {
            let sent = rig.send(1);
            rig.report(sent, 0);
        }
        assert_eq!(rig.send(u32::MAX), 22);
        assert!(!rig.is_over);
    }

    #[test]
    fn one_more_is_sent_after_a_pause_where_a_whole_window_is_lost() {
        let mut rig = Rig::new();
        assert_eq!(rig.send(u32::MAX), 2);
        let ready_at = rig.silence.ready_at(Time::ZERO);
        assert!(ready_at > rig.now);
        rig.now = ready_at;
        assert_eq!(rig.send(u32::MAX), 1);
        rig.report(3, 2);
        assert_eq!(rig.send(u32::MAX), 2, "it is heard again");
        rig.silence.timed_out();
        assert_eq!(rig.send(u32::MAX), 0, "and is not");
        rig.now = rig.silence.ready_at(Time::ZERO);
        assert_eq!(rig.send(u32::MAX), 1);
    }
}
