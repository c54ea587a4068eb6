//! The machine of [`Mode::Paper`](super::Mode::Paper): Algorithm 1 and its receiver (Cloudburst §III-B).
//!
//! It shares with the native machine what is not of the format: pacing, quotas,
//! what addresses may be sent, decoders and their memory.

mod ids;
mod outgoing;
mod peer;
mod receive;
mod rounds;
mod timeouts;
mod transmit;

use core::{net::IpAddr, time::Duration};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
};

use foldhash::fast::FixedState;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::{
    outgoing::{MAX_BYTES, Outgoing},
    peer::Peer,
    transmit::Stop,
};
use super::{
    address::Addresses,
    config::Config,
    event::{
        ConnectError, Event, Kind, PathReport, PeerId, Reason, Route, SendError, SendId, SocketId,
    },
    incoming::Pool,
    pacer::Pacer,
    spare::Spare,
    statistics::Statistics,
    time::Time,
    timers::Timers,
};
use cloudburst_code::{MAX_BLOCK_SYMBOLS, wire::HEADER_BYTES};

/// Completed messages are remembered until nothing has come of them for so long
/// (`reproduction.md` A-C1), or longer if rounds are far apart.
const LEAST_MEMORY: Duration = Duration::from_millis(10);
/// Rounds of this many ways that have to fit into that time, so that a message
/// whose stop was lost is not taken for a new one: other messages have theirs
/// in between.
const MEMORY_ROUNDS: u32 = 8;
const MEMORY_WAYS: u32 = 16;
/// An incomplete message of which nothing has come for so long is forgotten (A-C15).
const IDLE: Duration = Duration::from_secs(1);

/// Sends and receives messages; [`Endpoint`](super::Endpoint) says what its
/// methods do.
#[derive(Debug)]
pub(crate) struct Paper {
    config: Config,
    random: Xoshiro256PlusPlus,
    /// In the order in which they came to be known.
    peers: BTreeMap<PeerId, Peer>,
    by_ip: HashMap<IpAddr, PeerId, FixedState>,
    peers_so_far: u64,
    /// Peers that we did not choose ourselves, and the memory of their
    /// incomplete messages.
    unvalidated: usize,
    unvalidated_bytes: usize,
    addresses: Addresses,
    outgoing: HashMap<SendId, Outgoing, FixedState>,
    spare: Spare,
    /// When a message's next round is due; of equals the one that has waited longest.
    rounds: BinaryHeap<Reverse<(Time, u64, SendId)>>,
    rounds_so_far: u64,
    /// Bytes of a round of each message that is in the rounds.
    round_bytes: usize,
    /// Messages that are to be, the oldest in front.
    queue: VecDeque<SendId>,
    pool: Pool,
    /// Messages that the host has room for.
    host_room: usize,
    timers: Timers<Due>,
    pacer: Pacer,
    stops: VecDeque<Stop>,
    events: VecDeque<Event>,
    statistics: Statistics,
}

/// What timers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Message(SendId),
    /// An id that another message waits for.
    Id(PeerId, u8),
    Peer(PeerId),
}

impl Paper {
    /// `config` is a valid one.
    pub(crate) fn new(config: Config, seed: [u8; 32], now: Time) -> Self {
        let mut random = Xoshiro256PlusPlus::from_seed(seed);
        let hash_seed = random.next_u64();
        let quotas = &config.quotas;
        let addresses = 2 * quotas.unvalidated_peers;
        Self {
            peers: BTreeMap::new(),
            by_ip: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            peers_so_far: 0,
            unvalidated: 0,
            unvalidated_bytes: 0,
            addresses: Addresses::new(addresses, quotas.answers_per_s, hash_seed),
            outgoing: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            spare: Spare::default(),
            rounds: BinaryHeap::new(),
            rounds_so_far: 0,
            round_bytes: 0,
            queue: VecDeque::new(),
            pool: Pool::default(),
            host_room: usize::MAX,
            timers: Timers::new(),
            pacer: Pacer::new(now, config.bytes_per_s()),
            stops: VecDeque::new(),
            events: VecDeque::new(),
            statistics: Statistics::default(),
            random,
            config,
        }
    }

    pub(crate) fn connect(&mut self, now: Time, routes: &[Route]) -> Result<PeerId, ConnectError> {
        if routes.is_empty() {
            return Err(ConnectError::NoRoute);
        }
        let known = routes
            .iter()
            .find_map(|route| self.by_ip.get(&route.remote.ip()).copied());
        let id = match known {
            Some(id) => id,
            None if self.peers.len() >= self.config.quotas.peers => {
                return Err(ConnectError::TooManyPeers(self.peers.len()));
            }
            None => self.add_peer(now, true),
        };
        if let Some(peer) = self.peers.get_mut(&id)
            && !core::mem::replace(&mut peer.is_ours, true)
        {
            self.unvalidated -= 1;
            self.unvalidated_bytes -= peer.incoming_bytes;
            self.resume(now, id);
        }
        for &route in routes {
            self.add_route(now, id, route);
        }
        Ok(id)
    }

    /// Not if the address is that of another peer: who answers from there is that one.
    pub(crate) fn add_route(&mut self, _now: Time, id: PeerId, route: Route) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else {
            return false;
        };
        let owner = self.by_ip.entry(route.remote.ip()).or_insert(id);
        *owner == id && peer.add_way(route)
    }

    pub(crate) fn remove_socket(&mut self, _now: Time, socket: SocketId) {
        for peer in self.peers.values_mut() {
            peer.ways.retain(|way| way.route.socket != socket);
        }
        self.stops.retain(|stop| stop.route.socket != socket);
    }

    pub(crate) fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: Kind,
        message: &[u8],
    ) -> Result<SendId, SendError> {
        let given = message.len();
        let most = self.max_message_bytes();
        if given == 0 {
            return Err(SendError::Empty);
        }
        if given > most {
            return Err(SendError::TooLarge { given, most });
        }
        if kind != Kind::Message {
            return Err(SendError::PaperKind);
        }
        let held = self.statistics.outgoing_bytes_now as usize;
        let quotas = &self.config.quotas;
        if !quotas.hold(self.outgoing.len(), held, given) {
            return Err(SendError::Full {
                messages: self.outgoing.len(),
                bytes: held,
            });
        }
        let Some(known) = self.peers.get_mut(&peer) else {
            return Err(SendError::NoPeer);
        };
        let id = SendId {
            peer,
            message: known.next_message,
        };
        let mut outgoing = Outgoing::new(now, id, message, self.spare.take(), &self.config)
            .map_err(|_| SendError::TooLarge { given, most })?;
        known.next_message += 1;
        known.outgoing += 1;
        outgoing.set_alarm(&mut self.timers);
        self.statistics.messages_accepted += 1;
        self.statistics.outgoing_now += 1;
        self.statistics.outgoing_bytes_now += outgoing.bytes() as u64;
        self.outgoing.insert(id, outgoing);
        self.queue.push_back(id);
        self.fill_rounds(now);
        Ok(id)
    }

    /// What 64 symbols hold and a set of bits leaves room to state.
    fn max_message_bytes(&self) -> usize {
        let symbol_bytes = self.config.datagrams.initial - HEADER_BYTES;
        let format = (MAX_BLOCK_SYMBOLS * symbol_bytes).min(MAX_BYTES);
        format.min(self.config.max_message_bytes)
    }

    pub(crate) fn cancel(&mut self, now: Time, id: SendId) {
        self.give_up(now, id, Reason::Cancelled);
    }

    fn give_up(&mut self, now: Time, id: SendId, reason: Reason) {
        // What the receiver has of it must be forgotten before the id is used again.
        if let Some(outgoing) = self.forget(now, id, IDLE) {
            let failure = outgoing.failure(reason);
            self.statistics.messages_undelivered += 1;
            self.events.push_back(Event::Undelivered { id, failure });
            self.spare.give(outgoing.into_memory());
        }
    }

    /// Takes a message out of all lists but the rounds, which notice by
    /// themselves. Its id rests, and for so much longer than after a stop.
    fn forget(&mut self, now: Time, id: SendId, longer: Duration) -> Option<Outgoing> {
        self.leave_rounds(id);
        let outgoing = self.outgoing.remove(&id)?;
        self.statistics.outgoing_now -= 1;
        self.statistics.outgoing_bytes_now -= outgoing.bytes() as u64;
        let memory = self.memory();
        if let Some(peer) = self.peers.get_mut(&id.peer) {
            peer.outgoing -= 1;
            if outgoing.is_started() {
                let free_at = now + peer.quarantine(memory) + longer;
                if peer.ids.release(outgoing.code(), free_at) {
                    self.timers.add(free_at, Due::Id(id.peer, outgoing.code()));
                }
            }
        }
        self.fill_rounds(now);
        Some(outgoing)
    }

    /// How long after the last symbol a completed message is remembered. Both
    /// ends have to be configured alike.
    fn memory(&self) -> Duration {
        let bytes = self.config.datagrams.initial * (MEMORY_ROUNDS * MEMORY_WAYS) as usize;
        self.pacer.time_of(bytes).max(LEAST_MEMORY)
    }

    pub(crate) fn set_host_room(&mut self, messages: usize) {
        self.host_room = messages;
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let timers = self.timers.next();
        let sending = self.next_transmit();
        timers.into_iter().chain(sending).min()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            peers_now: self.peers.len() as u64,
            ..self.statistics
        }
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.keys().copied()
    }

    pub(crate) fn paths(&self, peer: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        let datagram_bytes = self.config.datagrams.initial;
        let peer = self.peers.get(&peer).into_iter();
        peer.flat_map(move |peer| peer.reports(datagram_bytes))
    }

    fn add_peer(&mut self, now: Time, is_ours: bool) -> PeerId {
        let id = PeerId {
            index: self.peers_so_far as u32,
            generation: (self.peers_so_far >> 32) as u32,
        };
        self.peers_so_far += 1;
        self.unvalidated += usize::from(!is_ours);
        // Far from the end: numbers do not wrap.
        let first_message = self.random.next_u64() >> 1;
        self.peers
            .insert(id, Peer::new(now, is_ours, first_message));
        id
    }
}
