//! Who is at an address.

use core::{net::IpAddr, time::Duration};
use std::collections::HashMap;

use foldhash::fast::FixedState;

use cloudburst_proto::{FourTuple, Health, PathReport, SendId, Time};

use crate::{ids::Ids, incoming::Incoming, timers::Alarm};
use cloudburst_code::Shape;

/// Routes to a peer, at most.
const MAX_PATHS: usize = 64;
/// How much longer an id rests than receivers remember it: not all symbols take
/// the same time.
const MARGIN: u32 = 2;

#[derive(Debug)]
pub(crate) struct Peer {
    /// Whether it was connected to: then it stays, and there is somebody.
    pub(crate) is_ours: bool,
    pub(crate) ways: Vec<Way>,
    pub(crate) ids: Ids,
    /// The number of the next message for it.
    pub(crate) next_message: u64,
    /// Our messages for it that have not ended.
    pub(crate) outgoing: usize,
    /// Of these, those that go on when it is heard from: more must not be sent
    /// to its address before.
    pub(crate) parked: Vec<SendId>,
    /// Its messages, by the address and id that they come with.
    pub(crate) arrivals: HashMap<(IpAddr, u8), Arrival, FixedState>,
    /// Of these, incomplete ones and their memory.
    pub(crate) incoming: usize,
    pub(crate) incoming_bytes: usize,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) heard_at: Time,
    pub(crate) alarm: Alarm,
}

/// A route, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) four_tuple: FourTuple,
    pub(crate) sent: u64,
    /// The network says that nobody is there.
    pub(crate) is_unreachable: bool,
    is_heard: bool,
}

/// What is known of a message of the peer's.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation")]
pub(crate) enum Arrival {
    UnderWay(Incoming),
    /// It was handed over; its last symbol came at this time.
    Done {
        shape: Shape,
        last_at: Time,
    },
}

impl Peer {
    pub(crate) fn new(now: Time, is_ours: bool, first_message: u64) -> Self {
        Self {
            is_ours,
            ways: Vec::new(),
            ids: Ids::default(),
            next_message: first_message,
            outgoing: 0,
            parked: Vec::new(),
            arrivals: HashMap::with_hasher(FixedState::with_seed(first_message)),
            incoming: 0,
            incoming_bytes: 0,
            round_trip: None,
            heard_at: now,
            alarm: Alarm::default(),
        }
    }

    /// Whether it is new, and there is room.
    pub(crate) fn add_way(&mut self, four_tuple: FourTuple) -> bool {
        let is_known = self.ways.iter().any(|way| way.four_tuple == four_tuple);
        if is_known || self.ways.len() == MAX_PATHS {
            return false;
        }
        self.ways.push(Way {
            four_tuple,
            sent: 0,
            is_unreachable: false,
            is_heard: false,
        });
        true
    }

    /// A datagram came from there.
    pub(crate) fn heard(&mut self, now: Time, four_tuple: FourTuple) {
        self.heard_at = now;
        if let Some(way) = self
            .ways
            .iter_mut()
            .find(|way| way.four_tuple == four_tuple)
        {
            way.is_unreachable = false;
            way.is_heard = true;
        }
    }

    /// The first way from this on that somebody is at.
    pub(crate) fn way_from(&self, first: usize) -> Option<usize> {
        let mut ways = self.ways.iter().skip(first);
        ways.position(|way| !way.is_unreachable)
            .map(|index| first + index)
    }

    /// Ways that a round takes.
    pub(crate) fn width(&self) -> usize {
        self.ways.iter().filter(|way| !way.is_unreachable).count()
    }

    /// How long an id rests whose message was stopped (A-C1: max(2 RTT, 10 ms)),
    /// if the receiver remembers it for `memory` after its last symbol.
    pub(crate) fn quarantine(&self, memory: Duration) -> Duration {
        let round_trip = self.round_trip.unwrap_or_default();
        (round_trip * 2).max(memory * MARGIN)
    }

    /// A message was stopped so long after it could be complete.
    pub(crate) fn learn_round_trip(&mut self, sample: Duration) {
        let smoothed = self
            .round_trip
            .map_or(sample, |before| (before * 7 + sample) / 8);
        // Too long an estimate does less harm than too short a one.
        self.round_trip = Some(smoothed.max(sample));
    }

    pub(crate) fn reports(&self, datagram_bytes: usize) -> impl Iterator<Item = PathReport> + '_ {
        self.ways.iter().zip(1..).map(move |(way, path)| {
            // The format tells no more.
            let mut report = PathReport::new(path, way.four_tuple);
            report.health = match (way.is_unreachable, way.is_heard) {
                (true, _) => Health::Dead,
                (false, true) => Health::Good,
                (false, false) => Health::Unknown,
            };
            report.sent = way.sent;
            report.rtt = self.round_trip;
            report.datagram_bytes = datagram_bytes;
            report
        })
    }
}
