//! Ports that lead where nothing arrives are abandoned for others.

use cloudburst_proto::Health;

use crate::simulation::{
    path::{Impairments, Loss, MILLI, SECOND},
    scenario::{Fault, HostPlan, Scenario, SendPlan},
    world::World,
};

/// The link that dies.
const BAD: usize = 0;
const DIES: u64 = 2 * SECOND;

/// A message each 50 ms by 16 ports over four links, for so long.
fn busy(seed: u64, seconds: u64) -> Scenario {
    let mut scenario = Scenario::plain(seed).messages(20 * seconds, 5_000, 50 * MILLI);
    scenario.hosts[0].sockets = 16;
    scenario.hosts[1].sockets = 1;
    scenario
}

/// Sockets of host 0 whose port leads over a link.
fn leading_to(world: &World, link: usize) -> usize {
    let sockets = 0..world.hosts[0].plan.sockets;
    let to = world.address(1, 0);
    let over = sockets.filter(|&it| world.network.choose(world.address(0, it), to) == link);
    over.count()
}

fn replaced(world: &World) -> u64 {
    world.hosts[0].endpoint.statistics().ports_rotated
}

#[test]
fn no_port_leads_to_a_dead_link_for_long() {
    for seed in 0..10 {
        let mut scenario = busy(seed, 40);
        scenario.paths[BAD].spell(DIES, DIES + 30 * SECOND, Impairments::DEAD);
        let mut world = World::new(scenario);
        world.run_until(DIES);
        let before = leading_to(&world, BAD);
        assert_eq!(replaced(&world), 0, "seed {seed}: all is well yet");
        world.run_until(DIES + 4 * SECOND);
        let after = leading_to(&world, BAD);
        assert!(
            after == 0 || 4 * after <= before,
            "seed {seed}: {after} of {before} ports lead to it after 4 s still"
        );
        world.run_until(DIES + 25 * SECOND);
        assert_eq!(leading_to(&world, BAD), 0, "seed {seed}");
        let count = replaced(&world);
        let most = 4 * before as u64;
        assert!(
            (before as u64..=most).contains(&count),
            "seed {seed}: {count} ports were given up for {before} that were bad"
        );
        assert_eq!(world.paths_that_are(0, 1, Health::Good), 16, "seed {seed}");
        let outcome = world.finish();
        outcome.all_delivered();
        // That the link has returned is no reason to choose others.
        assert_eq!(outcome.statistics(0).ports_rotated, count, "seed {seed}");
        assert_eq!(outcome.statistics(1).ports_rotated, 0);
    }
}

#[test]
fn nothing_is_replaced_where_nothing_arrives_at_all() {
    for seed in 0..5 {
        let mut scenario = busy(seed, 30);
        for (number, path) in scenario.paths.iter_mut().enumerate() {
            // They neither die nor return all at the same moment.
            let from = DIES + 100 * MILLI * number as u64;
            path.spell(from, from + 20 * SECOND, Impairments::DEAD);
        }
        let mut world = World::new(scenario);
        world.run_until(30 * SECOND);
        assert_eq!(replaced(&world), 0, "seed {seed}");
    }
}

/// One link after the other is dead for five seconds: there is no port that is good for long.
#[test]
fn trouble_without_end_has_its_bounds() {
    let seconds = 400;
    let mut scenario = busy(1, seconds);
    let turns = (1..seconds / 5).map(|turn| 5 * SECOND * turn);
    for (from, path) in turns.zip([0, 1, 2, 3].into_iter().cycle()) {
        scenario.paths[path].spell(from, from + 5 * SECOND, Impairments::DEAD);
    }
    let mut world = World::new(scenario);
    world.run_until(seconds * SECOND);
    let count = replaced(&world);
    let most = 64 + seconds / 60;
    assert!((20..=most).contains(&count), "{count} ports were given up");
    // What is abandoned is forgotten at the other end, too.
    let paths = &world.hosts[1];
    let peer = paths.heard[&0];
    let known = paths.endpoint.paths(paths.clock.told(), peer).len();
    assert!(known <= 64, "{known} paths are kept");
    world.finish().all_delivered();
}

#[test]
fn much_loss_is_a_reason_if_others_lose_little() {
    for (loss, is_reason) in [(0.6, true), (0.04, false)] {
        let mut scenario = busy(3, 60);
        scenario.paths[BAD].set(Impairments::losing(Loss::Each(loss)));
        let mut world = World::new(scenario);
        world.run_until(60 * SECOND);
        assert_eq!(replaced(&world) > 0, is_reason, "{loss}");
        if is_reason {
            assert_eq!(leading_to(&world, BAD), 0);
        }
        let mut scenario = busy(3, 60);
        for path in &mut scenario.paths {
            path.set(Impairments::losing(Loss::Each(loss)));
        }
        let mut world = World::new(scenario);
        world.run_until(60 * SECOND);
        assert_eq!(replaced(&world), 0, "{loss} everywhere");
    }
}

/// Both ends have ports that stay: other pairs of them are tried.
#[test]
fn pairs_are_exchanged_while_there_are_others() {
    let mut scenario = busy(4, 40);
    scenario.hosts[1].sockets = 16;
    scenario.four_tuples = 256;
    scenario.paths[BAD].spell(DIES, 900 * SECOND, Impairments::DEAD);
    let scenario = scenario.configured(|config| config.rotate_ports = false);
    let mut world = World::new(scenario);
    world.run_until(DIES + 15 * SECOND);
    let host = &world.hosts[0];
    let paths = host.endpoint.paths(host.clock.told(), host.connected[&1]);
    let over = |path: &cloudburst_proto::PathReport| {
        let from = world.address(0, path.four_tuple.socket.0);
        world.network.choose(from, path.four_tuple.remote) == BAD
    };
    let (bad, all) = (paths.into_iter().filter(over).count(), 64);
    assert!(bad <= all / 20, "{bad} of {all} pairs lead there still");
    let statistics = host.endpoint.statistics();
    assert!(statistics.paths_replaced >= 8, "{statistics:?}");
    assert_eq!(statistics.ports_rotated, 0);
    world.finish().all_delivered();
}

/// Of a socket that somebody else is reached by, the port stays.
#[test]
fn a_port_that_another_peer_needs_stays() {
    let mut scenario = busy(5, 30);
    scenario.hosts.push(HostPlan::new());
    let others = scenario
        .sends
        .iter()
        .map(|send| SendPlan { to: 2, ..*send });
    let others: Vec<_> = others.collect();
    scenario.sends.extend(others);
    scenario.sends.sort_by_key(|send| send.at);
    scenario.hosts[2].sockets = 1;
    scenario.paths[BAD].spell(DIES, 900 * SECOND, Impairments::DEAD);
    let mut world = World::new(scenario);
    world.run_until(25 * SECOND);
    let (mut gone, mut stay) = (0, 0);
    for socket in 0..16 {
        let first = world
            .scenario
            .address(0, cloudburst_proto::SocketId(socket));
        let is_bad = |to| world.network.choose(first, world.address(to, 0)) == BAD;
        let is_replaced = world.hosts[0].ports[usize::from(socket)].0 > 0;
        match (is_bad(1), is_bad(2)) {
            (true, true) => gone += 1,
            (false, false) => assert!(!is_replaced, "{socket} was good for both"),
            _ => {
                stay += 1;
                assert!(!is_replaced, "{socket} was good for one");
            }
        }
    }
    assert!(stay > 0, "{gone} {stay}: another seed is needed");
    world.finish().all_delivered();
}

/// The receiver sends requests of its own, and answers, to ports that change, with and without a
/// key.
#[test]
fn the_other_end_follows() {
    for key in [None, Some(3)] {
        let mut scenario = busy(6, 40);
        for host in &mut scenario.hosts {
            host.key = key;
        }
        for (number, send) in scenario.sends.iter_mut().enumerate() {
            send.is_request = number % 3 == 0;
        }
        let back = scenario.sends.iter().map(|send| SendPlan {
            at: send.at + 20 * MILLI,
            from: 1,
            to: 0,
            back: true,
            bytes: 12_000,
            ..*send
        });
        let back: Vec<_> = back.collect();
        scenario.sends.extend(back);
        scenario.sends.sort_by_key(|send| send.at);
        let turns = [(0, 2), (1, 9), (2, 16), (3, 23), (0, 30)];
        for (path, from) in turns {
            let (from, until) = (from * SECOND, (from + 6) * SECOND);
            scenario.paths[path].spell(from, until, Impairments::DEAD);
        }
        let mut world = World::new(scenario);
        world.hosts[0].may_change_ports = true;
        world.run_until(38 * SECOND);
        let count = replaced(&world);
        assert!(count >= 8, "{count} ports were given up");
        let outcome = world.finish();
        outcome.all_delivered();
        let slowest = outcome.percentile_ms(1.0);
        assert!(slowest < 500.0, "{slowest} ms");
    }
}

/// Ports may be abandoned for good while the other end begins again.
#[test]
fn a_restart_of_the_other_end_is_survived() {
    let mut scenario = busy(7, 30).fault(
        6 * SECOND,
        Fault::Restart {
            host: 1,
            same_seed: false,
        },
    );
    scenario.paths[BAD].spell(DIES, 900 * SECOND, Impairments::DEAD);
    let mut world = World::new(scenario);
    world.run_until(20 * SECOND);
    assert_eq!(leading_to(&world, BAD), 0);
    let outcome = world.finish();
    let later = outcome.records().messages.iter();
    for message in later.filter(|message| message.accepted > 7 * SECOND) {
        assert!(message.receipt().is_some(), "{message:?}");
    }
}
