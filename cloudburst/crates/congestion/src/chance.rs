//! Losses by chance: those that stay as they are when less is sent.
//!
//! A bottleneck without much of a queue drops what is too much, and then less when less is sent. A
//! radio loses a share whatever is sent. So the first large loss without a queue reduces the window
//! as any loss does, and what becomes of the loss says which of the two it was.

use core::time::Duration;

use super::Acknowledged;
use cloudburst_wire::Time;

/// The share of losses that is taken for chance while nothing stands in a queue, as BBR does.
const USUAL: f64 = 0.02;
/// What a trial finds is believed for so long, up to so many times the share that it found.
const BELIEVED_FOR: Duration = Duration::from_secs(10);
const MARGIN: f64 = 1.6;
/// A larger share is never taken for chance.
const MOST: f64 = 0.5;
/// A trial ends with so many datagrams lost that one expects if it was chance, and says that it was
/// if this part of them is lost.
const EXPECTED: f64 = 6.0;
const PART: f64 = 0.55;
/// It was surely not chance if less than this part is lost, and that is believed for so long.
const OURS: f64 = 0.25;
const OURS_FOR: Duration = Duration::from_secs(2);
/// Standard deviations that a round may lose more than the mean.
const DEVIATIONS: f64 = 2.0;
/// Datagrams over which the share is remembered.
const MEMORY: u32 = 100;

/// Finds out whether losses depend on what is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// The share that was found to be chance, and until when that is believed.
    found: f64,
    until: Time,
    /// Until when losses without a queue are believed to be ours.
    ours_until: Time,
    trial: Option<Trial>,
    /// The share that was lost without a queue, over a longer time.
    long_share: f64,
}

/// A window was reduced for losses that may be chance.
#[derive(Clone, Copy, Debug)]
struct Trial {
    began: Time,
    /// The share that was lost before.
    share: f64,
    /// Datagrams that were sent since, and those of them that were lost.
    sent: u32,
    lost: u32,
    /// The window and its threshold before.
    before: (f64, f64),
}

impl Chance {
    pub(super) const fn new(now: Time) -> Self {
        Self {
            found: USUAL,
            until: now,
            ours_until: now,
            trial: None,
            long_share: 0.0,
        }
    }

    /// The share of losses that is taken for chance.
    pub(super) fn share(&self, now: Time) -> f64 {
        match self.trial {
            Some(trial) => trial.share * MARGIN,
            None if now < self.until => self.found * MARGIN,
            None => USUAL,
        }
        .min(MOST)
    }

    /// Whether a trial has found that less is lost when less is sent: there is hardly any queue, so
    /// that an empty one says nothing.
    pub(super) fn is_ours(&self, now: Time) -> bool {
        now < self.ours_until
    }

    /// Whether it may be chance, and usual, that so many are lost of so many.
    pub(super) fn is_usual(&self, now: Time, (lost, sent): (u32, u32)) -> bool {
        let mean = self.share(now) * f64::from(sent);
        f64::from(lost) <= mean + DEVIATIONS * mean.sqrt() + 0.5
    }

    /// The window is reduced for losses without a queue.
    pub(super) fn try_less(&mut self, now: Time, share: f64, before: (f64, f64)) {
        let trial = Trial {
            began: now,
            // A round that stands out has lost more than the next will, by chance.
            share: self.long_share.max(share / 2.0),
            sent: 0,
            lost: 0,
            before,
        };
        self.trial = (share <= MOST).then_some(trial);
    }

    /// A queue was seen: what was found does not hold any more.
    pub(super) fn forget(&mut self, now: Time) {
        let long_share = self.long_share;
        *self = Self {
            long_share,
            ..Self::new(now)
        };
    }

    /// Takes a report. Returns the window to go back to and its threshold, if less was sent in vain.
    pub(super) fn take(
        &mut self,
        now: Time,
        news: &Acknowledged,
        has_queue: bool,
    ) -> Option<(f64, f64)> {
        if news.sent > 0 && !has_queue {
            let sample = f64::from(news.lost) / f64::from(news.sent);
            let weight = f64::from(news.sent) / f64::from(news.sent + MEMORY);
            self.long_share += (sample - self.long_share) * weight;
        }
        let trial = self.trial.as_mut()?;
        if news.newest_sent_at.is_none_or(|at| at <= trial.began) {
            return None;
        }
        trial.sent = trial.sent.saturating_add(news.sent);
        trial.lost = trial.lost.saturating_add(news.lost);
        let expected = f64::from(trial.sent) * trial.share;
        if expected < EXPECTED {
            return None;
        }
        let trial = self.trial.take()?;
        if f64::from(trial.lost) < PART * expected {
            self.until = now;
            if f64::from(trial.lost) < OURS * expected {
                self.ours_until = now + OURS_FOR;
            }
            return None;
        }
        self.found = f64::from(trial.lost) / f64::from(trial.sent);
        self.until = now + BELIEVED_FOR;
        Some(trial.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a trial finds when so many of a hundred are lost after it.
    fn after(share: f64, lost: u32) -> (Option<(f64, f64)>, f64) {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut chance = Chance::new(at(1));
        chance.try_less(at(1), share, (10.0, 20.0));
        let news = Acknowledged {
            sent: 100,
            received: 100 - lost,
            lost,
            newest_sent_at: Some(at(2)),
            ..Acknowledged::default()
        };
        (chance.take(at(3), &news, false), chance.share(at(3)))
    }

    #[test]
    fn what_is_lost_whatever_is_sent_is_chance_and_what_is_not_is_none() {
        let (window, share) = after(0.2, 9);
        assert_eq!(window, Some((10.0, 20.0)));
        assert!((0.1..0.2).contains(&share), "{share}");
        assert_eq!(after(0.2, 1), (None, USUAL));
        assert_eq!(after(0.9, 90), (None, USUAL), "too much for chance");
    }
}
