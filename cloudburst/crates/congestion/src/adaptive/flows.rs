//! A flow for each queue: what one window is due where it goes through several that are known to be others.
//!
//! One flow's share of each is due to it, and no more (RFC 6356 §1.1): a loss in one of them is not that of the others, and each
//! grows by itself. As one window says how much is in flight in all, it is reduced by the part that goes through the queue
//! that has lost something, and grows as so many flows would that are spread as evenly. Where all goes through one
//! queue, or nothing is known, it is one flow.

use super::AdaptiveController;
use crate::{Acknowledged, QueueSet, QueueShares};
use cloudburst_wire::Time;

/// Growth in a round trip up to what is due.
const DUE_GROWTH: f64 = 0.5;
/// Part of the flows that a window was granted for, below which what was due to them is not due any more.
const FEWER: f64 = 0.5;

/// Flows that the window stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flows {
    shares: QueueShares,
    count: f64,
    /// Most flows that the window was granted for so far.
    granted: f64,
    /// The window that is due with that.
    due: f64,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            shares: QueueShares::default(),
            count: 1.0,
            granted: 1.0,
            due: 0.0,
        }
    }
}

impl Flows {
    /// Takes which parts of what is sent go through queues of their own. Each is due what the window was for all of them
    /// as long as they were taken for one, if that is known: `window`.
    pub(super) fn take(&mut self, shares: QueueShares, window: Option<f64>) {
        (self.shares, self.count) = (shares, shares.flows());
        if self.count < FEWER * self.granted {
            self.forget_due();
        }
        if self.count > self.granted
            && let Some(window) = window
        {
            self.due = window.max(self.due) * self.count / self.granted;
            self.granted = self.count;
        }
    }

    /// Congestion has left this part of the window, or less of it: no more is due than that.
    pub(super) fn reduced(&mut self, kept: f64, window: f64, is_less: bool) {
        self.due = if is_less { window } else { self.due * kept };
    }

    /// Nothing is due of before: all was silent, or is long ago.
    pub(super) fn forget_due(&mut self) {
        self.due = 0.0;
    }

    /// Returns the window after so many bytes more, if it is less than what is due.
    pub(super) fn grow_to_due(&self, window: f64, bytes: f64) -> Option<f64> {
        (window < self.due).then(|| (window + DUE_GROWTH * bytes).min(self.due))
    }
}

/// Returns the part of a window that goes through queues which have lost or marked nothing, where those that have leave so
/// much of it, and `beta` of one flow's.
pub(super) fn untouched_part(kept: f64, beta: f64) -> f64 {
    (1.0 - (1.0 - kept) / (1.0 - beta)).max(0.0)
}

impl AdaptiveController {
    /// Returns what the window grows by where one flow's would by a datagram.
    pub(super) fn segment(&self) -> f64 {
        self.flows.count * self.datagram
    }

    /// Tells if what was sent then through these queues was sent after the last reduction for one of them.
    pub(super) fn is_new(&self, sent_at: Option<Time>, queues: QueueSet) -> bool {
        sent_at.is_some_and(|at| queues.iter().any(|queue| at > self.recovery_until[queue]))
    }

    /// Tells if losses were sent after the last reduction for their queue: all that they may be of (RFC 9002 §7.3.2), or
    /// those of one burst would reduce it twice.
    pub(super) fn has_new_losses(&self, news: &Acknowledged) -> bool {
        let mut lossy = news.lossy.iter();
        lossy.any(|queue| self.is_lost_anew(news, queue))
    }

    fn is_lost_anew(&self, news: &Acknowledged, queue: usize) -> bool {
        news.lost_since[queue].is_some_and(|at| at > self.recovery_until[queue])
    }

    fn is_marked_anew(&self, news: &Acknowledged, queue: usize) -> bool {
        let is_new = |at| at > self.recovery_until[queue];
        news.marked > 0
            && news.marking.iter().any(|marking| marking == queue)
            && news.newest_sent_at.is_some_and(is_new)
    }

    /// Returns the part of the window that congestion leaves in queues that it was not reduced for meanwhile, where it leaves
    /// `beta` of one flow's. What is lost or marked there of what was sent before now does not reduce it again.
    pub(super) fn take_congestion(
        &mut self,
        now: Time,
        news: &Acknowledged,
        (queues, beta): (QueueSet, f64),
        is_queue: bool,
    ) -> f64 {
        let is_new =
            |&queue: &usize| self.is_lost_anew(news, queue) || self.is_marked_anew(news, queue);
        let mut these = QueueSet::default();
        for queue in queues.iter().filter(is_new) {
            these.insert(queue);
        }
        for queue in these.iter() {
            self.recovery_until[queue] = now;
        }
        let part = self.flows.shares.of(these.iter());
        // What may be chance is found out by how much less is lost of less.
        if is_queue {
            1.0 - (1.0 - beta) * part
        } else {
            beta
        }
    }
}
