//! Two endpoints and a perfect network between them.

mod marks;
mod notices;

use core::{num::NonZeroU8, time::Duration};

use super::super::*;
use crate::packet::{Key, PacketKind, Ping, Sealer, Stamp};

const ONE_WAY: Duration = Duration::from_millis(1);

pub(super) struct Pair {
    pub(super) now: Time,
    pub(super) ends: [Transport; 2],
    /// Datagrams under way: when, to whom, by which path, what.
    wire: Vec<(Time, usize, FourTuple, Ecn, Vec<u8>)>,
    /// How often the translator of addresses before the first end has chosen other ports.
    pub(super) rebindings: u16,
}

/// Ports of the first end's sockets as others see them are so far apart.
const REBOUND: u16 = 100;

pub(super) fn address(end: usize, socket: u16) -> std::net::SocketAddr {
    ([10, 0, 0, end as u8], 1_000 + socket).into()
}

impl Pair {
    pub(super) fn new(config: &TransportConfig, sockets: u16) -> (Self, PeerId) {
        Self::of([config; 2], sockets)
    }

    pub(super) fn of(configs: [&TransportConfig; 2], sockets: u16) -> (Self, PeerId) {
        let now = Time::from_nanos(1_000_000);
        let end = |number: usize| {
            let seed = [number as u8 + 1; 32];
            Transport::deterministic(configs[number].clone(), seed, now).unwrap()
        };
        let mut pair = Self {
            // They have been running for longer than a way takes.
            now: now + Duration::from_millis(10),
            ends: [end(0), end(1)],
            wire: Vec::new(),
            rebindings: 0,
        };
        let key = match &configs[1].security {
            Security::KeyPair(identity) => Some(identity.secret.public()),
            _ => None,
        };
        let four_tuples: Vec<_> = (0..sockets)
            .map(|socket| FourTuple::new(SocketId(socket), address(1, 0)))
            .collect();
        let peer = pair.ends[0].connect(now, &four_tuples, key).unwrap();
        (pair, peer)
    }

    /// Sends such a [`message`] from the first end to the other.
    pub(super) fn send(&mut self, peer: PeerId, bytes: usize) -> SendId {
        let message = message(bytes);
        self.ends[0]
            .send(self.now, peer, MessageKind::Message, &message)
            .unwrap()
    }

    /// Runs until nothing is due within `limit`; loses what `lost` says.
    pub(super) fn run(&mut self, limit: Duration, mut lost: impl FnMut(usize, &[u8]) -> bool) {
        let end = self.now + limit;
        let mut out = vec![0; 65_536];
        loop {
            for from in 0..2 {
                while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut out) {
                    for datagram in out[..transmit.bytes].chunks(transmit.segment_bytes) {
                        if lost(from, datagram) {
                            continue;
                        }
                        let mut source = transmit.four_tuple.socket.0;
                        let mut to_socket = transmit.four_tuple.remote.port() - 1_000;
                        if from == 0 {
                            source += REBOUND * self.rebindings;
                        } else if to_socket / REBOUND == self.rebindings {
                            to_socket %= REBOUND;
                        } else {
                            // Nobody is behind the ports before any more.
                            continue;
                        }
                        let four_tuple = FourTuple::new(SocketId(to_socket), address(from, source));
                        self.wire.push((
                            self.now + ONE_WAY,
                            1 - from,
                            four_tuple,
                            transmit.ecn,
                            datagram.to_vec(),
                        ));
                    }
                }
            }
            let arrivals = self.wire.iter().map(|(at, ..)| *at);
            let deadlines = self.ends.iter().filter_map(Transport::next_deadline);
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
            for (_, to, four_tuple, ecn, mut datagram) in due {
                self.ends[to].handle_datagram(self.now, four_tuple, ecn, &mut datagram);
            }
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }
    }

    /// What became of messages; peers and paths have tests of their own.
    pub(super) fn events(&mut self, end: usize) -> Vec<Event> {
        let events = std::iter::from_fn(|| self.ends[end].poll_event());
        let is_aside =
            |it: &Event| matches!(it, Event::PeerKnown { .. } | Event::PathHealth { .. });
        events.filter(|it| !is_aside(it)).collect()
    }
}

pub(super) fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
}

#[test]
fn message_arrives_in_a_round_trip() {
    for bytes in [1, 100, 5_000, 93_440, 1_000_000] {
        let (mut pair, peer) = Pair::new(&TransportConfig::unprotected(), 4);
        let sent = message(bytes);
        let id = pair.ends[0]
            .send(pair.now, peer, MessageKind::Message, &sent)
            .unwrap();
        pair.run(Duration::from_millis(100), |_, _| false);
        let events = pair.events(1);
        let [
            Event::Received {
                message,
                kind: MessageKind::Message,
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(*message, sent);
        let events = pair.events(0);
        let [
            Event::Delivered {
                id: delivered,
                receipt,
            },
        ] = &events[..]
        else {
            panic!("{bytes}: {events:?}");
        };
        assert_eq!(*delivered, id);
        assert_eq!(receipt.needed, receipt.symbols);
        if bytes < 10_000 {
            assert_eq!(receipt.sent, receipt.symbols, "{bytes}");
            assert!(receipt.completion < ONE_WAY * 3, "{bytes} {receipt:?}");
        }
    }
}

#[test]
fn reply_goes_back_by_the_ways_that_the_request_came_by() {
    let (mut pair, peer) = Pair::new(&TransportConfig::unprotected(), 4);
    let id = pair.ends[0]
        .send(pair.now, peer, MessageKind::Request, &message(3_000))
        .unwrap();
    pair.run(Duration::from_millis(20), |_, _| false);
    let events = pair.events(1);
    let [
        Event::Received {
            peer: client,
            id: request,
            kind: MessageKind::Request,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(*request, id.as_u64());
    let reply = MessageKind::Reply { to: *request };
    pair.ends[1]
        .send(pair.now, *client, reply, &message(90_000))
        .unwrap();
    pair.run(Duration::from_millis(100), |_, _| false);
    let events = pair.events(0);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Received { kind, .. } if *kind == reply)),
        "{events:?} {:?}",
        pair.ends[1].statistics()
    );
}

#[test]
fn losses_are_made_up_for() {
    let (mut pair, peer) = Pair::new(&TransportConfig::unprotected(), 4);
    let mut count = 0;
    for bytes in [100, 5_000, 93_440] {
        pair.send(peer, bytes);
        // A third is lost, which is taken for congestion.
        pair.run(Duration::from_secs(3), |_, _| {
            count += 1;
            count % 3 == 0
        });
        assert!(
            matches!(pair.events(0)[..], [Event::Delivered { .. }]),
            "{bytes}"
        );
        assert!(
            matches!(pair.events(1)[..], [Event::Received { .. }]),
            "{bytes}"
        );
    }
}

#[test]
fn silence_is_told_when_the_time_is_over() {
    let (mut pair, peer) = Pair::new(&TransportConfig::unprotected(), 4);
    pair.send(peer, 5_000);
    pair.run(Duration::from_secs(20), |_, _| true);
    let events = pair.events(0);
    let [Event::Undelivered { failure, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(failure.reason, Reason::TimedOut);
    assert!(failure.sent <= 2 * failure.symbols + 16);
}

fn with_and_without_keys() -> [TransportConfig; 2] {
    let key = Key::new(NonZeroU8::MIN, [7; 32]);
    let keyed = TransportConfig::new(Security::shared_key(key));
    [TransportConfig::unprotected(), keyed]
}

fn path(socket: u16) -> FourTuple {
    FourTuple::new(SocketId(socket), address(1, 0))
}

/// Finding 4: who we had connected to answered once in the name of a victim, which was taken to
/// receive whatever is sent there from then on: replies to who pretends to be there, too.
#[test]
fn an_answer_from_elsewhere_validates_no_address() {
    let (mut pair, peer) = Pair::new(&TransportConfig::unprotected(), 1);
    pair.send(peer, 5_000);
    let victim = FourTuple::new(SocketId(0), ([203, 0, 113, 7], 53).into());
    let mut came = 0;
    let mut spoof = |pair: &mut Pair, mut datagram: Vec<u8>| {
        came += datagram.len() as u64;
        pair.ends[0].handle_datagram(pair.now, victim, Ecn::NotCapable, &mut datagram);
    };
    let mut answers = Vec::new();
    pair.run(Duration::from_millis(50), |from, datagram| {
        if from == 1 {
            answers.push(datagram.to_vec());
        }
        from == 1
    });
    for answer in answers {
        spoof(&mut pair, answer);
    }
    let seed = [9; 32];
    let mut stranger = Transport::deterministic(TransportConfig::unprotected(), seed, pair.now)
        .expect("it starts");
    let here = path(0);
    let stranger_s = stranger.connect(pair.now, &[here], None).expect("it can");
    let asked = stranger.send(pair.now, stranger_s, MessageKind::Message, &[1; 100]);
    asked.expect("there is capacity");
    let mut out = vec![0; 65_536];
    while let Some(transmit) = stranger.poll_transmit(pair.now, &mut out) {
        spoof(&mut pair, out[..transmit.bytes].to_vec());
    }
    let pretender = pair.ends[0].peers().find(|it| *it != peer);
    let pretender = pretender.expect("its message has made it a peer");
    let reply = pair.ends[0].send(
        pair.now,
        pretender,
        MessageKind::Message,
        &message(1_000_000),
    );
    reply.expect("there is capacity");
    let mut sent = 0;
    for _ in 0..2_000 {
        pair.now = pair.now + Duration::from_millis(1);
        pair.ends[0].handle_timeout(pair.now);
        while let Some(transmit) = pair.ends[0].poll_transmit(pair.now, &mut out) {
            if transmit.four_tuple.remote == victim.remote {
                sent += transmit.bytes as u64;
            }
        }
    }
    assert!(sent <= 3 * came, "{sent} bytes for {came}");
}

/// A ping without key, of a stranger.
fn ping(session: u64, sequence: u64) -> Vec<u8> {
    let mut datagram = vec![0; 100];
    let stamp = Stamp {
        path: 1,
        sent_us: 0,
        sequence,
    };
    Sealer::plain(session)
        .write(stamp, &mut datagram, |body| Ping { nonce: 1 }.write(body))
        .expect("it fits");
    datagram
}

#[test]
fn a_flood_of_pings_leaves_most_of_the_link_to_own_messages() {
    let config = TransportConfig {
        congestion: CongestionControl::reserved(10_000_000),
        ..TransportConfig::unprotected()
    };
    let (mut pair, peer) = Pair::new(&config, 2);
    pair.send(peer, 5_000);
    pair.run(Duration::from_millis(50), |_, _| false);
    pair.events(0);
    let mut completions = Vec::new();
    for millisecond in 0..1_000 {
        for number in 0..200 {
            let from = FourTuple::new(SocketId(0), ([100, 64, 0, number as u8], 9).into());
            let mut datagram = ping(1_000 + number, millisecond);
            pair.ends[0].handle_datagram(pair.now, from, Ecn::NotCapable, &mut datagram);
        }
        if millisecond % 100 == 0 {
            pair.send(peer, 5_000);
        }
        pair.run(Duration::from_millis(1), |_, datagram| {
            // Strangers' answers do not go to the other end.
            datagram[0] & 15 == PacketKind::Pong as u8
        });
        completions.extend(pair.events(0));
    }
    pair.send(peer, 5_000);
    pair.run(Duration::from_millis(50), |_, _| false);
    completions.extend(pair.events(0));
    assert_eq!(
        completions.len(),
        11,
        "during the flood and at once after it"
    );
    for event in completions {
        let Event::Delivered { receipt, .. } = event else {
            panic!("{event:?}");
        };
        assert!(
            receipt.completion < Duration::from_millis(20),
            "{receipt:?}"
        );
    }
    let statistics = pair.ends[0].statistics();
    assert!(
        statistics.refused.answers_over_budget > 100_000,
        "{statistics:?}"
    );
}

/// A client that asks every 5 s for a day, of virtual time.
fn a_day_of_requests(config: &TransportConfig) {
    let (mut pair, peer) = Pair::new(config, 1);
    let (day, pause) = (Duration::from_secs(24 * 3_600), Duration::from_secs(5));
    let end = pair.now + day;
    let mut asked = 0;
    while pair.now < end {
        let request = message(200);
        let sent = pair.ends[0].send(pair.now, peer, MessageKind::Request, &request);
        sent.expect("there is capacity");
        asked += 1;
        pair.run(ONE_WAY * 20, |_, _| false);
        for event in pair.events(1) {
            if let Event::Received { peer, id, .. } = event {
                let reply = MessageKind::Reply { to: id };
                let sent = pair.ends[1].send(pair.now, peer, reply, &message(20_000));
                sent.expect("there is capacity");
            }
        }
        pair.run(pause - ONE_WAY * 20, |_, _| false);
        let replies = pair.events(0).into_iter();
        let replies = replies
            .filter(|it| matches!(it, Event::Received { .. }))
            .count();
        assert_eq!(replies, 1, "request {asked} after {}", pair.now);
    }
    assert_eq!(pair.ends[1].statistics().messages_delivered, asked);
    assert_eq!(pair.ends[1].statistics().refused.amplification_capped, 0);
}

#[test]
fn a_day_of_requests_without_a_key_is_answered_to_the_last() {
    a_day_of_requests(&TransportConfig::unprotected());
}

#[test]
fn a_day_of_requests_under_a_key_is_answered_to_the_last() {
    let key = Key::new(NonZeroU8::MIN, [7; 32]);
    a_day_of_requests(&TransportConfig::new(Security::shared_key(key)));
}
