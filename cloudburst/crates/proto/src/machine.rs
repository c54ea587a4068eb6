//! The seam between a host and a transport's state machine.

use core::fmt;

use cloudburst_security::Security;

use super::{
    config::HostCapacity,
    event::{
        ConnectRefused, Ecn, Event, FourTuple, IcmpKind, MessageKind, PathReport, PeerId, SendId,
        SendRefused, SocketId, Transmit,
    },
    packet::{self, PublicKey},
    send_options::SendOptions,
    statistics::TransportStatistics,
    time::Time,
    transport::Transport,
};

/// Drives a message transport's state machine without knowing which one it is.
///
/// [`Transport`] is the one of this crate, and its methods of the same names say what is expected.
/// A host that is written against this trait (a simulator, a test harness) can run others next to
/// it, to compare them.
pub trait Machine: fmt::Debug {
    /// Makes a peer known by its paths; see [`Transport::connect`].
    ///
    /// # Errors
    ///
    /// If there is no path or no key, or no capacity for another peer.
    fn connect(
        &mut self,
        now: Time,
        four_tuples: &[FourTuple],
        key: Option<PublicKey>,
    ) -> Result<PeerId, ConnectRefused>;

    /// Adds another path to a peer; see [`Transport::add_path`].
    fn add_path(&mut self, now: Time, peer: PeerId, four_tuple: FourTuple) -> bool;

    /// Forgets a socket that is gone; see [`Transport::remove_socket`].
    fn remove_socket(&mut self, now: Time, socket: SocketId);

    /// See [`Transport::port_rotated`]; a machine that never asks for it does nothing.
    fn port_rotated(&mut self, _now: Time, _socket: SocketId) {}

    /// Takes a message to be sent; see [`Transport::send`].
    ///
    /// # Errors
    ///
    /// See [`SendRefused`]; nothing is sent then.
    fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<SendId, SendRefused>;

    /// Takes a message with options; see [`Transport::send_with`]. A machine without such options
    /// ignores them.
    ///
    /// # Errors
    ///
    /// See [`SendRefused`]; nothing is sent then.
    fn send_with(
        &mut self,
        now: Time,
        peer: PeerId,
        (kind, _): (MessageKind, SendOptions),
        message: &[u8],
    ) -> Result<SendId, SendRefused> {
        self.send(now, peer, kind, message)
    }

    /// Sets what the host has capacity for; see [`Transport::set_host_capacity`].
    fn set_host_capacity(&mut self, capacity: HostCapacity);

    /// Abandons a message that is under way; see [`Transport::cancel`].
    fn cancel(&mut self, now: Time, id: SendId);

    /// Forgets a peer and its messages; see [`Transport::forget`].
    fn forget(&mut self, now: Time, peer: PeerId);

    /// Says goodbye to all peers; see [`Transport::close`]. A machine whose format has no goodbye says
    /// nothing.
    fn close(&mut self, _now: Time) {}

    /// Takes one datagram that has arrived; see [`Transport::handle_datagram`].
    fn handle_datagram(&mut self, now: Time, four_tuple: FourTuple, ecn: Ecn, datagram: &mut [u8]);

    /// Takes note that a socket cannot send by a path; see [`Transport::handle_unreachable`].
    fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple);

    /// Takes note of what the network says of a datagram; see [`Transport::handle_icmp`]. A
    /// machine that cannot tell its datagrams from others believes it.
    fn handle_icmp(&mut self, now: Time, four_tuple: FourTuple, kind: IcmpKind, _quoted: &[u8]) {
        match kind {
            IcmpKind::Unreachable => self.handle_unreachable(now, four_tuple),
            IcmpKind::TooBig { longest } => {
                self.handle_too_big(now, four_tuple, longest.saturating_add(1));
            }
        }
    }

    /// See [`Transport::handle_too_big`]; to a machine of one datagram length it is a loss.
    fn handle_too_big(&mut self, _now: Time, _route: FourTuple, _bytes: usize) {}

    /// Does what is due by now; see [`Transport::handle_timeout`].
    fn handle_timeout(&mut self, now: Time);

    /// Writes the next datagrams to be sent; see [`Transport::poll_transmit`].
    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit>;

    /// Returns the next event, if any; see [`Transport::poll_event`].
    fn poll_event(&mut self) -> Option<Event>;

    /// Returns when the machine has to be called again; see [`Transport::next_deadline`].
    fn next_deadline(&self) -> Option<Time>;

    /// Returns what was counted so far; see [`Transport::statistics`].
    fn statistics(&self) -> TransportStatistics;

    /// Lists all known peers; see [`Transport::peers`].
    fn peers(&self) -> Vec<PeerId>;

    /// Reports on the paths to a peer; see [`Transport::paths`].
    fn paths(&self, now: Time, peer: PeerId) -> Vec<PathReport>;

    /// See [`Transport::set_security`]; a machine without keys ignores it.
    fn set_security(&mut self, _security: Security) {}

    /// Returns the number of the message that a plain datagram carries a symbol of, or as many of
    /// its lowest bits as the format has.
    fn message_of(&self, datagram: &[u8]) -> Option<u64>;
}

impl Machine for Transport {
    fn connect(
        &mut self,
        now: Time,
        four_tuples: &[FourTuple],
        key: Option<PublicKey>,
    ) -> Result<PeerId, ConnectRefused> {
        self.connect(now, four_tuples, key)
    }

    fn add_path(&mut self, now: Time, peer: PeerId, four_tuple: FourTuple) -> bool {
        self.add_path(now, peer, four_tuple)
    }

    fn remove_socket(&mut self, now: Time, socket: SocketId) {
        self.remove_socket(now, socket);
    }

    fn port_rotated(&mut self, now: Time, socket: SocketId) {
        self.port_rotated(now, socket);
    }

    fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<SendId, SendRefused> {
        self.send(now, peer, kind, message)
    }

    fn send_with(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: (MessageKind, SendOptions),
        message: &[u8],
    ) -> Result<SendId, SendRefused> {
        self.send_with(now, peer, kind, message)
    }

    fn set_host_capacity(&mut self, capacity: HostCapacity) {
        self.set_host_capacity(capacity);
    }

    fn cancel(&mut self, now: Time, id: SendId) {
        self.cancel(now, id);
    }

    fn forget(&mut self, now: Time, peer: PeerId) {
        self.forget(now, peer);
    }

    fn close(&mut self, now: Time) {
        self.close(now);
    }

    fn handle_datagram(&mut self, now: Time, four_tuple: FourTuple, ecn: Ecn, datagram: &mut [u8]) {
        self.handle_datagram(now, four_tuple, ecn, datagram);
    }

    fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple) {
        self.handle_unreachable(now, four_tuple);
    }

    fn handle_icmp(&mut self, now: Time, four_tuple: FourTuple, kind: IcmpKind, quoted: &[u8]) {
        self.handle_icmp(now, four_tuple, kind, quoted);
    }

    fn handle_too_big(&mut self, now: Time, four_tuple: FourTuple, bytes: usize) {
        self.handle_too_big(now, four_tuple, bytes);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        self.poll_transmit(now, out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.poll_event()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next_deadline()
    }

    fn statistics(&self) -> TransportStatistics {
        self.statistics()
    }

    fn peers(&self) -> Vec<PeerId> {
        self.peers().collect()
    }

    fn paths(&self, now: Time, peer: PeerId) -> Vec<PathReport> {
        self.paths(now, peer).collect()
    }

    fn set_security(&mut self, security: Security) {
        // Security of another kind is not taken over.
        let _ = self.set_security(security);
    }

    fn message_of(&self, datagram: &[u8]) -> Option<u64> {
        let header = packet::Header::parse(datagram).ok()?;
        if header.kind != packet::PacketKind::Symbol {
            return None;
        }
        let body = datagram.get(packet::HEADER_BYTES..)?;
        Some(u64::from_be_bytes(*body.first_chunk()?))
    }
}
