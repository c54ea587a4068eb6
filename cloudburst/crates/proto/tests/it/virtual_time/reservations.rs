//! A reserved rate that the network does not give, or does not give any more.

use cloudburst_proto::{CongestionControl, Reason};

use crate::simulation::{
    path::{Impairments, Loss, MILLI, Path, SECOND, Spell},
    scenario::{Fault, Scenario},
    world::World,
};

const LINK_BITS_PER_S: u64 = 10_000_000;
const QUEUE_BYTES: usize = 30_000;
const MESSAGE_BYTES: usize = 50_000;
const MEASURED: u64 = 20 * SECOND;
/// A bound that holds for the default mode, too (`cargo xtask congestion --cell blackout`).
const MOST_IN_THE_TENTH_SECOND: u64 = 20_000;

/// One path of 10 Mbit/s and 10 ms to who states `percent` of it, and always has as much to send.
fn stated(percent: u64) -> Scenario {
    let stated_bits_per_s = LINK_BITS_PER_S * percent / 100;
    let gap_ns = MESSAGE_BYTES as u64 * 8 * SECOND / stated_bits_per_s;
    let mut scenario = Scenario::plain(1).with_key_pairs();
    scenario = scenario.messages(MEASURED / gap_ns, MESSAGE_BYTES, gap_ns);
    scenario.paths = vec![Path::new(LINK_BITS_PER_S, QUEUE_BYTES, 5 * MILLI)];
    for host in &mut scenario.hosts {
        host.sockets = 1;
    }
    scenario.hosts[0].config.congestion = CongestionControl::reserved(stated_bits_per_s);
    scenario
}

/// The outcome of a rate that was stated.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// The time at which the circuit breaker tripped.
    broken_at: Option<u64>,
    /// Share of the datagrams that was lost until then.
    loss: f64,
    /// Shares of the link: what arrived until then, and what others got.
    through: f64,
    others: f64,
    /// Bytes sent from a second after it on.
    after: u64,
}

fn outcome(scenario: Scenario) -> Outcome {
    let mut world = World::new(scenario);
    let mut broken_at = None;
    let mut now = 0;
    let (mut counted, mut after) = ([0; 5], 0);
    while now < MEASURED {
        now += 100 * MILLI;
        world.run_until(now);
        let [sent, received] = [0, 1].map(|host| world.hosts[host].endpoint.statistics());
        let link = &world.network.paths[0].directions[0].link;
        let others = link.bulk_bytes() as u64;
        if broken_at.is_none() {
            let mut messages = world.records.messages.iter();
            let is_broken = messages.any(|message| {
                let failure = message.undelivered();
                failure.is_some_and(|it| it.reason == Reason::CircuitBroken)
            });
            broken_at = is_broken.then_some(now);
            let (datagrams, arrived) = (sent.datagrams_sent, received.datagrams_received);
            counted = [datagrams, arrived, received.bytes_received, others, now];
            after = sent.bytes_sent;
        } else if broken_at.is_some_and(|at| now == at + SECOND) {
            after = sent.bytes_sent;
        }
    }
    let [sent, arrived, bytes, others, until] = counted;
    let carried = until as f64 / 1e9 * LINK_BITS_PER_S as f64 / 8.0;
    Outcome {
        broken_at,
        loss: 1.0 - arrived as f64 / sent as f64,
        through: bytes as f64 / carried,
        others: others as f64 / carried,
        after: world.hosts[0].endpoint.statistics().bytes_sent - after,
    }
}

/// Alone, and beside a transfer that gives way.
#[test]
fn a_rate_that_is_not_there_loses_little_or_ends_in_seconds() {
    for percent in [90, 110, 120, 150, 200, 500, 1_000] {
        for is_alone in [true, false] {
            let mut scenario = stated(percent);
            if !is_alone {
                let (path, direction, share) = (0, 0, 0.5);
                let fill = Fault::Fill {
                    path,
                    direction,
                    share,
                };
                scenario = scenario.fault(0, fill);
            }
            let outcome = outcome(scenario);
            let Outcome {
                loss,
                through,
                others,
                ..
            } = outcome;
            println!(
                "{percent:>5} % stated, alone {is_alone:<5}: broken at {:?} ns, lost {loss:.3}, through {through:.3}, others {others:.3}",
                outcome.broken_at
            );
            assert!(through > 0.8, "it sends: {percent} %: {outcome:?}");
            assert_eq!(others > 0.0, !is_alone);
            match outcome.broken_at {
                Some(at) => {
                    assert!(at <= 6 * SECOND, "{percent} %: {outcome:?}");
                    assert!(outcome.after < 20_000, "{percent} %: {outcome:?}");
                }
                None => assert!(outcome.loss <= 0.2, "{percent} %: {outcome:?}"),
            }
        }
    }
}

/// Nobody reports losses then, and no breaker could trip.
#[test]
fn nothing_but_attempts_leaves_while_nothing_is_heard() {
    for begin in [0, 2 * SECOND] {
        let mut scenario = stated(90);
        scenario.paths[0].spell(begin, begin + 10 * SECOND, Impairments::DEAD);
        let mut world = World::new(scenario);
        let sent_by = |world: &mut World, at: u64| {
            world.run_until(at);
            world.hosts[0].endpoint.statistics().bytes_sent
        };
        let ninth = sent_by(&mut world, begin + 9 * SECOND);
        let tenth = sent_by(&mut world, begin + 10 * SECOND);
        println!(
            "silence from {begin} ns: {} bytes in the tenth second",
            tenth - ninth
        );
        assert!(
            tenth - ninth < MOST_IN_THE_TENTH_SECOND,
            "{}",
            tenth - ninth
        );
        let later = sent_by(&mut world, begin + 13 * SECOND);
        assert!(
            later - tenth > 1_000_000,
            "it does not go on: {}",
            later - tenth
        );
    }
}

/// Seven of ten datagrams are lost after a silence. Those that are not are reported, and say that there is somebody, and not
/// that what was reserved is there again.
#[test]
fn rate_is_back_when_round_trips_get_through_and_not_with_the_first_word() {
    let (silent, heard, over) = (2 * SECOND, 5 * SECOND, 7 * SECOND);
    let mut scenario = stated(90);
    scenario.paths[0].spell(silent, heard, Impairments::DEAD);
    let lossy = Spell {
        from: heard,
        until: over,
        impairments: Impairments::losing(Loss::Each(0.7)),
    };
    scenario.paths[0].directions[0].spells.push(lossy);
    let mut world = World::new(scenario);
    let mut bytes_sent = |at: u64| {
        world.run_until(at);
        world.hosts[0].endpoint.statistics().bytes_sent
    };
    let times = [heard, over, over + 1_500 * MILLI, over + 2_500 * MILLI];
    let [silence, lossy, settled, end] = times.map(&mut bytes_sent);
    let words = [lossy - silence, end - settled];
    println!("{words:?} bytes while seven of ten are lost, and in a second after that");
    assert!(words[0] < 100_000, "{words:?}");
    assert!(words[1] > 900_000, "it does not go on: {words:?}");
}
