//! Deliveries of one path: what the peer reports of the datagrams that were sent by it.

use core::time::Duration;

use super::{Path, remembered_at};
use cloudburst_congestion::{Resolved, SentDatagram};

use crate::{event::FourTuple, time::Time};

/// What the peer has said of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) received: u32,
    pub(super) highest: u64,
    pub(super) at: Time,
}

/// What a peer's report says that was not known before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryReport {
    /// Datagrams sent since it was last heard of.
    pub(crate) sent: u32,
    /// Those of them that arrived.
    pub(crate) received: u32,
    /// What is remembered of the newest.
    pub(crate) newest: Option<SentDatagram>,
    /// How long the newest stood in queues on the way there.
    pub(crate) queue: Duration,
    /// The queue that the path counts as going through.
    pub(crate) through: usize,
    /// Bytes that are no longer in flight.
    pub(crate) resolved: Resolved,
    /// Datagrams that were lost, without those that were only overtaken.
    pub(crate) lost: u32,
    /// The path, if it was not known to deliver before.
    pub(crate) revived: Option<FourTuple>,
}

impl Path {
    /// The peer says what it has got; what that tells, if it is new.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        received: u32,
        highest: u32,
    ) -> Option<DeliveryReport> {
        let highest = self.whole_sequence(highest)?;
        // Both count modulo 2^32.
        let missing = (highest as u32).wrapping_add(1).wrapping_sub(received);
        if self.heard.is_some_and(|heard| highest <= heard.highest) {
            return None;
        }
        if core::mem::take(&mut self.is_recounted) {
            // As many as arrived of what was taken for discarded could be lost later without being missed.
            self.most_missing = self.most_missing.min(missing);
        }
        let counts_anew = core::mem::take(&mut self.counts_anew);
        let (new_sent, new_received) = match self.heard {
            Some(heard) => {
                let new_sent = highest.saturating_sub(heard.highest);
                match received.checked_sub(heard.received) {
                    Some(new_received @ 1..) if !counts_anew => (new_sent, new_received),
                    // A peer that was restarted counts again, from what was sent since.
                    _ => (new_sent.min(received.into()), received),
                }
            }
            None if counts_anew => (highest.saturating_add(1).min(received.into()), received),
            // What was discarded has been missing since then.
            None => {
                let sent = highest.saturating_add(1);
                (sent.saturating_sub(self.most_missing.into()), received)
            }
        };
        let new_sent = new_sent.min(u64::from(u32::MAX)) as u32;
        let new_lost = self.lost(missing, received, counts_anew).min(new_sent);
        self.loss
            .sample(new_sent, new_sent.saturating_sub(new_received));
        self.heard = Some(Heard {
            received,
            highest,
            at: now,
        });
        let later = self.sequence.saturating_sub(highest).saturating_sub(1);
        self.unheard = self.unheard.min(later.min(u64::from(u32::MAX)) as u32);
        self.doubt = (self.unheard > 0).then_some(now);
        let revived = self.revalidate();
        self.black_hole.heard(new_sent, new_received.min(new_sent));
        let (sequence, newest) = self.remembered[remembered_at(highest)];
        Some(DeliveryReport {
            sent: new_sent,
            received: new_received.min(new_sent),
            newest: (sequence == highest).then_some(newest),
            queue: Duration::ZERO,
            through: 0,
            resolved: self.in_flight.resolve(highest),
            lost: new_lost,
            revived,
        })
    }

    /// Datagrams that are missing for the first time: of those before the highest no more have been
    /// missing at once. A peer that was restarted counts again.
    fn lost(&mut self, missing: u32, received: u32, counts_anew: bool) -> u32 {
        let counts_less = self.heard.is_some_and(|heard| received <= heard.received);
        let is_restarted = counts_anew || counts_less;
        let more = missing.wrapping_sub(self.most_missing).cast_signed().max(0);
        if is_restarted || more > 0 {
            self.most_missing = missing;
        }
        if is_restarted { 0 } else { more.unsigned_abs() }
    }

    /// The peer says that it has discarded what was sent, of which nothing is heard yet: none of it
    /// is in flight, and none was lost to the network (RFC 9002 §6.3).
    pub(crate) fn discarded(&mut self) {
        let last = self.sequence.saturating_sub(1);
        self.most_missing = match &mut self.heard {
            Some(heard) => {
                let before = core::mem::replace(&mut heard.highest, last);
                let discarded = last.saturating_sub(before) as u32;
                self.most_missing.wrapping_add(discarded)
            }
            None => self.sequence as u32,
        };
        self.is_recounted = true;
        self.in_flight.clear();
        (self.doubt, self.unheard) = (None, 0);
    }

    /// The peer was restarted: what it counted before is missing of what it counts now. What was sent by keys that it
    /// does not have it `has_discarded`; else nobody can say which of it went to the one before.
    pub(crate) fn restarted(&mut self, has_discarded: bool) {
        if has_discarded {
            self.discarded();
        }
        if let Some(heard) = &mut self.heard {
            let counted = core::mem::take(&mut heard.received);
            self.most_missing = self.most_missing.wrapping_add(counted);
        }
        (self.is_recounted, self.counts_anew) = (true, !has_discarded);
    }

    /// An answer came to what went by it, without a count of what arrives: who knows nothing of
    /// us keeps none.
    pub(crate) fn echoed(&mut self, now: Time) -> Option<FourTuple> {
        self.doubt = (self.unheard > 0).then_some(now);
        self.revalidate()
    }

    /// A datagram's number from its lower half, if we have sent one like that.
    fn whole_sequence(&self, low: u32) -> Option<u64> {
        let last = self.sequence.checked_sub(1)?;
        let back = (last as u32).wrapping_sub(low);
        last.checked_sub(back.into())
    }
}
