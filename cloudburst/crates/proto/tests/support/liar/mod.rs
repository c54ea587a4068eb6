//! A peer with a key that lies, next to two that do not: it makes datagrams of every kind and form,
//! changes any of their fields, and seals them as they have to be. What it says counts in its own
//! conversations; the fuzz target and a replay of its corpus run this.

pub(crate) mod bodies;
pub(crate) mod lies;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU8,
    sync::LazyLock,
    time::Duration,
};

use cloudburst_proto::{
    Ecn, Event, FourTuple, Key, MessageKind, PeerId, SecretKey, Security, SendId, SocketId, Time,
    Transport, TransportConfig,
};
use cloudburst_wire::SECRET_BYTES;

use self::{
    bodies::Input,
    lies::{Holding, Liar},
};

/// So that no input takes long, and handshakes, which are of curves alone, are a small part of it: with 500 they were half.
const MOST_OPERATIONS: usize = 1_000;
/// The liar's keys with both ends are not there yet when the operations begin.
pub(crate) const WITHOUT_KEYS: u8 = 8;
/// A ping as it has to be: choice, time, message, kind, path of the echo, its times, nonce, no flips.
pub(crate) const PING: [u8; 10] = [0, 1, 1, 7, 0, 1, 1, 1, 1, 0];
const MOST_IN_FLIGHT: usize = 256;
/// Messages of the honest are as long as this at most.
const MOST_BYTES: usize = 20_000;
/// What they are made of: from each of the first 256 bytes on it is another message.
static PATTERN: [u8; MOST_BYTES + 256] = {
    let mut pattern = [0; MOST_BYTES + 256];
    let mut at = 0;
    while at < pattern.len() {
        pattern[at] = at as u8 ^ (at >> 8) as u8;
        at += 1;
    }
    pattern
};
const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];
const CALENDAR: Duration = Duration::from_secs(1_700_000_000);
/// First flights are taken from then on.
const SETTLED: Duration = Duration::from_secs(11);
/// An honest message is delivered within this time, whatever was done before, unless it takes longer without the
/// liar.
const IN_TIME: Duration = Duration::from_secs(10);
/// Messages of its own that wait in front of it are gone by then. How long they take is no matter of the liar's
/// alone: at what rate they go depends on what went before, of which he changes a lot.
const MOST_BEFORE: Duration = Duration::from_secs(30);
/// The network of the two honest ends holds no datagram for longer: round trips of a minute make a sender slow
/// for long by themselves, and offers old.
const LONGEST_UNDER_WAY: Duration = Duration::from_secs(1);
/// Answers to answers that are delivered before more time than that passes; the rest is lost.
const MOST_ANSWERS: usize = 8;
const LIAR: u8 = 9;
/// Handshakes of the liar: each costs as much as a hundred other datagrams.
const MOST_OFFERS: u32 = 12;

/// A byte of options, then operations, see [`Scene::step`], over and over: the two ends' handshake, which
/// is most of the work, is worth many. Returns how many datagrams the liar sent.
pub(crate) fn check(input: &[u8]) -> u64 {
    let Some((&options, operations)) = input.split_first() else {
        return 0;
    };
    let mut scene = played(options, operations, true);
    if options & 1 == 0 && scene.time_of_one_more().is_none() {
        let alone = played(options, operations, false).time_of_one_more();
        assert!(alone.is_none(), "a liar has kept it away");
    }
    scene.liar.datagrams
}

/// The scene after all operations, with a liar that is heard or not.
fn played(options: u8, operations: &[u8], is_heard: bool) -> Scene {
    let mut scene = Scene::new(options);
    scene.is_liar_heard = is_heard;
    if options & WITHOUT_KEYS == 0 {
        scene.give_keys();
    }
    let mut input = Input(operations);
    for _ in 0..MOST_OPERATIONS {
        if scene.step(&mut input).is_none() {
            input = Input(operations);
        }
        scene.drain();
    }
    scene
}

/// Everybody may speak to everybody, by a key pair each or by one secret.
fn security(number: u8, options: u8) -> Security {
    if options & 4 == 0 {
        return Security::shared_key(Key::new(NonZeroU8::MIN, SECRET));
    }
    let holders = [0, 1, LIAR].map(|number| key_pair(number).public());
    Security::with_allowed(key_pair(number), holders)
}

/// The keys of the liar, by the scene's options.
fn holding(options: u8) -> Holding {
    if options & 4 == 0 {
        return Holding::Secret {
            id: 1,
            secret: SECRET,
        };
    }
    Holding::KeyPair {
        own: key_pair(LIAR),
        holders: [0, 1].map(|number| key_pair(number).public()),
    }
}

/// The key pair of an end, or of the liar. A public key takes as long to make as many datagrams.
fn key_pair(number: u8) -> SecretKey {
    static KEY_PAIRS: LazyLock<[SecretKey; LIAR as usize + 1]> =
        LazyLock::new(|| std::array::from_fn(|at| SecretKey::new([at as u8 + 1; SECRET_BYTES])));
    KEY_PAIRS[usize::from(number)].clone()
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

/// A datagram of an honest end on its way to the other.
struct Parcel {
    to: usize,
    path: FourTuple,
    datagram: Vec<u8>,
    sent_at: Time,
}

struct Scene {
    now: Time,
    ends: [End; 2],
    liar: Liar,
    /// The oldest first.
    in_flight: Vec<Parcel>,
    sent: u8,
    is_liar_heard: bool,
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
            liar: Liar::new(holding(options)),
            in_flight: Vec::new(),
            sent: 0,
            is_liar_heard: true,
            buffer: vec![0; 65_535],
        };
        scene.send(0, 3_000);
        scene.drain();
        scene.deliver(usize::MAX);
        scene
    }

    /// The liar's handshakes, as they have to be: what is said without keys is refused at once, and most
    /// inputs have no offer that leads to any.
    fn give_keys(&mut self) {
        for number in [0, 1] {
            // The second time with a token, where one is needed.
            for _ in 0..2 {
                if !self.liar.has_keys(number) {
                    let _ = self.liar.offer(self.now, number, &mut Input(&[0]));
                    let _ = self.lie(number, &mut Input(&PING));
                    self.drain();
                }
            }
        }
    }

    fn send(&mut self, number: usize, bytes: usize) -> Option<SendId> {
        let (now, tag) = (self.now, self.sent);
        let end = &mut self.ends[number];
        let peer = end.honest?;
        // Copied, as a loop over bytes takes an eighth of the time of a fuzzed scene.
        let content = PATTERN[usize::from(tag)..][..bytes].to_vec();
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
                self.send(number, 1 + usize::from(input.word()?) % MOST_BYTES);
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
        if self.is_liar_heard {
            machine.handle_datagram(self.now, path, Ecn::NotCapable, &mut datagram);
        }
        Some(())
    }

    fn pass(&mut self, time: Duration) {
        self.settle(self.now + time);
        self.now = self.now + time;
        for end in &mut self.ends {
            end.machine.handle_timeout(self.now);
        }
    }

    /// Delivers what would have been under way for too long by then, and the answers to it.
    fn settle(&mut self, then: Time) {
        let is_late = |parcel: &Parcel| then.since(parcel.sent_at) > LONGEST_UNDER_WAY;
        for _ in 0..MOST_ANSWERS {
            if !self.in_flight.first().is_some_and(is_late) {
                return;
            }
            self.deliver(usize::MAX);
        }
        self.in_flight.clear();
    }

    fn deliver(&mut self, most: usize) {
        let most = most.min(self.in_flight.len());
        let due: Vec<_> = self.in_flight.drain(..most).collect();
        for mut parcel in due {
            let machine = &mut self.ends[parcel.to].machine;
            let datagram = &mut parcel.datagram;
            machine.handle_datagram(self.now, parcel.path, Ecn::NotCapable, datagram);
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
                        self.in_flight.push(Parcel {
                            to,
                            path,
                            datagram: datagram.to_vec(),
                            sent_at: self.now,
                        });
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

    /// The message of an honest end that has to arrive, whatever was said before.
    fn send_honestly(&mut self) -> SendId {
        self.in_flight.clear();
        self.send(0, 5_000).expect("it is taken")
    }

    /// Waits until nothing of its own is under way, and sends one more message; how long that takes, if
    /// both end in time.
    fn time_of_one_more(&mut self) -> Option<Duration> {
        let is_idle = |scene: &Self| scene.ends[0].machine.statistics().outgoing_now == 0;
        self.wait_until(MOST_BEFORE, is_idle)?;
        let id = self.send_honestly();
        self.wait_until(IN_TIME, |scene| scene.ends[0].delivered.contains(&id))
    }

    /// Lets time pass over a network that delivers everything; how much, if it is so within the bound.
    fn wait_until(&mut self, bound: Duration, is_so: impl Fn(&Self) -> bool) -> Option<Duration> {
        let start = self.now;
        while self.now < start + bound && !is_so(self) {
            self.drain();
            self.deliver(usize::MAX);
            self.pass(Duration::from_millis(5));
        }
        is_so(self).then(|| self.now.since(start))
    }
}
