//! Two endpoints and a perfect network between them.

use core::time::Duration;

use cloudburst_proto::{
    Ecn, Event, FourTuple, Machine, MessageKind, PeerId, SendId, SocketId, Time, TransportConfig,
};

use crate::machines;

const ONE_WAY: Duration = Duration::from_millis(1);

pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) ends: [Box<dyn Machine>; 2],
    /// Datagrams under way: when, to whom, by which route, what.
    wire: Vec<(Time, usize, FourTuple, Vec<u8>)>,
}

fn address(end: usize, socket: u16) -> std::net::SocketAddr {
    ([10, 0, 0, end as u8], 1_000 + socket).into()
}

impl Pair {
    /// Two ends with the paper's machine.
    pub(crate) fn new(config: &TransportConfig, sockets: u16) -> (Self, PeerId) {
        Self::of([(true, config); 2], sockets)
    }

    /// Each end with the paper's machine or the product's.
    pub(crate) fn of(ends: [(bool, &TransportConfig); 2], sockets: u16) -> (Self, PeerId) {
        let now = Time::from_nanos(1_000_000);
        let end = |number: usize| {
            let seed = [number as u8 + 1; 32];
            let (is_paper, config) = ends[number];
            machines::start(is_paper, config.clone(), seed, now)
        };
        let mut pair = Self {
            now,
            ends: [end(0), end(1)],
            wire: Vec::new(),
        };
        let four_tuples: Vec<_> = (0..sockets)
            .map(|socket| FourTuple::new(SocketId(socket), address(1, 0)))
            .collect();
        let peer = pair.ends[0].connect(now, &four_tuples, None).unwrap();
        (pair, peer)
    }

    /// Sends such a [`message`] from the first end to the other.
    pub(crate) fn send(&mut self, peer: PeerId, bytes: usize) -> SendId {
        let message = message(bytes);
        self.ends[0]
            .send(self.now, peer, MessageKind::Message, &message)
            .unwrap()
    }

    /// Runs until nothing is due within `limit`; loses what `lost` says.
    pub(crate) fn run(&mut self, limit: Duration, mut lost: impl FnMut(usize, &[u8]) -> bool) {
        let end = self.now + limit;
        let mut out = vec![0; 65_536];
        loop {
            for from in 0..2 {
                while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut out) {
                    for datagram in out[..transmit.bytes].chunks(transmit.segment_bytes) {
                        if lost(from, datagram) {
                            continue;
                        }
                        let source = transmit.four_tuple.socket.0;
                        let to_socket = transmit.four_tuple.remote.port() - 1_000;
                        let four_tuple = FourTuple::new(SocketId(to_socket), address(from, source));
                        self.wire.push((
                            self.now + ONE_WAY,
                            1 - from,
                            four_tuple,
                            datagram.to_vec(),
                        ));
                    }
                }
            }
            let arrivals = self.wire.iter().map(|(at, ..)| *at);
            let deadlines = self.ends.iter().filter_map(|end| end.next_deadline());
            let Some(next) = arrivals.chain(deadlines).min() else {
                return;
            };
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            let (due, later): (Vec<_>, Vec<_>) =
                self.wire.drain(..).partition(|(at, ..)| *at <= self.now);
            self.wire = later;
            for (_, to, four_tuple, mut datagram) in due {
                self.ends[to].handle_datagram(self.now, four_tuple, Ecn::NotCapable, &mut datagram);
            }
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }
    }

    pub(crate) fn events(&mut self, end: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.ends[end].poll_event()).collect()
    }
}

pub(crate) fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
}
