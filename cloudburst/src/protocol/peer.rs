//! Somebody that messages are exchanged with.

use core::time::Duration;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use foldhash::fast::FixedState;

use super::{
    estimate::{Rate, RoundTrip},
    inbound::Inbound,
    incoming::Incoming,
    pacer::Pacer,
    packet::{Opener, Sealer},
    paths::Paths,
    time::Time,
    timers::Alarm,
    window::Window,
};

/// How much faster than was measured a peer is sent to, so that more is found
/// out if there is more.
const PROBING_GAIN: f64 = 1.25;
/// The least share of the link that is used for a peer.
const LEAST_SHARE: f64 = 1.0 / 256.0;
/// Sessions of a peer that are remembered, so that nobody can replay them.
const RETIRED_SESSIONS: usize = 64;
/// After this long without messages a peer's paths are not probed any more.
const ACTIVE_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Peer {
    /// Seals what it is sent, as our session with it: no two peers see the same.
    pub(super) sealer: Sealer,
    /// Its session, once a datagram of it has come.
    pub(super) session: Option<u64>,
    /// Those it had before it was restarted.
    pub(super) retired_sessions: Vec<u64>,
    /// Opens its datagrams, by key; the one used last in front.
    pub(super) openers: Vec<Opener>,
    /// Whether it has taken a message of ours.
    pub(super) is_taken_in: bool,
    /// Whether we chose it ourselves: then it stays.
    pub(super) is_ours: bool,
    pub(super) paths: Paths,
    pub(super) inbound: Inbound,
    pub(super) window: Window,
    pub(super) incoming: HashMap<u64, Incoming, FixedState>,
    pub(super) incoming_bytes: usize,
    /// Whether it counts among those that have shown a token.
    pub(super) is_validated: bool,
    /// Messages that have symbols to be sent: the shortest rest first, then the oldest.
    pub(super) ready: BinaryHeap<Reverse<(u32, u64)>>,
    /// Whether it is on the endpoint's list of those with something to send.
    pub(super) is_active: bool,
    /// Our messages for it that are not delivered.
    pub(super) outgoing: usize,
    /// The number of the next one, and of the oldest that is not delivered.
    pub(super) next_message: u64,
    pub(super) oldest_message: u64,
    pub(super) round_trip: RoundTrip,
    pub(super) rate: Rate,
    pub(super) pacer: Pacer,
    pub(super) heard_at: Time,
    /// When a message was last sent to it.
    pub(super) sent_at: Option<Time>,
    pub(super) alarm: Alarm,
}

impl Peer {
    pub(super) fn new(
        now: Time,
        sealer: Sealer,
        bytes_per_s: f64,
        first_message: u64,
        is_ours: bool,
    ) -> Self {
        let seed = sealer.session();
        Self {
            sealer,
            session: None,
            retired_sessions: Vec::new(),
            openers: Vec::new(),
            is_taken_in: false,
            is_ours,
            paths: Paths::default(),
            inbound: Inbound::default(),
            window: Window::default(),
            incoming: HashMap::with_hasher(FixedState::with_seed(seed)),
            incoming_bytes: 0,
            is_validated: is_ours,
            ready: BinaryHeap::new(),
            is_active: false,
            outgoing: 0,
            next_message: first_message,
            oldest_message: first_message,
            round_trip: RoundTrip::default(),
            rate: Rate::new(now),
            pacer: Pacer::new(now, bytes_per_s),
            heard_at: now,
            sent_at: None,
            alarm: Alarm::default(),
        }
    }

    /// The peer was restarted: its paths and messages are numbered anew.
    pub(super) fn forget_session(&mut self, session: u64) {
        if self.retired_sessions.len() == RETIRED_SESSIONS {
            self.retired_sessions.remove(0);
        }
        self.retired_sessions.push(session);
        self.openers.clear();
        self.inbound = Inbound::default();
        self.window = Window::default();
    }

    /// Our session with it.
    pub(super) fn own_session(&self) -> u64 {
        self.sealer.session()
    }

    /// How long an answer may take that was not lost.
    pub(super) fn patience(&self) -> Duration {
        self.round_trip.patience()
    }

    /// Whether it is of interest how its paths are.
    pub(super) fn is_in_use(&self, now: Time) -> bool {
        self.outgoing > 0 || self.sent_at.is_some_and(|at| now.since(at) < ACTIVE_FOR)
    }

    /// It got so many bytes within this time, of a message sent at no less than
    /// the pacer's rate.
    pub(super) fn measured(&mut self, now: Time, bytes: usize, spread: Duration, link: f64) {
        if spread < Duration::from_micros(20) {
            return;
        }
        self.rate.sample(now, bytes as f64 / spread.as_secs_f64());
        if let Some(highest) = self.rate.highest() {
            self.pacer
                .set_rate((highest * PROBING_GAIN).clamp(link * LEAST_SHARE, link));
        }
    }
}
