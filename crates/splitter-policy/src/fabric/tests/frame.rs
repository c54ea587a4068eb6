//! Pure ACKs, and what any router does to them.

use std::vec::Vec;

/// A pure ACK as its host sends it, of either family.
pub(super) fn ack(is_v6: bool, ttl: u8, traffic_class: u8) -> Vec<u8> {
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

pub(super) fn is_v4(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0]
}

/// Writes the checksum of an IPv4 header, from all of it.
pub(super) fn restore_checksum(frame: &mut [u8]) {
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

pub(super) fn ttl(frame: &[u8]) -> u8 {
    frame[if is_v4(frame) { 22 } else { 21 }]
}

/// Forwards a frame as any router does.
pub(super) fn route(frame: &mut [u8]) {
    let at = if is_v4(frame) { 22 } else { 21 };
    assert!(frame[at] > 1, "a router drops it");
    frame[at] -= 1;
    restore_checksum(frame);
}
