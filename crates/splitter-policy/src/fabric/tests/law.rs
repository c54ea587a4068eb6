//! The law of the fabric, for ACKs that cross it: hosts see nothing of it.

use proptest::prelude::*;
use std::vec::Vec;

use super::frame::{route, ttl};
use super::*;

/// A spine on the way of an ACK: a router alone, or one of ours with so much in its port.
type Spine = Option<u64>;

/// The way of an ACK from the router in front of its host to the other, with this program and without.
struct Way {
    with: Vec<u8>,
    without: Vec<u8>,
    left: Result<FabricStep, FabricPass>,
    reports: Vec<FabricStep>,
    entered: Result<Heard, FabricPass>,
}

fn travel(sent: &[u8], agreement: &Agreement, spines: &[Spine]) -> Way {
    let (mut with, mut without) = (sent.to_vec(), sent.to_vec());
    route(&mut with);
    route(&mut without);
    let left = leave_leaf(
        &mut with[..],
        agreement,
        VlanTag::None,
        from_host,
        is_a_leaf,
    );
    let mut reports = Vec::new();
    for spine in spines {
        if let Some(backlog_ns) = spine {
            reports.extend(pass_spine(&mut with[..], agreement, VlanTag::None, || {
                Some(*backlog_ns)
            }));
        }
        route(&mut with);
        route(&mut without);
    }
    let entered = enter_leaf(&mut with[..], agreement, VlanTag::None, is_a_leaf);
    route(&mut with);
    route(&mut without);
    Way {
        with,
        without,
        left,
        reports,
        entered,
    }
}

/// Between a leaf and another as many spines as the hops allow, or fewer.
fn fabrics() -> impl Strategy<Value = (u8, Vec<Spine>)> {
    (Agreement::LEAST_HOPS..=Agreement::MOST_HOPS).prop_flat_map(|hops| {
        let spine = proptest::option::of(0..2 * QUEUE_NS);
        let spines = proptest::collection::vec(spine, 0..=usize::from(hops - 2));
        (Just(hops), spines)
    })
}

proptest! {
    /// The law of the fabric: hosts see TTL, DSCP, ECN and checksum as without it, and a leaf learns what
    /// the first spine of ours had.
    #[test]
    fn hosts_see_every_ack_as_without_us(
        is_v6: bool,
        initial in prop_oneof![Just(64u8), 9u8..],
        traffic_class in prop_oneof![0u8..4, any::<u8>()],
        (hops, spines) in fabrics(),
    ) {
        let agreement = agreement(hops);
        let sent = ack(is_v6, initial, traffic_class);
        let mut way = travel(&sent, &agreement, &spines);
        let dscp = traffic_class >> 2;
        if dscp == DSCP {
            // The one thing that hosts cannot have.
            prop_assert_eq!(way.left, Ok(FabricStep::Cleared));
            way.without = travel(&ack(is_v6, initial, traffic_class & 3), &agreement, &[]).without;
            for _ in &spines {
                route(&mut way.without);
            }
        }
        prop_assert_eq!(&way.with, &way.without);
        let is_written = initial == 64 && dscp == 0;
        prop_assert_eq!(way.left == Ok(FabricStep::Written), is_written);
        let first = spines.iter().find_map(|it| *it).filter(|_| is_written);
        prop_assert_eq!(way.reports.len(), usize::from(first.is_some()));
        match (way.entered, first) {
            (Ok(Heard::Report(report)), Some(backlog_ns)) => {
                prop_assert_eq!(report.leaf, LEAF);
                prop_assert!(report.backlog_ns <= backlog_ns);
                let highest_ns = QUEUE_NS / 31 * 30;
                prop_assert!(backlog_ns.min(highest_ns) - report.backlog_ns < QUEUE_NS / 31 + 1);
            }
            (Ok(Heard::Nothing), None) => prop_assert!(is_written),
            (Err(reason), None) => {
                prop_assert!(!is_written);
                prop_assert_eq!(reason, FabricPass::NotWritten);
            }
            (found, first) => prop_assert!(false, "{found:?} of {first:?}"),
        }
    }

    #[test]
    fn what_no_leaf_has_marked_is_touched_by_nobody(
        is_v6: bool, ttl in 1u8.., traffic_class: u8, hops in 3u8..=6, backlog_ns: u64,
    ) {
        prop_assume!(traffic_class >> 2 != DSCP);
        let sent = ack(is_v6, ttl, traffic_class);
        let mut frame = sent.clone();
        let agreement = agreement(hops);
        let spine = pass_spine(&mut frame[..], &agreement, VlanTag::None, || Some(backlog_ns));
        prop_assert_eq!(spine, Err(FabricPass::NotWritten));
        let leaf = enter_leaf(&mut frame[..], &agreement, VlanTag::None, is_a_leaf);
        prop_assert_eq!(leaf, Err(FabricPass::NotWritten));
        prop_assert_eq!(frame, sent);
    }

    /// A field that a leaf writes has a hop left for each router that is to come, whoever is among them.
    #[test]
    fn no_router_of_the_fabric_finds_a_field_used_up(is_v6: bool, (hops, spines) in fabrics()) {
        let agreement = agreement(hops);
        let mut frame = ack(is_v6, 64, 0);
        route(&mut frame);
        prop_assert_eq!(leave_leaf(&mut frame[..], &agreement, VlanTag::None, from_host, is_a_leaf), Ok(FabricStep::Written));
        for spine in &spines {
            if let Some(backlog_ns) = spine {
                let _ = pass_spine(&mut frame[..], &agreement, VlanTag::None, || Some(*backlog_ns));
            }
            route(&mut frame);
        }
        // The last leaf, should it have no program.
        prop_assert!(ttl(&frame) > 1);
        route(&mut frame);
    }
}
