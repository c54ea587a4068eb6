//! The transport: the calls of a host.

#[cfg(test)]
mod acquainted;
#[cfg(test)]
mod address_tests;
#[cfg(test)]
mod cancel_tests;
#[cfg(test)]
mod challenge_tests;
#[cfg(test)]
mod event_tests;
#[cfg(test)]
mod goodbye_tests;
#[cfg(test)]
mod quota_tests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod sealed_tests;
#[cfg(test)]
mod tests;

use cloudburst_security::{Randomness, RandomnessError, Security};

use super::{
    config::{ConfigError, HostCapacity, TransportConfig},
    event::{
        ConnectRefused, Ecn, Event, ForeignPeer, FourTuple, GoneReason, IcmpKind, MessageKind,
        PathReport, PeerId, Reason, SendId, SendRefused, SocketId, Transmit, TransportId,
    },
    packet::PublicKey,
    router::Router,
    send_options::SendOptions,
    sender::Content,
    shared_message::SharedMessage,
    statistics::{TransportStatistics, tally},
    time::Time,
};

/// Why a transport cannot start.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system has no randomness to draw secrets from.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}

/// Sends and receives messages; see the [crate](super).
///
/// Memory: some 5 KiB for a peer with keys, and 2 KiB for which of its messages are done, 1.5 kB for
/// each of its paths, 0.8 kB more of one that is sent by beside others, and 36 bytes for each path on standby beyond 64; for an outgoing message its
/// bytes and some 850; for an incoming one twice its bytes and 1.3 KiB for each 64 symbols. For an
/// outgoing one that was given up 24 bytes, until its receiver has answered or was asked five times,
/// and for 16,384 of a peer at most.
#[derive(Debug)]
pub struct Transport {
    router: Box<Router>,
}

impl Transport {
    /// Starts a transport. What is random (sessions, message ids, the secret of tokens) comes from
    /// the system's generator.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, or the system has no randomness. In WebAssembly that no system runs
    /// (`wasm32-unknown-unknown`) it always is so: see [`Self::seeded`].
    pub fn new(config: TransportConfig, now: Time) -> Result<Self, StartError> {
        Ok(Self::start(config, &Randomness::from_system()?, now)?)
    }

    /// Starts a transport whose host has drawn the randomness, where there is no system to ask: from
    /// `crypto.getRandomValues` in a browser, for one. The seed has to come from a generator fit for
    /// cryptography, anew for each start, and to be known to nobody else: all secrets come from it.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn seeded(config: TransportConfig, seed: [u8; 32], now: Time) -> Result<Self, ConfigError> {
        Self::start(config, &Randomness::from_key(seed), now)
    }

    /// Starts a transport that does the same each time, for tests and simulations: who knows or
    /// guesses the seed knows its secrets, and two with the same seed and keys give both away.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn deterministic(
        config: TransportConfig,
        seed: [u8; 32],
        now: Time,
    ) -> Result<Self, ConfigError> {
        Self::seeded(config, seed, now)
    }

    fn start(config: TransportConfig, random: &Randomness, now: Time) -> Result<Self, ConfigError> {
        config.validate()?;
        let router = Box::new(Router::new(config, random, now));
        Ok(Self { router })
    }

    /// Returns the number that the ids of its peers bear. An id of another transport stands for nobody
    /// here: questions about it are answered as of a peer that is gone.
    pub fn id(&self) -> TransportId {
        self.router.handshake.transport()
    }

    /// Makes a peer known by the paths that lead to it, of which the best are chosen from. Of
    /// more than 64 the others take the place of those that turn out not to deliver. Of a peer
    /// that is known already by one of the addresses the others become paths too, and its id is
    /// returned. `key` is its public key, which has to be given where [`Security::KeyPair`] is
    /// used, and decides nothing elsewhere.
    ///
    /// # Errors
    ///
    /// If there is no path or no key, or as many peers as the quota allows.
    pub fn connect(
        &mut self,
        now: Time,
        four_tuples: &[FourTuple],
        key: Option<PublicKey>,
    ) -> Result<PeerId, ConnectRefused> {
        if four_tuples.is_empty() {
            return Err(ConnectRefused::NoPath);
        }
        let router = &mut self.router;
        let mut known = four_tuples.iter();
        let known = known.find_map(|it| router.handshake.by_remote(it.remote));
        // With key pairs it is the key that says who somebody is.
        let known = known.filter(|id| router.handshake.peer_key(*id) == key);
        if !router.handshake.can_begin(key.as_ref()) {
            return Err(ConnectRefused::NoPeerKey);
        }
        let peers = router.handshake.len();
        let id = match known {
            Some(id) => id,
            None if peers >= router.config.quotas.peers => {
                return Err(ConnectRefused::TooManyPeers(peers));
            }
            None => router.add_peer(now, None, key),
        };
        for &four_tuple in four_tuples {
            self.add_path(now, id, four_tuple);
        }
        Ok(id)
    }

    /// Adds another path to a peer, and returns whether it is new and there is capacity for it;
    /// if there is none, it is kept on standby for when others do not deliver.
    pub fn add_path(&mut self, now: Time, peer: PeerId, four_tuple: FourTuple) -> bool {
        let Router {
            paths, handshake, ..
        } = &mut *self.router;
        let added = paths.add_path(now, peer, four_tuple);
        if added && handshake.is_ours(peer) {
            handshake.bind_remote(four_tuple.remote, peer);
        }
        added
    }

    /// Forgets a socket that is gone: its paths are not used any more.
    pub fn remove_socket(&mut self, now: Time, socket: SocketId) {
        let router = &mut *self.router;
        router.paths.remove_socket(now, socket);
        for peer in router.handshake.peers() {
            router.outbound.count_in_flight(now, peer, &router.paths);
        }
        router.control.remove_socket(socket);
    }

    /// Takes note that a socket has another port, as [`Event::RotatePort`] asks for: its paths
    /// begin again, with other numbers, and get symbols once something has been heard of them.
    /// What still arrives at the port before is to be handed over as from this socket.
    pub fn port_rotated(&mut self, now: Time, socket: SocketId) {
        let router = &mut *self.router;
        tally(&mut router.statistics.ports_rotated, 1);
        for peer in router.paths.port_rotated(now, socket) {
            router.outbound.count_in_flight(now, peer, &router.paths);
            router.look_after(now, peer);
        }
    }

    /// Takes a message, of which it keeps a copy until it is delivered or abandoned;
    /// [`Event::Delivered`] or [`Event::Undelivered`] follows.
    ///
    /// # Errors
    ///
    /// See [`SendRefused`]; nothing is sent then.
    pub fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<SendId, SendRefused> {
        let options = SendOptions::default();
        self.send_with(now, peer, (kind, options), message)
    }

    /// Takes a message with options, as [`Self::send`] does.
    ///
    /// # Errors
    ///
    /// See [`SendRefused`]; nothing is sent then.
    pub fn send_with(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: (MessageKind, SendOptions),
        message: &[u8],
    ) -> Result<SendId, SendRefused> {
        if peer.transport() != self.id() {
            return Err(ForeignPeer.into());
        }
        let (kind, options) = kind;
        self.router
            .send(now, (peer, options, Content::Own(kind, message)))
    }

    /// Takes a message that several peers are sent, to be called for each of them. Each says stop for
    /// itself: [`Event::Delivered`] or [`Event::Undelivered`] follows for each. Its bytes count once among
    /// those that are under way.
    ///
    /// # Errors
    ///
    /// See [`SendRefused`]; nothing is sent to this peer then.
    pub fn send_shared(
        &mut self,
        now: Time,
        peer: PeerId,
        options: SendOptions,
        message: &SharedMessage,
    ) -> Result<SendId, SendRefused> {
        if peer.transport() != self.id() {
            return Err(ForeignPeer.into());
        }
        self.router
            .send(now, (peer, options, Content::Shared(message)))
    }

    /// Sets what the host has capacity for besides what [`Self::poll_event`] has not given yet
    /// (back-pressure). Unlimited, unless it is called. A message that is complete and for which
    /// there is none is kept, and its sender asked to try again: what is said to be delivered was
    /// handed over.
    pub fn set_host_capacity(&mut self, capacity: HostCapacity) {
        let unseen = self.router.events.iter().filter_map(taken_bytes);
        self.router.receiver.set_host_capacity(capacity, unseen);
    }

    /// Abandons a message that is not delivered, [`Event::Undelivered`] follows, and has its receiver
    /// forget what it has of it. A message that was delivered is cancelled there: that is for a
    /// request whose reply nobody waits for any more.
    pub fn cancel(&mut self, _now: Time, id: SendId) {
        let router = &mut self.router;
        let cancelled = router.outbound.sender.cancel(id, &mut router.statistics);
        router.events.extend(cancelled);
    }

    /// Forgets a peer: its messages are abandoned ([`Event::Undelivered`] for those of ours),
    /// its memory is freed, and [`Event::PeerGone`] follows. What of it is still under way comes
    /// as from a new peer, and may be handed over once more.
    pub fn forget(&mut self, _now: Time, peer: PeerId) {
        for id in self.router.outbound.sender.all_to(peer) {
            self.router.abandon(id, Reason::Cancelled);
        }
        self.router.remove_peer(peer, GoneReason::Forgotten);
    }

    /// Says goodbye to all peers that were heard of lately, by two paths each at most: they know at once
    /// that this end is gone, and need not find out ([`GoneReason::Closed`] there). It is not repeated
    /// where it is lost. To be called last: [`poll_transmit`](Self::poll_transmit) then writes a burst to
    /// some peers at a time, until [`next_goodbye`](Self::next_goodbye) returns nothing.
    pub fn close(&mut self, now: Time) {
        self.router.upkeep(now).say_goodbye();
    }

    /// Returns when [`poll_transmit`](Self::poll_transmit) writes the next goodbyes of
    /// [`close`](Self::close); nothing once all have been written. A time that is over means: now.
    pub fn next_goodbye(&self) -> Option<Time> {
        self.router.outbound.goodbyes.next_at()
    }

    /// Takes one datagram, which is decrypted in place. Of a train that the
    /// kernel has put together (GRO) each has to be handed over by itself.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        four_tuple: FourTuple,
        ecn: Ecn,
        datagram: &mut [u8],
    ) {
        self.router
            .handle_datagram(now, (four_tuple, ecn), datagram);
    }

    /// Takes note that the socket cannot send by a path. It is a hint: what the socket says may
    /// come from the network. The path is probed, and dead if nothing is heard of that; when all
    /// of a peer's are, its messages are abandoned ([`Reason::Unreachable`]).
    pub fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple) {
        self.router.suspect(now, four_tuple);
    }

    /// Takes note of what the network says of a datagram that it could not deliver, of which it
    /// quotes the beginning of the UDP payload. Anybody can send such a notice, so that it is a hint
    /// and nothing more: one that quotes what was not sent is counted and dropped, another has all
    /// paths to that address probed, and one that quotes too little to tell has this path probed,
    /// as [`Self::handle_unreachable`] does (RFC 5927 §4.1, RFC 8899 §4.6.1).
    pub fn handle_icmp(&mut self, now: Time, four_tuple: FourTuple, kind: IcmpKind, quoted: &[u8]) {
        self.router.take_notice(now, four_tuple, kind, quoted);
    }

    /// Takes note that a datagram of this length was too long for the socket or the path
    /// (EMSGSIZE).
    pub fn handle_too_big(&mut self, now: Time, four_tuple: FourTuple, bytes: usize) {
        let router = &mut self.router;
        if let Some(peer) = router.handshake.by_remote(four_tuple.remote) {
            router.paths.too_big(now, peer, four_tuple, bytes);
        }
    }

    /// Does what is due. To be called when [`next_deadline`](Self::next_deadline)
    /// has come; a call too many does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.router.handle_timeout(now);
    }

    /// Writes the next datagrams to the beginning of `out`: several for the same
    /// path if there are many to be sent, all of the same length but perhaps the
    /// last. Nothing, if nothing is to be sent now.
    ///
    /// `out` has to hold the longest datagram that is configured; 64 KiB are
    /// best.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        self.router.poll_transmit(now, out)
    }

    /// Returns the next event, if anything happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        let change = self.router.paths.next_change();
        let event = change.or_else(|| self.router.events.pop_front())?;
        self.router.outbound.taken(&event);
        Some(event)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called at the
    /// latest. A time that is over means: now.
    pub fn next_deadline(&self) -> Option<Time> {
        self.router.next_deadline()
    }

    /// Returns what was counted so far.
    pub fn statistics(&self) -> TransportStatistics {
        TransportStatistics {
            peers_now: self.router.handshake.len() as u64,
            ..self.router.statistics
        }
    }

    /// Lists all known peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.router.handshake.peers()
    }

    /// Reports on the paths to a peer, at this time; on none if the peer is not known.
    pub fn paths(&self, now: Time, peer: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        self.router.paths.reports(now, peer)
    }

    /// Returns the public key of a peer, where key pairs say who it is.
    pub fn peer_key(&self, peer: PeerId) -> Option<PublicKey> {
        self.router.handshake.peer_key(peer)
    }

    /// Uses other keys, or another list of those who may speak to us, from now on. What goes on
    /// under keys that are still there is not disturbed; whoever is not on the list any more is not
    /// heard any more.
    ///
    /// To change a shared key without a gap, give all hosts a ring
    /// with both, the old one in front; then one with the new one in front; then
    /// one without the old.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OtherSecurity`]; nothing changes then.
    pub fn set_security(&mut self, security: Security) -> Result<(), ConfigError> {
        let before = &self.router.config.security;
        if core::mem::discriminant(before) != core::mem::discriminant(&security) {
            return Err(ConfigError::OtherSecurity);
        }
        self.router.config.security = security.clone();
        self.router.handshake.set_security(security);
        Ok(())
    }
}

/// Bytes of the host's capacity that an event uses up, if it uses up any.
fn taken_bytes(event: &Event) -> Option<usize> {
    match event {
        Event::Received { kind, message, .. } if kind.needs_capacity() => Some(message.len()),
        _ => None,
    }
}
