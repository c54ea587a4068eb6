//! Hosts drive it as they drive the product's machine.

use cloudburst_code::wire::Header;
use cloudburst_proto::{
    ConnectRefused, Ecn, Event, FourTuple, HostCapacity, Machine, MessageKind, PathReport, PeerId,
    PublicKey, SendId, SendRefused, SocketId, Time, Transmit, TransportStatistics,
};

use crate::Paper;

impl Machine for Paper {
    fn connect(
        &mut self,
        now: Time,
        four_tuples: &[FourTuple],
        _key: Option<PublicKey>,
    ) -> Result<PeerId, ConnectRefused> {
        self.connect(now, four_tuples)
    }

    fn add_path(&mut self, now: Time, peer: PeerId, four_tuple: FourTuple) -> bool {
        self.add_path(now, peer, four_tuple)
    }

    fn remove_socket(&mut self, now: Time, socket: SocketId) {
        self.remove_socket(now, socket);
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

    fn set_host_capacity(&mut self, capacity: HostCapacity) {
        self.set_host_capacity(capacity.new_messages);
    }

    fn cancel(&mut self, now: Time, id: SendId) {
        self.cancel(now, id);
    }

    fn forget(&mut self, now: Time, peer: PeerId) {
        self.forget_peer(now, peer);
    }

    fn handle_datagram(&mut self, now: Time, four_tuple: FourTuple, ecn: Ecn, datagram: &mut [u8]) {
        self.handle_datagram(now, four_tuple, ecn, datagram);
    }

    fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple) {
        self.handle_unreachable(now, four_tuple);
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
