//! Replay protection of first flights, whose keys the initiator alone has drawn.
//!
//! An offer is taken at once if its time is that of our clock, give or take the window, and later
//! than any offer that this endpoint may have taken before it was started; and if it was not taken
//! before. Of all others a token is asked for, which costs a round trip: nobody can have made an
//! offer with a token before the token was made.

use core::time::Duration;
use std::collections::{HashSet, VecDeque};

use foldhash::fast::FixedState;

use cloudburst_wire::{EPHEMERAL_BYTES, Time};

/// How far an initiator's clock may be from ours: further than those are that are set by NTP, or
/// by hand.
const REPLAY_WINDOW: Duration = Duration::from_secs(10);
/// Lifetime of a token that an offer is asked for.
pub const RETRY_LIFETIME: Duration = Duration::from_secs(10);
/// For how long offers are remembered: as long as any of them could be taken once more, by its
/// time or by its token.
const REMEMBERED_FOR: Duration = Duration::from_secs(20);
/// Offers that are remembered at most; then none is taken until some are old.
const MAX_REMEMBERED: usize = 65_536;

/// How long ago an offer was made at most that is taken for its time: sent with a clock that is behind
/// by the window, and late by as much.
pub const MOST_OFFER_AGE: Duration = Duration::from_secs(2 * REPLAY_WINDOW.as_secs());

/// Offers that were taken, as long as they could be taken again.
#[derive(Debug)]
pub struct ReplayStore {
    seen: HashSet<[u8; EPHEMERAL_BYTES], FixedState>,
    order: VecDeque<(Time, [u8; EPHEMERAL_BYTES])>,
    /// What the time was by the calendar at the beginning of the host's clock, in µs since 1970,
    /// and when we started; nothing if nobody knows.
    calendar: Option<Calendar>,
}

/// The host's clock and the calendar.
#[derive(Clone, Copy, Debug)]
struct Calendar {
    started: Time,
    started_unix_us: u64,
}

/// Freshness of an offer, as far as it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Nobody can have sent it before.
    Fresh,
    /// It may have been sent before: a token would show that it was not.
    Doubtful,
    /// It was taken before.
    Replayed,
}

impl ReplayStore {
    /// Takes nothing at once that may have been made before `now`; `unix_time` is the time by the
    /// calendar then, without which each offer is doubtful.
    pub fn new(now: Time, unix_time: Option<Duration>, hash_seed: u64) -> Self {
        Self {
            seen: HashSet::with_hasher(FixedState::with_seed(hash_seed)),
            order: VecDeque::new(),
            calendar: unix_time.map(|unix_time| Calendar {
                started: now,
                started_unix_us: micros(unix_time),
            }),
        }
    }

    /// Returns the time by the calendar, for an offer of ours; 0 if nobody knows.
    pub fn unix_us(&self, now: Time) -> u64 {
        self.calendar.map_or(0, |calendar| calendar.unix_us(now))
    }

    /// Judges an offer that is authentic, before it is taken.
    pub fn judge(
        &mut self,
        now: Time,
        ephemeral: &[u8; EPHEMERAL_BYTES],
        unix_us: u64,
        has_token: bool,
    ) -> Freshness {
        self.forget(now);
        if self.seen.contains(ephemeral) {
            return Freshness::Replayed;
        }
        if self.seen.len() >= MAX_REMEMBERED {
            return Freshness::Doubtful;
        }
        let is_fresh = has_token || self.calendar.is_some_and(|it| it.is_fresh(now, unix_us));
        if is_fresh {
            Freshness::Fresh
        } else {
            Freshness::Doubtful
        }
    }

    /// Remembers an offer that is taken; or made: what we have sent ourselves is not for us.
    pub fn remember(&mut self, now: Time, ephemeral: [u8; EPHEMERAL_BYTES]) {
        if self.seen.insert(ephemeral) {
            self.order.push_back((now, ephemeral));
        }
    }

    fn forget(&mut self, now: Time) {
        while let Some((at, ephemeral)) = self.order.front()
            && now.since(*at) > REMEMBERED_FOR
        {
            self.seen.remove(ephemeral);
            self.order.pop_front();
        }
    }
}

impl Calendar {
    fn unix_us(&self, now: Time) -> u64 {
        let elapsed = micros(now.since(self.started));
        self.started_unix_us.saturating_add(elapsed)
    }

    /// Before the start others may have been taken of the same time, by who ran here then.
    fn is_fresh(&self, now: Time, unix_us: u64) -> bool {
        let window = micros(REPLAY_WINDOW);
        let is_near = self.unix_us(now).abs_diff(unix_us) <= window;
        is_near && unix_us > self.started_unix_us.saturating_add(window)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX: Duration = Duration::from_secs(1_700_000_000);
    const SECOND: u64 = 1_000_000;

    fn store() -> ReplayStore {
        ReplayStore::new(Time::ZERO, Some(UNIX), 1)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn an_offer_is_taken_once_in_the_window_and_never_later() {
        let mut store = store();
        let sent = micros(UNIX) + 100 * SECOND;
        assert_eq!(
            store.judge(at(105), &[1; 32], sent, false),
            Freshness::Fresh
        );
        store.remember(at(105), [1; 32]);
        for later in 105..300 {
            let judged = store.judge(at(later), &[1; 32], sent, false);
            assert_ne!(judged, Freshness::Fresh, "after {later} s");
        }
    }

    /// Whatever an endpoint that ran before may have taken, at any time and with a clock of the
    /// initiator that was ahead by as much as is allowed.
    #[test]
    fn nothing_that_was_taken_before_a_restart_is_taken_after_it() {
        for ahead in [0, 5, 10] {
            let started = micros(UNIX);
            for taken_before in 0..30 {
                let sent = started + ahead * SECOND - taken_before * SECOND;
                for later in 0..60 {
                    let judged = store().judge(at(later), &[1; 32], sent, false);
                    assert_eq!(judged, Freshness::Doubtful);
                }
            }
        }
    }

    #[test]
    fn a_token_is_as_good_as_a_clock() {
        let mut store = store();
        assert_eq!(store.judge(at(1), &[1; 32], 0, true), Freshness::Fresh);
        store.remember(at(1), [1; 32]);
        let last = at(1) + RETRY_LIFETIME;
        assert_eq!(store.judge(last, &[1; 32], 0, true), Freshness::Replayed);
        let mut without = ReplayStore::new(Time::ZERO, None, 1);
        assert_eq!(
            without.judge(at(100), &[1; 32], 0, false),
            Freshness::Doubtful
        );
        assert_eq!(without.judge(at(100), &[1; 32], 0, true), Freshness::Fresh);
    }

    #[test]
    fn memory_is_bounded() {
        let mut store = store();
        for number in 0..MAX_REMEMBERED as u64 {
            let mut ephemeral = [0; 32];
            ephemeral[..8].copy_from_slice(&number.to_be_bytes());
            store.remember(at(100), ephemeral);
        }
        let sent = micros(UNIX) + 100 * SECOND;
        let judged = store.judge(at(100), &[1; 32], sent, false);
        assert_eq!(judged, Freshness::Doubtful);
        let sent = sent + 21 * SECOND;
        assert_eq!(
            store.judge(at(121), &[1; 32], sent, false),
            Freshness::Fresh
        );
        assert_eq!(store.order.len(), 0);
    }
}
