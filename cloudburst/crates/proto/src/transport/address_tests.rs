//! A server with two addresses, and a client whose stateful firewall lets in what it asked for.

use core::{net::IpAddr, time::Duration};

use super::super::*;

const ONE_WAY: Duration = Duration::from_millis(1);
const CLIENT: [u8; 4] = [192, 0, 2, 1];
const PORT: u16 = 7;

/// One of the server's addresses.
fn home(number: u8) -> IpAddr {
    [198, 51, 100, number].into()
}

/// The client's sockets, each of which asks another address of the server's one socket.
struct Network {
    now: Time,
    client: Transport,
    server: Transport,
    /// Addresses that the client's sockets ask.
    asks: [IpAddr; 2],
    /// To the server, by which socket of the client, and what.
    wire: Vec<(Time, bool, u16, Vec<u8>)>,
    /// Datagrams that the client's firewall stopped.
    stopped: usize,
}

impl Network {
    fn new() -> (Self, PeerId) {
        let now = Time::from_nanos(1_000_000);
        let end = |seed| {
            let config = TransportConfig::new(Security::shared_key(Key::new(
                core::num::NonZeroU8::MIN,
                [9; 32],
            )));
            Transport::deterministic(config, [seed; 32], now).unwrap()
        };
        let (mut client, server) = (end(1), end(2));
        let asks = [home(1), home(2)];
        let four_tuples = [0, 1].map(|socket| {
            let remote = (asks[usize::from(socket)], PORT).into();
            FourTuple::new(SocketId(socket), remote)
        });
        let peer = client.connect(now, &four_tuples, None).unwrap();
        let network = Self {
            now,
            client,
            server,
            asks,
            wire: Vec::new(),
            stopped: 0,
        };
        (network, peer)
    }

    fn transmit(&mut self) {
        let (mut out, arrives) = (vec![0; 65_536], self.now + ONE_WAY);
        while let Some(transmit) = self.client.poll_transmit(self.now, &mut out) {
            assert_eq!(transmit.four_tuple.local, None, "the system chooses");
            for datagram in out[..transmit.bytes].chunks(transmit.segment_bytes) {
                let socket = transmit.four_tuple.socket.0;
                self.wire.push((arrives, true, socket, datagram.to_vec()));
            }
        }
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut out) {
            let socket = transmit.four_tuple.remote.port() - 1_000;
            for datagram in out[..transmit.bytes].chunks(transmit.segment_bytes) {
                // Of a path without an address of ours the system leaves by the first.
                let from = transmit.four_tuple.local.unwrap_or(home(1));
                if from == self.asks[usize::from(socket)] {
                    self.wire.push((arrives, false, socket, datagram.to_vec()));
                } else {
                    self.stopped += 1;
                }
            }
        }
    }

    fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            self.transmit();
            let arrivals = self.wire.iter().map(|(at, ..)| *at);
            let deadlines = [self.client.next_deadline(), self.server.next_deadline()];
            let next = arrivals.chain(deadlines.into_iter().flatten()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            let now = self.now;
            let (due, later): (Vec<_>, Vec<_>) =
                self.wire.drain(..).partition(|(at, ..)| *at <= now);
            self.wire = later;
            for (_, to_server, socket, mut datagram) in due {
                let asked = self.asks[usize::from(socket)];
                if to_server {
                    let from = FourTuple::new(SocketId(0), (CLIENT, 1_000 + socket).into());
                    let from = from.with_local(Some(asked));
                    let server = &mut self.server;
                    server.handle_datagram(now, from, Ecn::NotCapable, &mut datagram);
                } else {
                    let from = FourTuple::new(SocketId(socket), (asked, PORT).into());
                    let from = from.with_local(Some(CLIENT.into()));
                    let client = &mut self.client;
                    client.handle_datagram(now, from, Ecn::NotCapable, &mut datagram);
                }
            }
            self.client.handle_timeout(now);
            self.server.handle_timeout(now);
        }
    }

    /// A message there, and one back; whether both arrived.
    fn exchange(&mut self, peer: PeerId) -> bool {
        let message = vec![3; 20_000];
        let kind = MessageKind::Request;
        self.client.send(self.now, peer, kind, &message).unwrap();
        self.run(Duration::from_millis(500));
        let taken =
            core::iter::from_fn(|| self.server.poll_event()).find_map(|event| match event {
                Event::Received { peer, id, .. } => Some((peer, id)),
                _ => None,
            });
        let Some((from, to)) = taken else {
            return false;
        };
        let kind = MessageKind::Reply { to };
        self.server.send(self.now, from, kind, &message).unwrap();
        self.run(Duration::from_millis(500));
        core::iter::from_fn(|| self.client.poll_event())
            .any(|event| matches!(event, Event::Received { .. }))
    }
}

#[test]
fn what_comes_back_leaves_from_the_address_that_was_asked() {
    let (mut network, peer) = Network::new();
    for _ in 0..3 {
        assert!(network.exchange(peer));
    }
    assert_eq!(network.stopped, 0);
    let is_good = |path: PathReport| path.health == Health::Good;
    assert!(network.client.paths(network.now, peer).all(is_good));
    let peers: Vec<_> = network.server.peers().collect();
    let paths: Vec<_> = network.server.paths(network.now, peers[0]).collect();
    let mut locals: Vec<_> = paths.iter().map(|path| path.four_tuple.local).collect();
    locals.sort();
    assert_eq!(locals, [Some(home(1)), Some(home(2))], "two paths");
}

/// As when a router in front of the server begins to translate to another of its addresses.
#[test]
fn another_local_address_is_another_path() {
    let (mut network, peer) = Network::new();
    assert!(network.exchange(peer));
    network.asks = [home(3), home(4)];
    let four_tuples = [0, 1].map(|socket| {
        let remote = (network.asks[usize::from(socket)], PORT).into();
        FourTuple::new(SocketId(socket), remote)
    });
    for four_tuple in four_tuples {
        assert!(network.client.add_path(network.now, peer, four_tuple));
    }
    // What goes by the paths before arrives at the new addresses now, too.
    for _ in 0..3 {
        assert!(network.exchange(peer));
    }
    let peers: Vec<_> = network.server.peers().collect();
    assert_eq!(peers.len(), 1);
    let paths = network.server.paths(network.now, peers[0]);
    let locals: Vec<_> = paths.filter_map(|path| path.four_tuple.local).collect();
    for number in 1..=4 {
        assert!(locals.contains(&home(number)), "{locals:?}");
    }
}
