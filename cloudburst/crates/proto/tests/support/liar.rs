//! A peer with a key that lies, next to two that do not: it makes datagrams of every kind and form,
//! changes any of their fields, and seals them as they have to be. What it says counts in its own
//! conversations; the fuzz target and a replay of its corpus run this.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU8,
    time::Duration,
};

use cloudburst_code::{Encoder, Schedule, Shape};
use cloudburst_proto::{
    Ecn, Event, FourTuple, Key, MessageKind, PeerId, PublicKey, SecretKey, Security, SendId,
    SocketId, Time, Transport, TransportConfig,
};
use cloudburst_wire::{
    self as wire, ACCEPTANCE_BYTES, Body, BufferTooShort, Busy, BusyReason, Cancel, Challenge,
    Clear, Credentials, Echo, Form, Gate, Goodbye, HEADER_BYTES, Header, Initiator, Offer, Opener,
    Outcome, Pattern, Ping, Pong, Progress, ProgressState, Query, Report, SECRET_BYTES, Sealer,
    Stamp, Stop, Symbol, TOKEN_BYTES, TokenBody, Written,
};

/// So that no input takes long.
const MOST_OPERATIONS: usize = 300;
const MOST_IN_FLIGHT: usize = 256;
const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];
const CALENDAR: Duration = Duration::from_secs(1_700_000_000);
/// First flights are taken from then on.
const SETTLED: Duration = Duration::from_secs(11);
/// An honest message is delivered within this time, whatever was done before.
const IN_TIME: Duration = Duration::from_secs(10);
const LIAR: u8 = 9;
/// Handshakes of the liar: each costs as much as a hundred other datagrams.
const MOST_OFFERS: u32 = 12;

/// A byte of options, then operations, see [`Scene::step`], over and over: the two ends' handshake, which
/// is most of the work, is worth many. Returns how many datagrams the liar sent.
pub(crate) fn check(input: &[u8]) -> u64 {
    let Some((&options, operations)) = input.split_first() else {
        return 0;
    };
    let mut scene = Scene::new(options);
    let mut input = Input(operations);
    for _ in 0..MOST_OPERATIONS {
        if scene.step(&mut input).is_none() {
            input = Input(operations);
        }
        scene.drain();
    }
    if options & 1 == 0 {
        scene.check_that_honest_messages_arrive();
    }
    scene.liar.datagrams
}

struct Input<'i>(&'i [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Numbers at which something may happen, and any others.
    fn number(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            0 => 0,
            1 => 1,
            2 => u64::from(u16::MAX),
            3 => u64::from(u32::MAX),
            4 => u64::MAX,
            5 => u64::MAX >> 1,
            6 => 1 << 31,
            small @ 7..=128 => u64::from(small),
            _ => u64::from(self.word()?) << (self.byte()? % 64),
        })
    }
}

/// Everybody may speak to everybody, by a key pair each or by one secret.
fn security(number: u8, options: u8) -> Security {
    if options & 4 == 0 {
        return Security::shared_key(Key::new(NonZeroU8::MIN, SECRET));
    }
    let holders = [0, 1, LIAR].map(|number| key_pair(number).public());
    Security::with_allowed(key_pair(number), holders)
}

fn key_pair(number: u8) -> SecretKey {
    SecretKey::new([number + 1; SECRET_BYTES])
}

fn address(end: u8, socket: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, end), 7_000 + socket))
}

struct End {
    machine: Transport,
    config: TransportConfig,
    /// The other honest end, and who else has come.
    honest: Option<PeerId>,
    others: Vec<PeerId>,
    /// Contents that were sent to the other end, and have not come there.
    contents: BTreeMap<Vec<u8>, u32>,
    delivered: Vec<SendId>,
}

/// Keys of the liar with an end.
struct Conversation {
    number: u64,
    index: u64,
    initiator: Option<Initiator>,
    early: Option<Sealer>,
    data: Option<(Sealer, Opener)>,
    token: Option<[u8; TOKEN_BYTES]>,
    /// What the end calls the conversation, which its answers have to name.
    theirs: u64,
    /// Numbers of messages that the end has sent.
    messages: Vec<u64>,
    sequence: u64,
}

struct Liar {
    pattern: Pattern,
    /// Its key pair, and the public keys of both ends.
    own: SecretKey,
    holders: [PublicKey; 2],
    offers: u32,
    conversations: [Conversation; 2],
    drawn: u64,
    datagrams: u64,
}

/// To whom, by which path, and what.
type Parcel = (usize, FourTuple, Vec<u8>);

struct Scene {
    now: Time,
    ends: [End; 2],
    liar: Liar,
    in_flight: Vec<Parcel>,
    sent: u8,
    buffer: Vec<u8>,
}

impl End {
    fn new(number: u8, options: u8) -> Self {
        let mut config = TransportConfig::new(security(number, options));
        config.unix_time = Some(CALENDAR);
        config.require_validation = options & 2 != 0;
        config.budget.lifetime = IN_TIME;
        if options & 1 != 0 {
            config.max_message_bytes = 20_000;
            config.quotas.messages = 3;
            config.quotas.bytes = 60_000;
            config.quotas.peer_bytes = 50_000;
            config.quotas.unvalidated_bytes = 20_000;
            config.quotas.peers = 2;
            config.quotas.unvalidated_peers = 2;
            config.quotas.answers_per_s = 50;
        }
        let machine = Transport::deterministic(config.clone(), [number; 32], Time::ZERO);
        Self {
            machine: machine.expect("it is a valid one"),
            config,
            honest: None,
            others: Vec::new(),
            contents: BTreeMap::new(),
            delivered: Vec::new(),
        }
    }

    fn check(&self) {
        let (now, quotas) = (self.machine.statistics(), &self.config.quotas);
        assert!(now.peers_now <= quotas.peers as u64);
        assert!(now.incoming_now <= quotas.messages as u64);
        assert!(now.incoming_bytes_now <= quotas.bytes as u64);
        let ended = now.messages_delivered + now.messages_undelivered;
        assert_eq!(now.messages_accepted, ended + now.outgoing_now);
    }
}

impl Liar {
    fn new(options: u8) -> Self {
        let conversation = |number| Conversation {
            number,
            index: 0,
            initiator: None,
            early: None,
            data: None,
            token: None,
            theirs: 0,
            messages: Vec::new(),
            sequence: 0,
        };
        Self {
            pattern: match options & 4 {
                0 => Pattern::SharedKey,
                _ => Pattern::KeyPair,
            },
            own: key_pair(LIAR),
            holders: [0, 1].map(|number| key_pair(number).public()),
            offers: 0,
            conversations: [conversation(1_001), conversation(1_002)],
            drawn: 0,
            datagrams: 0,
        }
    }

    fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        *blake3_like(self.drawn)
    }

    /// Makes an offer, as any initiator, or with fields that are none.
    fn offer(&mut self, now: Time, end: usize, input: &mut Input<'_>) -> Option<()> {
        self.offers += 1;
        let (choice, ephemeral, early_secret) = (input.byte()?, self.draw(), self.draw());
        let conversation = &mut self.conversations[end];
        conversation.index = u64::from_be_bytes(*early_secret.first_chunk()?);
        if choice & 1 != 0 {
            conversation.number = input.number()?;
        }
        let clear = Clear {
            pattern: self.pattern,
            key_id: u8::from(self.pattern == Pattern::SharedKey),
            index: conversation.index,
            token: conversation.token.take().unwrap_or([0; TOKEN_BYTES]),
        };
        let calendar = CALENDAR + now.since(Time::ZERO);
        let offer = Offer {
            early_secret,
            unix_us: match choice & 2 {
                0 => calendar.as_micros() as u64,
                _ => input.number()?,
            },
            conversation: conversation.number,
            oldest_us: if choice & 4 != 0 { input.number()? } else { 0 },
        };
        let mut message = vec![0; self.pattern.offer_bytes()];
        let (credentials, gate) = match self.pattern {
            Pattern::SharedKey => (Credentials::SharedKey(&SECRET), Gate::of_secret(&SECRET)),
            Pattern::KeyPair => {
                let (own, holder) = (&self.own, &self.holders[end]);
                let peer = Some(holder);
                (Credentials::KeyPair { own, peer }, Gate::of_public(holder))
            }
        };
        let made = Initiator::offer(credentials, &clear, &offer, ephemeral, &mut message);
        conversation.initiator = Some(made.expect("all lengths are right"));
        let hello = wire::write_hello(&clear, &gate, &message);
        let sealer = Sealer::sealed(conversation.index, &offer.early_key());
        conversation.early = Some(sealer.with_prefix(Form::Offer, hello));
        Some(())
    }

    /// A datagram of any kind, with fields as they have to be or not, sealed.
    fn datagram(&mut self, end: usize, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let choice = input.byte()?;
        let conversation = &mut self.conversations[end];
        let data = conversation.data.as_ref().map(|(sealer, _)| sealer);
        let sealer = match choice & 1 {
            0 => data.or(conversation.early.as_ref())?,
            _ => conversation.early.as_ref()?,
        };
        conversation.sequence += 1;
        let sequence = match choice & 2 {
            0 => conversation.sequence,
            _ => input.number()?,
        };
        let stamp = Stamp {
            path: if choice & 4 != 0 { input.word()? } else { 1 },
            sent_us: input.number()? as u32,
            sequence,
        };
        let messages = &conversation.messages;
        let message = match messages.get(usize::from(choice >> 4) % messages.len().max(1)) {
            Some(known) if choice & 8 == 0 => *known,
            _ => input.number()?,
        };
        let mut out = vec![0; 1_452];
        let theirs = conversation.theirs;
        let bytes = sealer.write(stamp, &mut out, |body| {
            body_of(input, (theirs, message), body).ok_or(BufferTooShort {
                needed: 0,
                available: 0,
            })
        });
        out.truncate(bytes.ok()?);
        self.datagrams += 1;
        Some(out)
    }

    /// Takes what an end sends.
    fn take(&mut self, end: usize, datagram: &mut [u8]) {
        let Ok(header) = Header::parse(datagram) else {
            return;
        };
        let conversation = &mut self.conversations[end];
        match header.form {
            Form::Retry => {
                let body = Opener::plain().open(&header, datagram);
                let body = body
                    .ok()
                    .map(|body| Body::parse(header.kind, body, header.session));
                if let Some(Ok(Body::Challenge(Challenge { token }))) = body {
                    conversation.token = Some(token);
                }
            }
            Form::Acceptance => {
                let Some(message) = datagram
                    .get(HEADER_BYTES..)
                    .and_then(|rest| rest.first_chunk::<ACCEPTANCE_BYTES>())
                else {
                    return;
                };
                if let Some(Ok((acceptance, keys))) = conversation
                    .initiator
                    .as_mut()
                    .map(|initiator| initiator.accepted(message))
                {
                    conversation.initiator = None;
                    conversation.theirs = acceptance.conversation;
                    let sealer = Sealer::sealed(acceptance.index, &keys.to_responder);
                    conversation.data = Some((sealer, Opener::sealed(&keys.to_initiator)));
                }
            }
            Form::Data => {
                let Some((_, opener)) = &conversation.data else {
                    return;
                };
                if let Ok(body) = opener.open(&header, datagram)
                    && let Ok(Body::Symbol(Symbol { message, .. })) =
                        Body::parse(header.kind, body, 0)
                    && conversation.messages.len() < 16
                {
                    conversation.messages.push(message);
                }
            }
            _ => {}
        }
    }
}

/// Bytes that differ for each number.
fn blake3_like(number: u64) -> Box<[u8; 32]> {
    let mut bytes = Box::new([0; 32]);
    let mut state = number;
    for word in bytes.chunks_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&state.to_be_bytes());
    }
    bytes
}

/// Writes a body of any kind, and changes some of its bytes.
fn body_of(input: &mut Input<'_>, (asker, message): (u64, u64), out: &mut [u8]) -> Option<Written> {
    let kind = input.byte()?;
    let asker = if kind & 128 == 0 {
        asker
    } else {
        input.number()?
    };
    let echo = Echo {
        path: input.word()?,
        sent_us: input.number()? as u32,
        hold_us: input.number()? as u32,
    };
    let mut reports = Vec::new();
    if kind & 64 != 0 {
        reports.push(Report {
            path: input.word()?,
            received: input.number()? as u32,
            highest: input.number()? as u32,
            delay_us: input.number()? as _,
        });
    }
    let reports = reports.into_iter();
    let written = match kind & 15 {
        0 | 1 => symbol(input, message, out),
        2 => Stop {
            message,
            outcome: [Outcome::Delivered, Outcome::Stale, Outcome::Refused]
                [usize::from(input.byte()? % 3)],
            echo,
            needed: input.word()?,
            spread_us: input.number()? as u32,
        }
        .write(asker, reports, out)
        .ok(),
        3 => Query { message }.write(out).ok(),
        4 | 5 => Progress {
            message,
            echo,
            state: match input.byte()? {
                0 => ProgressState::Unknown,
                _ => ProgressState::UnderWay {
                    missing: input.number()? as u32,
                },
            },
        }
        .write(asker, reports, out)
        .ok(),
        6 => Busy {
            message,
            echo,
            retry_after_ms: input.word()?,
            reason: [BusyReason::Memory, BusyReason::Messages, BusyReason::Peers]
                [usize::from(input.byte()? % 3)],
        }
        .write(asker, reports, out)
        .ok(),
        7 | 8 => Ping {
            nonce: input.number()?,
        }
        .write(out)
        .ok(),
        9 | 10 => Pong {
            nonce: input.number()?,
            echo,
            datagram_bytes: input.word()?,
        }
        .write(asker, reports, out)
        .ok(),
        11 => Challenge {
            token: [input.byte()?; TOKEN_BYTES],
        }
        .write(asker, out)
        .ok(),
        12 => Cancel { message }.write(out).ok(),
        13 => Goodbye.write(out).ok(),
        _ => TokenBody {
            token: [input.byte()?; TOKEN_BYTES],
            oldest: input.number()?,
        }
        .write(out)
        .ok(),
    };
    for _ in 0..input.byte()? % 4 {
        let (at, flip) = (usize::from(input.word()?) % 64, input.byte()?);
        if let Some(byte) = out.get_mut(at) {
            *byte ^= flip;
        }
    }
    written
}

/// A symbol of a message of any length, with a header that may declare anything.
fn symbol(input: &mut Input<'_>, message: u64, out: &mut [u8]) -> Option<Written> {
    let bytes = 1 + usize::from(input.word()?) % 20_000;
    let content = vec![input.byte()?; bytes];
    let shape = Shape::fitting(bytes, 900).ok()?;
    let (generation, seed) = (input.byte()?, input.word()?);
    let encoder = Encoder::new(&content, shape, Schedule::Mds, generation, seed).ok()?;
    let mut code = vec![0; encoder.datagram_bytes()];
    let sequence = input.number()? as u32 % (1 << 20);
    encoder.write(sequence..sequence + 1, &mut code).ok()?;
    for _ in 0..input.byte()? % 4 {
        let at = usize::from(input.byte()?) % code.len();
        code[at] ^= input.byte()?;
    }
    let code = &code;
    Symbol { message, code }.write(out).ok()
}

impl Scene {
    fn new(options: u8) -> Self {
        let mut ends = [End::new(0, options), End::new(1, options)];
        let now = Time::ZERO + SETTLED;
        let paths: Vec<_> = (0..2)
            .map(|socket| FourTuple::new(SocketId(socket), address(1, socket)))
            .collect();
        let key = (options & 4 != 0).then(|| key_pair(1).public());
        ends[0].honest = ends[0].machine.connect(now, &paths, key).ok();
        let mut scene = Self {
            now,
            ends,
            liar: Liar::new(options),
            in_flight: Vec::new(),
            sent: 0,
            buffer: vec![0; 65_535],
        };
        scene.send(0, 3_000);
        scene.drain();
        scene.deliver(usize::MAX);
        scene
    }

    fn send(&mut self, number: usize, bytes: usize) -> Option<SendId> {
        let (now, tag) = (self.now, self.sent);
        let end = &mut self.ends[number];
        let peer = end.honest?;
        let content: Vec<u8> = (0..bytes)
            .map(|at| tag ^ at as u8 ^ (at >> 8) as u8)
            .collect();
        let id = end
            .machine
            .send(now, peer, MessageKind::Message, &content)
            .ok()?;
        self.sent = self.sent.wrapping_add(1);
        *end.contents.entry(content).or_default() += 1;
        Some(id)
    }

    /// The lower part of the byte that an operation begins with says which, its highest bit which end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let first = input.byte()?;
        let number = usize::from(first >> 7);
        match first & 15 {
            0 => {
                self.send(number, 1 + usize::from(input.word()?) % 20_000);
            }
            1 => self.pass(Duration::from_micros(input.word()?.into())),
            2 => self.pass(Duration::from_millis(input.word()?.into())),
            3 => self.deliver(usize::from(input.byte()?)),
            4 | 5 if self.liar.offers < MOST_OFFERS => {
                self.liar.offer(self.now, number, input)?;
                self.lie(number, input)?;
            }
            // What the liar is sent, it may lie about.
            6 => {
                let (now, bytes) = (self.now, 1 + usize::from(input.word()?) % 5_000);
                let end = &mut self.ends[number];
                if let Some(peer) = end.others.last() {
                    let message = vec![0xaa; bytes];
                    let _ = end.machine.send(now, *peer, MessageKind::Message, &message);
                }
            }
            _ => self.lie(number, input)?,
        }
        Some(())
    }

    fn lie(&mut self, number: usize, input: &mut Input<'_>) -> Option<()> {
        let Some(mut datagram) = self.liar.datagram(number, input) else {
            return Some(());
        };
        let path = FourTuple::new(SocketId(0), address(LIAR, 0));
        let machine = &mut self.ends[number].machine;
        machine.handle_datagram(self.now, path, Ecn::NotCapable, &mut datagram);
        Some(())
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for end in &mut self.ends {
            end.machine.handle_timeout(self.now);
        }
    }

    fn deliver(&mut self, most: usize) {
        let most = most.min(self.in_flight.len());
        let due: Vec<_> = self.in_flight.drain(..most).collect();
        for (to, path, mut datagram) in due {
            let machine = &mut self.ends[to].machine;
            machine.handle_datagram(self.now, path, Ecn::NotCapable, &mut datagram);
        }
        self.drain();
    }

    fn drain(&mut self) {
        for number in [0, 1] {
            let mut calls = 0;
            while let Some(transmit) = self.ends[number]
                .machine
                .poll_transmit(self.now, &mut self.buffer)
            {
                calls += 1;
                assert!(calls < 100_000, "there is no end of datagrams");
                let (from, remote) = (transmit.four_tuple.socket, transmit.four_tuple.remote);
                let to = 1 - number;
                for datagram in self.buffer[..transmit.bytes].chunks_mut(transmit.segment_bytes) {
                    let socket = SocketId(remote.port().wrapping_sub(7_000));
                    if remote == address(LIAR, 0) {
                        self.liar.take(number, datagram);
                    } else if remote == address(to as u8, socket.0)
                        && self.in_flight.len() < MOST_IN_FLIGHT
                    {
                        let path = FourTuple::new(socket, address(number as u8, from.0));
                        self.in_flight.push((to, path, datagram.to_vec()));
                    }
                }
            }
            while let Some(event) = self.ends[number].machine.poll_event() {
                self.take(number, event);
            }
            self.ends[number].check();
        }
    }

    fn take(&mut self, number: usize, event: Event) {
        match event {
            Event::Received { peer, message, .. } => {
                let left = self.ends[1 - number].contents.get_mut(&message[..]);
                let is_honest = Some(peer) == self.ends[number].honest;
                match left {
                    Some(left) if *left > 0 => {
                        *left -= 1;
                        self.ends[number].honest.get_or_insert(peer);
                    }
                    _ => {
                        assert!(
                            !is_honest,
                            "an honest end has not sent this, or not so often"
                        );
                        self.ends[number].others.push(peer);
                    }
                }
            }
            Event::Delivered { id, .. } => self.ends[number].delivered.push(id),
            Event::PeerGone { peer, .. } => {
                let end = &mut self.ends[number];
                end.others.retain(|known| *known != peer);
                end.honest = end.honest.filter(|known| *known != peer);
            }
            Event::RotatePort { socket } => {
                self.ends[number].machine.port_rotated(self.now, socket);
            }
            _ => {}
        }
    }

    /// Whatever was said before, the next message of an honest end is delivered in time.
    fn check_that_honest_messages_arrive(&mut self) {
        self.in_flight.clear();
        let id = self.send(0, 5_000).expect("it is taken");
        let end = self.now + IN_TIME;
        while self.now < end && !self.ends[0].delivered.contains(&id) {
            self.drain();
            self.deliver(usize::MAX);
            self.pass(Duration::from_millis(5));
        }
        let is_delivered = self.ends[0].delivered.contains(&id);
        assert!(is_delivered, "a liar has kept it away");
    }
}
