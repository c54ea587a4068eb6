use super::*;
use proptest::prelude::*;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DEVICE: u32 = 7;

/// A segment of TCP from the site.
fn frame(v6: bool, flags: u8, ttl: u8) -> std::vec::Vec<u8> {
    let mut frame = std::vec![0; 12];
    frame[..6].copy_from_slice(&OWN);
    if v6 {
        frame.extend([0x86, 0xdd, 0x61, 0x20, 0, 9, 0, 20, 6, ttl]);
        frame.extend([0x20; 16]);
        frame.extend([0x30; 16]);
    } else {
        frame.extend([8, 0, 0x45, 0x12, 0, 40, 0, 9, 0x40, 0, ttl, 6, 0, 0]);
        frame.extend([10, 1, 0, 2, 10, 2, 0, 2]);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let mut tcp = [0; 20];
    tcp[..4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    tcp[12] = 0x50;
    tcp[13] = flags;
    frame.extend(tcp);
    frame
}

fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

fn fill(frame: &[u8]) -> Result<FibLookup, Fallback> {
    let mut lookup = FibLookup::default();
    lookup.fill(frame, DEVICE).map(|()| lookup)
}

#[test]
fn the_question_has_what_rules_and_routes_look_at() {
    let v4 = fill(&frame(false, 0x10, 64)).unwrap();
    assert_eq!((v4.family, v4.protocol, v4.device), (AF_INET, 6, DEVICE));
    assert_eq!(v4.flow.to_ne_bytes(), [0x12, 0, 0, 0]);
    assert_eq!(v4.packet_bytes, 40);
    assert_eq!(v4.source_port.to_ne_bytes(), [0x12, 0x34]);
    assert_eq!(v4.destination_port.to_ne_bytes(), [0x56, 0x78]);
    assert_eq!(v4.source[0].to_ne_bytes(), [10, 1, 0, 2]);
    assert_eq!(v4.destination[0].to_ne_bytes(), [10, 2, 0, 2]);

    let v6 = fill(&frame(true, 0x10, 64)).unwrap();
    assert_eq!((v6.family, v6.protocol, v6.packet_bytes), (AF_INET6, 6, 60));
    // Traffic class and flow label, without the version.
    assert_eq!(v6.flow.to_ne_bytes(), [0x01, 0x20, 0, 9]);
    assert_eq!(v6.source, [0x2020_2020; 4]);
    assert_eq!(v6.destination, [0x3030_3030; 4]);
    assert_eq!(v6.destination_port.to_ne_bytes(), [0x56, 0x78]);
}

#[test]
fn header_of_what_is_asked_is_the_one_in_the_frame() {
    for v6 in [false, true] {
        let frame = frame(v6, 0x10, 64);
        let start = frame[14..24].try_into().expect("ten bytes");
        let asked = fill(&frame).expect("is plain");
        assert_eq!(Some(asked.ip_start()), IpStart::read(&start), "{v6}");
    }
}

/// Changes a frame and says why it goes by the stack then.
fn why(v6: bool, change: impl FnOnce(&mut std::vec::Vec<u8>)) -> Option<Fallback> {
    let mut frame = frame(v6, 0x10, 64);
    change(&mut frame);
    fill(&frame).err()
}

#[test]
fn what_is_not_plain_goes_by_the_stack() {
    for v6 in [false, true] {
        assert_eq!(why(v6, |_| {}), None);
        assert_eq!(why(v6, |it| it[12] = 0x81), Some(Fallback::Options));
        assert_eq!(why(v6, |it| it.truncate(60 - 7)), Some(Fallback::Scattered));
        let ttl_at = if v6 { 21 } else { 22 };
        for ttl in [0, 1] {
            assert_eq!(why(v6, |it| it[ttl_at] = ttl), Some(Fallback::Ttl));
        }
        let flags_at = if v6 { 67 } else { 47 };
        for opening in [0x02, 0x12] {
            let reason = why(v6, |it| it[flags_at] = opening);
            assert_eq!(reason, Some(Fallback::Opening));
        }
        // The payload lies elsewhere, or the aggregate is too large to say so.
        let length_at = if v6 { 18 } else { 16 };
        for length in [[4, 0], [0, 0]] {
            let reason = why(v6, |it| {
                it[length_at..length_at + 2].copy_from_slice(&length)
            });
            assert_eq!(reason, Some(Fallback::Scattered), "{v6} {length:?}");
        }
    }
    // As a host leaves it to its device: the pseudo-header's sum, not inverted.
    for v6 in [false, true] {
        let (addresses, at) = if v6 {
            (22..54, 54 + 16)
        } else {
            (26..34, 34 + 16)
        };
        let reason = why(v6, |it| {
            let mut pseudo = it[addresses].to_vec();
            pseudo.extend([0, 6, 0, 20]);
            let sum = !checksum(&pseudo);
            it[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        });
        assert_eq!(reason, Some(Fallback::Checksum));
    }
    for fragment in [[0x20, 0], [0, 1], [0x3f, 0xff]] {
        let reason = why(false, |it| it[20..22].copy_from_slice(&fragment));
        assert_eq!(reason, Some(Fallback::Fragment));
    }
    assert_eq!(why(true, |it| it[20] = 44), Some(Fallback::Fragment));
    assert_eq!(why(false, |it| it[14] = 0x46), Some(Fallback::Options));
    assert_eq!(why(true, |it| it[20] = 0), Some(Fallback::Options));
}

#[test]
fn answers_of_the_kernel_are_told_apart() {
    assert_eq!(Fallback::from_fib_result(0), None);
    assert_eq!(Fallback::from_fib_result(4), Some(Fallback::NoRoute));
    assert_eq!(Fallback::from_fib_result(7), Some(Fallback::NoNeighbour));
    assert_eq!(Fallback::from_fib_result(8), Some(Fallback::TooLarge));
    for failed in [-22, 9, 77] {
        assert_eq!(Fallback::from_fib_result(failed), Some(Fallback::Failed));
    }
    for (index, reason) in Fallback::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
}

proptest! {
    #[test]
    fn a_forwarded_packet_has_one_hop_less_and_other_addresses(v6: bool, ttl in 2u8..=255, salt: u16) {
        let mut before = frame(v6, 0x10, ttl);
        if !v6 {
            before[18..20].copy_from_slice(&salt.to_be_bytes());
            before[24..26].fill(0);
            let sum = checksum(&before[14..34]);
            before[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let mut lookup = fill(&before).unwrap();
        prop_assert!(!lookup.has_next_hop());
        (lookup.next_hop, lookup.own_address) = ([0x0808; 3], [0x0909; 3]);
        prop_assert!(lookup.has_next_hop());
        let mut after = before.clone();
        lookup.forward(&mut after[..]).unwrap();
        prop_assert_eq!(&after[..12], &[8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9]);
        let mut expected = before[12..].to_vec();
        if v6 {
            expected[9] = ttl - 1;
        } else {
            expected[10] = ttl - 1;
            expected[12..14].copy_from_slice(&after[24..26]);
            prop_assert_eq!(checksum(&after[14..34]), 0);
        }
        prop_assert_eq!(&after[12..], &expected);
    }
}

#[test]
fn ipv4_by_way_of_an_ipv6_next_hop_stays_ipv4() {
    let mut frame = frame(false, 0x10, 64);
    let mut lookup = fill(&frame).unwrap();
    // So the kernel answers where the next hop has an IPv6 address.
    lookup.family = AF_INET6;
    lookup.next_hop = [1, 2, 3];
    let before = frame.clone();
    lookup.forward(frame.as_mut_slice()).unwrap();
    assert_eq!(frame[22], 63);
    assert_eq!(frame[14..22], before[14..22]);
    let mut header = frame[14..34].to_vec();
    header[10..12].fill(0);
    assert_eq!(frame[24..26], checksum(&header).to_be_bytes());
}

#[test]
fn what_no_router_forwards_goes_by_the_stack() {
    for first in [0, 127, 224, 255] {
        let mut frame = frame(false, 0x10, 64);
        frame[26] = first;
        assert_eq!(fill(&frame), Err(Fallback::NoRoute), "{first}");
    }
    let loopback = core::net::Ipv6Addr::LOCALHOST.octets();
    for source in [[0; 16], loopback, [0xff; 16]] {
        let mut frame = frame(true, 0x10, 64);
        frame[22..38].copy_from_slice(&source);
        assert_eq!(fill(&frame), Err(Fallback::NoRoute), "{source:?}");
    }
    let mut link_local = frame(true, 0x10, 64);
    link_local[22..24].copy_from_slice(&[0xfe, 0x9f]);
    assert_eq!(fill(&link_local), Err(Fallback::NoRoute));
}

#[test]
fn esp_is_spread_by_its_spi_as_routes_do() {
    let mut frame = frame(false, 0x10, 64);
    frame[23] = protocol::ESP;
    let lookup = fill(&frame).unwrap();
    assert_eq!(lookup.source_port.to_ne_bytes(), [0x12, 0x34]);
    assert_eq!(lookup.destination_port.to_ne_bytes(), [0x56, 0x78]);
}
