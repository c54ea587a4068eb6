//! A world in which somebody on the way does what is worst, at random, and has no key; in half of them
//! somebody else has one, and lies, or keeps count.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use cloudburst_proto::{MessageKind, Reason};

use super::{counting::Counting, key_holder::KeyHolder, seeds};
use crate::simulation::{
    messages::Fate,
    network::Parcel,
    path::{Impairments, Loss, MILLI, SECOND},
    random::Random,
    scenario::{Fault, HostPlan, Scenario, SendPlan},
    world::World,
};

/// Worlds in each run of the tests; `CLOUDBURST_ADVERSARIES` says another number.
const SEEDS: u64 = 2_000;
const MOST_FAILURES: usize = 10;
/// How often the adversary has a look at what has passed.
const STEP_NS: u64 = 4 * MILLI;
/// What a message may take where much is lost, held back for seconds, and receivers are restarted.
const LIFETIME: Duration = Duration::from_secs(30);
/// Form of a datagram that is no part of a handshake.
const DATA: u8 = 1;

/// Whoever it pretends to be besides the hosts themselves.
fn stranger(random: &mut Random) -> SocketAddr {
    let ip = Ipv4Addr::from_bits(100 << 24 | random.below(4) as u32);
    SocketAddr::from((ip, random.between(1, 3) as u16))
}

/// Three hosts with the same kind of keys; the first two speak, and each of them may know the third.
fn scenario(seed: u64, random: &mut Random) -> Scenario {
    let mut scenario = Scenario::plain(seed);
    scenario.hosts.push(HostPlan::new());
    scenario.four_tuples = random.pick(&[1, 4, 4, 16]);
    scenario = if random.chance(0.5) {
        scenario.with_key_pairs()
    } else {
        scenario.keyed(4)
    };
    // Datagrams that never arrive starve nobody for good.
    if random.chance(0.6) {
        let loss = Loss::Each(random.pick(&[0.02, 0.3]));
        scenario = scenario.impaired(Impairments::losing(loss));
    }
    // Some before first flights are believed, some after, some when all has been forgotten.
    for start in [0, random.pick(&[1, 12]), random.pick(&[70, 130, 200])] {
        for number in 0..random.between(1, 4) {
            let bytes = random.between(1, 20_000) as usize;
            let mut send = SendPlan::new(start * SECOND + number * 7 * MILLI, bytes);
            if random.chance(0.3) {
                (send.from, send.to) = (1, 0);
            }
            send.is_request = random.chance(0.2);
            scenario.sends.push(send);
        }
    }
    if random.chance(0.3) {
        let at = random.between(13, 60) * SECOND;
        let restart = Fault::Restart {
            host: random.below(2) as usize,
            same_seed: false,
        };
        scenario = scenario.fault(at, restart);
    }
    // In the middle of messages, too, some of which may be taken twice.
    let random = &mut Random::of(seed, 97);
    if random.chance(0.5) {
        let send = random.below(scenario.sends.len() as u64) as usize;
        let at = scenario.sends[send].at + random.below(40 * MILLI);
        let restart = Fault::Restart {
            host: scenario.sends[send].to,
            same_seed: false,
        };
        scenario = scenario.fault(at, restart);
    }
    for send in &mut scenario.sends {
        send.is_idempotent = random.chance(0.3);
    }
    scenario.lifetime(LIFETIME)
}

/// What is done to a datagram that has passed.
fn attack(world: &mut World, random: &mut Random, sent: &Parcel, spent: &mut Spent) -> u64 {
    let mut bytes = sent.bytes.clone();
    let soon = world.now + random.below(20 * MILLI);
    let (mut from, mut to, mut at) = (sent.from, sent.to, soon);
    match random.below(7) {
        // Reflected, from where it went.
        0 => (from, to) = (sent.to, sent.from),
        // Carried elsewhere. Who shares a key is told apart by nothing until it has answered.
        1 if world.scenario.has_key_pairs || bytes[1] == DATA => {
            to = world.address(2, random.below(4) as u16)
        }
        // Played again, soon or when everything may be forgotten.
        1 | 2 => at += random.pick(&[0, 1, 9, 11, 30, 125, 240]) * SECOND,
        // From another address: to be the peer there, or to make it a victim.
        3 => from = stranger(random),
        4 => from = SocketAddr::new(sent.from.ip(), random.between(1, 60_000) as u16),
        // Changed.
        5 => {
            let index = random.below(bytes.len() as u64) as usize;
            bytes[index] ^= 1 << random.below(8);
        }
        _ => bytes.truncate(random.below(bytes.len() as u64) as usize),
    }
    if !is_host(from.ip()) {
        *spent.0.entry(from.ip()).or_default() += bytes.len() as u64;
    }
    world.inject(at, from, to, bytes);
    at
}

/// Bytes that were sent in the name of strangers.
#[derive(Default)]
struct Spent(BTreeMap<IpAddr, u64>);

fn is_host(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10)
}

fn run(seed: u64) {
    let random = &mut Random::of(seed, 99);
    let mut scenario = scenario(seed, random);
    let (has_key, counts) = (seed % 2 == 1, seed % 8 == 3);
    let mut liar = (has_key && !counts).then(|| KeyHolder::join(&mut scenario));
    let mut counting = counts.then(|| Counting::join(&mut scenario));
    let last = scenario.sends.iter().map(|send| send.at).max().unwrap_or(0);
    let busy: Vec<u64> = scenario.sends.iter().map(|send| send.at).collect();
    let share = random.pick(&[0.05, 0.3, 1.0]);
    let mut world = World::new(scenario);
    world.captured = Some(Vec::new());
    world.of_others = counting.is_some().then(Vec::new);
    let mut spent = Spent::default();
    let mut latest = 0;
    let mut victims: BTreeMap<IpAddr, u64> = BTreeMap::new();
    while world.now < last + SECOND {
        let next = world.now + STEP_NS;
        let is_busy = busy
            .iter()
            .any(|at| (*at..*at + SECOND / 4).contains(&next));
        let step = if is_busy { STEP_NS } else { SECOND / 5 };
        world.run_until(world.now + step);
        let captured = world.captured.replace(Vec::new()).unwrap_or_default();
        let is_its_turn = has_key && (is_busy || random.chance(0.1));
        match (&mut liar, &mut counting) {
            (Some(liar), _) if is_its_turn => liar.act(&mut world, &captured),
            (_, Some(counting)) if is_its_turn => counting.act(&mut world, &captured),
            (_, Some(counting)) => counting.check(&mut world, &captured),
            _ => {}
        }
        for parcel in &captured {
            if !is_host(parcel.to.ip()) {
                *victims.entry(parcel.to.ip()).or_default() += parcel.bytes.len() as u64;
            } else if random.chance(share) {
                let at = attack(&mut world, random, parcel, &mut spent);
                latest = latest.max(at);
            }
        }
    }
    world.run_until(latest.max(world.now) + SECOND);
    if let Some(counting) = &mut counting {
        let captured = world.captured.take().unwrap_or_default();
        counting.check(&mut world, &captured);
    }
    let said = liar.map(|liar| liar.datagrams);
    let said = said.or_else(|| counting.map(|counting| counting.datagrams()));
    assert!(said.is_none_or(|said| said > 20), "{said:?} datagrams");
    let outcome = world.finish();
    // That each message was handed over once, to whom it was sent, is checked where it arrives.
    // A reply goes to an address that may not be validated yet, and who drops much of all and
    // pretends to be elsewhere keeps it from ever being (RFC 9000 §9.3.2).
    let asked = outcome.records().messages.iter();
    let mut asked = asked.filter(|message| !matches!(message.kind, MessageKind::Reply { .. }));
    let failed = asked.find(|message| match message.fate {
        Some(Fate::Delivered(_) | Fate::Forgotten) => false,
        // That its receiver was restarted then is checked where it is said.
        Some(Fate::Undelivered(failure)) => failure.reason != Reason::Unknown,
        None => true,
    });
    assert!(failed.is_none(), "not delivered: {failed:?}");
    assert_eq!(
        outcome.statistics(2).messages_received,
        0,
        "host 2 was sent nothing"
    );
    for (victim, bytes) in victims {
        let sent = spent.0.get(&victim).copied().unwrap_or(0);
        assert!(bytes <= 3 * sent, "{victim} got {bytes} bytes for {sent}");
    }
}

#[test]
fn nobody_without_a_key_makes_it_lie_speak_or_stop() {
    let seeds = std::env::var("CLOUDBURST_ADVERSARIES");
    let seeds = seeds.map_or(SEEDS, |number| number.parse().expect("a number"));
    let first = std::env::var("CLOUDBURST_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    seeds::each(first..seeds, MOST_FAILURES, run);
}
