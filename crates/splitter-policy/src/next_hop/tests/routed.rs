//! A record against the whole look-up, for tables and rules drawn by chance.

use super::*;
use crate::prefix_lengths::{PrefixLengths, PrefixLengthsBuilder, Reach};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To a next hop.
    Gateway(u8),
    /// To the destination itself, by a device.
    Link(u8),
    /// To next hops by a hash of the flow.
    Spread,
    /// Nowhere.
    Unreachable,
    /// On to the next table.
    Throw,
}

#[derive(Clone, Copy, Debug)]
struct Route {
    /// In the upper bits.
    prefix: u128,
    length: u8,
    kind: Kind,
}

/// A rule for destinations: what has these first bits is looked up in the table.
#[derive(Clone, Debug)]
struct Rule {
    to: (u128, u8),
    /// Routes of up to this length are passed over.
    suppressed: Option<u8>,
    table: Vec<Route>,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Gateway(u8),
    Station(u8, u128),
    Spread(u128, u16),
    Nowhere,
}

fn holds(prefix: u128, length: u8, destination: u128) -> bool {
    let beside = 128 - u32::from(length);
    (prefix ^ destination).checked_shr(beside).unwrap_or(0) == 0
}

/// The kernel's look-up.
fn routed(rules: &[Rule], destination: u128, port: u16) -> Answer {
    for rule in rules {
        if !holds(rule.to.0, rule.to.1, destination) {
            continue;
        }
        let matching = rule.table.iter();
        let matching = matching.filter(|it| holds(it.prefix, it.length, destination));
        // The first of several of a length.
        let Some(route) = matching.rev().max_by_key(|it| it.length) else {
            continue;
        };
        if rule.suppressed.is_some_and(|it| route.length <= it) {
            continue;
        }
        return match route.kind {
            Kind::Gateway(hop) => Answer::Gateway(hop),
            Kind::Link(device) => Answer::Station(device, destination),
            Kind::Spread => Answer::Spread(destination, port),
            Kind::Unreachable => Answer::Nowhere,
            Kind::Throw => continue,
        };
    }
    Answer::Nowhere
}

fn address(is_v6: bool, bits: u128) -> IpAddr {
    if is_v6 {
        Ipv6Addr::from_bits(bits).into()
    } else {
        Ipv4Addr::from_bits((bits >> 96) as u32).into()
    }
}

fn lengths(is_v6: bool, rules: &[Rule]) -> PrefixLengths {
    let mut builder = PrefixLengthsBuilder::new();
    for rule in rules {
        builder.add(address(is_v6, rule.to.0), rule.to.1, Reach::Prefix);
        for route in &rule.table {
            let reach = match route.kind {
                Kind::Link(_) => Reach::Destination,
                Kind::Spread => Reach::Flow,
                Kind::Gateway(_) | Kind::Unreachable | Kind::Throw => Reach::Prefix,
            };
            builder.add(address(is_v6, route.prefix), route.length, reach);
        }
    }
    builder.build()
}

/// A packet to there, from a port.
fn frame(is_v6: bool, destination: u128, port: u16) -> Vec<u8> {
    let (mut frame, at, ports) = if is_v6 {
        (v6(), 38, 54)
    } else {
        (v4(), 30, 34)
    };
    let bytes = destination.to_be_bytes();
    let length = if is_v6 { 16 } else { 4 };
    frame[at..at + length].copy_from_slice(&bytes[..length]);
    frame[ports..ports + 2].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Few addresses that have much in common, so that prefixes hold several of them and lie in each other:
/// each byte is one of two or three, and most of them zeros.
fn near(is_v6: bool) -> impl Strategy<Value = u128> {
    let first = proptest::sample::select(&[10u8, 0x20, 0xfe, 0xff][..]);
    let byte = || proptest::sample::select(&[0u8, 0, 0, 1, 0x80][..]);
    let bytes = proptest::collection::vec(byte(), 15);
    (first, bytes).prop_map(move |(first, rest)| {
        let mut all = [0; 16];
        all[0] = first;
        let length = if is_v6 { 16 } else { 4 };
        all[1..length].copy_from_slice(&rest[..length - 1]);
        u128::from_be_bytes(all)
    })
}

fn prefix(is_v6: bool) -> impl Strategy<Value = (u128, u8)> {
    let all: u8 = if is_v6 { 128 } else { 32 };
    let usual = if is_v6 {
        &[0, 10, 32, 48, 56, 64, 128][..]
    } else {
        &[0, 8, 16, 24, 32]
    };
    let length = prop_oneof![proptest::sample::select(usual), 0..=all];
    (near(is_v6), length).prop_map(|(address, length)| {
        let beside = 128 - u32::from(length);
        let kept = address.checked_shr(beside).unwrap_or(0);
        (kept.checked_shl(beside).unwrap_or(0), length)
    })
}

fn rules(is_v6: bool) -> impl Strategy<Value = Vec<Rule>> {
    let kind = prop_oneof![
        6 => (0u8..3).prop_map(Kind::Gateway),
        2 => (0u8..2).prop_map(Kind::Link),
        1 => Just(Kind::Spread),
        1 => Just(Kind::Unreachable),
        1 => Just(Kind::Throw),
    ];
    let route = (prefix(is_v6), kind).prop_map(|((prefix, length), kind)| Route {
        prefix,
        length,
        kind,
    });
    let table = proptest::collection::vec(route, 0..6);
    let to = prop_oneof![3 => Just((0, 0)), 1 => prefix(is_v6)];
    let rule = (to, proptest::option::of(0u8..25), table);
    let rule = rule.prop_map(|(to, suppressed, table)| Rule {
        to,
        suppressed,
        table,
    });
    proptest::collection::vec(rule, 1..4)
}

/// How an answer shows in a record: by the slot of the device and the link address.
fn shown(answer: Answer) -> Option<(u16, [u8; 6])> {
    let station = |destination: u128, kind: u8| {
        let folded = (destination >> 64) as u64 ^ destination as u64;
        let [a, b, c, d, e, f, g, h] = folded.to_be_bytes();
        [kind, a ^ b, c, d ^ e, f ^ g, h]
    };
    match answer {
        Answer::Gateway(hop) => Some((0, [2, 0, 0, 0, 0, hop])),
        Answer::Station(device, to) => Some((u16::from(device), station(to, 4))),
        Answer::Spread(to, port) => Some((0, station(to ^ u128::from(port), 6))),
        Answer::Nowhere => None,
    }
}

/// A program with its records, and what its agent has told it.
struct Router {
    records: HashMap<u32, NextHop>,
    lengths: PrefixLengths,
    trust: NextHopTrust,
    generations: u64,
}

impl Router {
    fn new(is_v6: bool, rules: &[Rule]) -> Self {
        let mut router = Self {
            records: HashMap::new(),
            lengths: PrefixLengthsBuilder::new().build(),
            trust: NextHopTrust::default(),
            generations: 0,
        };
        router.hear(is_v6, rules);
        router
    }

    /// The agent hears that rules and routes are these.
    fn hear(&mut self, is_v6: bool, rules: &[Rule]) {
        self.generations += 1;
        self.trust.generation = Generation::new(self.generations);
        self.lengths = lengths(is_v6, rules);
    }

    /// Where a packet goes, by a record or by the kernel's answer.
    fn forward(&mut self, frame: &[u8], answer: Answer, now_ns: u64) -> Option<(u16, [u8; 6])> {
        let asked = asked(frame, DEVICE);
        let matched = asked.matched_bits(&self.lengths);
        let question = Question::new(&asked, TunnelRole::Short, OWN, matched);
        // One after the other, as the program has them.
        let of_flow = Question::of_one_flow(&asked, TunnelRole::Short, OWN);
        for question in [question, of_flow] {
            let record = self.records.entry(question.index(&asked)).or_default();
            if record.answers((&question, &asked), &self.trust, now_ns) {
                let [a, b, c, d, e, f, ..] = record.link;
                return Some((record.slot, [a, b, c, d, e, f]));
            }
        }
        let (slot, next_hop) = shown(answer)?;
        let answer = asked.with_link([1; 6], next_hop);
        let record = self.records.entry(question.index(&asked)).or_default();
        *record = record.followed_by((question, &asked), (&answer, slot), &self.trust, now_ns);
        let noted = *record;
        if !noted.is_believed(&self.trust) {
            let own = self.records.entry(of_flow.index(&asked)).or_default();
            if own.yields_to_one_flow(&self.trust, now_ns) {
                own.take_answer((of_flow, &asked), &noted);
            }
        }
        Some((slot, next_hop))
    }
}

/// Rules, and others that follow them; and packets that come one after the other, each some milliseconds
/// after that before.
#[derive(Debug, Clone)]
struct Case {
    is_v6: bool,
    rules: [Vec<Rule>; 2],
    packets: Vec<(u128, u16, u64)>,
    /// With which packet the rules are others, and with which the agent has heard so.
    change: usize,
    heard: usize,
}

fn case() -> impl Strategy<Value = Case> {
    any::<bool>().prop_flat_map(|is_v6| {
        let packet = (near(is_v6), 1u16..3, 0u64..40);
        let packets = proptest::collection::vec(packet, 1..80);
        let rules = [rules(is_v6), rules(is_v6)];
        (rules, packets, 0usize..60, 0usize..30).prop_map(
            move |(rules, packets, change, unheard)| Case {
                is_v6,
                rules,
                packets,
                change,
                heard: change + unheard,
            },
        )
    })
}

/// The kernel announces a change when whoever makes it has been held for the period of a control group's
/// quota, and for some ticks more.
const ANNOUNCED_MS: u64 = 139;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn packet_goes_where_routing_leads_it_or_led_it_until_the_agent_heard(case in case()) {
        let Case { is_v6, rules, packets, change, heard } = case;
        let mut router = Router::new(is_v6, &rules[0]);
        let (mut now_ns, mut changed_ns) = (NOW_NS, 0);
        for (number, (destination, port, pause_ms)) in packets.into_iter().enumerate() {
            now_ns += pause_ms * 1_000_000;
            if number == change {
                changed_ns = now_ns;
            }
            if number == heard {
                router.hear(is_v6, &rules[1]);
            }
            let is_unheard = (change..heard).contains(&number);
            // Who has heard of all but one change has not heard of all.
            if !is_unheard || now_ns < changed_ns + ANNOUNCED_MS * 1_000_000 {
                router.trust.until_ns = now_ns + NextHopTrust::PERIOD_NS;
            }
            let answers = [0, 1].map(|at| routed(&rules[at], destination, port));
            let right = usize::from(number >= change);
            let frame = frame(is_v6, destination, port);
            let found = router.forward(&frame, answers[right], now_ns);
            let is_right = found == shown(answers[right]);
            let was_right = is_unheard && found == shown(answers[0]);
            prop_assert!(is_right || was_right, "to {:?}: {found:?}", address(is_v6, destination));
        }
    }
}

#[test]
fn one_record_serves_all_destinations_of_a_default_route() {
    for is_v6 in [false, true] {
        let route = Route {
            prefix: 0,
            length: 0,
            kind: Kind::Gateway(1),
        };
        let rule = Rule {
            to: (0, 0),
            suppressed: None,
            table: Vec::from([route]),
        };
        let lengths = lengths(is_v6, &[rule]);
        let question = |number: u128| {
            let frame = frame(is_v6, number << 100 | 0x20 << 120, number as u16);
            let asked = asked(&frame, DEVICE);
            Question::new(&asked, TunnelRole::Short, OWN, asked.matched_bits(&lengths))
        };
        for number in 1..1_000 {
            assert_eq!(question(number), question(0));
        }
    }
}
