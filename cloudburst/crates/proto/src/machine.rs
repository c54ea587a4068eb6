//! The seam between a host and a transport's state machine.

use core::fmt;

use super::{
    endpoint::Endpoint,
    event::{
        ConnectError, Ecn, Event, Kind, PathReport, PeerId, Route, SendError, SendId, SocketId,
        Transmit,
    },
    packet::{self, Keyring},
    statistics::Statistics,
    time::Time,
};

/// Drives a message transport's state machine without knowing which one it is.
///
/// [`Endpoint`] is the one of this crate, and its methods of the same names say what is expected.
/// A host that is written against this trait (a simulator, a test harness) can run others beside
/// it, to compare them.
pub trait Machine: fmt::Debug {
    /// See [`Endpoint::connect`].
    ///
    /// # Errors
    ///
    /// If there is no route, or no room for another peer.
    fn connect(&mut self, now: Time, routes: &[Route]) -> Result<PeerId, ConnectError>;

    /// See [`Endpoint::add_route`].
    fn add_route(&mut self, now: Time, peer: PeerId, route: Route) -> bool;

    /// See [`Endpoint::remove_socket`].
    fn remove_socket(&mut self, now: Time, socket: SocketId);

    /// See [`Endpoint::port_replaced`]; a machine that never asks for it does nothing.
    fn port_replaced(&mut self, _now: Time, _socket: SocketId) {}

    /// See [`Endpoint::send`].
    ///
    /// # Errors
    ///
    /// See [`SendError`]; nothing is sent then.
    fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: Kind,
        message: &[u8],
    ) -> Result<SendId, SendError>;

    /// See [`Endpoint::set_host_room`].
    fn set_host_room(&mut self, messages: usize);

    /// See [`Endpoint::cancel`].
    fn cancel(&mut self, now: Time, id: SendId);

    /// See [`Endpoint::forget`].
    fn forget(&mut self, now: Time, peer: PeerId);

    /// See [`Endpoint::handle_datagram`].
    fn handle_datagram(&mut self, now: Time, route: Route, ecn: Ecn, datagram: &mut [u8]);

    /// See [`Endpoint::handle_unreachable`].
    fn handle_unreachable(&mut self, now: Time, route: Route);

    /// See [`Endpoint::handle_too_big`]; to a machine of one datagram length it is a loss.
    fn handle_too_big(&mut self, _now: Time, _route: Route, _bytes: usize) {}

    /// See [`Endpoint::handle_timeout`].
    fn handle_timeout(&mut self, now: Time);

    /// See [`Endpoint::poll_transmit`].
    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit>;

    /// See [`Endpoint::poll_event`].
    fn poll_event(&mut self) -> Option<Event>;

    /// See [`Endpoint::next_deadline`].
    fn next_deadline(&self) -> Option<Time>;

    /// See [`Endpoint::statistics`].
    fn statistics(&self) -> Statistics;

    /// See [`Endpoint::peers`].
    fn peers(&self) -> Vec<PeerId>;

    /// See [`Endpoint::paths`].
    fn paths(&self, now: Time, peer: PeerId) -> Vec<PathReport>;

    /// See [`Endpoint::set_keys`]; a machine without keys ignores them.
    fn set_keys(&mut self, _keys: Keyring) {}

    /// Returns the number of the message that a plain datagram carries a symbol of, or as many of
    /// its lowest bits as the format has.
    fn message_of(&self, datagram: &[u8]) -> Option<u64>;
}

impl Machine for Endpoint {
    fn connect(&mut self, now: Time, routes: &[Route]) -> Result<PeerId, ConnectError> {
        self.connect(now, routes)
    }

    fn add_route(&mut self, now: Time, peer: PeerId, route: Route) -> bool {
        self.add_route(now, peer, route)
    }

    fn remove_socket(&mut self, now: Time, socket: SocketId) {
        self.remove_socket(now, socket);
    }

    fn port_replaced(&mut self, now: Time, socket: SocketId) {
        self.port_replaced(now, socket);
    }

    fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: Kind,
        message: &[u8],
    ) -> Result<SendId, SendError> {
        self.send(now, peer, kind, message)
    }

    fn set_host_room(&mut self, messages: usize) {
        self.set_host_room(messages);
    }

    fn cancel(&mut self, now: Time, id: SendId) {
        self.cancel(now, id);
    }

    fn forget(&mut self, now: Time, peer: PeerId) {
        self.forget(now, peer);
    }

    fn handle_datagram(&mut self, now: Time, route: Route, ecn: Ecn, datagram: &mut [u8]) {
        self.handle_datagram(now, route, ecn, datagram);
    }

    fn handle_unreachable(&mut self, now: Time, route: Route) {
        self.handle_unreachable(now, route);
    }

    fn handle_too_big(&mut self, now: Time, route: Route, bytes: usize) {
        self.handle_too_big(now, route, bytes);
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

    fn statistics(&self) -> Statistics {
        self.statistics()
    }

    fn peers(&self) -> Vec<PeerId> {
        self.peers().collect()
    }

    fn paths(&self, now: Time, peer: PeerId) -> Vec<PathReport> {
        self.paths(now, peer).collect()
    }

    fn set_keys(&mut self, keys: Keyring) {
        self.set_keys(keys);
    }

    fn message_of(&self, datagram: &[u8]) -> Option<u64> {
        let header = packet::Header::parse(datagram).ok()?;
        if header.kind != packet::Kind::Symbol {
            return None;
        }
        let body = datagram.get(packet::HEADER_BYTES..)?;
        Some(u64::from_be_bytes(*body.first_chunk()?))
    }
}
