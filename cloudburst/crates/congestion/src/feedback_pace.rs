//! Feedback pace: when a receiver acknowledges symbols that complete no message.
//!
//! A sender's window moves with what it hears, so symbols are acknowledged a few at a time, and at
//! the end of a burst: once for all that a host hands over before it says what time it is.

use core::time::Duration;

use cloudburst_wire::Time;

/// Symbols that are acknowledged together: those of this time, so many at least (RFC 9000 §13.2.2)
/// and at most.
const SYMBOLS_TIME: Duration = Duration::from_micros(500);
const SYMBOLS: [u128; 2] = [2, 8];
/// A pause after which a burst has ended: so many of the pauses between its symbols, this at least,
/// and the longest that anything waits (RFC 9000 §18.2, `max_ack_delay`).
const PAUSES: u32 = 4;
const LEAST_PAUSE: Duration = Duration::from_millis(1);
const MOST_PAUSE: Duration = Duration::from_millis(25);
/// A pause between two symbols counts for no more than so many usual ones, and that between two messages
/// with it: a burst after it is acknowledged as often as the one before.
const MOST_PAUSES: u32 = 2;
/// What always counts, so that symbols which come together do not hide a pause for ever.
const LEAST_SAMPLE: Duration = Duration::from_micros(100);

/// Pace at which symbols of one sender are acknowledged: 2 to 8 together, and none later than 25 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedbackPace {
    /// Those that wait, and when the first of them came.
    symbols: u32,
    since: Time,
    /// Its first symbol has come, which is acknowledged at once.
    is_known: bool,
    /// Smoothed pause between symbols.
    pause: Duration,
    last_at: Time,
}

impl FeedbackPace {
    /// Takes note of a symbol. Returns the time at which it is to be acknowledged with those before it if
    /// no other comes; nothing if that is at once, as it is the sender's first.
    pub fn symbol(&mut self, now: Time) -> Option<Time> {
        let is_first = !core::mem::replace(&mut self.is_known, true);
        let most = if is_first {
            MOST_PAUSE
        } else {
            let most = self.pause.saturating_mul(MOST_PAUSES);
            most.clamp(LEAST_SAMPLE, MOST_PAUSE)
        };
        let pause = now.since(self.last_at).min(most);
        self.last_at = now;
        self.pause = self.pause.saturating_mul(7).saturating_add(pause);
        self.pause = self.pause.checked_div(8).unwrap_or_default();
        if self.symbols == 0 {
            self.since = now;
        }
        self.symbols = self.symbols.saturating_add(1);
        if is_first {
            return None;
        }
        let [least, most] = SYMBOLS;
        let together = SYMBOLS_TIME.as_nanos().checked_div(self.pause.as_nanos());
        let together = together.unwrap_or(most);
        Some(if u128::from(self.symbols) >= together.clamp(least, most) {
            now
        } else {
            let wait = self.pause.saturating_mul(PAUSES).max(LEAST_PAUSE);
            (now + wait).min(self.since + MOST_PAUSE)
        })
    }

    /// Takes note that all symbols so far are acknowledged.
    pub fn acknowledged(&mut self) {
        self.symbols = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many symbols with a pause between them are due as they come.
    fn due_at_once(symbols: u32, pause: Duration) -> usize {
        let (mut pace, mut now) = (FeedbackPace::default(), Time::ZERO + MOST_PAUSE);
        let due = (0..symbols).filter(|_| {
            now = now + pause;
            let due = pace.symbol(now).unwrap_or(now);
            assert!(due >= now && due.since(now) <= MOST_PAUSE);
            if due == now {
                pace.acknowledged();
            }
            due == now
        });
        due.count()
    }

    #[test]
    fn symbols_are_due_by_eights_where_they_come_fast_and_by_twos_where_they_come_slowly() {
        let fast = due_at_once(1_000, Duration::from_micros(12));
        assert!((125..160).contains(&fast), "{fast}");
        let slow = due_at_once(1_000, Duration::from_millis(20));
        assert!((490..=510).contains(&slow), "{slow}");
    }

    #[test]
    fn the_first_is_due_at_once_and_no_other_waits_longer_than_may_be() {
        let (mut pace, start) = (FeedbackPace::default(), Time::ZERO + MOST_PAUSE);
        assert_eq!(pace.symbol(start), None);
        pace.acknowledged();
        let second = start + Duration::from_secs(9);
        let due = pace.symbol(second).unwrap();
        assert!((LEAST_PAUSE..=MOST_PAUSE).contains(&due.since(second)));
    }
}
