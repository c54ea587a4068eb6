use core::cell::Cell;

use flow_balance::{EarliestArrival, EarliestFlow, MAX_PATHS, Packet, Paths, ServiceTime};
use proptest::prelude::*;

use super::*;
use crate::flow::Class;
use crate::paths::{LivePaths, SitePaths, TunnelPath, TunnelQueues};

const MS: u64 = 1_000_000;

fn path(number: usize) -> PathId {
    PathId::new(number).unwrap()
}

/// Three tunnels at 100 Mbit/s, of which the first is the nearest and the last the farthest.
fn site() -> SitePaths {
    let mut site = SitePaths {
        known: 0b111,
        usable: 0b111,
        hears: 1,
        ..SitePaths::default()
    };
    for (tunnel, propagation_ns) in site.tunnels.iter_mut().zip([MS / 10, MS / 5, MS]) {
        *tunnel = TunnelPath {
            propagation_ns,
            service: ServiceTime::from_bits_per_second(100_000_000),
            own_service: ServiceTime::from_bits_per_second(100_000_000),
            queue_ns: 25 * MS,
            ..TunnelPath::default()
        };
    }
    site
}

/// The first two tunnels are uplinks, in another order; the third is none.
fn uplinks() -> UplinkNumbers {
    let mut uplinks = UplinkNumbers::default();
    uplinks.set(path(0), path(5));
    uplinks.set(path(1), path(2));
    uplinks
}

#[test]
fn full_spine_is_avoided_until_its_report_has_aged() {
    let (site, uplinks) = (site(), uplinks());
    let queues = TunnelQueues::<Cell<u64>>::default();
    let mut reports = RemoteBacklogs::default();
    let chosen = |reports: &RemoteBacklogs, now_ns| {
        let paths = LivePaths::new(&site, &queues, Some(Class::Long), now_ns);
        let packet = Packet {
            now_ns,
            bytes: 1_500,
            flow_hash: 1,
        };
        let found = |paths: &LivePaths<'_, _, Heard<'_>>| {
            EarliestArrival::default().find(&EarliestFlow::default(), paths, &packet)
        };
        let heard = Heard {
            uplinks: &uplinks,
            reports,
        };
        found(&paths.with_behind(heard)).path.index()
    };
    let heard_ns = 1_000 * MS;
    assert_eq!(chosen(&reports, heard_ns), 0);
    // Of an uplink that is no tunnel here, and of the one that has the first tunnel's own number.
    for other in [0, 15] {
        reports.behind_mut(path(other)).report(20 * MS, heard_ns);
    }
    assert_eq!(chosen(&reports, heard_ns), 0);
    reports.behind_mut(path(5)).report(5 * MS, heard_ns);
    assert_eq!(chosen(&reports, heard_ns), 1);
    // The second one as well: then what nobody reports of, although it is farther.
    reports.behind_mut(path(2)).report(5 * MS, heard_ns);
    assert_eq!(chosen(&reports, heard_ns), 2);
    // What was reported has drained but for less than the tunnels differ by, and then all of it.
    assert_eq!(chosen(&reports, heard_ns + 5 * MS - MS / 2), 0);
    assert_eq!(chosen(&reports, heard_ns + 60_000 * MS), 0);
}

#[test]
fn leaf_that_was_looked_up_is_that_of_the_flow_for_a_second() {
    let mut far = FarLeaf::default();
    assert_eq!(far.get(0, 0), None);
    for leaf in [Some(0), Some(15), None] {
        far.set(7, leaf, 5 * MS);
        assert_eq!(far.get(7, 5 * MS), Some(leaf));
        assert_eq!(far.get(7, 1_005 * MS), Some(leaf));
        assert_eq!(far.get(7, 1_005 * MS + 1), None);
        // In the same place, and nearly at the same time on another processor.
        assert_eq!(far.get(8, 5 * MS), None);
        assert_eq!(far.get(7, 4 * MS), Some(leaf));
    }
}

proptest! {
    #[test]
    fn numbers_of_uplinks_are_those_that_were_set(numbers in proptest::collection::vec(0..MAX_PATHS, 0..MAX_PATHS)) {
        let mut uplinks = UplinkNumbers::default();
        for (tunnel, number) in numbers.iter().enumerate() {
            // The last one counts.
            uplinks.set(path(tunnel), path(15 - number));
            uplinks.set(path(tunnel), path(*number));
        }
        for (tunnel, id) in PathId::all().enumerate() {
            let expected = numbers.get(tunnel).map(|it| path(*it));
            prop_assert_eq!(uplinks.get(id), expected);
        }
        prop_assert_eq!(uplinks.are_none(), numbers.is_empty());
    }

    /// By the short cut of the host and by views, which have it as the remote backlog.
    #[test]
    fn reports_add_to_arrivals(
        backlogs_ns in proptest::collection::vec(0..10_000 * MS, MAX_PATHS),
        heard_ns in 0u64..1 << 60,
        since_ns in 0..20_000 * MS,
    ) {
        let (site, uplinks, now_ns) = (site(), uplinks(), heard_ns + since_ns);
        let queues = TunnelQueues::<Cell<u64>>::default();
        let mut reports = RemoteBacklogs::default();
        for (uplink, backlog_ns) in PathId::all().zip(&backlogs_ns) {
            reports.behind_mut(uplink).report(*backlog_ns, heard_ns);
        }
        let local = LivePaths::new(&site, &queues, None, now_ns);
        let paths = local.with_behind(Heard { uplinks: &uplinks, reports: &reports });
        let packet = Packet { now_ns, bytes: 1_000, flow_hash: 1 };
        for (tunnel, uplink) in [(0, Some(5)), (1, Some(2)), (2, None)] {
            let expected_ns = uplink.map_or(0, |it: usize| backlogs_ns[it].saturating_sub(since_ns));
            prop_assert_eq!(paths.view(path(tunnel)).remote_backlog_ns, expected_ns);
            let without_ns = local.arrival_ns(path(tunnel), &packet);
            prop_assert_eq!(paths.arrival_ns(path(tunnel), &packet), without_ns + expected_ns);
        }
    }
}
