//! Keys of packets' bytes, next to those of 5-tuples; and when a flow may be idle.

use super::*;
use crate::packet::{PlainSegment as _, PlainV4, PlainV6, parse_plain_v4, parse_plain_v6};
use crate::table::owner::STAMP_BITS;
use proptest::prelude::*;
use std::vec;

const IP: usize = 14;
/// Where the addresses begin, and what one has.
const V4: (usize, usize) = (IP + 12, 4);
const V6: (usize, usize) = (IP + 8, 16);

/// A segment without payload between two addresses.
fn segment(is_v6: bool, source: &[u8], destination: &[u8], ports: [u8; 4]) -> Vec<u8> {
    let (start, (at, length)) = match is_v6 {
        false => (vec![8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6], V4),
        true => (vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64], V6),
    };
    let mut frame = [vec![0; IP - 2], start].concat();
    let tcp = at + 2 * length;
    frame.resize(tcp + 20, 0);
    frame[at..at + length].copy_from_slice(&source[..length]);
    frame[at + length..tcp].copy_from_slice(&destination[..length]);
    frame[tcp..tcp + 4].copy_from_slice(&ports);
    frame[tcp + 12] = 5 << 4;
    frame
}

/// The key of a segment's bytes, that of its 5-tuple, and the key of bytes that are others in one bit of
/// an address.
fn check<A, B>((bytes, tuple, others): (A, B, A), layout: &Layout)
where
    A: LineKey,
    A::Slot: Default,
    B: LineKey<Slot = A::Slot>,
{
    assert_eq!(bytes.stir(layout), tuple.stir(layout));
    assert_eq!(bytes.owner(), tuple.owner());
    let slot = A::Slot::default();
    bytes.write_to(&slot);
    assert!(bytes.has_addresses_of(&slot) && tuple.has_addresses_of(&slot));
    assert_eq!((bytes.differs(&slot), tuple.differs(&slot)), (0, 0));
    assert!(!others.has_addresses_of(&slot) && others.differs(&slot) != 0);
}

proptest! {
    #[test]
    fn bytes_of_a_segment_are_the_key_that_its_5_tuple_is(
        is_v6: bool,
        source: [u8; 16],
        destination: [u8; 16],
        ports: [u8; 4],
        bit in 0usize..256,
        seed: u64,
    ) {
        let layout = Layout::for_flows(1_000, seeds(seed));
        let frame = segment(is_v6, &source, &destination, ports);
        let (at, length) = if is_v6 { V6 } else { V4 };
        let mut others = frame.clone();
        others[at + bit / 8 % (2 * length)] ^= 1 << (bit % 8);
        let (frame, others) = (&frame[..], &others[..]);
        let parsed = if is_v6 { parse_plain_v6(frame) } else { parse_plain_v4(frame) };
        let (network, tcp) = parsed.expect("it is one");
        match FlowKey::new(network.addresses, &tcp) {
            FlowKey::V4(key) => {
                let [one, other] = [frame, others].map(|it| PlainV4::of(it).expect("it is one").key());
                check((one, &key, other), &layout);
            }
            FlowKey::V6(key) => {
                let [one, other] = [frame, others].map(|it| PlainV6::of(it).expect("it is one").key());
                check((one, &key, other), &layout);
            }
        }
    }

    #[test]
    fn odd_seeds_lead_to_the_same_places(source: u32, destination: u32, ports: u32, seeds: Seeds) {
        let layout = Layout::for_flows(1_000, seeds);
        let odd = layout.with_odd_seeds();
        let key = FlowKey::V4(FlowKeyV4 { source, destination, ports, protocol: 6 });
        let [.., last_but_one, last] = odd.seeds;
        prop_assert_eq!((last_but_one & 1, last & 1), (1, 1));
        prop_assert_eq!(odd.place(&key), layout.place(&key));
        prop_assert_eq!(odd.tag(&key), layout.tag(&key));
        let key = FlowKey::V6(key.as_v6());
        prop_assert_eq!(odd.place(&key), layout.place(&key));
    }
}

proptest! {
    // What is near to the timeout is a narrow place.
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    /// One that has been silent for as long is never taken for a live one, and one that is younger by four
    /// stamps never sent the long way.
    #[test]
    fn idle_flow_is_never_taken_for_a_live_one(
        seen_ns in 0u64..1 << 55,
        silent_ns in 0u64..86_400 * SECOND,
        idle_timeout_ns in 1u64..86_400 * SECOND,
        flags in 0u64..1 << 9,
        is_near: bool,
        less_ns in 0u64..16 << STAMP_BITS,
    ) {
        let silent_ns = if is_near { (idle_timeout_ns + (4 << STAMP_BITS)).saturating_sub(less_ns) } else { silent_ns };
        let owner = Owner(flags << 32).seen_at(seen_ns);
        let may_be = owner.may_be_as_old_as(idle_timeout_ns, seen_ns + silent_ns);
        prop_assert!(may_be || silent_ns < idle_timeout_ns);
        prop_assert!(!may_be || silent_ns + (4 << STAMP_BITS) > idle_timeout_ns);
    }
}
