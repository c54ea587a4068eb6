//! Skeleton: signatures that the driver is written against.
#![expect(unused_variables, missing_docs, clippy::todo, reason = "skeleton")]

use super::*;

#[derive(Debug)]
pub struct Endpoint {}

impl Endpoint {
    /// `seed` decides all that is random: message ids, the session, tokens' secret.
    pub fn new(config: Config, seed: [u8; 32], now: Time) -> Result<Self, ConfigError> {
        todo!()
    }
    /// A peer to send to by these routes: the pool of ways that is chosen from.
    pub fn connect(&mut self, now: Time, routes: &[Route]) -> Result<PeerId, ConnectError> {
        todo!()
    }
    /// Another route to a peer.
    pub fn add_route(&mut self, now: Time, peer: PeerId, route: Route) -> bool {
        todo!()
    }
    /// A socket is gone: its routes are not used any more.
    pub fn remove_socket(&mut self, now: Time, socket: SocketId) {
        todo!()
    }
    /// Copies the message.
    pub fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: Kind,
        message: &[u8],
    ) -> Result<SendId, SendError> {
        todo!()
    }
    /// An event Undelivered { reason: Cancelled } follows if it was not delivered yet.
    pub fn cancel(&mut self, now: Time, id: SendId) {
        todo!()
    }
    /// One datagram (not a GRO train); decrypts in place.
    pub fn handle_datagram(&mut self, now: Time, route: Route, ecn: Ecn, datagram: &mut [u8]) {
        todo!()
    }
    /// The network says that nobody is there (ICMP), or the socket cannot send.
    pub fn handle_unreachable(&mut self, now: Time, route: Route) {
        todo!()
    }
    /// A datagram of this length did not fit (EMSGSIZE).
    pub fn handle_too_big(&mut self, now: Time, route: Route, bytes: usize) {
        todo!()
    }
    /// next_deadline has come. Spurious calls do no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        todo!()
    }
    /// `out` must hold at least the longest datagram; with 64 KiB it is filled with a GSO train.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        todo!()
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }
    pub fn next_deadline(&self) -> Option<Time> {
        todo!()
    }
    pub fn statistics(&self) -> Statistics {
        todo!()
    }
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        std::iter::empty()
    }
    pub fn paths(&self, peer: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        std::iter::empty()
    }
    /// Old sessions go on: their keys stay valid as long as they are in the ring.
    pub fn set_keys(&mut self, keys: Keyring) {
        todo!()
    }
}
