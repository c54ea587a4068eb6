//! Routers that mark what is capable of ECN, and those that do something else to it.

use cloudburst_proto::{CongestionControl, EcnState, PathReport};

use crate::simulation::{
    path::{EcnTreatment, MILLI, Path, SECOND},
    scenario::Scenario,
    world::World,
};

const LINK_BITS_PER_S: u64 = 20_000_000;
const ONE_WAY: u64 = 20 * MILLI;
/// Four products of rate and round trip.
const QUEUE_BYTES: usize = 400_000;
/// What has more than so much in front of it is marked: 16 ms.
const MARK_BYTES: usize = 40_000;
const MESSAGE_BYTES: usize = 100_000;
const MEASURED: u64 = 8 * SECOND;
/// Until then it may have found its rate.
const SETTLED: u64 = 2 * SECOND;

/// More than the link carries, by one path.
fn backlog(change: impl Fn(&mut Path)) -> Scenario {
    let gap_ns = MESSAGE_BYTES as u64 * 7 * SECOND / LINK_BITS_PER_S;
    let mut scenario = Scenario::plain(1).with_key_pairs();
    scenario = scenario.messages(MEASURED / gap_ns, MESSAGE_BYTES, gap_ns);
    let mut path = Path::new(LINK_BITS_PER_S, QUEUE_BYTES, ONE_WAY);
    change(&mut path);
    scenario.paths = vec![path];
    for host in &mut scenario.hosts {
        host.sockets = 1;
    }
    scenario
}

/// What a sender and its network came to.
#[derive(Debug)]
struct Outcome {
    path: PathReport,
    /// The longest queue once it may have found its rate, in bytes.
    longest: f64,
    /// What arrived from then on, as a share of the link.
    goodput: f64,
    dropped: u64,
    dropped_as_capable: u64,
    marked: u64,
    /// Symbols that were sent beyond those needed, as a share.
    repairs: f64,
}

fn outcome(scenario: Scenario) -> Outcome {
    let mut world = World::new(scenario);
    let (mut now, mut longest, mut early) = (0, 0.0_f64, 0);
    while now < MEASURED {
        now += MILLI;
        world.run_until(now);
        let link = &world.network.paths[0].directions[0].link;
        if now > SETTLED {
            longest = longest.max(link.backlog_bytes());
        } else {
            early = world.hosts[1].endpoint.statistics().messages_received;
        }
    }
    let host = &world.hosts[0];
    let statistics = host.endpoint.statistics();
    let paths = host.endpoint.paths(host.clock.told(), host.connected[&1]);
    let late = world.hosts[1].endpoint.statistics().messages_received - early;
    let carried = (MEASURED - SETTLED) / SECOND * LINK_BITS_PER_S / 8;
    let outcome = Outcome {
        path: paths[0],
        longest,
        goodput: (late * MESSAGE_BYTES as u64) as f64 / carried as f64,
        dropped: world.network.dropped,
        dropped_as_capable: world.network.dropped_as_capable,
        marked: world.network.marked,
        repairs: statistics.symbols_sent as f64 / statistics.symbols_needed as f64 - 1.0,
    };
    println!("{outcome:?}");
    outcome
}

#[test]
fn queue_that_marks_stays_short_and_loses_nothing() {
    let marking = outcome(backlog(|path| {
        path.directions[0].mark_bytes = Some(MARK_BYTES);
    }));
    assert_eq!(marking.path.ecn, EcnState::Capable);
    assert!(marking.marked > 0 && marking.dropped == 0, "{marking:?}");
    // All but those of which nothing is heard yet.
    let reported = marking.path.marked;
    assert!(reported <= marking.marked && reported + 200 > marking.marked);
    assert!(marking.longest < 3.0 * MARK_BYTES as f64, "{marking:?}");
    assert!(marking.goodput > 0.85, "{marking:?}");
    // No symbol is sent again for a mark.
    assert!(marking.repairs < 0.01, "{marking:?}");
    let plain = outcome(backlog(|_| {}));
    assert_eq!((plain.marked, plain.path.marked), (0, 0));
    assert!(plain.longest > 2.0 * marking.longest, "{plain:?}");
}

#[test]
fn path_that_clears_the_code_point_fails_and_is_controlled_by_losses() {
    let cleared = outcome(backlog(|path| {
        path.directions[0].mark_bytes = Some(MARK_BYTES);
        path.directions[0].ecn = EcnTreatment::Cleared;
    }));
    assert_eq!(cleared.path.ecn, EcnState::Failed);
    assert_eq!((cleared.marked, cleared.path.marked), (0, 0));
    assert!(cleared.goodput > 0.8, "{cleared:?}");
}

#[test]
fn path_that_drops_what_is_capable_costs_a_test_and_no_more() {
    let dropping = outcome(backlog(|path| {
        path.directions[0].ecn = EcnTreatment::Dropped;
    }));
    assert_eq!(dropping.path.ecn, EcnState::Failed);
    // Ten, and the rest of the train that the tenth is of.
    let lost = dropping.dropped_as_capable;
    assert!((10..=10 + 16).contains(&lost), "{dropping:?}");
    assert!(dropping.goodput > 0.8, "{dropping:?}");
}

/// A reserved rate does not slow down for a mark, so that nothing of it may be marked (RFC 8085 §3.1.7).
#[test]
fn nothing_of_a_reserved_rate_is_capable() {
    let mut scenario = backlog(|path| path.directions[0].mark_bytes = Some(0));
    scenario.hosts[0].config.congestion = CongestionControl::reserved(LINK_BITS_PER_S);
    let reserved = outcome(scenario);
    assert_eq!(reserved.path.ecn, EcnState::Untested);
    assert_eq!((reserved.marked, reserved.path.marked), (0, 0));
}
