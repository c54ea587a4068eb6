//! Whose turn it is to send: of those that may, the peer of whose message the least is left.
//!
//! Peers that the pacer makes wait are in one heap by the time at which they may go on, the others
//! in one by what is left. An entry that does not hold any more stays where it is, and is dropped
//! when it comes to the top: a peer knows which is its own.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    super::{
        event::{PeerId, SendId},
        time::Time,
    },
    Native,
};

/// Peers with something to send.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// Those that may: what is left of a message in symbols, then who has waited longest.
    due: BinaryHeap<Reverse<(u32, u64, PeerId)>>,
    /// Those that have to wait, and until when.
    waiting: BinaryHeap<Reverse<(Time, PeerId)>>,
    number: u64,
}

/// Where a peer is among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScheduleSlot {
    /// It has nothing to send, or nothing that may be sent before something is heard.
    #[default]
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
    /// When somebody may send, if anybody waits for that.
    pub(super) fn next(&self) -> Option<Time> {
        if !self.due.is_empty() {
            return Some(Time::ZERO);
        }
        self.waiting.peek().map(|Reverse((until, _))| *until)
    }
}

impl Native {
    /// The message whose rest is the shortest, of those that may be sent now. Its peer loses its
    /// place; [`Self::requeue`] gives it another.
    pub(super) fn next_message(&mut self, now: Time) -> Option<(PeerId, u64)> {
        while let Some(&Reverse((until, id))) = self.scheduler.waiting.peek()
            && until <= now
        {
            self.scheduler.waiting.pop();
            if self.slot(id) == (ScheduleSlot::Waiting { until }) {
                self.requeue(now, id);
            }
        }
        while let Some(Reverse((remaining, number, id))) = self.scheduler.due.pop() {
            if self.slot(id) != (ScheduleSlot::Due { remaining, number }) {
                continue;
            }
            let shortest_message = self.shortest_message(id);
            let may_send = |peer: &super::Peer| peer.pacer.credit(now) > 0;
            match shortest_message {
                Some((shortest, message))
                    if shortest == remaining && self.peers.get(id).is_some_and(may_send) =>
                {
                    self.put(id, ScheduleSlot::Away);
                    return Some((id, message));
                }
                // It has been answered meanwhile, or other news have changed what is left.
                _ => self.requeue(now, id),
            }
        }
        None
    }

    /// Gives a peer its place, by what it has to send.
    pub(super) fn requeue(&mut self, now: Time, id: PeerId) {
        let shortest_message = self.shortest_message(id);
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let Some((remaining, _)) = shortest_message else {
            peer.slot = ScheduleSlot::Away;
            return;
        };
        if peer.pacer.credit(now) == 0 {
            return self.wait(id);
        }
        let number = self.scheduler.number;
        self.scheduler.number += 1;
        peer.slot = ScheduleSlot::Due { remaining, number };
        self.scheduler.due.push(Reverse((remaining, number, id)));
        if self.scheduler.due.len() > 2 * self.peers.len() + MOST_STALE {
            let peers = &self.peers;
            self.scheduler
                .due
                .retain(|&Reverse((remaining, number, id))| {
                    let slot = ScheduleSlot::Due { remaining, number };
                    peers.get(id).is_some_and(|peer| peer.slot == slot)
                });
        }
    }

    fn wait(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let until = peer.pacer.ready_at();
        peer.slot = ScheduleSlot::Waiting { until };
        self.scheduler.waiting.push(Reverse((until, id)));
        if self.scheduler.waiting.len() > 2 * self.peers.len() + MOST_STALE {
            let peers = &self.peers;
            self.scheduler.waiting.retain(|&Reverse((until, id))| {
                let slot = ScheduleSlot::Waiting { until };
                peers.get(id).is_some_and(|peer| peer.slot == slot)
            });
        }
    }

    /// A peer has messages, of which one with so much left is perhaps another than before.
    pub(super) fn schedule(&mut self, now: Time, id: PeerId, remaining: Option<u32>) {
        let is_progress = match self.slot(id) {
            ScheduleSlot::Away => true,
            ScheduleSlot::Due {
                remaining: queued, ..
            } => remaining.is_some_and(|it| it < queued),
            ScheduleSlot::Waiting { .. } => false,
        };
        if is_progress {
            self.requeue(now, id);
        }
    }

    /// A peer's rate has changed: perhaps it need not wait so long.
    pub(super) fn requeue_earlier(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get(id)
            && let ScheduleSlot::Waiting { until } = peer.slot
            && peer.pacer.ready_at() < until
        {
            self.wait(id);
        }
    }

    fn slot(&self, id: PeerId) -> ScheduleSlot {
        self.peers
            .get(id)
            .map_or(ScheduleSlot::Away, |peer| peer.slot)
    }

    fn put(&mut self, id: PeerId, slot: ScheduleSlot) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.slot = slot;
        }
    }

    /// The shortest rest of a peer's messages. Those that have been delivered
    /// meanwhile, or have another rest, are put right on the way.
    fn shortest_message(&mut self, id: PeerId) -> Option<(u32, u64)> {
        let peer = self.peers.get_mut(id)?;
        while let Some(&Reverse((remaining, message))) = peer.ready.peek() {
            let outgoing = self.outgoing.get_mut(&SendId { peer: id, message });
            match outgoing {
                Some(outgoing) if outgoing.remaining() == remaining => {
                    return Some((remaining, message));
                }
                Some(outgoing) if outgoing.remaining() > 0 => {
                    peer.ready.pop();
                    peer.ready.push(Reverse((outgoing.remaining(), message)));
                }
                Some(outgoing) => {
                    outgoing.is_queued = false;
                    peer.ready.pop();
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
    use super::*;
    use crate::{
        config::{Quotas, TransportConfig},
        event::{FourTuple, MessageKind, SocketId},
    };
    use core::time::Duration;

    fn machine(peers: u32, link_bits_per_s: u64) -> (Native, Vec<PeerId>) {
        let config = TransportConfig {
            link_bits_per_s,
            quotas: Quotas {
                outgoing_messages: 100_000,
                outgoing_bytes: 1 << 30,
                ..Quotas::default()
            },
            ..TransportConfig::default()
        };
        let mut native = Native::new(config, [1; 32], Time::ZERO);
        let connect = |number: u32| {
            let remote = ([10, 0, (number >> 8) as u8, number as u8], 7).into();
            let socket = SocketId(0);
            let four_tuples = [FourTuple { socket, remote }];
            native
                .connect(Time::ZERO, &four_tuples)
                .expect("there is room")
        };
        let ids = (0..peers).map(connect).collect();
        (native, ids)
    }

    /// What is left of the shortest message that may be sent, found the long way.
    fn shortest(native: &Native, now: Time) -> Option<u32> {
        let may = native.outgoing.values().filter(|outgoing| {
            let peer = native.peers.get(outgoing.id.peer).expect("it is known");
            outgoing.remaining() > 0 && peer.pacer.credit(now) > 0
        });
        may.map(|outgoing| outgoing.remaining()).min()
    }

    #[test]
    fn the_shortest_rest_of_all_that_may_be_sent_is_chosen() {
        let (mut native, ids) = machine(40, 50_000_000);
        let mut now = Time::ZERO;
        let mut out = vec![0; 65_535];
        let mut draw = 1_u64;
        let mut chosen = 0;
        for step in 0..4_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = ids[(draw >> 33) as usize % ids.len()];
            if step % 3 == 0 {
                let message = vec![7; 1 + (draw >> 40) as usize % 60_000];
                let sent = native.send(now, id, MessageKind::Message, &message);
                if draw >> 20 & 3 == 0 {
                    native.cancel(now, sent.expect("there is room"));
                }
            }
            if draw >> 25 & 7 == 0 {
                // What a peer may be sent changes with what it tells.
                let peer = native.peers.get_mut(id).expect("it is known");
                peer.pacer
                    .set_rate(now, 1e5 + (draw >> 30 & 0xff) as f64 * 2e4);
                native.requeue_earlier(id);
            }
            native.pacer = super::super::Pacer::new(now, 1e9);
            let best = shortest(&native, now);
            let next = native.next_message(now);
            let remaining =
                next.map(|(peer, message)| native.outgoing[&SendId { peer, message }].remaining());
            assert_eq!(remaining, best, "step {step}");
            match next {
                Some((peer, message)) => {
                    chosen += 1;
                    native.transmit_symbols(now, SendId { peer, message }, &mut out);
                    native.requeue(now, peer);
                }
                None => {
                    let next = native.scheduler.next();
                    let wakes = next.unwrap_or(now).max(now);
                    now = wakes.min(now + Duration::from_millis(1)) + Duration::from_micros(1);
                }
            }
            assert!(native.scheduler.due.len() <= 2 * ids.len() + MOST_STALE);
            assert!(native.scheduler.waiting.len() <= 2 * ids.len() + MOST_STALE);
        }
        assert!(chosen > 500, "{chosen}");
    }

    #[test]
    fn equals_take_turns() {
        let (mut native, ids) = machine(3, 1_000_000_000);
        for &id in &ids {
            for _ in 0..4 {
                let sent = native.send(Time::ZERO, id, MessageKind::Message, &[7; 500]);
                sent.expect("there is room");
            }
        }
        let mut out = vec![0; 65_535];
        let mut order = Vec::new();
        while let Some((peer, message)) = native.next_message(Time::ZERO) {
            let id = SendId { peer, message };
            native.transmit_symbols(Time::ZERO, id, &mut out);
            native.requeue(Time::ZERO, peer);
            order.push(ids.iter().position(|it| *it == peer).expect("it is one"));
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }
}
