//! Algorithm 1 and its receiver (Cloudburst §III-B), on the paper's 12-byte header and nothing else.
//!
//! It is there to measure the paper's figures anew: no keys, no tokens, no integrity check, no
//! estimates, no replies; messages of up to 64 symbols, 256 of them under way to a peer, and one
//! endpoint per IP address. A message may arrive twice or, if the network delays some datagrams by
//! much more than others, be spoilt by one long gone. The end of
//! `docs/src/reference/cloudburst-wire.md` has the format.
//!
//! Nothing of the product depends on it, and it shares no state machine with it: its figures stay
//! as they are while the product changes.

mod address;
mod buffer_pool;
mod ids;
mod incoming;
mod machine;
mod outgoing;
mod pacer;
mod peer;
mod quota;
mod receive;
mod round_robin;
mod timeouts;
mod timers;
mod transmit;

use core::{net::IpAddr, time::Duration};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
};

use cloudburst_code::{MAX_BLOCK_SYMBOLS, PaperDegree, Schedule, wire::HEADER_BYTES};
use cloudburst_proto::{
    ConfigError, ConnectRefused, Event, FourTuple, Machine, MessageKind, PathReport, PeerId,
    Reason, SendId, SendRefused, SocketId, Time, Transport, TransportConfig, TransportStatistics,
};
use foldhash::fast::FixedState;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    address::Addresses,
    buffer_pool::BufferPool,
    incoming::Pool,
    outgoing::{MAX_BYTES, Outgoing},
    pacer::Pacer,
    peer::Peer,
    timers::Timers,
    transmit::Stop,
};

/// Rate of the link where none is stated: 1 Gbit/s.
const UNSTATED_BYTES_PER_S: f64 = 1.25e8;

/// Returns what the paper describes (§III-B, §IV-A): its code with degree 5, and datagrams that
/// fill an Ethernet frame: symbols of 1,460 bytes.
pub fn config() -> TransportConfig {
    let mut config = TransportConfig::unprotected();
    config.schedule = Schedule::Paper(PaperDegree::Fixed);
    (config.datagrams.initial, config.datagrams.most) = (1_472, 1_472);
    config
}

/// Says why the paper's machine cannot start.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PaperError {
    /// A setting is wrong for any machine.
    #[error(transparent)]
    TransportConfig(#[from] ConfigError),
    /// The paper's format has no place for keys.
    #[error("the paper's format knows no keys; take them out")]
    Keys,
    /// The paper's format has no place for tokens.
    #[error("the paper's format knows no tokens; take require_validation out")]
    Validation,
}

/// Starts the paper's machine or the product's, for who compares them.
///
/// # Errors
///
/// If a setting is wrong.
pub fn start(
    is_paper: bool,
    config: TransportConfig,
    seed: [u8; 32],
    now: Time,
) -> Result<Box<dyn Machine>, PaperError> {
    Ok(if is_paper {
        Box::new(Paper::new(config, seed, now)?)
    } else {
        Box::new(Transport::deterministic(config, seed, now)?)
    })
}

/// Starts the paper's machine for a simulated host.
///
/// # Panics
///
/// If a setting is wrong: who simulates has checked them.
pub fn simulated(config: TransportConfig, seed: [u8; 32], now: Time) -> Box<dyn Machine> {
    start(true, config, seed, now).unwrap_or_else(|error| panic!("{error}"))
}

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

/// Sends and receives messages as the paper says; [`Machine`] says what
/// its methods do.
#[derive(Debug)]
pub struct Paper {
    config: TransportConfig,
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
    buffers: BufferPool,
    /// When a message's next round is due; of equals the one that has waited longest.
    rounds: BinaryHeap<Reverse<(Time, u64, SendId)>>,
    rounds_so_far: u64,
    /// Bytes of a round of each message that is in the rounds.
    round_bytes: usize,
    /// Messages that are to be, the oldest in front.
    queue: VecDeque<SendId>,
    pool: Pool,
    /// Messages that the host has room for.
    host_capacity: usize,
    timers: Timers<Due>,
    pacer: Pacer,
    stops: VecDeque<Stop>,
    events: VecDeque<Event>,
    statistics: TransportStatistics,
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
    /// Starts an endpoint; `seed` decides all that is random.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, or one that the paper's format has no place for.
    pub fn new(config: TransportConfig, seed: [u8; 32], now: Time) -> Result<Self, PaperError> {
        config.validate()?;
        if !config.security.is_unprotected() {
            return Err(PaperError::Keys);
        }
        if config.require_validation {
            return Err(PaperError::Validation);
        }
        Ok(Self::with_valid(config, seed, now))
    }

    fn with_valid(config: TransportConfig, seed: [u8; 32], now: Time) -> Self {
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
            buffers: BufferPool::default(),
            rounds: BinaryHeap::new(),
            rounds_so_far: 0,
            round_bytes: 0,
            queue: VecDeque::new(),
            pool: Pool::default(),
            host_capacity: usize::MAX,
            timers: Timers::new(),
            pacer: Pacer::new(
                now,
                config
                    .congestion
                    .bytes_per_s()
                    .unwrap_or(UNSTATED_BYTES_PER_S),
            ),
            stops: VecDeque::new(),
            events: VecDeque::new(),
            statistics: TransportStatistics::default(),
            random,
            config,
        }
    }

    fn connect(&mut self, now: Time, four_tuples: &[FourTuple]) -> Result<PeerId, ConnectRefused> {
        if four_tuples.is_empty() {
            return Err(ConnectRefused::NoPath);
        }
        let known = four_tuples
            .iter()
            .find_map(|four_tuple| self.by_ip.get(&four_tuple.remote.ip()).copied());
        let id = match known {
            Some(id) => id,
            None if self.peers.len() >= self.config.quotas.peers => {
                return Err(ConnectRefused::TooManyPeers(self.peers.len()));
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
        for &four_tuple in four_tuples {
            self.add_path(now, id, four_tuple);
        }
        Ok(id)
    }

    /// Not if the address is that of another peer: who answers from there is that one.
    fn add_path(&mut self, _now: Time, id: PeerId, four_tuple: FourTuple) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else {
            return false;
        };
        let owner = self.by_ip.entry(four_tuple.remote.ip()).or_insert(id);
        *owner == id && peer.add_way(four_tuple)
    }

    fn remove_socket(&mut self, _now: Time, socket: SocketId) {
        for peer in self.peers.values_mut() {
            peer.ways.retain(|way| way.four_tuple.socket != socket);
        }
        self.stops.retain(|stop| stop.four_tuple.socket != socket);
    }

    fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<SendId, SendRefused> {
        let given = message.len();
        let most = self.max_message_bytes();
        if given == 0 {
            return Err(SendRefused::Empty);
        }
        if given > most {
            return Err(SendRefused::TooLarge { given, most });
        }
        if kind != MessageKind::Message {
            return Err(SendRefused::Unsupported);
        }
        let held = self.statistics.outgoing_bytes_now as usize;
        let quotas = &self.config.quotas;
        let is_full = self.outgoing.len() >= quotas.outgoing_messages;
        if is_full || held + given > quotas.outgoing_bytes {
            return Err(SendRefused::Full {
                messages: self.outgoing.len(),
                bytes: held,
            });
        }
        let Some(known) = self.peers.get_mut(&peer) else {
            return Err(SendRefused::NoPeer);
        };
        let id = SendId::new(peer, known.next_message);
        let mut outgoing = Outgoing::new(now, id, message, self.buffers.take(), &self.config)
            .map_err(|_| SendRefused::TooLarge { given, most })?;
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

    fn cancel(&mut self, now: Time, id: SendId) {
        self.give_up(now, id, Reason::Cancelled);
    }

    fn give_up(&mut self, now: Time, id: SendId, reason: Reason) {
        // What the receiver has of it must be forgotten before the id is used again.
        if let Some(outgoing) = self.forget(now, id, IDLE) {
            let failure = outgoing.failure(reason);
            self.statistics.messages_undelivered += 1;
            self.events.push_back(Event::Undelivered { id, failure });
            self.buffers.give(outgoing.into_memory());
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
        if let Some(peer) = self.peers.get_mut(&id.peer()) {
            peer.outgoing -= 1;
            if outgoing.is_started() {
                let free_at = now + peer.quarantine(memory) + longer;
                if peer.ids.release(outgoing.code(), free_at) {
                    self.timers
                        .add(free_at, Due::Id(id.peer(), outgoing.code()));
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

    fn set_host_capacity(&mut self, messages: usize) {
        self.host_capacity = messages;
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn next_deadline(&self) -> Option<Time> {
        let timers = self.timers.next();
        let sending = self.next_transmit();
        timers.into_iter().chain(sending).min()
    }

    fn statistics(&self) -> TransportStatistics {
        let mut statistics = self.statistics;
        statistics.peers_now = self.peers.len() as u64;
        statistics
    }

    fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.keys().copied()
    }

    fn paths(&self, peer: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        let datagram_bytes = self.config.datagrams.initial;
        let peer = self.peers.get(&peer).into_iter();
        peer.flat_map(move |peer| peer.reports(datagram_bytes))
    }

    fn add_peer(&mut self, now: Time, is_ours: bool) -> PeerId {
        let generation = (self.peers_so_far >> 32) as u32;
        let id = PeerId::new(self.peers_so_far as u32, generation);
        self.peers_so_far += 1;
        self.unvalidated += usize::from(!is_ours);
        // Far from the end: numbers do not wrap.
        let first_message = self.random.next_u64() >> 1;
        self.peers
            .insert(id, Peer::new(now, is_ours, first_message));
        id
    }
}
