//! Policies as leaves host them.

use std::collections::HashMap;

use flow_balance::{Ageing, PathSet, Paths as _, ServiceTime};

use super::*;
use crate::fabric::path_table::{Path, PathTable};

/// The golden vectors of `flow-balance`, which every host has to replay.
#[expect(dead_code, reason = "here another host replays them")]
#[path = "../../../crates/balance/tests/support/balance_vectors.rs"]
mod vectors;

const VECTORS: &str = include_str!("../../../crates/balance/tests/balance_vectors.txt");

#[test]
fn golden_vectors_are_replayed() {
    let mut replayed = 0;
    for case in vectors::parse(VECTORS) {
        let Some(mut choice) = hosted(&case.policy) else {
            continue;
        };
        replayed += 1;
        let mut table = table(&case);
        let mut slots = HashMap::new();
        for (number, step) in case.steps.iter().enumerate() {
            let packet = step.packet;
            table.set_usable(step.paths.usable);
            for path in step.paths.known().iter() {
                let view = step.paths.view(path);
                table.set_uplink(0, path.index(), packet.now_ns + view.local_backlog_ns);
                table.learn([0, path.index(), 0], view.remote_backlog_ns, packet.now_ns);
            }
            let next = slots.len();
            let query = PathQuery {
                leaf: 0,
                slot: *slots.entry(packet.flow_hash).or_insert(next),
                packet,
            };
            let path = choice.choose(&query, &table.between(0, 0, packet.now_ns));
            assert_eq!(path, step.choice, "{}, packet {number}", case.name);
        }
    }
    assert_eq!(replayed, 9, "placement alone is for tunnels");
}

/// With the settings of the vectors, which scenarios cannot all express.
fn hosted(policy: &vectors::Policy) -> Option<LoadBalancer> {
    let shared = vec![(); 1];
    Some(match *policy {
        vectors::Policy::Ecmp(policy) => LoadBalancer::Ecmp(BalancerState::new(policy, shared)),
        vectors::Policy::Rps(policy) => LoadBalancer::Rps(BalancerState::new(policy, shared)),
        vectors::Policy::Drb(policy) => LoadBalancer::Drb(BalancerState::new(policy, shared)),
        vectors::Policy::Presto(policy) => LoadBalancer::Presto(BalancerState::new(policy, shared)),
        vectors::Policy::LetFlow(policy) => {
            LoadBalancer::LetFlow(BalancerState::new(policy, shared))
        }
        vectors::Policy::Tr(policy, timeout_ns) => LoadBalancer::Tr(BalancerState::new(
            policy,
            vec![ShortFlows::new(timeout_ns)],
        )),
        vectors::Policy::Placement(_) => return None,
    })
}

fn table(case: &vectors::Case) -> PathTable {
    let paths = case.steps[0].paths;
    PathTable::new(
        1,
        paths.known().len() as usize,
        Ageing::Never,
        |_, spine, _| {
            let view = paths.view(PathId::new(spine).expect("below 16"));
            Path {
                propagation_ns: view.propagation_ns.try_into().expect("32 bits"),
                weight: view.weight,
                service: view.service,
                usable: true,
            }
        },
    )
}

fn four_paths(usable: u16) -> PathTable {
    let mut table = PathTable::new(1, 4, Ageing::Never, |_, _, _| Path {
        propagation_ns: 8_000,
        weight: 1,
        service: ServiceTime::UNKNOWN,
        usable: true,
    });
    table.set_usable(PathSet::from_bits(usable));
    table
}

fn choice(policy: BalancingPolicy) -> LoadBalancer {
    let balance = BalanceSettings {
        policy,
        ..BalanceSettings::default()
    };
    LoadBalancer::new(&balance, None, 1, 48_000, 1)
}

fn spread(policy: BalancingPolicy, flow: impl Fn(u32) -> u32) -> [u32; 4] {
    let (mut choice, table) = (choice(policy), four_paths(0b1011));
    let mut counts = [0; 4];
    for packet in 0..3000 {
        let now_ns = u64::from(packet);
        let query = PathQuery::new(0, flow(packet), false, 1500, now_ns);
        let path = choice.choose(&query, &table.between(0, 0, now_ns));
        counts[path.index()] += 1;
    }
    counts
}

#[test]
fn flows_spread_over_what_works() {
    for policy in [
        BalancingPolicy::Ecmp,
        BalancingPolicy::LetFlow,
        BalancingPolicy::Presto,
    ] {
        let counts = spread(policy, |packet| packet);
        assert_eq!(counts[2], 0, "{policy:?} {counts:?}");
        let even = counts.iter().filter(|it| (900..1100).contains(*it)).count();
        assert_eq!(even, 3, "{policy:?} {counts:?}");
    }
}

#[test]
fn packets_of_a_flow_spread_or_stay() {
    for policy in [BalancingPolicy::Rps, BalancingPolicy::Drb] {
        let counts = spread(policy, |_| 7);
        let even = counts.iter().filter(|it| (900..1100).contains(*it)).count();
        assert_eq!(even, 3, "{policy:?} {counts:?}");
    }
    for policy in [BalancingPolicy::Ecmp, BalancingPolicy::LetFlow] {
        let counts = spread(policy, |_| 7);
        assert!(counts.contains(&3000), "{policy:?} {counts:?}");
    }
}

/// The directions of a flow are flows of their own.
#[test]
fn acks_go_their_own_way() {
    let (mut choice, table) = (choice(BalancingPolicy::Ecmp), four_paths(0b1111));
    let mut path = |flow, reverse| {
        let query = PathQuery::new(0, flow, reverse, 40, 0);
        choice.choose(&query, &table.between(0, 0, 0))
    };
    let apart = (0..100).filter(|flow| path(*flow, true) != path(*flow, false));
    assert!(apart.count() > 50);
}

#[test]
fn what_was_heard_ages_if_it_is_to() {
    for (ageing, left_ns) in [(Ageing::Never, 5_000), (Ageing::Drains, 2_000)] {
        let mut table = PathTable::new(2, 1, ageing, |_, _, _| Path {
            propagation_ns: 1,
            weight: 1,
            service: ServiceTime::UNKNOWN,
            usable: true,
        });
        table.learn([0, 0, 1], 5_000, 10_000);
        let path = PathId::new(0).expect("a path");
        let view = table.between(0, 1, 13_000).view(path);
        assert_eq!(view.remote_backlog_ns, left_ns);
        let other = table.between(1, 0, 13_000).view(path);
        assert_eq!(
            other.remote_backlog_ns, 0,
            "of another leaf nothing was heard"
        );
    }
}

#[test]
fn sums_that_are_kept_are_those_of_what_is_known() {
    for ageing in [Ageing::Never, Ageing::Drains] {
        let mut table = PathTable::new(2, 12, ageing, |_, spine, _| Path {
            propagation_ns: 1_000 + spine as u32,
            weight: 1,
            service: ServiceTime::UNKNOWN,
            usable: true,
        });
        for (spine, backlog_ns) in [(0, 700), (3, 0), (5, 9_000), (5, 90)] {
            table.learn([0, spine, 1], backlog_ns, 10_000);
            table.set_uplink(0, spine + 1, 10_500 + backlog_ns);
        }
        for now_ns in [10_000, 10_600, 99_000] {
            let paths = table.between(0, 1, now_ns);
            let arrivals_ns = paths.arrivals_ns(now_ns);
            for path in paths.known().iter() {
                let it = paths.view(path);
                let delay_ns = it.propagation_ns + it.local_backlog_ns + it.remote_backlog_ns;
                assert_eq!(arrivals_ns[path.index()], now_ns + delay_ns);
            }
        }
    }
}
