//! Losses by chance: those that stay as they are when less is sent.
//!
//! A bottleneck without much of a queue drops what is too much, and then less when less is sent. A
//! radio loses a share whatever is sent. So the first large loss without a queue reduces the window
//! as any loss does, and what becomes of the loss says which of the two it was.
//!
//! Nor does a queue say that it has overflowed: where no more is lost of what meets one than of what
//! meets none, it has not.

use core::time::Duration;

use super::Acknowledged;
use cloudburst_wire::Time;

/// The share of losses that is taken for chance while nothing stands in a queue, as BBR does.
const USUAL: f64 = 0.02;
/// What a trial finds is believed for as long as the least delay, up to so many times the share that it
/// found: each trial costs a third of the window.
const BELIEVED_FOR: Duration = Duration::from_secs(60);
const MARGIN: f64 = 1.6;
/// No trial finds that a larger share is chance: where many senders begin together, none has ever seen the queue empty, and
/// none can make it shorter by sending less. Twenty of them that took up to half for chance lost up to 58 % in that
/// belief, and delivered a sixth of what the link carries.
const MOST: f64 = 0.1;
/// More than this of a round is too much, though rounds of few datagrams may lose a larger share by chance.
const MOST_OF_ROUND: f64 = 0.5;
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
/// Losses that have met no queue from which on their share is compared with that of those in queues, how
/// old the last of them may be, and the share that queues may lose then. Twenty senders on a slow link
/// find no queue ever empty, and lose more than that (`cargo xtask congestion --cell twenty-10`).
const LEAST_CLEAR: f64 = 4.0;
const CLEAR_FOR: Duration = Duration::from_secs(10);
const MOST_IN_QUEUES: f64 = 0.12;

/// Datagrams that have to have met no queue, with no more than the usual share of them lost, before a round trip of
/// fewer than [`LEAST_JUDGED`] is judged as one of so many: a message may end with two, and one of two is no share.
const LEAST_SEEN: f64 = 100.0;
const LEAST_JUDGED: u32 = (1.0 / USUAL) as u32;

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
    /// What met no queue, when any of that was lost last, and what met one.
    clear: Outcomes,
    clear_lost_at: Time,
    queued: Outcomes,
}

/// Datagrams of late, and those of them that were lost.
#[derive(Clone, Copy, Debug)]
struct Outcomes {
    sent: f64,
    lost: f64,
}

impl Outcomes {
    /// Datagrams that are remembered: losses of a hundredth have to be seen several times.
    const MEMORY: f64 = 500.0;
    const NONE: Self = Self {
        sent: 0.0,
        lost: 0.0,
    };

    fn add(&mut self, news: &Acknowledged) {
        let sent = f64::from(news.sent);
        let keep = Self::MEMORY / (Self::MEMORY + sent);
        self.sent = (self.sent + sent) * keep;
        self.lost = (self.lost + f64::from(news.lost)) * keep;
    }

    fn share(&self) -> f64 {
        self.lost / self.sent.max(1.0)
    }
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
            clear: Outcomes::NONE,
            clear_lost_at: now,
            queued: Outcomes::NONE,
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

    /// Whether a trial has found a share that is lost whatever is sent.
    pub(super) fn is_found(&self, now: Time) -> bool {
        self.trial.is_none() && now < self.until
    }

    /// Whether it may be chance, and usual, that so many are lost of so many.
    pub(super) fn is_usual(&self, now: Time, (lost, sent): (u32, u32)) -> bool {
        // A share that was found is sure enough to let few losses of few datagrams pass.
        let deviations = DEVIATIONS + f64::from(u8::from(self.is_found(now)));
        let mean = self.share(now) * f64::from(sent);
        is_likely(f64::from(lost), mean, deviations)
    }

    /// The datagrams that losses without a queue are to be held against, in a round trip of so many.
    pub(super) fn judged(&self, sent: u32) -> u32 {
        let is_rare = self.clear.sent >= LEAST_SEEN && self.clear.lost <= USUAL * self.clear.sent;
        if is_rare {
            sent.max(LEAST_JUDGED)
        } else {
            sent
        }
    }

    /// Whether as little is lost of what meets a queue as of what meets none, of late and of a round
    /// trip (`round`): it is not the queue that has lost it.
    pub(super) fn is_apart_from_queues(&self, now: Time, round: (u32, u32)) -> bool {
        let (lost, sent) = (f64::from(round.0), f64::from(round.1));
        let share = self.clear.share() * MARGIN;
        let is_known = self.clear.lost >= LEAST_CLEAR && now.since(self.clear_lost_at) <= CLEAR_FOR;
        is_known
            && share <= MOST_IN_QUEUES
            && is_likely(self.queued.lost, share * self.queued.sent, DEVIATIONS)
            && is_likely(lost, share * sent, DEVIATIONS + 1.0)
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
        self.trial = (share <= MOST_OF_ROUND).then_some(trial);
    }

    /// A queue was seen: what was found does not hold any more.
    pub(super) fn forget(&mut self, now: Time) {
        self.found = USUAL;
        (self.until, self.ours_until) = (now, now);
        self.trial = None;
    }

    /// Takes a report; a queue stands, or was only met. Returns the window to go back to and its threshold, if
    /// less was sent in vain.
    pub(super) fn take(
        &mut self,
        now: Time,
        news: &Acknowledged,
        (has_queue, has_met): (bool, bool),
    ) -> Option<(f64, f64)> {
        if has_queue || has_met {
            self.queued.add(news);
        } else {
            self.clear.add(news);
            if news.lost > 0 {
                self.clear_lost_at = now;
            }
        }
        if news.sent > 0 && !has_queue {
            let sample = f64::from(news.lost) / f64::from(news.sent);
            let weight = f64::from(news.sent) / f64::from(news.sent.saturating_add(MEMORY));
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
        let found = f64::from(trial.lost) / f64::from(trial.sent);
        if found > MOST {
            self.until = now;
            return None;
        }
        self.found = found;
        self.until = now + BELIEVED_FOR;
        Some(trial.before)
    }
}

/// Whether it may be by chance that so many are lost where one expects `mean`: by so many standard
/// deviations more, and as many datagrams above the first, for what is rare is not spread like that.
fn is_likely(lost: f64, mean: f64, deviations: f64) -> bool {
    lost <= mean + deviations * mean.sqrt() + (deviations - DEVIATIONS) + 0.5
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
        (
            chance.take(at(3), &news, (false, false)),
            chance.share(at(3)),
        )
    }

    #[test]
    fn what_is_lost_whatever_is_sent_is_chance_and_what_is_not_is_none() {
        let (window, share) = after(0.2, 9);
        assert_eq!(window, Some((10.0, 20.0)));
        assert!((0.09..=MOST).contains(&share), "{share}");
        assert_eq!(after(0.2, 1), (None, USUAL));
        assert_eq!(after(0.2, 12), (None, USUAL), "too much for chance");
        assert_eq!(after(0.9, 90), (None, USUAL), "too much to try");
    }

    /// Whether losses in a queue are taken for chance when so many of a thousand are lost without one,
    /// and with one.
    fn is_apart(clear: u32, queued: u32, after: u64) -> bool {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut chance = Chance::new(at(1));
        for (lost, queues) in [(clear, (false, false)), (queued, (true, true))] {
            for part in 0..50 {
                let lost = lost * (part + 1) / 50 - lost * part / 50;
                let news = Acknowledged {
                    sent: 20,
                    received: 20 - lost,
                    lost,
                    ..Acknowledged::default()
                };
                chance.take(at(2), &news, queues);
            }
        }
        chance.is_apart_from_queues(at(2 + after), (1, 20))
    }

    #[test]
    fn queues_that_lose_no_more_than_what_meets_none_have_not_overflowed() {
        assert!(is_apart(50, 50, 0), "5 % whatever stands in the queue");
        assert!(is_apart(20, 10, 0), "even less in queues");
        assert!(!is_apart(10, 40, 0), "four times as much in queues");
        assert!(!is_apart(0, 5, 0), "nothing is lost without a queue");
        assert!(!is_apart(50, 50, 11), "it is too long ago");
        assert!(!is_apart(400, 400, 0), "too much for chance");
    }
}
