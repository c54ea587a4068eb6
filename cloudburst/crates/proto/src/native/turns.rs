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
pub(super) struct Turns {
    /// Those that may: what is left of a message in symbols, then who has waited longest.
    due: BinaryHeap<Reverse<(u32, u64, PeerId)>>,
    /// Those that have to wait, and until when.
    waiting: BinaryHeap<Reverse<(Time, PeerId)>>,
    number: u64,
}

/// Where a peer is among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has nothing to send, or nothing that may be sent before something is heard.
    #[default]
    Away,
    Due {
        rest: u32,
        number: u64,
    },
    Waiting {
        until: Time,
    },
}

/// Entries that do not hold any more, beside as many as there are peers.
const MOST_STALE: usize = 64;

impl Turns {
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
    /// place; [`Self::line_up`] gives it another.
    pub(super) fn next_message(&mut self, now: Time) -> Option<(PeerId, u64)> {
        while let Some(&Reverse((until, id))) = self.turns.waiting.peek()
            && until <= now
        {
            self.turns.waiting.pop();
            if self.place(id) == (Place::Waiting { until }) {
                self.line_up(now, id);
            }
        }
        while let Some(Reverse((rest, number, id))) = self.turns.due.pop() {
            if self.place(id) != (Place::Due { rest, number }) {
                continue;
            }
            let top = self.top(id);
            let may_send = |peer: &super::Peer| peer.pacer.room(now) > 0;
            match top {
                Some((shortest, message))
                    if shortest == rest && self.peers.get(id).is_some_and(may_send) =>
                {
                    self.put(id, Place::Away);
                    return Some((id, message));
                }
                // It has been answered meanwhile, or other news have changed what is left.
                _ => self.line_up(now, id),
            }
        }
        None
    }

    /// Gives a peer its place, by what it has to send.
    pub(super) fn line_up(&mut self, now: Time, id: PeerId) {
        let top = self.top(id);
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let Some((rest, _)) = top else {
            peer.place = Place::Away;
            return;
        };
        if peer.pacer.room(now) == 0 {
            return self.wait(id);
        }
        let number = self.turns.number;
        self.turns.number += 1;
        peer.place = Place::Due { rest, number };
        self.turns.due.push(Reverse((rest, number, id)));
        if self.turns.due.len() > 2 * self.peers.len() + MOST_STALE {
            let peers = &self.peers;
            self.turns.due.retain(|&Reverse((rest, number, id))| {
                let place = Place::Due { rest, number };
                peers.get(id).is_some_and(|peer| peer.place == place)
            });
        }
    }

    fn wait(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let until = peer.pacer.ready_at();
        peer.place = Place::Waiting { until };
        self.turns.waiting.push(Reverse((until, id)));
        if self.turns.waiting.len() > 2 * self.peers.len() + MOST_STALE {
            let peers = &self.peers;
            self.turns.waiting.retain(|&Reverse((until, id))| {
                let place = Place::Waiting { until };
                peers.get(id).is_some_and(|peer| peer.place == place)
            });
        }
    }

    /// A peer has messages, of which one with so much left is perhaps another than before.
    pub(super) fn join(&mut self, now: Time, id: PeerId, remaining: Option<u32>) {
        let is_news = match self.place(id) {
            Place::Away => true,
            Place::Due { rest, .. } => remaining.is_some_and(|it| it < rest),
            Place::Waiting { .. } => false,
        };
        if is_news {
            self.line_up(now, id);
        }
    }

    /// A peer's rate has changed: perhaps it need not wait so long.
    pub(super) fn hurry(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get(id)
            && let Place::Waiting { until } = peer.place
            && peer.pacer.ready_at() < until
        {
            self.wait(id);
        }
    }

    fn place(&self, id: PeerId) -> Place {
        self.peers.get(id).map_or(Place::Away, |peer| peer.place)
    }

    fn put(&mut self, id: PeerId, place: Place) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.place = place;
        }
    }

    /// The shortest rest of a peer's messages. Those that have been delivered
    /// meanwhile, or have another rest, are put right on the way.
    fn top(&mut self, id: PeerId) -> Option<(u32, u64)> {
        let peer = self.peers.get_mut(id)?;
        while let Some(&Reverse((rest, message))) = peer.ready.peek() {
            let outgoing = self.outgoing.get_mut(&SendId { peer: id, message });
            match outgoing {
                Some(outgoing) if outgoing.remaining() == rest => return Some((rest, message)),
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
        config::{Config, Quotas},
        event::{Kind, Route, SocketId},
    };
    use core::time::Duration;

    fn machine(peers: u32, link_bits_per_s: u64) -> (Native, Vec<PeerId>) {
        let config = Config {
            link_bits_per_s,
            quotas: Quotas {
                outgoing_messages: 100_000,
                outgoing_bytes: 1 << 30,
                ..Quotas::default()
            },
            ..Config::default()
        };
        let mut native = Native::new(config, [1; 32], Time::ZERO);
        let connect = |number: u32| {
            let remote = ([10, 0, (number >> 8) as u8, number as u8], 7).into();
            let socket = SocketId(0);
            let routes = [Route { socket, remote }];
            native.connect(Time::ZERO, &routes).expect("there is room")
        };
        let ids = (0..peers).map(connect).collect();
        (native, ids)
    }

    /// What is left of the shortest message that may be sent, found the long way.
    fn shortest(native: &Native, now: Time) -> Option<u32> {
        let may = native.outgoing.values().filter(|outgoing| {
            let peer = native.peers.get(outgoing.id.peer).expect("it is known");
            outgoing.remaining() > 0 && peer.pacer.room(now) > 0
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
                let sent = native.send(now, id, Kind::Message, &message);
                if draw >> 20 & 3 == 0 {
                    native.cancel(now, sent.expect("there is room"));
                }
            }
            if draw >> 25 & 7 == 0 {
                // What a peer may be sent changes with what it tells.
                let peer = native.peers.get_mut(id).expect("it is known");
                peer.pacer
                    .set_rate(now, 1e5 + (draw >> 30 & 0xff) as f64 * 2e4);
                native.hurry(id);
            }
            native.pacer = super::super::Pacer::new(now, 1e9);
            let best = shortest(&native, now);
            let next = native.next_message(now);
            let rest =
                next.map(|(peer, message)| native.outgoing[&SendId { peer, message }].remaining());
            assert_eq!(rest, best, "step {step}");
            match next {
                Some((peer, message)) => {
                    chosen += 1;
                    native.transmit_symbols(now, SendId { peer, message }, &mut out);
                    native.line_up(now, peer);
                }
                None => {
                    let next = native.turns.next();
                    let wakes = next.unwrap_or(now).max(now);
                    now = wakes.min(now + Duration::from_millis(1)) + Duration::from_micros(1);
                }
            }
            assert!(native.turns.due.len() <= 2 * ids.len() + MOST_STALE);
            assert!(native.turns.waiting.len() <= 2 * ids.len() + MOST_STALE);
        }
        assert!(chosen > 500, "{chosen}");
    }

    #[test]
    fn equals_take_turns() {
        let (mut native, ids) = machine(3, 1_000_000_000);
        for &id in &ids {
            for _ in 0..4 {
                let sent = native.send(Time::ZERO, id, Kind::Message, &[7; 500]);
                sent.expect("there is room");
            }
        }
        let mut out = vec![0; 65_535];
        let mut order = Vec::new();
        while let Some((peer, message)) = native.next_message(Time::ZERO) {
            let id = SendId { peer, message };
            native.transmit_symbols(Time::ZERO, id, &mut out);
            native.line_up(Time::ZERO, peer);
            order.push(ids.iter().position(|it| *it == peer).expect("it is one"));
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }
}
