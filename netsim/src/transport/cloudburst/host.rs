//! A host's endpoint, and the messages that it has in flight.

use std::collections::{HashMap, VecDeque};

use cloudburst_proto::{Machine, PeerId, SendId, Time};

use super::{Tag, endpoint_paths::EndpointPaths};
use crate::{
    engine::packet::{EntryKind, NONE, Packet},
    fabric::Network,
};

/// A host: its endpoint, which knows nothing of the simulator.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) endpoint: Box<dyn Machine>,
    /// By host and alias.
    peers: HashMap<(u16, u8), PeerId>,
    in_flight: HashMap<SendId, InFlight>,
    /// By peer and the number on the wire; of several messages with one number the first is being
    /// sent.
    on_wire: HashMap<Numbered, VecDeque<Tag>>,
    /// Messages that the endpoint had no room for.
    pub(super) waiting: VecDeque<Tag>,
    pub(super) wake: Wake,
}

/// A peer, and the number of a message on the wire.
type Numbered = ((u16, u8), u64);

#[derive(Clone, Copy, Debug)]
struct InFlight {
    tag: Tag,
    numbers: [Numbered; 2],
}

/// The pending call of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    event: u32,
    at_ns: u64,
}

impl Wake {
    /// Takes the pending event; returns whether it is this one.
    pub(super) fn take(&mut self, event: u32) -> bool {
        let is_pending = self.event == event;
        if is_pending {
            self.event = NONE;
        }
        is_pending
    }
}

impl Host {
    pub(super) fn new(endpoint: Box<dyn Machine>) -> Self {
        Self {
            endpoint,
            peers: HashMap::new(),
            in_flight: HashMap::new(),
            on_wire: HashMap::new(),
            waiting: VecDeque::new(),
            wake: Wake {
                event: NONE,
                at_ns: 0,
            },
        }
    }

    /// A host under one of its addresses.
    pub(super) fn peer(&mut self, now: Time, to: u16, alias: u8, paths: &EndpointPaths) -> PeerId {
        let Self {
            endpoint, peers, ..
        } = self;
        *peers.entry((to, alias)).or_insert_with(|| {
            let connected = endpoint.connect(now, &paths.four_tuples(to, alias), None);
            // There is a route, and quotas are for more peers than there are hosts.
            connected.unwrap_or_else(|error| panic!("{error}"))
        })
    }

    /// The endpoint has taken a message.
    pub(super) fn sent(&mut self, id: SendId, peer: (u16, u8), tag: Tag) {
        // Mode paper has room for 8 bits of it.
        let numbers = [id.as_u64(), id.as_u64() & 0xff].map(|number| (peer, number));
        self.in_flight.insert(id, InFlight { tag, numbers });
        for number in numbers {
            self.on_wire.entry(number).or_default().push_back(tag);
        }
    }

    /// A message of ours has been delivered or given up.
    pub(super) fn ended(&mut self, id: SendId) -> Option<Tag> {
        let InFlight { tag, numbers } = self.in_flight.remove(&id)?;
        for number in numbers {
            if let Some(tags) = self.on_wire.get_mut(&number) {
                tags.retain(|it| *it != tag);
                if tags.is_empty() {
                    self.on_wire.remove(&number);
                }
            }
        }
        Some(tag)
    }

    /// The message that a datagram carries a symbol of.
    pub(super) fn tag(&self, peer: (u16, u8), datagram: &[u8]) -> Option<Tag> {
        let number = self.endpoint.message_of(datagram)?;
        self.on_wire.get(&(peer, number))?.front().copied()
    }

    /// Makes sure that the endpoint is called no later than it wants.
    pub(super) fn set_wake(&mut self, network: &mut Network, number: u16) {
        let Some(deadline) = self.endpoint.next_deadline() else {
            return;
        };
        // What is due now has been done: the next nanosecond, so that time goes on.
        let at_ns = deadline.as_nanos().max(network.now() + 1);
        // An endpoint may be called too early, and then says when again.
        if self.wake.event != NONE && self.wake.at_ns <= at_ns {
            return;
        }
        let mut event = Packet::new(EntryKind::Wake);
        event.to = number;
        let id = network.slab.insert(event);
        if network.events.push(id, at_ns) {
            self.wake = Wake { event: id, at_ns };
        } else {
            network.slab.remove(id);
        }
    }
}
