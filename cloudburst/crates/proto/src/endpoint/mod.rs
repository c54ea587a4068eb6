//! The endpoint: what the host calls.

#[cfg(test)]
mod tests;

use super::{
    config::{ConfigError, TransportConfig},
    event::{
        ConnectRefused, Ecn, Event, FourTuple, MessageKind, PathReport, PeerId, SendId,
        SendRefused, SocketId, Transmit,
    },
    native::Native,
    packet::Keyring,
    statistics::TransportStatistics,
    time::Time,
};

/// Sends and receives messages; see the [module](super).
///
/// Memory: some 3 KiB for a peer, 1 KiB for each of its paths and 36 bytes for each route beyond
/// 64; for an outgoing message its bytes and 200; for an incoming one twice its bytes and
/// 1.3 KiB for each 64 symbols.
#[derive(Debug)]
pub struct Transport {
    machine: Box<Native>,
}

impl Transport {
    /// `seed` decides all that is random: sessions, message ids, tokens' secret.
    /// Never use one twice with the same keys.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(config: TransportConfig, seed: [u8; 32], now: Time) -> Result<Self, ConfigError> {
        config.validate()?;
        let machine = Box::new(Native::new(config, seed, now));
        Ok(Self { machine })
    }

    /// A peer to send to, by these routes: the pool of ways that is chosen from. Of more than 64
    /// the others take the place of those that turn out not to deliver.
    /// Of a peer that is known already by one of the addresses the others become
    /// routes too, and its id is returned.
    ///
    /// # Errors
    ///
    /// If there is no route, or no room for another peer.
    pub fn connect(
        &mut self,
        now: Time,
        four_tuples: &[FourTuple],
    ) -> Result<PeerId, ConnectRefused> {
        self.machine.connect(now, four_tuples)
    }

    /// Another route to a peer. Whether it is new, and there is room for it; if there is none, it
    /// is kept for when others do not deliver.
    pub fn add_path(&mut self, now: Time, peer: PeerId, four_tuple: FourTuple) -> bool {
        self.machine.add_path(now, peer, four_tuple)
    }

    /// A socket is gone: its routes are not used any more.
    pub fn remove_socket(&mut self, now: Time, socket: SocketId) {
        self.machine.remove_socket(now, socket);
    }

    /// A socket has another port, as [`Event::RotatePort`] asks for: its routes begin anew, as
    /// paths with other numbers, and get symbols once something has been heard of them. What
    /// still arrives at the port before is to be handed over as from this socket.
    pub fn port_rotated(&mut self, now: Time, socket: SocketId) {
        self.machine.port_rotated(now, socket);
    }

    /// Takes a message, of which it keeps a copy until it is delivered or given
    /// up; [`Event::Delivered`] or [`Event::Undelivered`] follows.
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
        self.machine.send(now, peer, kind, message)
    }

    /// Tells how many more messages the host has room for. If that many are
    /// arriving already, those who came by themselves are told to try again
    /// later; a peer that we are connected to may
    /// still send, for it may be a reply that is waited for.
    pub fn set_host_capacity(&mut self, messages: usize) {
        self.machine.set_host_capacity(messages);
    }

    /// Gives a message up, if it is not delivered: [`Event::Undelivered`] follows.
    pub fn cancel(&mut self, now: Time, id: SendId) {
        self.machine.cancel(now, id);
    }

    /// Forgets a peer: its messages are given up ([`Event::Undelivered`] for those of ours),
    /// its memory is freed, and [`Event::PeerGone`] follows. What of it is still under way comes
    /// as from a new peer, and may be handed over once more.
    pub fn forget(&mut self, now: Time, peer: PeerId) {
        self.machine.forget_peer(now, peer);
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
        self.machine.handle_datagram(now, four_tuple, ecn, datagram);
    }

    /// The network says that nobody is there (ICMP), or the socket cannot send.
    pub fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple) {
        self.machine.handle_unreachable(now, four_tuple);
    }

    /// A datagram of this length was too long for the socket or the way
    /// (EMSGSIZE).
    pub fn handle_too_big(&mut self, now: Time, four_tuple: FourTuple, bytes: usize) {
        self.machine.handle_too_big(now, four_tuple, bytes);
    }

    /// Does what is due. To be called when [`next_deadline`](Self::next_deadline)
    /// has come; a call too many does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.machine.handle_timeout(now);
    }

    /// Writes the next datagrams to the beginning of `out`: several for the same
    /// way if there are many to be sent, all of the same length but perhaps the
    /// last. Nothing, if nothing is to be sent now.
    ///
    /// `out` has to hold the longest datagram that is configured; 64 KiB are
    /// best.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        self.machine.poll_transmit(now, out)
    }

    /// What happened next, if anything did.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.machine.poll_event()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called at the
    /// latest. A moment that is over means: now.
    pub fn next_deadline(&self) -> Option<Time> {
        self.machine.next_deadline()
    }

    /// What was counted so far.
    pub fn statistics(&self) -> TransportStatistics {
        self.machine.statistics()
    }

    /// Everyone known.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.machine.peers()
    }

    /// What is known of the ways to a peer, at this time; none if it is not known.
    pub fn paths(&self, now: Time, peer: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        self.machine.paths(now, peer)
    }

    /// Uses other keys from now on: the first for sending, each for receiving.
    /// Sessions go on. To change a key without a gap, give all endpoints a ring
    /// with both, the old one in front; then one with the new one in front; then
    /// one without the old.
    pub fn set_keys(&mut self, keys: Keyring) {
        self.machine.set_keys(keys);
    }
}
