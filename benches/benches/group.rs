//! One message to 1, 8 and 64 peers: as a group, and as so many messages.
//!
//! What the sender's state machine takes for it, from the call to the last datagram, sealed: a message's
//! preparation, encoding, choice of paths and encryption, without sockets. An eighth of the datagrams is
//! lost on the way in half of the rows, so that symbols beyond the message's own are needed. Each row is
//! the time for one message to all of its peers.

use std::{
    hint::black_box,
    net::SocketAddr,
    num::NonZeroU8,
    time::{Duration, Instant},
};

use cloudburst_proto::{
    CongestionControl, Ecn, Event, FourTuple, Key, MessageKind, PeerId, Reservation, Security,
    SendOptions, SharedMessage, SocketId, Time, Transport, TransportConfig,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

/// One sender and its receivers, as far apart as a buffer.
struct Group {
    sender: Transport,
    peers: Vec<PeerId>,
    receivers: Vec<Transport>,
    now: Time,
    buffer: Vec<u8>,
    /// By chance: each eighth would be one peer's, where eight take turns.
    chance: SmallRng,
    loses: bool,
}

fn address(host: usize) -> SocketAddr {
    let [.., high, low] = host.to_be_bytes();
    ([10, 0, high, low], 4433).into()
}

fn transport(number: usize) -> Transport {
    let key = Key::new(NonZeroU8::MIN, [42; 32]);
    let mut config = TransportConfig::new(Security::shared_key(key));
    // As fast as it is taken, whatever is lost, as neither pacing nor giving up is what is measured.
    let reservation = Reservation::new(100_000_000_000).with_most_loss(1.0);
    config.congestion = CongestionControl::Reserved(reservation);
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    Transport::deterministic(config, seed, Time::ZERO).expect("a good configuration")
}

impl Group {
    fn new(receivers: usize, loses: bool) -> Self {
        let mut sender = transport(0);
        let connect = |number| {
            let four_tuple = FourTuple::new(SocketId(0), address(number));
            sender.connect(Time::ZERO, &[four_tuple], None)
        };
        let peers: Result<_, _> = (1..=receivers).map(connect).collect();
        Self {
            peers: peers.expect("there is capacity"),
            sender,
            receivers: (1..=receivers).map(transport).collect(),
            now: Time::ZERO,
            buffer: vec![0; 1 << 16],
            chance: SmallRng::seed_from_u64(8),
            loses,
        }
    }

    /// Sends a message to all, and returns the time that the sender took for it.
    fn send(&mut self, message: &[u8], is_shared: bool) -> Duration {
        self.now = self.now + Duration::from_millis(20);
        let start = Instant::now();
        let shared = is_shared.then(|| SharedMessage::new(message));
        for &peer in &self.peers {
            let options = SendOptions::new();
            let kind = (MessageKind::Message, options);
            let accepted = match &shared {
                Some(shared) => self.sender.send_shared(self.now, peer, options, shared),
                None => self.sender.send_with(self.now, peer, kind, message),
            };
            accepted.expect("there is capacity");
        }
        drop(shared);
        let mut taken = start.elapsed();
        let mut missing = self.peers.len();
        while missing > 0 {
            taken += self.exchange();
            while let Some(event) = self.sender.poll_event() {
                missing -= match event {
                    Event::Delivered { .. } => 1,
                    Event::Undelivered { .. } => panic!("a message was not delivered: {event:?}"),
                    _ => 0,
                };
            }
            let due = self.sender.next_deadline().unwrap_or(self.now);
            self.now = due.max(self.now + Duration::from_micros(10));
            let start = Instant::now();
            self.sender.handle_timeout(self.now);
            taken += start.elapsed();
        }
        taken
    }

    /// Carries all datagrams there are, and returns the time that the sender took to write its own.
    fn exchange(&mut self) -> Duration {
        let mut taken = Duration::ZERO;
        loop {
            let start = Instant::now();
            let transmit = self.sender.poll_transmit(self.now, &mut self.buffer);
            taken += start.elapsed();
            let Some(transmit) = black_box(transmit) else {
                return taken;
            };
            let remote = transmit.four_tuple.remote;
            let host = (1..=self.receivers.len()).find(|&it| address(it) == remote);
            let host = host.expect("it was connected to");
            let receiver = &mut self.receivers[host - 1];
            let from = FourTuple::new(SocketId(0), address(0));
            for datagram in self.buffer[..transmit.bytes].chunks_mut(transmit.segment_bytes) {
                if !(self.loses && self.chance.random_ratio(1, 8)) {
                    receiver.handle_datagram(self.now, from, Ecn::NotCapable, datagram);
                }
            }
            while let Some(event) = receiver.poll_event() {
                black_box(event);
            }
            while let Some(answer) = receiver.poll_transmit(self.now, &mut self.buffer) {
                let from = FourTuple::new(SocketId(0), remote);
                for datagram in self.buffer[..answer.bytes].chunks_mut(answer.segment_bytes) {
                    self.sender
                        .handle_datagram(self.now, from, Ecn::NotCapable, datagram);
                }
            }
        }
    }
}

fn group(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("group");
    for bytes in [1_000, 10_000, 100_000] {
        let message = vec![7; bytes];
        for peers in [1, 8, 64] {
            for (loss, loses) in [("no loss", false), ("an eighth lost", true)] {
                for (how, is_shared) in [("group", true), ("singles", false)] {
                    let mut group = Group::new(peers, loses);
                    // Sessions, paths and loss are known by then.
                    for _ in 0..50 {
                        group.send(&message, is_shared);
                    }
                    let row = format!("{bytes} bytes, {loss}, {how}");
                    rows.bench_function(BenchmarkId::new(row, peers), |bencher| {
                        bencher.iter_custom(|times| {
                            (0..times).map(|_| group.send(&message, is_shared)).sum()
                        });
                    });
                }
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = group
}
criterion_main!(benches);
