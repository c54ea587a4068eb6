//! Deliveries of one path: what the peer reports of the datagrams that were sent by it.

use core::time::Duration;

use super::{Path, remembered_at};
use cloudburst_congestion::{EcnReport, Resolved, SentDatagram};

use crate::{event::FourTuple, packet::Report, time::Time};

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
    /// Datagrams that arrived with a mark of congestion.
    pub(crate) marked: u32,
    /// The path, if it was not known to deliver before.
    pub(crate) revived: Option<FourTuple>,
}

impl Path {
    /// The peer says what it has got; what that tells, if it is new.
    pub(crate) fn hear(&mut self, now: Time, report: &Report) -> Option<DeliveryReport> {
        let (sent, received) = (self.sequence, report.received);
        let new = self.deliveries.hear(sent, received, report.highest)?;
        self.loss
            .sample(new.sent, new.sent.saturating_sub(new.received));
        self.heard_at = Some(now);
        let later = sent.saturating_sub(new.highest).saturating_sub(1);
        self.unheard = self.unheard.min(later.min(u64::from(u32::MAX)) as u32);
        self.doubt = (self.unheard > 0).then_some(now);
        let counts = EcnReport {
            sent,
            received,
            highest: new.highest,
            counts: report.ecn,
            is_restarted: new.is_restarted,
        };
        let marked = self.ecn.hear(now, &counts);
        let revived = self.revalidate(now);
        let arrived = new.received.min(new.sent);
        self.black_hole.heard(new.sent, arrived);
        let (sequence, newest) = self.remembered[remembered_at(new.highest)];
        Some(DeliveryReport {
            sent: new.sent,
            received: arrived,
            newest: (sequence == new.highest).then_some(newest),
            queue: Duration::ZERO,
            through: 0,
            resolved: self.in_flight.resolve(new.highest),
            lost: new.lost,
            marked,
            revived,
        })
    }

    /// The peer says that it has discarded what was sent, of which nothing is heard yet: none of it
    /// is in flight, and none was lost to the network (RFC 9002 §6.3).
    pub(crate) fn discarded(&mut self) {
        self.deliveries.discarded(self.sequence);
        self.in_flight.clear();
        (self.doubt, self.unheard) = (None, 0);
    }

    /// The peer was restarted: what it counted before is missing of what it counts now. What was sent by keys that it
    /// does not have it `has_discarded`; else nobody can say which of it went to the one before.
    pub(crate) fn restarted(&mut self, has_discarded: bool) {
        if has_discarded {
            self.discarded();
        }
        self.deliveries.restarted(has_discarded);
        self.ecn.count_anew();
    }

    /// An answer came to what went by it, without a count of what arrives: who knows nothing of
    /// us keeps none.
    pub(crate) fn echoed(&mut self, now: Time) -> Option<FourTuple> {
        self.doubt = (self.unheard > 0).then_some(now);
        self.revalidate(now)
    }
}
