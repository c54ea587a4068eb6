//! What leaves and spines of a fabric may do to any bytes whatever.

use splitter_policy::dscp::Dscp;
use splitter_policy::fabric::{Agreement, FabricStep, VlanTag, enter_leaf, leave_leaf, pass_spine};

use super::checks::{changed_bits, checksum_is_right};
use super::packet::{Packet, Upper};

const IP: usize = 14;
const DSCP: u8 = 41;

/// Pure ACKs of either family as a fabric's programs meet them: from a host, from one that has the fabric's
/// mark, from a leaf, from a spine, and by more routers than were agreed on.
pub(crate) fn seeds() -> Vec<(String, Vec<u8>)> {
    let seen = [
        ("leaves", 63, 0),
        ("leaves_marked", 63, DSCP),
        ("is_written", 6, DSCP),
        ("is_reported", 9 << 3 | 5, DSCP),
        ("comes_far", 9 << 3 | 2, DSCP),
    ];
    let families = [("v4", Packet::tcp_v4()), ("v6", Packet::tcp_v6())];
    let frames = families.into_iter().flat_map(|(family, tcp)| {
        let seen = seen.into_iter();
        seen.map(move |(name, ttl, dscp)| (format!("ack_{family}_{name}"), ack(&tcp, ttl, dscp)))
    });
    frames.collect()
}

fn ack(tcp: &Packet, ttl: u8, dscp: u8) -> Vec<u8> {
    let upper = Upper::Tcp {
        ports: (443, 50_000),
        flags: 0x10,
        option_bytes: 12,
    };
    let packet = Packet {
        traffic_class: dscp << 2,
        upper,
        payload_bytes: 0,
        ..tcp.clone()
    };
    let mut frame = packet.bytes();
    if frame[IP] >> 4 == 6 {
        frame[IP + 7] = ttl;
        return frame;
    }
    frame[IP + 8] = ttl;
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..IP + 20].chunks(2);
    let sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    let checksum = !((sum + (sum >> 16)) as u16);
    frame[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Has each role look at a frame: what passes stays as it is, and of what is written nothing but TTL, DSCP
/// and a checksum changes that is right if it was right before. What a leaf has written the other one
/// restores, byte for byte.
pub(crate) fn check(frame: &[u8]) {
    let dscp = Dscp::new(DSCP).expect("six bits");
    let agreement = Agreement::new(dscp, 3, 25_000_000).expect("it is possible");
    let mut left = frame.to_vec();
    let leaving = leave_leaf(
        &mut left[..],
        &agreement,
        VlanTag::None,
        || true,
        |_| Some(1),
    );
    check_changes(frame, &left, leaving.is_ok());
    if leaving == Ok(FabricStep::Written) && has_right_checksum(frame) {
        let mut restored = left.clone();
        enter_leaf(&mut restored[..], &agreement, VlanTag::None, |_| Some(1))
            .expect("a leaf has written it");
        assert_eq!(restored, frame);
    }
    // As it came from somebody else, and as one of ours has written it.
    for received in [frame, &left] {
        let mut passed = received.to_vec();
        let reported = pass_spine(&mut passed[..], &agreement, VlanTag::None, || {
            Some(7_000_000)
        });
        check_changes(received, &passed, reported.is_ok());
        let mut entered = received.to_vec();
        let entering = enter_leaf(&mut entered[..], &agreement, VlanTag::None, |_| Some(1));
        check_changes(received, &entered, entering.is_ok());
    }
}

fn check_changes(before: &[u8], after: &[u8], may_change: bool) {
    if !may_change {
        assert_eq!(before, after, "what passes is touched");
        return;
    }
    let is_v6 = before[IP] >> 4 == 6;
    let allowed: &[(usize, u8)] = match is_v6 {
        true => &[(IP, 0x0f), (IP + 1, 0xc0), (IP + 7, 0xff)],
        false => &[
            (IP + 1, 0xfc),
            (IP + 8, 0xff),
            (IP + 10, 0xff),
            (IP + 11, 0xff),
        ],
    };
    for (at, bits) in changed_bits(before, after) {
        let may_change = allowed.iter().find(|(place, _)| *place == at);
        assert!(
            may_change.is_some_and(|(_, mask)| bits & !mask == 0),
            "bits {bits:#04x} of byte {at} are nobody's"
        );
    }
    if has_right_checksum(before) {
        assert!(has_right_checksum(after), "the checksum is broken");
    }
}

/// IPv6 has none. One of 0xffff is right and nobody's: it is written as 0 then.
fn has_right_checksum(frame: &[u8]) -> bool {
    frame[IP] >> 4 == 6 || frame[IP + 10..IP + 12] != [0xff; 2] && checksum_is_right(frame, IP)
}
