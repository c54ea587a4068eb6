//! The paper's format, in the network it is for and in worse.

use std::time::Duration;

use cloudburst_proto::{CongestionControl, Reason};

use crate::simulation::{
    path::{Impairments, Loss, MICRO, MILLI, Path, SECOND},
    run::run,
    scenario::{Fault, Scenario, SendPlan},
};

/// 16 routes over 4 paths of 1 Gbit/s and a round trip of 100 µs.
fn data_centre(seed: u64) -> Scenario {
    let mut scenario = Scenario::plain(seed).paper();
    scenario.paths = vec![Path::new(1_000_000_000, 100_000, 50 * MICRO); 4];
    scenario
}

#[test]
fn messages_of_all_lengths() {
    let mut scenario = data_centre(1).messages(300, 1, 2 * MILLI);
    for (number, send) in scenario.sends.iter_mut().enumerate() {
        send.bytes = 1 + number * 251;
    }
    scenario.must_deliver = true;
    let outcome = run(scenario);
    assert!(outcome.all_delivered().percentile_ms(1.0) < 10.0);
}

/// Ids come again and again, and nothing comes twice (A-C1).
#[test]
fn ids_are_used_again() {
    let mut scenario = data_centre(2).messages(3_000, 1_000, 100 * MICRO);
    scenario.must_deliver = true;
    run(scenario).all_delivered();
}

/// Every later symbol is answered, so that it takes many lost stops to be of
/// any consequence (A-C16).
#[test]
fn stops_are_lost() {
    let mut scenario = data_centre(3).messages(100, 20_000, 5 * MILLI);
    for path in &mut scenario.paths {
        path.directions[1].usual = Impairments::losing(Loss::Each(0.8));
    }
    let outcome = run(scenario);
    outcome.all_delivered();
    assert!(outcome.statistics(1).symbols_wasted > 1_000);
}

#[test]
fn no_stop_comes_at_all() {
    let mut scenario = data_centre(4).messages(10, 20_000, 5 * MILLI);
    for path in &mut scenario.paths {
        path.directions[1].usual = Impairments::DEAD;
    }
    let outcome = run(scenario);
    assert_eq!(outcome.reasons(), [Reason::BudgetSpent; 10]);
    let messages = &outcome.records().messages;
    assert!(messages.iter().all(|message| message.handed_over == 1));
}

#[test]
fn losses_and_a_dead_path() {
    let loss = Impairments::losing(Loss::Each(0.1));
    let mut scenario = data_centre(5).messages(100, 50_000, 5 * MILLI);
    scenario = scenario.impaired(loss);
    scenario.paths[0].spell(0, u64::MAX, Impairments::DEAD);
    let outcome = run(scenario);
    assert!(outcome.all_delivered().percentile_ms(0.99) < 20.0);
}

/// Both send to each other by the same addresses.
#[test]
fn both_ways_at_once() {
    let mut scenario = data_centre(6);
    for number in 0..200 {
        let from = (number % 2) as usize;
        scenario.sends.push(SendPlan {
            from,
            to: 1 - from,
            ..SendPlan::new(number * MILLI, 10_000)
        });
    }
    scenario.must_deliver = true;
    run(scenario).all_delivered();
}

/// Of what the sweep generates, some is of this format, and most of that is not lost.
#[test]
fn generated_scenarios_deliver() {
    let scenarios = (0..1_500).map(Scenario::generate);
    let (mut strict, mut delivered, mut accepted) = (0, 0, 0);
    for scenario in scenarios.filter(Scenario::is_paper) {
        strict += u32::from(scenario.must_deliver);
        let outcome = run(scenario);
        delivered += outcome.delivered();
        accepted += outcome.records().messages.len();
    }
    assert!(strict >= 5, "{strict} scenarios must deliver");
    assert!(2 * delivered > accepted, "{delivered} of {accepted}");
}

/// Each refuses what the other says, and tells its host in time.
#[test]
fn modes_that_do_not_match() {
    for paper in [0, 1] {
        let mut scenario = data_centre(7).lifetime(Duration::from_millis(500));
        scenario.hosts[1 - paper].is_paper = false;
        for number in 0..40 {
            let from = (number % 2) as usize;
            scenario.sends.push(SendPlan {
                from,
                to: 1 - from,
                ..SendPlan::new(number * MILLI, 1 + 1_800 * number as usize)
            });
        }
        let outcome = run(scenario);
        assert_eq!(outcome.delivered(), 0);
        for host in [0, 1] {
            let statistics = outcome.statistics(host);
            let refused: u64 = statistics.refused.iter().map(|(_, count)| count).sum();
            assert!(refused > 100, "host {host}: {statistics:?}");
            assert_eq!(statistics.messages_received, 0);
        }
    }
}

/// Little room, and many who want it.
#[test]
fn quotas_hold() {
    let mut scenario = data_centre(8).messages(60, 30_000, 0);
    scenario.hosts[1].config.quotas.bytes = 200_000;
    scenario.hosts[1].config.quotas.messages = 3;
    scenario = scenario.fault(
        SECOND,
        Fault::Restart {
            host: 1,
            same_seed: false,
        },
    );
    let outcome = run(scenario);
    assert!(outcome.statistics(1).peers_now <= 1);
    assert!(outcome.delivered() > 10);
}

/// Both have sent far more than they have received when they are to answer.
#[test]
fn both_begin_at_once() {
    let mut scenario = Scenario::plain(29).messages(2, 150_000, 0);
    (scenario.sends[1].from, scenario.sends[1].to) = (1, 0);
    for host in &mut scenario.hosts {
        host.is_paper = true;
        host.config.congestion = CongestionControl::reserved(1_000_000_000);
    }
    scenario.paths = vec![Path::new(5_000_000, 20_000, 50 * MICRO)];
    run(scenario).all_delivered();
}
