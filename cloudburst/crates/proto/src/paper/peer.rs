//! Who is at an address.

use core::{net::IpAddr, time::Duration};
use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::{
    super::{
        event::{Health, PathReport, Route, SendId},
        incoming::Incoming,
        paths::MAX_PATHS,
        time::Time,
        timers::Alarm,
    },
    ids::Ids,
};
use cloudburst_code::Shape;

/// How much longer an id rests than receivers remember it: not all symbols take
/// the same time.
const MARGIN: u32 = 2;

#[derive(Debug)]
pub(super) struct Peer {
    /// Whether it was connected to: then it stays, and there is somebody.
    pub(super) is_ours: bool,
    pub(super) ways: Vec<Way>,
    pub(super) ids: Ids,
    /// The number of the next message for it.
    pub(super) next_message: u64,
    /// Our messages for it that have not ended.
    pub(super) outgoing: usize,
    /// Of these, those that go on when it is heard from: more must not be sent
    /// to its address before.
    pub(super) parked: Vec<SendId>,
    /// Its messages, by the address and id that they come with.
    pub(super) arrivals: HashMap<(IpAddr, u8), Arrival, FixedState>,
    /// Of these, incomplete ones and their memory.
    pub(super) incoming: usize,
    pub(super) incoming_bytes: usize,
    pub(super) round_trip: Option<Duration>,
    pub(super) heard_at: Time,
    pub(super) alarm: Alarm,
}

/// A route, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) route: Route,
    pub(super) sent: u64,
    /// The network says that nobody is there.
    pub(super) is_unreachable: bool,
    is_heard: bool,
}

/// What is known of a message of the peer's.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box for each message would have to be allocated"
)]
pub(super) enum Arrival {
    UnderWay(Incoming),
    /// It was handed over; its last symbol came at this time.
    Done {
        shape: Shape,
        last_at: Time,
    },
}

impl Peer {
    pub(super) fn new(now: Time, is_ours: bool, first_message: u64) -> Self {
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
    pub(super) fn add_way(&mut self, route: Route) -> bool {
        let is_known = self.ways.iter().any(|way| way.route == route);
        if is_known || self.ways.len() == MAX_PATHS {
            return false;
        }
        self.ways.push(Way {
            route,
            sent: 0,
            is_unreachable: false,
            is_heard: false,
        });
        true
    }

    /// A datagram came from there.
    pub(super) fn heard(&mut self, now: Time, route: Route) {
        self.heard_at = now;
        if let Some(way) = self.ways.iter_mut().find(|way| way.route == route) {
            way.is_unreachable = false;
            way.is_heard = true;
        }
    }

    /// The first way from this on that somebody is at.
    pub(super) fn way_from(&self, first: usize) -> Option<usize> {
        let mut ways = self.ways.iter().skip(first);
        ways.position(|way| !way.is_unreachable)
            .map(|index| first + index)
    }

    /// Ways that a round takes.
    pub(super) fn width(&self) -> usize {
        self.ways.iter().filter(|way| !way.is_unreachable).count()
    }

    /// How long an id rests whose message was stopped (A-C1: max(2 RTT, 10 ms)),
    /// if the receiver remembers it for `memory` after its last symbol.
    pub(super) fn quarantine(&self, memory: Duration) -> Duration {
        let round_trip = self.round_trip.unwrap_or_default();
        (round_trip * 2).max(memory * MARGIN)
    }

    /// A message was stopped so long after it could be complete.
    pub(super) fn learn_round_trip(&mut self, sample: Duration) {
        let smoothed = self
            .round_trip
            .map_or(sample, |before| (before * 7 + sample) / 8);
        // Too long an estimate does less harm than too short a one.
        self.round_trip = Some(smoothed.max(sample));
    }

    pub(super) fn reports(&self, datagram_bytes: usize) -> impl Iterator<Item = PathReport> + '_ {
        self.ways
            .iter()
            .zip(1..)
            .map(move |(way, path)| PathReport {
                path,
                route: way.route,
                health: match (way.is_unreachable, way.is_heard) {
                    (true, _) => Health::Dead,
                    (false, true) => Health::Good,
                    (false, false) => Health::Unknown,
                },
                sent: way.sent,
                // The format does not tell.
                delivered: 0,
                loss: 0.0,
                rtt: self.round_trip,
                lag: None,
                datagram_bytes,
            })
    }
}
