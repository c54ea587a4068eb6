//! What must hold for any course of calls and datagrams; the fuzz target and the
//! replay of its corpus run this.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU8,
    time::Duration,
};

use cloudburst_proto::{
    CongestionControl, Ecn, Event, FourTuple, IcmpKind, Key, Keyring, Machine, MessageKind, PeerId,
    Security, SendId, SocketId, Time, TransportConfig,
};
use cloudburst_wire::{self as wire, Form, Header};

use crate::machines;

/// So that no input takes long.
const MOST_OPERATIONS: usize = 400;
const MOST_IN_FLIGHT: usize = 512;
const SOCKETS: u16 = 2;

/// A byte of options, then operations: see [`Scene::step`].
pub(crate) fn check(input: &[u8]) {
    let mut input = Input(input);
    let Some(options) = input.byte() else {
        return;
    };
    let mut scene = Scene::new(options);
    for _ in 0..MOST_OPERATIONS {
        if scene.step(&mut input).is_none() {
            break;
        }
        scene.drain();
    }
}

struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn bytes(&mut self) -> Option<&'i [u8]> {
        let count = usize::from(self.byte()?).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(bytes)
    }
}

/// Two endpoints that have something to say to each other, and datagrams between them.
struct Scene {
    now: Time,
    ends: [End; 2],
    in_flight: VecDeque<Parcel>,
    delivered: Vec<Parcel>,
    /// Nobody can forge: what is received was sent, once.
    is_sealed: bool,
    buffer: Vec<u8>,
}

struct End {
    endpoint: Box<dyn Machine>,
    config: TransportConfig,
    peers: Vec<PeerId>,
    sent: Vec<SendId>,
    /// Contents, and how often they may still arrive at the other end.
    contents: BTreeMap<Vec<u8>, u32>,
}

#[derive(Clone)]
struct Parcel {
    to: usize,
    four_tuple: FourTuple,
    bytes: Vec<u8>,
}

fn keys(numbers: &[u8]) -> Security {
    let key = |number: &u8| Key::new(NonZeroU8::new(*number).expect("1 or 2"), [*number; 32]);
    Security::SharedKeys(Keyring::new(numbers.iter().map(key)).expect("they differ"))
}

fn address(end: usize, socket: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, end as u8), 7_000 + socket))
}

impl End {
    fn new(number: usize, options: u8) -> Self {
        let mut config = TransportConfig::unprotected();
        if options & 1 != 0 {
            config.security = keys(&[1]);
        }
        config.require_validation = options & 2 != 0;
        config.budget.lifetime = Duration::from_millis(500);
        if options & 4 != 0 {
            config.max_message_bytes = 20_000;
            config.quotas.messages = 3;
            config.quotas.bytes = 60_000;
            config.quotas.peer_bytes = 50_000;
            config.quotas.unvalidated_bytes = 20_000;
            config.quotas.peers = 4;
            config.quotas.unvalidated_peers = 2;
            config.quotas.outgoing_messages = 5;
            config.quotas.answers_per_s = 50;
        }
        if options & 8 != 0 {
            config.congestion = CongestionControl::reserved(1_000_000);
        }
        // One end only: formats that do not match.
        let is_paper = options & 64 != 0 || options & 128 != 0 && number == 0;
        if is_paper {
            config.security = Security::Unprotected;
            config.require_validation = false;
        }
        let seed = [number as u8; 32];
        Self {
            endpoint: machines::start(is_paper, config.clone(), seed, Time::ZERO),
            config,
            peers: Vec::new(),
            sent: Vec::new(),
            contents: BTreeMap::new(),
        }
    }

    fn connect(&mut self, now: Time, to: usize) {
        let four_tuples: Vec<_> = (0..SOCKETS * SOCKETS)
            .map(|number| FourTuple::new(SocketId(number / SOCKETS), address(to, number % SOCKETS)))
            .collect();
        self.peers
            .extend(self.endpoint.connect(now, &four_tuples, None));
    }

    fn send(&mut self, now: Time, choice: u8, bytes: usize) {
        let Some(&peer) = self
            .peers
            .get(usize::from(choice >> 2) % self.peers.len().max(1))
        else {
            return;
        };
        let kind = match choice & 3 {
            0 | 1 => MessageKind::Message,
            2 => MessageKind::Request,
            _ => MessageKind::Reply { to: choice.into() },
        };
        let tag = self.sent.len() as u8;
        let content: Vec<u8> = (0..bytes)
            .map(|at| tag ^ at as u8 ^ (at >> 8) as u8)
            .collect();
        if let Ok(id) = self.endpoint.send(now, peer, kind, &content) {
            self.sent.push(id);
            *self.contents.entry(content).or_default() += 1;
        }
    }

    fn check(&self) {
        let (now, quotas) = (self.endpoint.statistics(), &self.config.quotas);
        assert!(now.peers_now <= quotas.peers as u64);
        assert!(now.incoming_now <= quotas.messages as u64);
        assert!(now.incoming_bytes_now <= quotas.bytes as u64);
        assert!(now.outgoing_now <= quotas.outgoing_messages as u64);
        let ended = now.messages_delivered + now.messages_undelivered;
        assert_eq!(now.messages_accepted, ended + now.outgoing_now);
    }
}

impl Scene {
    fn new(options: u8) -> Self {
        let mut ends = [End::new(0, options), End::new(1, options)];
        ends[0].connect(Time::ZERO, 1);
        if options & 16 != 0 {
            ends[1].connect(Time::ZERO, 0);
        }
        Self {
            now: Time::ZERO,
            ends,
            in_flight: VecDeque::new(),
            delivered: Vec::new(),
            is_sealed: options & 1 != 0 && options & (64 | 128) == 0,
            buffer: vec![0; if options & 32 != 0 { 65_535 } else { 9_000 }],
        }
    }

    /// The lower half of the byte that an operation begins with says which, its
    /// highest bit which end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let first = input.byte()?;
        let number = usize::from(first >> 7);
        let end = &mut self.ends[number];
        match first & 15 {
            0 | 1 => end.send(self.now, input.byte()?, input.word()?.into()),
            2 => self.pass(Duration::from_micros(input.word()?.into())),
            3 => self.pass(Duration::from_millis(input.word()?.into())),
            4 | 5 => (0..=input.byte()?).for_each(|_| self.deliver(|_| {})),
            6 => drop(self.in_flight.pop_front()),
            7 => {
                let (at, flip) = (usize::from(input.word()?), input.byte()?);
                self.deliver(|bytes| {
                    let at = at % bytes.len().max(1);
                    bytes
                        .iter_mut()
                        .skip(at)
                        .take(1)
                        .for_each(|byte| *byte ^= flip);
                });
            }
            8 => {
                let left = usize::from(input.word()?);
                self.deliver(|bytes| bytes.truncate(left));
            }
            9 => {
                let index = usize::from(input.word()?) % self.delivered.len().max(1);
                self.in_flight.extend(self.delivered.get(index).cloned());
            }
            10 => {
                let (host, mut bytes) = (input.byte()?, input.bytes()?.to_vec());
                // No chance finds the right check; 7 makes it wrong.
                let header = Header::parse(&bytes);
                if header.is_ok_and(|it| it.form == Form::Plain && it.kind.is_checked()) {
                    let check = wire::check(&bytes);
                    bytes.extend(check);
                }
                let socket = SocketId(u16::from(host) % SOCKETS);
                let remote = address(usize::from(host), 0);
                let four_tuple = FourTuple::new(socket, remote);
                self.in_flight.push_back(Parcel {
                    to: number,
                    four_tuple,
                    bytes,
                });
            }
            11 => {
                let index = usize::from(input.byte()?) % end.sent.len().max(1);
                end.sent
                    .get(index)
                    .into_iter()
                    .for_each(|id| end.endpoint.cancel(self.now, *id));
            }
            12 => {
                let four_tuple = Self::four_tuple(number, input.byte()?);
                end.endpoint.handle_unreachable(self.now, four_tuple);
                // Somebody has seen what was sent, and forges.
                if let Some(parcel) = self.in_flight.front() {
                    let kind = IcmpKind::Unreachable;
                    end.endpoint
                        .handle_icmp(self.now, four_tuple, kind, &parcel.bytes);
                }
            }
            13 => {
                let (four_tuple, bytes) = (Self::four_tuple(number, input.byte()?), input.word()?);
                end.endpoint
                    .handle_too_big(self.now, four_tuple, bytes.into());
            }
            14 if self.is_sealed => {
                let rings: [&[u8]; 3] = [&[1], &[1, 2], &[2, 1]];
                end.endpoint
                    .set_security(keys(rings[usize::from(input.byte()?) % 3]));
            }
            14 => end.endpoint.handle_timeout(self.now),
            _ => {
                let choice = input.byte()?;
                if choice & 1 == 0 {
                    end.endpoint
                        .remove_socket(self.now, SocketId(choice.into()));
                } else {
                    end.connect(self.now, 1 - number);
                }
            }
        }
        Some(())
    }

    fn four_tuple(number: usize, choice: u8) -> FourTuple {
        FourTuple::new(
            SocketId(u16::from(choice) % SOCKETS),
            address(1 - number, u16::from(choice >> 1) % SOCKETS),
        )
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for end in &mut self.ends {
            end.endpoint.handle_timeout(self.now);
        }
    }

    fn deliver(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let Some(mut parcel) = self.in_flight.pop_front() else {
            return;
        };
        if self.delivered.len() < MOST_IN_FLIGHT {
            self.delivered.push(parcel.clone());
        }
        change(&mut parcel.bytes);
        let endpoint = &mut self.ends[parcel.to].endpoint;
        let ecn = Ecn::NotCapable;
        endpoint.handle_datagram(self.now, parcel.four_tuple, ecn, &mut parcel.bytes);
        self.drain();
    }

    /// Takes what there is to take, and looks at the quotas.
    fn drain(&mut self) {
        for number in [0, 1] {
            let mut calls = 0;
            while let Some(transmit) = self.ends[number]
                .endpoint
                .poll_transmit(self.now, &mut self.buffer)
            {
                calls += 1;
                assert!(calls < 100_000, "there is no end of datagrams");
                let (socket, remote) = (transmit.four_tuple.socket, transmit.four_tuple.remote);
                let to = 1 - number;
                for bytes in self.buffer[..transmit.bytes].chunks(transmit.segment_bytes) {
                    let socket_there = SocketId(remote.port().wrapping_sub(7_000));
                    let is_there = remote == address(to, socket_there.0);
                    if is_there && self.in_flight.len() < MOST_IN_FLIGHT {
                        let four_tuple = FourTuple::new(socket_there, address(number, socket.0));
                        let bytes = bytes.to_vec();
                        self.in_flight.push_back(Parcel {
                            to,
                            four_tuple,
                            bytes,
                        });
                    }
                }
            }
            while let Some(event) = self.ends[number].endpoint.poll_event() {
                self.take(number, event);
            }
            self.ends[number].check();
        }
    }

    fn take(&mut self, number: usize, event: Event) {
        match event {
            Event::Received { peer, message, .. } => {
                let left = self.ends[1 - number].contents.get_mut(&message);
                if self.is_sealed {
                    let left = left.expect("somebody sent it");
                    *left = left.checked_sub(1).expect("it comes once");
                }
                self.ends[number].peers.push(peer);
            }
            Event::PeerGone { peer, .. } => self.ends[number].peers.retain(|known| *known != peer),
            Event::RotatePort { socket } => {
                let endpoint = &mut self.ends[number].endpoint;
                endpoint.port_rotated(self.now, socket);
            }
            _ => {}
        }
    }
}
