//! The state machine behind [`Transport`](super::Transport).

mod control;
mod first_contact;
mod port_rotation;
mod receive;
mod receiver;
mod scheduler;
mod sender;
mod timeouts;
mod transmit;

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) use self::scheduler::ScheduleSlot;
use self::{
    control::{Control, Stateless},
    scheduler::Scheduler,
};
use super::{
    MessageKind,
    address::Addresses,
    buffer_pool::BufferPool,
    config::TransportConfig,
    estimate::{DeliveryRate, RoundTripEstimator},
    event::{
        ConnectRefused, Event, FourTuple, PathReport, PeerId, Reason, SendId, SendRefused, SocketId,
    },
    incoming::Pool,
    message_window::MAX_SPAN,
    outgoing::{Outgoing, symbol_bytes},
    pacer::Pacer,
    packet::{Keyring, TokenMint},
    peer::Peer,
    peers::Peers,
    port_rotation::PortRotation,
    statistics::TransportStatistics,
    time::Time,
    timers::Timers,
};

/// Sends and receives messages; [`Transport`](super::Transport) says what its
/// methods do.
#[derive(Debug)]
pub(crate) struct Native {
    config: TransportConfig,
    random: Xoshiro256PlusPlus,
    tokens: TokenMint,
    peers: Peers,
    addresses: Addresses,
    outgoing: HashMap<SendId, Outgoing, FixedState>,
    buffers: BufferPool,
    pool: Pool,
    /// Messages that the host has room for.
    host_capacity: usize,
    /// Memory of incomplete messages of peers that have not shown a token.
    unvalidated_bytes: usize,
    timers: Timers<TimerKey>,
    /// Peers with something to send.
    scheduler: Scheduler,
    pacer: Pacer,
    control: VecDeque<Control>,
    stateless: Stateless,
    port_rotation: PortRotation,
    events: VecDeque<Event>,
    statistics: TransportStatistics,
}

/// What timers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Message(SendId),
    Peer(PeerId),
}

impl Native {
    /// `config` is a valid one.
    pub(crate) fn new(config: TransportConfig, seed: [u8; 32], now: Time) -> Self {
        let mut random = Xoshiro256PlusPlus::from_seed(seed);
        let mut secret = [0; 32];
        random.fill_bytes(&mut secret);
        let hash_seed = random.next_u64();
        let quotas = &config.quotas;
        Self {
            tokens: TokenMint::new(secret, now.as_nanos()),
            peers: Peers::new(hash_seed),
            addresses: Addresses::new(
                2 * quotas.unvalidated_peers,
                quotas.answers_per_s,
                hash_seed,
            ),
            outgoing: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            buffers: BufferPool::default(),
            pool: Pool::default(),
            host_capacity: usize::MAX,
            unvalidated_bytes: 0,
            timers: Timers::new(),
            scheduler: Scheduler::default(),
            pacer: Pacer::new(now, config.bytes_per_s()),
            control: VecDeque::new(),
            stateless: Stateless::new(config.keys.sealer(random.next_u64())),
            port_rotation: PortRotation::new(now, hash_seed),
            events: VecDeque::new(),
            statistics: TransportStatistics::default(),
            random,
            config,
        }
    }

    pub(crate) fn connect(
        &mut self,
        now: Time,
        four_tuples: &[FourTuple],
    ) -> Result<PeerId, ConnectRefused> {
        if four_tuples.is_empty() {
            return Err(ConnectRefused::NoPath);
        }
        let known = four_tuples
            .iter()
            .find_map(|four_tuple| self.peers.by_remote(four_tuple.remote));
        let id = match known {
            Some(id) => id,
            None if self.peers.len() >= self.config.quotas.peers => {
                return Err(ConnectRefused::TooManyPeers(self.peers.len()));
            }
            None => self.add_peer(now, None),
        };
        for &four_tuple in four_tuples {
            self.add_path(now, id, four_tuple);
        }
        Ok(id)
    }

    pub(crate) fn add_path(&mut self, now: Time, peer: PeerId, four_tuple: FourTuple) -> bool {
        let Some(known) = self.peers.get_mut(peer) else {
            return false;
        };
        let added = known.paths.add(now, four_tuple, &self.config.datagrams);
        if added && known.is_ours {
            self.peers.bind_remote(four_tuple.remote, peer);
        }
        added
    }

    pub(crate) fn remove_socket(&mut self, now: Time, socket: SocketId) {
        for peer in self.peers.iter_mut() {
            peer.paths.remove_socket(now, socket);
        }
        self.port_rotation.forget(socket);
        self.control
            .retain(|control| control.four_tuple().socket != socket);
    }

    pub(crate) fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<SendId, SendRefused> {
        let (given, most) = (message.len(), self.config.max_message_bytes);
        if given == 0 {
            return Err(SendRefused::Empty);
        }
        let too_large = SendRefused::TooLarge { given, most };
        if given > most {
            return Err(too_large);
        }
        self.check_capacity(given)?;
        let Some(known) = self.peers.get_mut(peer) else {
            return Err(SendRefused::NoPeer);
        };
        known.oldest_message = oldest(peer, known, &self.outgoing);
        if known.next_message - known.oldest_message >= MAX_SPAN {
            return Err(self.full());
        }
        let id = SendId {
            peer,
            message: known.next_message,
        };
        let datagram_bytes = known
            .paths
            .datagram_bytes()
            .unwrap_or(self.config.datagrams.initial);
        let symbol_bytes = symbol_bytes(datagram_bytes, known.sealer.is_sealing());
        let memory = self.buffers.take();
        let mut outgoing =
            Outgoing::new(now, id, (kind, message), memory, symbol_bytes, &self.config)
                .map_err(|_| too_large)?;
        known.next_message += 1;
        if known.outgoing == 0 {
            // The silence before does not tell of a rate.
            known.delivery = DeliveryRate::new(now);
        }
        known.outgoing += 1;
        known.sent_at = Some(now);
        let is_unresponsive = known.is_unresponsive(now);
        if is_unresponsive {
            known.has_pending_messages = true;
            outgoing.open();
        } else {
            outgoing.begin(&known.paths.loss(), known.ack_timeout());
        }
        self.statistics.messages_accepted += 1;
        self.statistics.outgoing_now += 1;
        self.statistics.outgoing_bytes_now += outgoing.bytes() as u64;
        self.outgoing.insert(id, outgoing);
        self.enqueue(now, id);
        if is_unresponsive {
            self.send_initial_probes(now, peer);
        }
        self.look_after(now, peer);
        Ok(id)
    }

    fn check_capacity(&self, bytes: usize) -> Result<(), SendRefused> {
        let held = self.statistics.outgoing_bytes_now as usize;
        let quotas = &self.config.quotas;
        if quotas.hold(self.outgoing.len(), held, bytes) {
            return Ok(());
        }
        Err(self.full())
    }

    fn full(&self) -> SendRefused {
        SendRefused::Full {
            messages: self.outgoing.len(),
            bytes: self.statistics.outgoing_bytes_now as usize,
        }
    }

    pub(crate) fn cancel(&mut self, _now: Time, id: SendId) {
        self.abandon(id, Reason::Cancelled);
    }

    pub(crate) fn set_host_capacity(&mut self, messages: usize) {
        self.host_capacity = messages;
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let timers = self.timers.next();
        let sending = self.next_transmit();
        match (timers, sending) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    pub(crate) fn statistics(&self) -> TransportStatistics {
        TransportStatistics {
            peers_now: self.peers.len() as u64,
            ..self.statistics
        }
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.ids()
    }

    pub(crate) fn paths(&self, now: Time, peer: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        let peer = self.peers.get(peer);
        peer.into_iter()
            .flat_map(move |peer| peer.paths.reports(now))
    }

    pub(crate) fn set_keys(&mut self, keys: Keyring) {
        for peer in self.peers.iter_mut() {
            peer.sealer = keys.sealer(peer.own_session());
            peer.openers.clear();
        }
        self.stateless
            .set_sealer(keys.sealer(self.stateless.session()));
        self.config.keys = keys;
    }

    /// A new peer; ours, if its session is not known.
    fn add_peer(&mut self, now: Time, session: Option<u64>) -> PeerId {
        let sealer = self.config.keys.sealer(self.random.next_u64());
        // Far from the end: numbers do not wrap.
        let first_message = self.random.next_u64() >> 1;
        let rate = self.config.bytes_per_s();
        let mut peer = Peer::new(now, sealer, rate, first_message, session.is_none());
        peer.session = session;
        peer.round_trip = RoundTripEstimator::assuming(self.config.initial_round_trip);
        let id = self.peers.add(peer);
        self.look_after(now, id);
        id
    }

    /// A message that has something to send takes its place among the others.
    fn enqueue(&mut self, now: Time, id: SendId) {
        let Some(outgoing) = self.outgoing.get_mut(&id) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        if outgoing.remaining() > 0 && !outgoing.is_queued {
            outgoing.is_queued = true;
            peer.ready
                .push(std::cmp::Reverse((outgoing.remaining(), id.message)));
        }
        let look = outgoing.next_look(now, &peer.round_trip);
        outgoing
            .alarm
            .set(look, TimerKey::Message(id), &mut self.timers);
        if !peer.ready.is_empty() {
            let remaining = Some(outgoing.remaining()).filter(|it| *it > 0);
            self.schedule(now, id.peer, remaining);
        }
    }

    fn abandon(&mut self, id: SendId, reason: Reason) {
        if let Some(outgoing) = self.forget(id) {
            self.note_failure(&outgoing, reason);
            let failure = outgoing.failure(reason);
            self.statistics.messages_undelivered += 1;
            self.events.push_back(Event::Undelivered { id, failure });
            self.reuse(outgoing);
        }
    }

    /// Takes a message out of all lists but its peer's queue, which notices by itself.
    fn forget(&mut self, id: SendId) -> Option<Outgoing> {
        let outgoing = self.outgoing.remove(&id)?;
        if let Some(peer) = self.peers.get_mut(id.peer) {
            peer.outgoing -= 1;
        }
        self.statistics.outgoing_now -= 1;
        self.statistics.outgoing_bytes_now -= outgoing.bytes() as u64;
        Some(outgoing)
    }

    fn reuse(&mut self, outgoing: Outgoing) {
        self.buffers.give(outgoing.into_memory());
    }
}

/// The oldest of a peer's messages that is still under way, or else the next.
fn oldest(id: PeerId, peer: &Peer, outgoing: &HashMap<SendId, Outgoing, FixedState>) -> u64 {
    let mut messages = peer.oldest_message..peer.next_message;
    let is_under_way = |&message: &u64| outgoing.contains_key(&SendId { peer: id, message });
    messages.find(is_under_way).unwrap_or(peer.next_message)
}
