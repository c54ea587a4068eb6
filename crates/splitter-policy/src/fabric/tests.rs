//! Leaves and spines, frame by frame.

mod frame;
mod law;

use core::cell::Cell;
use std::vec::Vec;

use self::frame::{ack, restore_checksum};
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
