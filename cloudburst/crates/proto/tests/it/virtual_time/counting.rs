//! Somebody with a key of its own who sends messages as a peer does, and goes on where a peer would stop:
//! begins more than it may, repeats what has ended under other numbers, gives up what it sends on with. What
//! becomes of each is known, so that a host can be held to it, message by message.

use std::collections::BTreeMap;

use cloudburst_code::{Encoder, Schedule, Shape};
use cloudburst_proto::Time;
use cloudburst_wire::{
    Cancel, Outcome, Symbol,
    envelope::{Envelope, EnvelopeKind},
};

use super::key_holder::{ADDRESS, holding};
use crate::{
    liar::{PING, bodies::Input, lies::Liar},
    simulation::{
        network::Parcel,
        path::{MILLI, SECOND},
        random::Random,
        scenario::Scenario,
        service::NO_HOST,
        world::World,
    },
};

/// Incomplete messages of a peer that hosts take, and their memory: little, so that it is soon used up, and
/// enough for what hosts send each other.
const PEER_MESSAGES: usize = 9;
const PEER_BYTES: usize = 400_000;
/// Memory of an incomplete message besides twice its bytes, at most.
const OWN_BYTES: usize = 12_000;
const SYMBOL_BYTES: usize = 900;
/// Handshakes cost as much as a hundred other datagrams.
const MOST_OFFERS: u32 = 12;
/// Keys are replaced in time.
const RENEW_AFTER_NS: u64 = 100 * SECOND;
/// Messages that it goes on about.
const RECENT: u64 = 16;

pub(super) struct Counting {
    liar: Liar,
    random: Random,
    ends: [End; 2],
}

/// Reports of a key holder to a host since that was started.
#[derive(Default)]
struct End {
    incarnation: u32,
    offered_at: Option<u64>,
    last: u64,
    messages: BTreeMap<u64, Sent>,
}

struct Sent {
    content: Vec<u8>,
    shape: Shape,
    coded: Vec<u8>,
    /// The fate of the message, as the host tells it.
    outcome: Option<Outcome>,
    is_handed_over: bool,
    is_given_up: bool,
}

impl Sent {
    fn new(number: u64, bytes: usize) -> Self {
        let mut content: Vec<u8> = (0..bytes).map(|at| at as u8 ^ number as u8).collect();
        content[0] = NO_HOST << 4 | number as u8 & 15;
        let mut coded = content.clone();
        let envelope = Envelope {
            kind: EnvelopeKind::Message,
            correlation: 0,
        };
        envelope.append_to(&mut coded);
        let shape = Shape::fitting(coded.len(), SYMBOL_BYTES).expect("there is one");
        Self {
            content,
            shape,
            coded,
            outcome: None,
            is_handed_over: false,
            is_given_up: false,
        }
    }

    fn symbols(&self) -> u32 {
        self.shape.symbols() as u32
    }

    fn symbol(&self, generation: u8, sequence: u32) -> Vec<u8> {
        let schedule = Schedule::Mds;
        let encoder = Encoder::new(&self.coded, self.shape, schedule, generation, 1);
        let encoder = encoder.expect("it fits");
        let mut code = vec![0; encoder.datagram_bytes()];
        let written = encoder.write(sequence..sequence + 1, &mut code);
        written.expect("it is long enough");
        code
    }
}

impl Counting {
    /// Joins those who have keys, and has hosts take less of any peer.
    pub(super) fn join(scenario: &mut Scenario) -> Self {
        let holding = holding(scenario);
        for host in &mut scenario.hosts {
            host.config.quotas.peer_messages = PEER_MESSAGES;
            host.config.quotas.peer_bytes = PEER_BYTES;
        }
        Self {
            liar: Liar::new(holding),
            random: Random::of(scenario.seed, 96),
            ends: Default::default(),
        }
    }

    pub(super) fn datagrams(&self) -> u64 {
        self.liar.datagrams
    }

    /// Takes what it was sent, holds both hosts to what they said, and says more to them.
    pub(super) fn act(&mut self, world: &mut World, captured: &[Parcel]) {
        self.check(world, captured);
        for end in [0, 1] {
            let incarnation = world.hosts[end].incarnation;
            if self.ends[end].incarnation != incarnation {
                self.liar.begin_again(end);
                self.ends[end] = End {
                    incarnation,
                    ..End::default()
                };
            }
            let mut at = world.now;
            for datagram in self.talk(end, world.now) {
                at += self.random.below(MILLI / 2);
                let socket = self.random.below(4) as u16;
                world.inject(at, ADDRESS, world.address(end, socket), datagram);
            }
        }
    }

    /// What both hosts have said and done since this was last asked is as it has to be.
    pub(super) fn check(&mut self, world: &mut World, captured: &[Parcel]) {
        for parcel in captured.iter().filter(|parcel| parcel.to == ADDRESS) {
            if let Some((end @ (0 | 1), ..)) = world.scenario.owner(parcel.from) {
                self.liar.take(end, &mut parcel.bytes.clone());
            }
        }
        // What has come to, or of, a host before it was restarted says nothing of what it does now.
        let is_same = [0, 1].map(|end| self.ends[end].incarnation == world.hosts[end].incarnation);
        for (end, number, content) in world.of_others.replace(Vec::new()).unwrap_or_default() {
            if is_same[end] {
                self.ends[end].handed_over(number, &content);
            }
        }
        for end in [0, 1] {
            let stops = self.liar.stops(end);
            if is_same[end] {
                for (number, outcome) in stops {
                    self.ends[end].stopped(number, outcome);
                }
                self.ends[end].check(world, end);
            }
        }
    }

    /// Datagrams for a host, in their order.
    fn talk(&mut self, end: usize, now: u64) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let offered_at = self.ends[end].offered_at;
        let is_worn = offered_at.is_none_or(|at| now >= at + RENEW_AFTER_NS);
        if (is_worn || !self.liar.has_keys(end)) && self.liar.offers < MOST_OFFERS {
            self.ends[end].offered_at = Some(now);
            self.liar
                .offer(Time::from_nanos(now), end, &mut Input(&[0]));
            datagrams.extend(self.liar.datagram(end, &mut Input(&PING)));
        }
        datagrams.extend(self.liar.show(end));
        for _ in 0..self.random.below(3) {
            match self.random.below(8) {
                0..=2 => self.begin(end, &mut datagrams),
                3 => self.repeat(end, 0, &mut datagrams),
                // As if its segments were of another length than before.
                4 => self.repeat(end, 1, &mut datagrams),
                5 => {
                    let (number, most) = (self.any(end), self.random.between(1, 4));
                    self.symbols(end, (number, 0, 2), most as u32, &mut datagrams);
                }
                6 => {
                    let number = self.any(end);
                    self.cancel(end, number, &mut datagrams);
                }
                _ => {
                    let under_way = self.ends[end].under_way();
                    for number in under_way {
                        self.cancel(end, number, &mut datagrams);
                    }
                }
            }
        }
        datagrams
    }

    /// Begins a message, which some of its symbols do not complete.
    fn begin(&mut self, end: usize, datagrams: &mut Vec<Vec<u8>>) {
        let bytes = self.random.pick(&[1, 800, 2_000, 4_000, 4_000, 80_000]);
        self.ends[end].last += self.random.between(1, 3);
        let number = self.ends[end].last;
        let sent = Sent::new(number, bytes);
        let symbols = self.random.between(1, 4) as u32;
        self.ends[end].messages.insert(number, sent);
        self.symbols(end, (number, 0, 1), symbols, datagrams);
    }

    /// One of the last messages, whatever has become of it.
    fn any(&mut self, end: usize) -> u64 {
        let messages = &self.ends[end].messages;
        let recent = messages.len().min(RECENT as usize) as u64;
        let back = self.random.below(recent.max(1)) as usize;
        messages.keys().nth_back(back).copied().unwrap_or(0)
    }

    /// Sends all of a short message again, as it was segmented for the `generation`th time.
    fn repeat(&mut self, end: usize, generation: u8, datagrams: &mut Vec<Vec<u8>>) {
        let number = self.any(end);
        self.symbols(end, (number, generation, 3), 6, datagrams);
    }

    fn symbols(
        &mut self,
        end: usize,
        (message, generation, path): (u64, u8, u16),
        most: u32,
        datagrams: &mut Vec<Vec<u8>>,
    ) {
        let Some(sent) = self.ends[end].messages.get(&message) else {
            return;
        };
        for sequence in 0..most.min(sent.symbols()) {
            let code = &sent.symbol(generation, sequence);
            let symbol = Symbol { message, code };
            datagrams.extend(self.liar.say(end, path, |body| symbol.write(body)));
        }
    }

    fn cancel(&mut self, end: usize, message: u64, datagrams: &mut Vec<Vec<u8>>) {
        if let Some(sent) = self.ends[end].messages.get_mut(&message) {
            sent.is_given_up = true;
        }
        datagrams.extend(self.liar.say(end, 1, |body| Cancel { message }.write(body)));
    }
}

impl End {
    fn under_way(&self) -> Vec<u64> {
        let messages = self.messages.iter();
        let under_way = messages.filter(|(_, sent)| sent.outcome.is_none());
        under_way.map(|(number, _)| *number).collect()
    }

    fn handed_over(&mut self, number: u64, content: &[u8]) {
        let sent = self.messages.get_mut(&number);
        let sent = sent.unwrap_or_else(|| panic!("the key holder has not sent {number}"));
        assert!(sent.content == content, "{number} is another's");
        assert!(!sent.is_handed_over, "{number} was handed over twice");
        let is_given_up = sent.outcome == Some(Outcome::Cancelled);
        assert!(!is_given_up, "{number} was forgotten, and is handed over");
        sent.is_handed_over = true;
    }

    fn stopped(&mut self, number: u64, outcome: Outcome) {
        let Some(sent) = self.messages.get_mut(&number) else {
            return;
        };
        let is_as_said = match outcome {
            // Of what was forgotten, too, that is all that is still known.
            Outcome::Delivered => sent.is_handed_over || sent.is_given_up,
            Outcome::Cancelled => sent.is_given_up && !sent.is_handed_over,
            _ => true,
        };
        assert!(is_as_said, "{number} is said to be {outcome:?}");
        let before = sent.outcome.replace(outcome);
        let is_kept = before.is_none_or(|before| before == outcome || before == Outcome::Cancelled);
        assert!(is_kept, "{number} was {before:?}, and is {outcome:?}");
    }

    /// A host has no more of it than may be, and nothing of what it says has ended.
    fn check(&self, world: &World, end: usize) {
        let now = world.hosts[end].endpoint.statistics();
        let (messages, bytes) = world.records.on_the_way(end, self.incarnation);
        let own = self.under_way();
        let most = messages + own.len().min(PEER_MESSAGES);
        assert!(
            now.incoming_now <= most as u64,
            "{} messages are incomplete: {messages} of hosts, and of {} the quota of a key holder",
            now.incoming_now,
            own.len()
        );
        let memory = |bytes: usize, count: usize| 2 * bytes + OWN_BYTES * count;
        let own_bytes = own.iter().map(|number| self.messages[number].coded.len());
        let own = memory(own_bytes.sum(), own.len()).min(PEER_BYTES);
        let most = memory(bytes, messages) + own;
        assert!(
            now.incoming_bytes_now <= most as u64,
            "{} bytes of incomplete messages, and {most} at most",
            now.incoming_bytes_now
        );
    }
}
