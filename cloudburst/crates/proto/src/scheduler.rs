//! Scheduler: which message is sent next, shortest remaining first, as the pacers allow.
//!
//! Peers that the pacer makes wait are in one heap by the time at which they may go on, the others
//! in one by the remaining symbols. An entry that does not hold any more stays where it is, and is
//! dropped when it comes to the top: a peer knows which is its own.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    congestion::{CongestionController, PathRates},
    event::{PeerId, SendId},
    pacer::Pacer,
    peer_map::PeerMap,
    time::Time,
};

/// Tells the scheduler about messages under way.
pub(super) trait Backlog {
    /// Symbols of a message that are to be sent, if it is still under way.
    fn remaining(&self, id: SendId) -> Option<u32>;

    /// A message with nothing to send is no longer among those that the scheduler has.
    fn dequeued(&mut self, id: SendId);
}

/// Peers with something to send, and how fast each may be sent to.
#[derive(Debug)]
pub(super) struct Scheduler {
    peers: PeerMap<PeerQueue>,
    link: Pacer,
    /// Those that may: what is left of a message in symbols, then who has waited longest.
    due: BinaryHeap<Reverse<(u32, u64, PeerId)>>,
    /// Those that have to wait, and until when.
    waiting: BinaryHeap<Reverse<(Time, PeerId)>>,
    number: u64,
}

/// A peer's messages that have symbols to be sent.
#[derive(Debug)]
struct PeerQueue {
    /// The shortest remainder first, then the oldest.
    ready: BinaryHeap<Reverse<(u32, u64)>>,
    slot: Slot,
    controller: CongestionController,
}

/// Where a peer is among those with something to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// It has nothing to send, or nothing that may be sent before something is heard.
    Away,
    Due {
        remaining: u32,
        number: u64,
    },
    Waiting {
        until: Time,
    },
}

/// Entries that do not hold any more, beside as many as there are peers.
const MOST_STALE: usize = 64;

impl Scheduler {
    pub(super) fn new(now: Time, link_bytes_per_s: f64) -> Self {
        Self {
            peers: PeerMap::default(),
            link: Pacer::new(now, link_bytes_per_s),
            due: BinaryHeap::new(),
            waiting: BinaryHeap::new(),
            number: 0,
        }
    }

    pub(super) fn add_peer(&mut self, now: Time, id: PeerId, link_bytes_per_s: f64) {
        let queue = PeerQueue {
            ready: BinaryHeap::new(),
            slot: Slot::Away,
            controller: CongestionController::new(now, link_bytes_per_s),
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
        Some(earliest.max(self.link.ready_at()))
    }

    /// Whether the link has credit for anything.
    pub(super) fn may_send(&self, now: Time) -> bool {
        self.link.credit(now) > 0
    }

    /// Bytes that may be sent to a peer now.
    pub(super) fn credit(&self, now: Time, id: PeerId) -> usize {
        let peer = self.peers.get(id);
        let own = peer.map_or(0, |peer| peer.controller.credit(now));
        own.min(self.link.credit(now))
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

    /// Something was sent that did not wait for its turn: an answer, or a probe.
    pub(super) fn sent_unpaced(&mut self, now: Time, bytes: usize) {
        self.link.sent(now, bytes);
    }

    /// A peer that nothing was sent to for a while is sent a message.
    pub(super) fn restart_measuring(&mut self, now: Time, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.controller.restart_measuring(now);
        }
    }

    /// A peer has refused what seemed lost.
    pub(super) fn discount_losses(&mut self, now: Time, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.controller.discount_losses(now);
        }
    }

    /// A peer has reported on datagrams: its rate changes, and perhaps it need not wait so long.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        id: PeerId,
        (sent, received): (u32, u32),
        paths: &PathRates,
    ) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.controller.acknowledged(now, sent, received, paths);
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
        remaining: u32,
        is_new: bool,
        backlog: &mut impl Backlog,
    ) {
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        if is_new {
            peer.ready.push(Reverse((remaining, id.message)));
        }
        if peer.ready.is_empty() {
            return;
        }
        let is_earlier = match peer.slot {
            Slot::Away => true,
            Slot::Due {
                remaining: queued, ..
            } => remaining > 0 && remaining < queued,
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

    /// The message with the fewest symbols remaining, of those that may be sent now. Its peer
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
        while let Some(Reverse((remaining, number, id))) = self.due.pop() {
            if self.slot(id) != (Slot::Due { remaining, number }) {
                continue;
            }
            let shortest = self.shortest(id, backlog);
            match (shortest, self.peers.get_mut(id)) {
                (Some((shortest, message)), Some(peer))
                    if shortest == remaining && peer.controller.credit(now) > 0 =>
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
        let shortest = self.shortest(id, backlog);
        let most = 2 * self.peers.len() + MOST_STALE;
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let Some((remaining, _)) = shortest else {
            peer.slot = Slot::Away;
            return;
        };
        if peer.controller.credit(now) == 0 {
            return self.wait(id);
        }
        let number = self.number;
        self.number += 1;
        peer.slot = Slot::Due { remaining, number };
        self.due.push(Reverse((remaining, number, id)));
        if self.due.len() > most {
            let peers = &self.peers;
            self.due.retain(|&Reverse((remaining, number, id))| {
                let slot = Slot::Due { remaining, number };
                peers.get(id).is_some_and(|peer| peer.slot == slot)
            });
        }
    }

    fn wait(&mut self, id: PeerId) {
        let most = 2 * self.peers.len() + MOST_STALE;
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let until = peer.controller.ready_at();
        peer.slot = Slot::Waiting { until };
        self.waiting.push(Reverse((until, id)));
        if self.waiting.len() > most {
            let peers = &self.peers;
            self.waiting.retain(|&Reverse((until, id))| {
                let slot = Slot::Waiting { until };
                peers.get(id).is_some_and(|peer| peer.slot == slot)
            });
        }
    }

    fn slot(&self, id: PeerId) -> Slot {
        self.peers.get(id).map_or(Slot::Away, |peer| peer.slot)
    }

    /// The shortest of a peer's messages. Those that have been delivered meanwhile, or have
    /// another remainder, are put right on the way.
    fn shortest(&mut self, id: PeerId, backlog: &mut impl Backlog) -> Option<(u32, u64)> {
        let peer = self.peers.get_mut(id)?;
        while let Some(&Reverse((queued, message))) = peer.ready.peek() {
            let send_id = SendId::new(id, message);
            match backlog.remaining(send_id) {
                Some(remaining) if remaining == queued => return Some((remaining, message)),
                Some(remaining) => {
                    peer.ready.pop();
                    if remaining > 0 {
                        peer.ready.push(Reverse((remaining, message)));
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
mod tests {
    use core::time::Duration;
    use std::collections::BTreeMap;

    use super::*;

    /// Messages by their remaining symbols, and whether they are queued.
    #[derive(Default)]
    struct Messages(BTreeMap<SendId, (u32, bool)>);

    impl Backlog for Messages {
        fn remaining(&self, id: SendId) -> Option<u32> {
            self.0.get(&id).map(|(remaining, _)| *remaining)
        }

        fn dequeued(&mut self, id: SendId) {
            if let Some((_, is_queued)) = self.0.get_mut(&id) {
                *is_queued = false;
            }
        }
    }

    fn scheduler(peers: u32, link_bits_per_s: u64) -> (Scheduler, Vec<PeerId>) {
        let link = link_bits_per_s as f64 / 8.0;
        // The link's own pacer is not what is tested.
        let mut scheduler = Scheduler::new(Time::ZERO, 1e12);
        let ids: Vec<_> = (0..peers).map(|index| PeerId::new(index, 0)).collect();
        for id in &ids {
            scheduler.add_peer(Time::ZERO, *id, link);
        }
        (scheduler, ids)
    }

    fn add(scheduler: &mut Scheduler, messages: &mut Messages, now: Time, id: SendId, n: u32) {
        messages.0.insert(id, (n, true));
        scheduler.enqueue(now, id, n, true, messages);
    }

    /// Symbols of 1,200 bytes.
    fn send(scheduler: &mut Scheduler, messages: &mut Messages, now: Time, id: SendId, n: u32) {
        let (remaining, _) = messages.0.get_mut(&id).expect("it is under way");
        let sent = n.min(*remaining);
        *remaining -= sent;
        scheduler.sent(now, id.peer, sent as usize * 1_200);
        scheduler.requeue(now, id.peer, messages);
    }

    /// What is left of the shortest message that may be sent, found the long way.
    fn shortest(scheduler: &Scheduler, messages: &Messages, now: Time) -> Option<u32> {
        let all = messages.0.iter();
        let may =
            all.filter(|(id, (remaining, _))| *remaining > 0 && scheduler.credit(now, id.peer) > 0);
        may.map(|(_, (remaining, _))| *remaining).min()
    }

    #[test]
    fn the_shortest_remaining_of_all_that_may_be_sent_is_chosen() {
        let (mut scheduler, ids) = scheduler(40, 50_000_000);
        let mut messages = Messages::default();
        let mut now = Time::ZERO;
        let mut draw = 1_u64;
        let mut chosen = 0;
        for step in 0..4_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let peer = ids[(draw >> 33) as usize % ids.len()];
            if step % 3 == 0 {
                let id = SendId::new(peer, step);
                let n = 1 + (draw >> 40) as u32 % 50;
                add(&mut scheduler, &mut messages, now, id, n);
                if draw >> 20 & 3 == 0 {
                    messages.0.remove(&id);
                }
            }
            if draw >> 25 & 7 == 0 {
                // What a peer may be sent changes with what it reports.
                let queue = scheduler.peers.get_mut(peer).expect("it is known");
                let rate = 1e5 + (draw >> 30 & 0xff) as f64 * 2e4;
                queue.controller.set_rate(now, rate);
                scheduler.requeue_earlier(peer);
            }
            let best = shortest(&scheduler, &messages, now);
            let next = scheduler.next_message(now, &mut messages);
            let remaining = next.and_then(|id| messages.remaining(id));
            assert_eq!(remaining, best, "step {step}");
            match next {
                Some(id) => {
                    chosen += 1;
                    send(&mut scheduler, &mut messages, now, id, 16);
                }
                None => {
                    let wakes = scheduler.next_deadline().unwrap_or(now).max(now);
                    now = wakes.min(now + Duration::from_millis(1)) + Duration::from_micros(1);
                }
            }
            assert!(scheduler.due.len() <= 2 * ids.len() + MOST_STALE);
            assert!(scheduler.waiting.len() <= 2 * ids.len() + MOST_STALE);
        }
        assert!(chosen > 500, "{chosen}");
    }

    #[test]
    fn equals_alternate() {
        let (mut scheduler, ids) = scheduler(3, 1_000_000_000);
        let mut messages = Messages::default();
        for &peer in &ids {
            for message in 0..4 {
                let id = SendId::new(peer, message);
                add(&mut scheduler, &mut messages, Time::ZERO, id, 1);
            }
        }
        let mut order = Vec::new();
        while let Some(id) = scheduler.next_message(Time::ZERO, &mut messages) {
            send(&mut scheduler, &mut messages, Time::ZERO, id, 1);
            order.push(ids.iter().position(|it| *it == id.peer).expect("it is one"));
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }
}
