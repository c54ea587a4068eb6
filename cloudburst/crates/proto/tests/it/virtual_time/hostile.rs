//! What others may try.

use std::net::{Ipv4Addr, SocketAddr};

use cloudburst_code::{Encoder, Schedule, Shape};
use cloudburst_proto::Reason;
use cloudburst_wire::{VERSION, check};

use crate::simulation::{
    network::Parcel,
    path::{MICRO, MILLI, SECOND},
    random::Random,
    run::run,
    scenario::{Fault, Scenario},
    world::World,
};

/// The first symbol of a message of somebody that nobody knows.
fn stray_symbol(random: &mut Random, message_bytes: usize) -> Vec<u8> {
    let message = vec![9; message_bytes];
    let number = random.number();
    let shape = Shape::fitting(message_bytes, 1_000).expect("it has at least a byte");
    let encoder =
        Encoder::new(&message, shape, Schedule::Default, number as u8, 1).expect("it fits");
    let mut code = vec![0; encoder.datagram_bytes()];
    encoder.write(0..1, &mut code).expect("it fits");
    let header = header(1, random.number());
    [&header, &number.to_be_bytes()[..], &code].concat()
}

/// Without key, the first datagram of path 1.
fn header(kind: u8, session: u64) -> [u8; 24] {
    let mut header = [0; 24];
    header[0] = VERSION << 4 | kind;
    header[3] = 1;
    header[8..16].copy_from_slice(&session.to_be_bytes());
    header
}

fn stranger(random: &mut Random) -> SocketAddr {
    let ip = Ipv4Addr::from_bits(100 << 24 | random.below(1 << 24) as u32);
    SocketAddr::from((ip, random.between(1, 65_535) as u16))
}

fn kind(parcel: &Parcel) -> u8 {
    parcel.bytes[0] & 15
}

/// Strangers that send what could be the beginning of a message, one each.
fn spoofed(sources: u64, scenario: Scenario) {
    let ends = scenario.sends.last().map_or(SECOND, |send| send.at);
    let random = &mut Random::new(5);
    let mut world = World::new(scenario);
    let gap = ends / sources;
    for number in 0..sources {
        let to = world.address(1, 0);
        let from = stranger(random);
        let symbol = stray_symbol(random, 30_000);
        world.inject(number * gap, from, to, symbol);
        if number % 1_000 == 999 {
            world.run_until(number * gap);
        }
    }
    world.run_until(ends);
    let statistics = world.hosts[1].endpoint.statistics();
    let quotas = &world.hosts[1].plan.config.quotas;
    assert!(statistics.peers_now <= quotas.unvalidated_peers as u64 + 1);
    assert!(statistics.incoming_bytes_now <= (quotas.unvalidated_bytes + quotas.peer_bytes) as u64);
    // Who was there all the time has not noticed.
    let outcome = world.finish();
    outcome.all_delivered();
    let worst = outcome.percentile_ms(1.0);
    assert!(worst < 100.0, "{worst} ms");
}

#[test]
fn spoofed_sources() {
    spoofed(20_000, Scenario::plain(1).messages(100, 20_000, 20 * MILLI));
}

#[test]
#[ignore = "takes long where the code is not optimised"]
fn a_million_spoofed_sources() {
    spoofed(
        1_000_000,
        Scenario::plain(1).messages(1_000, 20_000, 20 * MILLI),
    );
}

/// A stranger's flood comes first; then somebody honest must still get in.
#[test]
fn newcomers_get_in_during_a_flood() {
    let mut scenario = Scenario::plain(2).messages(50, 20_000, 20 * MILLI);
    scenario.sends.iter_mut().for_each(|send| send.at += SECOND);
    spoofed(20_000, scenario);
}

#[test]
fn strangers_under_a_key() {
    let random = &mut Random::new(6);
    let mut world = World::new(Scenario::plain(3).messages(50, 20_000, 20 * MILLI).keyed(4));
    for number in 0..1_000 {
        let to = world.address(1, 1);
        let from = stranger(random);
        let symbol = stray_symbol(random, 30_000);
        world.inject(number * MILLI, from, to, symbol);
    }
    let outcome = world.finish();
    outcome.all_delivered();
    assert_eq!(outcome.statistics(1).refused.unknown_key, 1_000);
}

/// From the peer's own address, with another session.
#[test]
fn forged_symbols() {
    let random = &mut Random::new(7);
    let mut world = World::new(Scenario::plain(4).messages(50, 20_000, 20 * MILLI));
    for number in 0..2_000 {
        let (from, to) = (world.address(0, 0), world.address(1, 0));
        let message_bytes = 1 + random.below(1 << 22) as usize;
        let bytes = stray_symbol(random, message_bytes);
        world.inject(number * 500 * MICRO, from, to, bytes);
    }
    world.finish().all_delivered();
}

/// Who can hear, and has not the key, says that all is delivered.
#[test]
fn forged_stop() {
    let mut world = World::new(Scenario::plain(5).messages(50, 20_000, 20 * MILLI).keyed(4));
    world.captured = Some(Vec::new());
    world.run_until(500 * MILLI);
    let captured = world.captured.take().expect("it was asked for");
    let stops: Vec<_> = captured.iter().filter(|parcel| kind(parcel) == 2).collect();
    assert!(!stops.is_empty());
    for (number, stop) in stops.iter().enumerate() {
        let mut bytes = stop.bytes.clone();
        // A later sequence number, another message.
        bytes[16] = 1;
        bytes[31] ^= number as u8;
        world.inject((500 + number as u64) * MILLI, stop.from, stop.to, bytes);
    }
    let forged = stops.len() as u64;
    let outcome = world.finish();
    outcome.all_delivered();
    assert_eq!(outcome.statistics(0).refused.not_authentic, forged);
}

/// Who cannot hear guesses.
#[test]
fn blind_stops() {
    let random = &mut Random::new(8);
    let mut world = World::new(Scenario::plain(6).messages(50, 20_000, 20 * MILLI));
    for number in 0..1_000u64 {
        let (from, to) = (world.address(1, 0), world.address(0, 0));
        let body: Vec<u8> = (0..60).map(|_| random.number() as u8).collect();
        let mut bytes = [
            &header(2, random.number())[..],
            &number.to_be_bytes(),
            &body,
        ]
        .concat();
        bytes.extend(check(&bytes));
        world.inject(number * MILLI, from, to, bytes);
    }
    let outcome = world.finish();
    let refused = outcome.all_delivered().statistics(0).refused;
    assert!(
        refused.unexpected + refused.malformed >= 1_000,
        "{refused:?}"
    );
}

/// All that was on the way comes once more, while it is sent and when it is over.
#[test]
fn replayed_datagrams() {
    replayed(None, false, &[500 * MILLI, 3 * SECOND, 50 * SECOND]);
    replayed(Some(4), false, &[500 * MILLI, 3 * SECOND, 50 * SECOND]);
    // When the peer is forgotten, only tokens are of help.
    replayed(Some(4), true, &[500 * MILLI, 50 * SECOND, 300 * SECOND]);
}

fn replayed(key: Option<u8>, require_validation: bool, times: &[u64]) {
    let mut scenario = Scenario::plain(7)
        .messages(50, 20_000, 20 * MILLI)
        .configured(|config| config.require_validation = require_validation);
    scenario.hosts.iter_mut().for_each(|host| host.key = key);
    let mut world = World::new(scenario);
    world.captured = Some(Vec::new());
    world.run_until(500 * MILLI);
    let captured = world.captured.take().expect("it was asked for");
    let is_symbol = |parcel: &&Parcel| kind(parcel) == 1;
    let symbols = captured.iter().filter(is_symbol).count() as u64;
    for (again, start) in times.iter().enumerate() {
        for (number, parcel) in captured.iter().enumerate() {
            let from = if again == 1 {
                stranger(&mut Random::new(number as u64))
            } else {
                parcel.from
            };
            let at = start + number as u64 * 100 * MICRO;
            world.inject(at, from, parcel.to, parcel.bytes.clone());
        }
    }
    world.run_until(400 * SECOND);
    let statistics = world.hosts[1].endpoint.statistics();
    let refused = statistics.refused;
    let known = refused.replayed + refused.stale + refused.not_validated;
    let wasted = statistics.symbols_wasted;
    assert!(
        known + wasted >= 3 * symbols,
        "{refused:?}, {wasted} wasted, {symbols} symbols each time"
    );
    world.finish().all_delivered();
}

/// A recording of what was sent before the receiver was restarted.
#[test]
fn replayed_after_a_restart() {
    let scenario = Scenario::plain(8)
        .messages(20, 5_000, 20 * MILLI)
        .keyed(4)
        .configured(|config| config.require_validation = true);
    let mut world = World::new(scenario.fault(
        SECOND,
        Fault::Restart {
            host: 1,
            same_seed: false,
        },
    ));
    world.captured = Some(Vec::new());
    world.run_until(900 * MILLI);
    assert_eq!(world.hosts[1].endpoint.statistics().messages_received, 20);
    let captured = world.captured.take().expect("it was asked for");
    for (number, parcel) in captured.into_iter().enumerate() {
        let at = 2 * SECOND + number as u64 * MILLI;
        world.inject(at, stranger(&mut Random::new(3)), parcel.to, parcel.bytes);
    }
    let outcome = world.finish();
    assert_eq!(outcome.statistics(1).messages_received, 0);
    assert!(outcome.statistics(1).refused.not_validated > 0);
}

/// The same, and sender and receiver have both been restarted: that the
/// sender's address is known to be its own does not help who only pretends to
/// be there.
#[test]
fn replayed_from_a_known_address() {
    let mut scenario = Scenario::plain(12)
        .messages(20, 5_000, 20 * MILLI)
        .keyed(4)
        .configured(|config| config.require_validation = true);
    for host in [0, 1] {
        let same_seed = false;
        scenario = scenario.fault(SECOND, Fault::Restart { host, same_seed });
    }
    let mut scenario = scenario.messages(1, 5_000, SECOND);
    scenario.sends[20].at = 1_500 * MILLI;
    let mut world = World::new(scenario);
    world.captured = Some(Vec::new());
    world.run_until(900 * MILLI);
    let captured = world.captured.take().expect("it was asked for");
    for (number, parcel) in captured.into_iter().enumerate() {
        let at = 2 * SECOND + number as u64 * MILLI;
        world.inject(at, parcel.from, parcel.to, parcel.bytes);
    }
    let outcome = world.finish();
    assert_eq!(outcome.statistics(1).messages_received, 1);
}

#[test]
fn wrong_key() {
    // Another number, the same number with another secret, and none at all.
    for key in [Some(2), Some(17), None] {
        let mut scenario = Scenario::plain(9).messages(5, 5_000, MILLI).keyed(1);
        scenario.hosts[1].key = key;
        let outcome = run(scenario.lifetime(std::time::Duration::from_secs(1)));
        let known = [Reason::TimedOut, Reason::BudgetSpent];
        let reasons = outcome.reasons();
        assert_eq!(reasons.len(), 5);
        assert!(
            reasons.iter().all(|reason| known.contains(reason)),
            "{reasons:?}"
        );
        let statistics = outcome.statistics(1);
        assert_eq!(
            statistics.datagrams_sent, 0,
            "nothing is said to who has no key"
        );
        let refused = statistics.refused;
        let right = if key == Some(17) {
            refused.not_authentic
        } else {
            refused.unknown_key
        };
        assert_eq!(right, statistics.datagrams_received, "{refused:?}");
    }
}

/// New last everywhere, new first everywhere, old out everywhere.
#[test]
fn keys_change_without_a_gap() {
    let mut scenario = Scenario::plain(10)
        .messages(100, 20_000, 20 * MILLI)
        .keyed(1);
    for (at, keys) in [(300, vec![1, 2]), (800, vec![2, 1]), (1_300, vec![2])] {
        for host in [0, 1] {
            let fault = Fault::Keys {
                host,
                keys: keys.clone(),
            };
            scenario
                .faults
                .push(((at + 150 * host as u64) * MILLI, fault));
        }
    }
    scenario.must_deliver = true;
    run(scenario).all_delivered();
}

#[test]
fn validation_costs_a_round_trip_and_no_more() {
    let plain = Scenario::plain(11).messages(50, 5_000, 20 * MILLI);
    let first = |scenario: Scenario| {
        let outcome = run(scenario);
        let receipt = outcome.all_delivered().records().messages[0].receipt();
        receipt.expect("it is delivered").completion.as_secs_f64() * 1e3
    };
    let without = first(plain.clone());
    let with = first(plain.configured(|config| config.require_validation = true));
    assert!(
        with < without + 10.0,
        "{with} ms instead of {without} ms at a round trip of 2 ms"
    );
}
