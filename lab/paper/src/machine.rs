//! Hosts drive it as they drive the product's machine.

use cloudburst_code::wire::Header;
use cloudburst_proto::{
    ConnectError, Ecn, Event, Kind, Machine, PathReport, PeerId, Route, SendError, SendId,
    SocketId, Statistics, Time, Transmit,
};

use crate::Paper;

impl Machine for Paper {
    fn connect(&mut self, now: Time, routes: &[Route]) -> Result<PeerId, ConnectError> {
        self.connect(now, routes)
    }

    fn add_route(&mut self, now: Time, peer: PeerId, route: Route) -> bool {
        self.add_route(now, peer, route)
    }

    fn remove_socket(&mut self, now: Time, socket: SocketId) {
        self.remove_socket(now, socket);
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
        self.forget_peer(now, peer);
    }

    fn handle_datagram(&mut self, now: Time, route: Route, ecn: Ecn, datagram: &mut [u8]) {
        self.handle_datagram(now, route, ecn, datagram);
    }

    fn handle_unreachable(&mut self, now: Time, route: Route) {
        self.handle_unreachable(now, route);
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

    fn paths(&self, _now: Time, peer: PeerId) -> Vec<PathReport> {
        self.paths(peer).collect()
    }

    fn message_of(&self, datagram: &[u8]) -> Option<u64> {
        match Header::parse(datagram) {
            Ok((header, symbol)) if !symbol.is_empty() => Some(header.id.into()),
            _ => None,
        }
    }
}
