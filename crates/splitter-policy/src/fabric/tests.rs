use core::cell::Cell;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const DSCP: u8 = 41;
const QUEUE_NS: u64 = 25_000_000;
const LEAF: u32 = 7;

fn agreement(hops: u8) -> Agreement {
    Agreement::new(Dscp::new(DSCP).unwrap(), hops, QUEUE_NS).unwrap()
}

fn is_a_leaf(_: &SiteKey) -> Option<u32> {
    Some(LEAF)
}

fn from_host() -> bool {
    true
}

/// A pure ACK as its host sends it, of either family.
fn ack(is_v6: bool, ttl: u8, traffic_class: u8) -> Vec<u8> {
    let mut frame = std::vec![2; 12];
    if is_v6 {
        frame.extend([
            0x86,
            0xdd,
            0x60 | traffic_class >> 4,
            traffic_class << 4 | 5,
            1,
            2,
        ]);
        frame.extend([0, 20, 6, ttl]);
        frame.extend((0..32).map(|index| index * 5));
    } else {
        frame.extend([
            8,
            0,
            0x45,
            traffic_class,
            0,
            40,
            0x12,
            0x34,
            0x40,
            0,
            ttl,
            6,
            0,
            0,
        ]);
        frame.extend([10, 1, 0, 2, 10, 2, 0, 3]);
    }
    // Ports, numbers, a header of 20 bytes, ACK.
    frame.extend([
        0x1f, 0x90, 0xc0, 1, 0, 0, 0, 9, 0, 0, 0, 8, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    restore_checksum(&mut frame);
    frame
}

fn is_v4(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0]
}

/// Writes the checksum of an IPv4 header, from all of it.
fn restore_checksum(frame: &mut [u8]) {
    if is_v4(frame) {
        frame[24..26].fill(0);
        let words = frame[14..34].chunks(2);
        let sum: u32 = words
            .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum + (sum >> 16)) as u16);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

fn ttl(frame: &[u8]) -> u8 {
    frame[if is_v4(frame) { 22 } else { 21 }]
}

/// Forwards a frame as any router does.
fn route(frame: &mut [u8]) {
    let at = if is_v4(frame) { 22 } else { 21 };
    assert!(frame[at] > 1, "a router drops it");
    frame[at] -= 1;
    restore_checksum(frame);
}

/// What a spine on the way of an ACK is: a router alone, or one of ours with so much in its port.
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

#[test]
fn mark_with_other_hops_than_agreed_is_restored_and_not_read() {
    let agreement = agreement(3);
    for field in 0..=u8::MAX {
        let sent = ack(false, field, DSCP << 2);
        let mut frame = sent.clone();
        let spine = pass_spine(&mut frame[..], &agreement, VlanTag::None, || Some(0));
        // A spine that ours meet first sees what the leaf has written, and nothing else.
        let expected = match field {
            6 => Ok(FabricStep::Reported),
            field if field & 7 == 6 => Err(FabricPass::AlreadyReported),
            _ => Err(FabricPass::Hops),
        };
        assert_eq!(spine, expected, "{field}");
        let mut frame = sent.clone();
        let leaf = enter_leaf(&mut frame[..], &agreement, VlanTag::None, is_a_leaf);
        // The hops agreed on decide about reports alone.
        let expected = match (field & 7, field >> 3) {
            (5 | 6, 0) => Ok(FabricStep::Restored),
            (5 | 6, _) => Ok(FabricStep::Read),
            (1..=4, _) => Ok(FabricStep::Unread),
            _ => Err(FabricPass::Hops),
        };
        assert_eq!(leaf.map(|it| it.step()), expected, "{field}");
        match leaf {
            Ok(_) => assert_eq!(frame, ack(false, 57 + (field & 7), 0)),
            Err(_) => assert_eq!(frame, sent),
        }
    }
}

#[test]
fn all_but_pure_acks_pass() {
    let agreement = agreement(3);
    let mut others = Vec::new();
    for is_v6 in [false, true] {
        let tcp = if is_v6 { 54 } else { 34 };
        let pure = ack(is_v6, 63, 0);
        for flags in [0x00, 0x02, 0x12, 0x11, 0x14, 0x18, 0x30] {
            let mut frame = pure.clone();
            frame[tcp + 13] = flags;
            others.push(frame);
        }
        let mut with_payload = pure.clone();
        with_payload[if is_v6 { 19 } else { 17 }] += 1;
        with_payload.push(0);
        others.push(with_payload);
        let mut udp = pure.clone();
        udp[if is_v6 { 20 } else { 23 }] = 17;
        others.push(udp);
        others.push(pure[..pure.len() - 1].to_vec());
    }
    for fragment in [[0x20, 0], [0, 1]] {
        let mut frame = ack(false, 63, 0);
        frame[20..22].copy_from_slice(&fragment);
        others.push(frame);
    }
    for mut frame in others {
        restore_checksum(&mut frame);
        let sent = frame.clone();
        let left = leave_leaf(
            &mut frame[..],
            &agreement,
            VlanTag::None,
            from_host,
            is_a_leaf,
        );
        assert_eq!(left, Err(FabricPass::NotPureAck), "{sent:02x?}");
        assert_eq!(frame, sent);
    }
}

#[test]
fn acks_that_report_congestion_are_written() {
    for ecn in [0x40, 0x80, 0xc0] {
        let mut frame = ack(false, 63, 0);
        frame[47] |= ecn;
        let left = leave_leaf(
            &mut frame[..],
            &agreement(3),
            VlanTag::None,
            from_host,
            is_a_leaf,
        );
        assert_eq!(left, Ok(FabricStep::Written));
    }
}

fn host(site: u8) -> SiteKey {
    SiteKey::of_prefix(std::net::Ipv4Addr::new(10, site, 0, site + 1).into(), 32)
}

#[test]
fn ends_are_looked_up_in_their_own_direction() {
    let agreement = agreement(3);
    // Both ends have to be known, or nobody may restore what is written.
    for known in [1, 2] {
        let mut frame = ack(false, 63, 0);
        let sent = frame.clone();
        let asked = Cell::new(0);
        let only = |key: &SiteKey| {
            asked.set(asked.get() + 1);
            (*key == host(known)).then_some(LEAF)
        };
        let left = leave_leaf(&mut frame[..], &agreement, VlanTag::None, from_host, only);
        assert_eq!(left, Err(FabricPass::UnknownLeaf));
        assert_eq!(asked.get(), u32::from(known));
        assert_eq!(frame, sent);
    }
    let mut frame = ack(false, 63, 0);
    leave_leaf(
        &mut frame[..],
        &agreement,
        VlanTag::None,
        from_host,
        is_a_leaf,
    )
    .unwrap();
    let asked = Cell::new(None);
    let ask = |key: &SiteKey| {
        asked.set(Some(*key));
        Some(LEAF)
    };
    enter_leaf(&mut frame[..], &agreement, VlanTag::None, ask).unwrap();
    assert_eq!(asked.get(), Some(host(1)));
}

#[test]
fn what_comes_from_no_known_leaf_is_restored_and_not_read() {
    let agreement = agreement(3);
    let sent = ack(false, 63, 0);
    for backlog_ns in [None, Some(7_000_000)] {
        let mut frame = sent.clone();
        leave_leaf(
            &mut frame[..],
            &agreement,
            VlanTag::None,
            from_host,
            is_a_leaf,
        )
        .unwrap();
        let _ = pass_spine(&mut frame[..], &agreement, VlanTag::None, || backlog_ns);
        let entered = enter_leaf(&mut frame[..], &agreement, VlanTag::None, |_| None);
        assert_eq!(entered, Ok(Heard::Unknown));
        assert_eq!(frame, sent);
    }
}

#[test]
fn leaf_takes_the_mark_off_its_hosts_acks_to_leaves_alone() {
    let agreement = agreement(3);
    let marked = ack(false, 63, DSCP << 2);
    // Another leaf has written it, and this one is on its way.
    let mut frame = ack(false, 4, DSCP << 2);
    let sent = frame.clone();
    let left = leave_leaf(
        &mut frame[..],
        &agreement,
        VlanTag::None,
        || false,
        is_a_leaf,
    );
    assert_eq!(left, Err(FabricPass::NotFromHost));
    assert_eq!(frame, sent);
    // Nobody restores it where it goes.
    let mut frame = marked.clone();
    let only_source = |key: &SiteKey| (*key == host(1)).then_some(LEAF);
    let left = leave_leaf(
        &mut frame[..],
        &agreement,
        VlanTag::None,
        from_host,
        only_source,
    );
    assert_eq!(left, Err(FabricPass::UnknownLeaf));
    assert_eq!(frame, marked);
    // Somebody would, wherever it comes from.
    let only_destination = |key: &SiteKey| (*key == host(2)).then_some(LEAF);
    let left = leave_leaf(
        &mut frame[..],
        &agreement,
        VlanTag::None,
        from_host,
        only_destination,
    );
    assert_eq!(left, Ok(FabricStep::Cleared));
    assert_eq!(frame, ack(false, 63, 0));
}

/// What belongs to a VLAN device on top of a port is neither written nor read; what somebody has written all
/// the same is restored.
#[test]
fn what_has_a_vlan_tag_is_restored_alone() {
    let agreement = agreement(3);
    for is_v6 in [false, true] {
        let sent = ack(is_v6, 63, 0);
        let mut frame = sent.clone();
        let left = leave_leaf(
            &mut frame[..],
            &agreement,
            VlanTag::Beside,
            from_host,
            is_a_leaf,
        );
        assert_eq!(left, Err(FabricPass::VlanTag));
        assert_eq!(frame, sent);
        leave_leaf(
            &mut frame[..],
            &agreement,
            VlanTag::None,
            from_host,
            is_a_leaf,
        )
        .unwrap();
        let written = frame.clone();
        let passed = pass_spine(&mut frame[..], &agreement, VlanTag::Beside, || Some(0));
        assert_eq!(passed, Err(FabricPass::VlanTag));
        assert_eq!(frame, written);
        pass_spine(&mut frame[..], &agreement, VlanTag::None, || Some(0)).unwrap();
        let entered = enter_leaf(&mut frame[..], &agreement, VlanTag::Beside, is_a_leaf);
        assert_eq!(entered, Ok(Heard::Unknown));
        assert_eq!(frame, sent);
    }
}

#[test]
fn spine_without_a_model_of_its_port_reports_nothing() {
    let agreement = agreement(3);
    let mut frame = ack(true, 63, 0);
    leave_leaf(
        &mut frame[..],
        &agreement,
        VlanTag::None,
        from_host,
        is_a_leaf,
    )
    .unwrap();
    let sent = frame.clone();
    let passed = pass_spine(&mut frame[..], &agreement, VlanTag::None, || None);
    assert_eq!(passed, Err(FabricPass::UnknownPort));
    assert_eq!(frame, sent);
}

#[test]
fn nothing_is_written_before_there_is_an_agreement() {
    // As a map is at first.
    let none = Agreement {
        step_ns: 0,
        dscp: Dscp::NONE,
        hops: 0,
        reserved: [0; 6],
    };
    for field in 0..=u8::MAX {
        let sent = ack(false, field, 0);
        let mut frame = sent.clone();
        assert!(leave_leaf(&mut frame[..], &none, VlanTag::None, from_host, is_a_leaf).is_err());
        assert!(pass_spine(&mut frame[..], &none, VlanTag::None, || Some(1)).is_err());
        assert!(enter_leaf(&mut frame[..], &none, VlanTag::None, is_a_leaf).is_err());
        assert_eq!(frame, sent);
    }
    let dscp = Dscp::new(DSCP).unwrap();
    for hops in [0, 2, 7] {
        assert_eq!(Agreement::new(dscp, hops, QUEUE_NS), None);
    }
    assert_eq!(Agreement::new(Dscp::NONE, 3, QUEUE_NS), None);
}

#[test]
fn ack_waits_at_most_in_a_full_queue_at_each_router() {
    let longest_ns = agreement(5).longest_wait_ns();
    // Levels are whole steps.
    assert!(longest_ns.abs_diff(5 * QUEUE_NS) < 5 * 31, "{longest_ns}");
}

#[test]
fn each_outcome_has_a_counter_of_its_own() {
    let mut counters = FabricCounters::default();
    let steps = FabricStep::ALL.map(Ok);
    let outcomes = steps.into_iter().chain(FabricPass::ALL.map(Err));
    for (times, outcome) in (1..).zip(outcomes) {
        (0..times).for_each(|_| counters.count(outcome));
    }
    let mut sum = counters;
    sum.add(&counters);
    assert_eq!(FabricStep::ALL.map(|it| sum.done(it)), [2, 4, 6, 8, 10, 12]);
    let passed = FabricPass::ALL.map(|it| sum.passed(it));
    assert_eq!(passed, [14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34]);
}
