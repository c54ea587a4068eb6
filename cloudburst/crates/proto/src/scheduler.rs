//! Scheduler: which message is sent next, by priority and then shortest remaining first, as the
//! pacers allow.
//!
//! Peers that the pacer makes wait are in one heap by the time at which they may go on, the others
//! in one by priority and remaining symbols. An entry that does not hold any more stays where it is, and is
//! dropped when it comes to the top: a peer knows which is its own.

use core::time::Duration;
use std::{cmp::Reverse, collections::BinaryHeap};

use cloudburst_congestion::{
    Acknowledged, CongestionControl, CongestionController, Pacer, PathRates,
};

use super::{
    event::{PeerId, SendId},
    peer_map::PeerMap,
    send_options::Priority,
    time::Time,
};

/// Tells the scheduler about messages under way.
pub(super) trait Backlog {
    /// The rank of a message by what is to be sent of it, if it is still under way.
    fn rank(&self, id: SendId) -> Option<Rank>;

    /// A message with nothing to send is no longer among those that the scheduler has.
    fn dequeued(&mut self, id: SendId);
}

/// Rank of a message among those with something to send: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) priority: Reverse<Priority>,
    /// Symbols that are to be sent.
    pub(super) remaining: u32,
}

/// Scheduler of messages: by priority, then shortest remaining first, as congestion control and pacing allow.
#[derive(Debug)]
pub(super) struct Scheduler {
    peers: PeerMap<PeerQueue>,
    /// Paces all peers together, if the link's rate is stated.
    link: Option<Pacer>,
    /// Pace answers, which others decide on: those about messages of peers, and all others.
    answers: [Pacer; 2],
    /// Those that may: the least rank of a message, then who has waited longest.
    due: BinaryHeap<Reverse<(Rank, u64, PeerId)>>,
    /// Those that have to wait, and until when.
    waiting: BinaryHeap<Reverse<(Time, PeerId)>>,
    number: u64,
}

/// A peer's messages that have symbols to be sent.
#[derive(Debug)]
struct PeerQueue {
    /// The least rank first, then the oldest.
    ready: BinaryHeap<Reverse<(Rank, u64)>>,
    slot: Slot,
    controller: CongestionController,
}

/// Where a peer is among those with something to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// It has nothing to send, or nothing that may be sent before something is heard.
    Away,
    Due {
        rank: Rank,
        number: u64,
    },
    Waiting {
        until: Time,
    },
}

/// Shares of the link that answers get: those about messages of peers, each of which may be as
/// long as its message was, and all others. The rest is left to our own messages.
const ANSWER_SHARES: [f64; 2] = [0.5, 0.125];

/// A link that answers get a share of if its rate is not stated, in bytes per second: a bound for
/// what a stranger can cause, and nothing that congestion control follows.
const ASSUMED_BYTES_PER_S: f64 = 125e6;

/// Entries that do not hold any more, in addition to as many as there are peers.
const MOST_STALE: usize = 64;

impl Scheduler {
    pub(super) fn new(now: Time, link_bytes_per_s: Option<f64>) -> Self {
        Self {
            peers: PeerMap::default(),
            link: link_bytes_per_s.map(|rate| Pacer::new(now, rate)),
            answers: ANSWER_SHARES.map(|share| {
                let link = link_bytes_per_s.unwrap_or(ASSUMED_BYTES_PER_S);
                Pacer::new(now, link * share)
            }),
            due: BinaryHeap::new(),
            waiting: BinaryHeap::new(),
            number: 0,
        }
    }

    pub(super) fn add_peer(
        &mut self,
        now: Time,
        id: PeerId,
        control: &CongestionControl,
        round_trip: Duration,
    ) {
        let queue = PeerQueue {
            ready: BinaryHeap::new(),
            slot: Slot::Away,
            controller: CongestionController::new(now, control, round_trip),
        };
        self.peers.insert(id, queue);
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        self.peers.remove(id);
    }

    /// When a message may be sent again, if any waits.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let earliest = if self.due.is_empty() {
            self.waiting.peek().map(|Reverse((until, _))| *until)?
        } else {
            Time::ZERO
        };
        let link = self.link.map_or(Time::ZERO, |link| link.ready_at());
        Some(earliest.max(link)).filter(|at| *at < Time::NEVER)
    }

    /// Whether the link has credit for anything.
    pub(super) fn may_send(&self, now: Time) -> bool {
        self.link.is_none_or(|link| link.credit(now) > 0)
    }

    /// Bytes that may be sent to a peer now.
    pub(super) fn credit(&self, now: Time, id: PeerId) -> usize {
        let peer = self.peers.get(id);
        let own = peer.map_or(0, |peer| peer.controller.credit(now));
        own.min(self.link.map_or(usize::MAX, |link| link.credit(now)))
    }

    /// Bytes to a peer that may leave by one path in a row though others are as fast.
    pub(super) fn train_bytes(&self, id: PeerId) -> Option<usize> {
        self.peers.get(id)?.controller.train_bytes()
    }

    /// Bytes per second that a peer is sent while there is something to send.
    pub(super) fn bytes_per_s(&self, id: PeerId) -> f64 {
        let peer = self.peers.get(id);
        peer.map_or(f64::INFINITY, |peer| peer.controller.bytes_per_s())
    }

    /// How many datagrams to a peer may be in flight.
    pub(super) fn window_datagrams(&self, id: PeerId) -> usize {
        let peer = self.peers.get(id);
        peer.map_or(1, |peer| peer.controller.window_datagrams())
    }

    /// Whether nothing of a peer's waits to be sent.
    pub(super) fn is_idle(&self, id: PeerId) -> bool {
        self.peers.get(id).is_none_or(|peer| peer.ready.is_empty())
    }

    /// Symbols were sent to a peer.
    pub(super) fn sent(&mut self, now: Time, id: PeerId, bytes: usize) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.controller.sent(now, bytes);
        }
        self.sent_unpaced(now, bytes);
    }

    /// Something was sent that did not wait for its turn: a probe.
    pub(super) fn sent_unpaced(&mut self, now: Time, bytes: usize) {
        if let Some(link) = &mut self.link {
            link.sent(now, bytes);
        }
    }

    /// Whether an answer may be sent: it never waits, and beyond its share of the link it is
    /// dropped.
    pub(super) fn may_answer(&self, now: Time, is_of_message: bool) -> bool {
        self.answers[usize::from(!is_of_message)].credit(now) > 0
    }

    /// An answer was sent.
    pub(super) fn answered(&mut self, now: Time, is_of_message: bool, bytes: usize) {
        self.answers[usize::from(!is_of_message)].sent(now, bytes);
        self.sent_unpaced(now, bytes);
    }

    /// A peer that nothing was sent to for a while is sent a message.
    pub(super) fn restart_measuring(&mut self, now: Time, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.controller.restart_measuring(now);
        }
    }

    /// A peer has refused what seemed lost.
    pub(super) fn discount_losses(&mut self, now: Time, id: PeerId) {
        self.discount(id, |controller| controller.discount_losses(now));
    }

    /// A peer was restarted, and is sent to as before.
    pub(super) fn discount_silence(&mut self, now: Time, id: PeerId) {
        self.discount(id, |controller| controller.discount_silence(now));
    }

    fn discount(&mut self, id: PeerId, discount: impl FnOnce(&mut CongestionController)) {
        if let Some(peer) = self.peers.get_mut(id) {
            discount(&mut peer.controller);
        }
        self.requeue_earlier(id);
    }

    /// A peer has reported on datagrams: its rate changes, and perhaps it need not wait so long.
    /// Returns the share that was lost too long, if its circuit breaker trips with that.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        id: PeerId,
        news: &Acknowledged,
        paths: &PathRates,
    ) -> Option<f64> {
        let peer = self.peers.get_mut(id)?;
        let excess = peer.controller.acknowledged(now, news, paths);
        self.requeue_earlier(id);
        excess
    }

    /// Whether a peer's circuit breaker has tripped.
    pub(super) fn is_broken(&self, id: PeerId) -> bool {
        self.peers
            .get(id)
            .is_some_and(|peer| peer.controller.is_broken())
    }

    /// So many bytes are in flight to a peer. All of its paths have died, if it `timed_out`.
    pub(super) fn set_in_flight(
        &mut self,
        now: Time,
        id: PeerId,
        (bytes, timed_out): (u64, bool),
        paths: &PathRates,
    ) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.controller.set_in_flight(bytes);
            if timed_out {
                peer.controller.timed_out(now, paths);
            }
        }
        self.requeue_earlier(id);
    }

    fn requeue_earlier(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get(id)
            && let Slot::Waiting { until } = peer.slot
            && peer.controller.ready_at() < until
        {
            self.wait(id);
        }
    }

    /// Puts in a message that has symbols to send, unless it is in already; a peer that has any
    /// gets its place among the others.
    pub(super) fn enqueue(
        &mut self,
        now: Time,
        id: SendId,
        rank: Rank,
        is_new: bool,
        backlog: &mut impl Backlog,
    ) {
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        if is_new {
            peer.ready.push(Reverse((rank, id.message)));
        }
        if peer.ready.is_empty() {
            return;
        }
        let is_earlier = match peer.slot {
            Slot::Away => true,
            Slot::Due { rank: queued, .. } => rank.remaining > 0 && rank < queued,
            Slot::Waiting { .. } => false,
        };
        if is_earlier {
            self.requeue(now, id.peer, backlog);
        }
    }

    /// A peer was heard of: it may have waited for that to be sent more.
    pub(super) fn heard(&mut self, now: Time, id: PeerId, backlog: &mut impl Backlog) {
        let peer = self.peers.get(id);
        if peer.is_some_and(|peer| peer.slot == Slot::Away && !peer.ready.is_empty()) {
            self.requeue(now, id, backlog);
        }
    }

    /// The message of the least rank, of those that may be sent now. Its peer
    /// loses its place; [`Self::requeue`] gives it another.
    pub(super) fn next_message(&mut self, now: Time, backlog: &mut impl Backlog) -> Option<SendId> {
        while let Some(&Reverse((until, id))) = self.waiting.peek()
            && until <= now
        {
            self.waiting.pop();
            if self.slot(id) == (Slot::Waiting { until }) {
                self.requeue(now, id, backlog);
            }
        }
        while let Some(Reverse((rank, number, id))) = self.due.pop() {
            if self.slot(id) != (Slot::Due { rank, number }) {
                continue;
            }
            let first = self.first(id, backlog);
            match (first, self.peers.get_mut(id)) {
                (Some((first, message)), Some(peer))
                    if first == rank && peer.controller.credit(now) > 0 =>
                {
                    peer.slot = Slot::Away;
                    return Some(SendId::new(id, message));
                }
                // It has been answered meanwhile, or what is left has changed.
                _ => self.requeue(now, id, backlog),
            }
        }
        None
    }

    /// Gives a peer its place, by what it has to send.
    pub(super) fn requeue(&mut self, now: Time, id: PeerId, backlog: &mut impl Backlog) {
        let first = self.first(id, backlog);
        let most = self.most_entries();
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let Some((rank, _)) = first else {
            peer.slot = Slot::Away;
            return self.drop_stale();
        };
        if peer.controller.credit(now) == 0 {
            return self.wait(id);
        }
        let number = self.number;
        self.number = self.number.saturating_add(1);
        peer.slot = Slot::Due { rank, number };
        self.due.push(Reverse((rank, number, id)));
        if self.due.len() > most {
            let peers = &self.peers;
            self.due.retain(|&Reverse((rank, number, id))| {
                let slot = Slot::Due { rank, number };
                peers.get(id).is_some_and(|peer| peer.slot == slot)
            });
        }
    }

    /// Entries of a list of peers, stale ones among them.
    fn most_entries(&self) -> usize {
        let both = self.peers.len().saturating_mul(2);
        both.saturating_add(MOST_STALE)
    }

    fn wait(&mut self, id: PeerId) {
        let most = self.most_entries();
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let until = peer.controller.ready_at();
        peer.slot = Slot::Waiting { until };
        self.waiting.push(Reverse((until, id)));
        self.drop_stale();
        if self.waiting.len() > most {
            let peers = &self.peers;
            self.waiting.retain(|&Reverse((until, id))| {
                let slot = Slot::Waiting { until };
                peers.get(id).is_some_and(|peer| peer.slot == slot)
            });
        }
    }

    /// Drops what does not hold any more from the top of those that wait: a host would wake for it.
    fn drop_stale(&mut self) {
        while let Some(&Reverse((until, id))) = self.waiting.peek()
            && self.slot(id) != (Slot::Waiting { until })
        {
            self.waiting.pop();
        }
    }

    fn slot(&self, id: PeerId) -> Slot {
        self.peers.get(id).map_or(Slot::Away, |peer| peer.slot)
    }

    /// The first of a peer's messages. Those that have been delivered meanwhile, or have
    /// another remainder, are put right on the way.
    fn first(&mut self, id: PeerId, backlog: &mut impl Backlog) -> Option<(Rank, u64)> {
        let peer = self.peers.get_mut(id)?;
        while let Some(&Reverse((queued, message))) = peer.ready.peek() {
            let send_id = SendId::new(id, message);
            match backlog.rank(send_id) {
                Some(rank) if rank == queued => return Some((rank, message)),
                Some(rank) => {
                    peer.ready.pop();
                    if rank.remaining > 0 {
                        peer.ready.push(Reverse((rank, message)));
                    } else {
                        backlog.dequeued(send_id);
                    }
                }
                None => {
                    peer.ready.pop();
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
