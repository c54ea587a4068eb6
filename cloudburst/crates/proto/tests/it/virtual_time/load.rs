//! Much at once, and more than there is capacity for.

use std::time::Duration;

use cloudburst_proto::{Reason, SendRefused};

use crate::simulation::{
    path::{Impairments, Loss, MICRO, MILLI, Path, SECOND},
    run::run,
    scenario::{Fault, HostPlan, Scenario, SendPlan},
};

#[test]
fn ten_thousand_concurrent_messages() {
    let mut scenario = Scenario::plain(1).messages(10_000, 1_500, 0);
    scenario.paths = vec![Path::new(1_000_000_000, 1_000_000, MILLI); 4];
    for (number, send) in scenario.sends.iter_mut().enumerate() {
        send.bytes = 1 + number % 3_000;
    }
    let outcome = run(scenario);
    outcome.all_delivered();
    let worst = outcome.percentile_ms(1.0);
    assert!(worst < 2_000.0, "{worst} ms for 15 MB at 1 Gbit/s");
}

#[test]
fn more_than_may_wait() {
    let scenario = Scenario::plain(2)
        .messages(50, 1_000, 0)
        .configured(|config| config.quotas.outgoing_messages = 20);
    let mut world = crate::simulation::world::World::new(scenario);
    world.run_until(0);
    assert_eq!(world.records.messages.len(), 20);
    let is_full = |error: &SendRefused| matches!(error, SendRefused::Full { messages: 20, .. });
    assert!(
        world.not_accepted.iter().all(is_full),
        "{:?}",
        world.not_accepted
    );
    world.finish().all_delivered();
}

/// Eight answer at once to one whose link is no faster than theirs.
#[test]
fn incast() {
    let mut scenario = Scenario::plain(3);
    scenario.hosts = vec![HostPlan::new(); 9];
    scenario.hosts[0].ingress = Some((1_000_000_000, 200_000));
    scenario.paths = vec![Path::new(1_000_000_000, 500_000, 50 * MICRO); 4];
    for round in 0..20 {
        for from in 1..9 {
            scenario.sends.push(SendPlan {
                from,
                to: 0,
                ..SendPlan::new(round * 50 * MILLI, 90_000)
            });
        }
    }
    scenario.must_deliver = true;
    let outcome = run(scenario);
    outcome.all_delivered();
    // 8 x 90 kB take 6 ms.
    let (median, worst) = (outcome.percentile_ms(0.5), outcome.percentile_ms(1.0));
    assert!(
        median < 20.0 && worst < 200.0,
        "median {median} ms, worst {worst} ms"
    );
    let sent = outcome.world.hosts[1..]
        .iter()
        .map(|host| host.endpoint.statistics().symbols_sent);
    let needed = outcome.statistics(0).symbols_received;
    assert!(sent.sum::<u64>() < 3 * needed, "most was lost");
}

#[test]
fn bulk_on_all_paths() {
    let mut scenario = Scenario::plain(4).messages(200, 20_000, 20 * MILLI);
    for path in 0..4 {
        let (direction, share) = (0, 0.9);
        let fill = Fault::Fill {
            path,
            direction,
            share,
        };
        scenario.faults.push((0, fill));
    }
    scenario.must_deliver = true;
    let outcome = run(scenario);
    outcome.all_delivered();
    let worst = outcome.percentile_ms(1.0);
    assert!(worst < 400.0, "{worst} ms");
    for path in &outcome.world.network.paths {
        let carried = path.directions[0].link.bulk_bytes();
        let share = carried / (outcome.ended as f64 / 1e9 * 50e6 / 8.0);
        assert!(
            share > 0.5,
            "bulk has {share} of the link, we take the 1/8 that we need"
        );
    }
}

/// The link is 10 times as fast as the only path: the sender has to find out.
#[test]
fn slow_path_behind_a_fast_link() {
    let mut scenario = Scenario::plain(5).messages(100, 50_000, 100 * MILLI);
    scenario.paths = vec![Path::new(10_000_000, 30_000, 5 * MILLI)];
    scenario.must_deliver = true;
    let outcome = run(scenario);
    let statistics = outcome.all_delivered().statistics(0);
    let overhead = statistics.symbols_sent as f64 / statistics.symbols_delivered as f64;
    assert!(
        overhead < 2.5,
        "{overhead} symbols sent for each: most overflow the FIFO"
    );
}

#[test]
fn too_long_for_the_receiver() {
    let mut scenario = Scenario::plain(6)
        .messages(10, 5_000, MILLI)
        .messages(10, 20_000, MILLI);
    scenario.hosts[1].config.max_message_bytes = 10_000;
    let outcome = run(scenario);
    assert_eq!(outcome.reasons(), [Reason::Refused; 10]);
    assert_eq!(outcome.delivered(), 10);
    assert!(outcome.statistics(1).refused.message_too_large > 0);
    for message in &outcome.records().messages {
        assert!(
            message.ended - message.accepted < SECOND,
            "told late: {message:?}"
        );
    }
}

/// There is capacity for a few at a time: all get their turn.
#[test]
fn busy_receiver() {
    let loss = Impairments::losing(Loss::Each(0.02));
    let mut scenario = Scenario::plain(7).messages(100, 20_000, 0).impaired(loss);
    scenario.hosts[1].config.quotas.bytes = 200_000;
    scenario.hosts[1].config.quotas.peer_bytes = 200_000;
    scenario.hosts[1].config.quotas.messages = 5;
    run(scenario).all_delivered();
}

#[test]
fn no_room_to_the_end() {
    let mut scenario = Scenario::plain(8).messages(3, 90_000, 0);
    scenario.hosts[1].config.quotas.bytes = 50_000;
    let scenario = scenario.lifetime(Duration::from_secs(2));
    let outcome = run(scenario);
    assert_eq!(outcome.delivered(), 0);
    let known = [Reason::Busy, Reason::Refused];
    let reasons = outcome.reasons();
    assert!(
        reasons.iter().all(|reason| known.contains(reason)),
        "{reasons:?}"
    );
    assert!(outcome.statistics(1).refused.too_many_bytes > 0);
}

/// Long messages do not make short ones wait, once the rate is known.
/// What it takes depends on what is in queues already, and so on the seed: several are tried.
#[test]
fn short_messages_overtake() {
    for seed in 1..=20 {
        let mut scenario = Scenario::plain(seed)
            .messages(10, 93_000, 50 * MILLI)
            .messages(10, 400_000, 0)
            .messages(10, 2_000, 5 * MILLI);
        scenario.sends[10..20]
            .iter_mut()
            .for_each(|send| send.at = 700 * MILLI);
        for (number, send) in (0..).zip(&mut scenario.sends[20..]) {
            send.at = (701 + 5 * number) * MILLI;
        }
        scenario.must_deliver = true;
        let outcome = run(scenario);
        let longest = |bytes| {
            let messages = outcome.records().messages.iter();
            let of_length = messages.filter(|message| message.bytes == bytes);
            let took = of_length.map(|message| message.ended - message.accepted);
            took.max().expect("some were sent") as f64 / 1e6
        };
        let (short, long) = (longest(2_000), longest(400_000));
        assert!(
            short < long / 2.0,
            "seed {seed}: {short} ms behind longer ones, which took {long} ms"
        );
    }
}

/// 16 paths over a link of 1 Mbit/s: when each was probed five times a second, that took 8 % of it.
#[test]
fn probes_of_many_paths_are_no_burden_to_a_slow_link() {
    let mut scenario = Scenario::plain(1).messages(400, 5_000, 50 * MILLI);
    scenario.paths = vec![Path::new(1_000_000, 30_000, 10 * MILLI)];
    let outcome = run(scenario);
    let sent = outcome.all_delivered().statistics(0);
    let probes = sent.datagrams_sent - sent.symbols_sent;
    // A ping without keys has 80 bytes.
    let share = probes as f64 * 80.0 / sent.bytes_sent as f64;
    assert!(
        share < 0.03,
        "{probes} of {} datagrams",
        sent.datagrams_sent
    );
}
