mod routed;

use super::*;
use std::vec::Vec;

const OWN: Mac = Mac::new([2, 0, 0, 0, 0, 1]);
const DEVICE: u32 = 7;
const NOW_NS: u64 = 1_000_000_000;
const DESTINATION_LAST: usize = 14 + 19;

/// A segment of TCP over IPv4 without options.
fn v4() -> Vec<u8> {
    let mut frame = std::vec![0; 12];
    frame.extend([8, 0, 0x45, 0x12, 0, 40, 0, 9, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([10, 1, 0, 2, 10, 2, 0, 2]);
    frame.extend([0x12, 0x34, 0x56, 0x78]);
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 1, 0, 0]);
    frame
}

/// The same over IPv6.
fn v6() -> Vec<u8> {
    let mut frame = std::vec![0; 12];
    frame.extend([0x86, 0xdd, 0x61, 0x20, 0, 9, 0, 20, 6, 64]);
    frame.extend([0x20; 16]);
    frame.extend([0x30; 16]);
    frame.extend_from_slice(&v4()[34..]);
    frame
}

fn asked(frame: &[u8], device: u32) -> FibLookup {
    let mut lookup = FibLookup::default();
    lookup.fill(frame, device).expect("is plain");
    lookup
}

fn question(frame: &[u8], matched: MatchedBits) -> Question {
    Question::new(&asked(frame, DEVICE), TunnelRole::Short, OWN, matched)
}

/// A packet's question, with what lies beyond it.
fn everything(frame: &[u8]) -> (Question, [u64; 3]) {
    let beyond = asked(frame, DEVICE).beyond();
    (question(frame, MatchedBits::EVERYTHING), beyond)
}

fn trust() -> NextHopTrust {
    NextHopTrust {
        generation: Generation::new(9),
        until_ns: NOW_NS + 1,
    }
}

/// A record whose path takes what the packet that was asked for has, as on kernels that say no MTU.
fn record(frame: &[u8]) -> NextHop {
    let asked = asked(frame, DEVICE);
    let question = question(frame, MatchedBits::EVERYTHING);
    NextHop::default().followed_by((question, &asked), (&asked, 3), &trust(), NOW_NS)
}

#[test]
fn any_bit_that_routing_may_look_at_makes_another_question() {
    const V4: &[usize] = &[15, 23, 26, 29, 30, DESTINATION_LAST, 34, 35, 36, 37];
    const V6: &[usize] = &[14, 15, 16, 17, 22, 37, 38, 53, 54, 57];
    for (frame, places) in [(v4(), V4), (v6(), V6)] {
        let same = everything(&frame);
        let record = record(&frame);
        let answers = |question: &Question, asked: &FibLookup| {
            record.answers((question, asked), &trust(), NOW_NS)
        };
        assert!(answers(&same.0, &asked(&frame, DEVICE)));
        for &at in places {
            let mut other = frame.clone();
            // Keeps TCP and UDP apart, and version and addresses what they are.
            other[at] ^= if at == 23 { 6 ^ 17 } else { 2 };
            let question = everything(&other);
            assert_ne!(question, same, "byte {at}");
            assert!(!answers(&question.0, &asked(&other, DEVICE)), "byte {at}");
        }
        let asked_at = |device| asked(&frame, device);
        let all = MatchedBits::EVERYTHING;
        let others = [
            Question::new(&asked_at(DEVICE + 1), TunnelRole::Short, OWN, all),
            Question::new(&asked_at(DEVICE), TunnelRole::Long, OWN, all),
            Question::new(&asked_at(DEVICE), TunnelRole::Short, Mac::new([3; 6]), all),
        ];
        for other in others {
            assert_ne!(other, same.0);
            assert!(!answers(&other, &asked(&frame, DEVICE)));
        }
    }
    assert_ne!(
        question(&v4(), MatchedBits::DESTINATION),
        question(&v6(), MatchedBits::DESTINATION)
    );
}

#[test]
fn where_routing_looks_at_destination_and_class_alone_so_does_a_question() {
    const V4: [&[usize]; 2] = [&[26, 29, 34, 37], &[15, 30, DESTINATION_LAST]];
    const V6: [&[usize]; 2] = [&[16, 17, 22, 37, 54, 57], &[14, 38, 45, 46, 53]];
    for (frame, protocol_at, [same, other]) in [(v4(), 23, V4), (v6(), 20, V6)] {
        let changed = |at: usize| {
            let mut frame = frame.clone();
            frame[at] ^= 2;
            question(&frame, MatchedBits::DESTINATION)
        };
        for &at in same {
            assert_eq!(
                changed(at),
                question(&frame, MatchedBits::DESTINATION),
                "byte {at}"
            );
        }
        for &at in other {
            assert_ne!(
                changed(at),
                question(&frame, MatchedBits::DESTINATION),
                "byte {at}"
            );
        }
        // Rules may look at the protocol.
        let mut datagram = frame.clone();
        datagram[protocol_at] = 17;
        assert_ne!(
            question(&datagram, MatchedBits::DESTINATION),
            question(&frame, MatchedBits::DESTINATION)
        );
    }
}

#[test]
fn record_is_believed_in_its_generation_and_its_lifetime_and_for_what_fits() {
    let (record, question) = (record(&v4()), question(&v4(), MatchedBits::EVERYTHING));
    let (fits, mut longer) = (v4(), v4());
    longer.push(0);
    longer[17] += 1;
    let answers = |frame: &[u8], generation, now_ns| {
        let trust = NextHopTrust {
            generation: Generation::new(generation),
            ..trust()
        };
        record.answers((&question, &asked(frame, DEVICE)), &trust, now_ns)
    };
    assert!(answers(&fits, 9, NOW_NS));
    assert!(answers(&fits, 9, NOW_NS + NextHop::LIFETIME_NS - 1));
    assert!(!answers(&longer, 9, NOW_NS));
    assert!(!answers(&fits, 8, NOW_NS));
    assert!(!answers(&fits, 9, NOW_NS + NextHop::LIFETIME_NS));
    // Of a clock that was set again when the program was replaced.
    assert!(!answers(&fits, 9, NOW_NS - 1));
    // What was never written.
    let (nothing, zero) = (NextHop::default(), Question::default());
    let lookup = asked(&fits, DEVICE);
    assert!(!nothing.answers((&question, &lookup), &trust(), NOW_NS));
    assert!(!nothing.answers((&zero, &FibLookup::default()), &trust(), NOW_NS));
}

/// The trust of an agent that has heard at that time of all that had changed.
fn heard(at_ns: u64) -> NextHopTrust {
    NextHopTrust {
        until_ns: at_ns + NextHopTrust::PERIOD_NS,
        ..trust()
    }
}

#[test]
fn record_that_serves_many_is_believed_when_the_agent_has_heard_of_all_before() {
    // A period of a control group's quota, and some ticks.
    const ANNOUNCED_NS: u64 = 150_000_000;
    let frame = v4();
    let answer = asked(&frame, DEVICE).with_link([1; 6], [7; 6]);
    for matched in [MatchedBits::DESTINATION, MatchedBits::EVERYTHING] {
        let question = question(&frame, matched);
        let lookup = asked(&frame, DEVICE);
        let noted = |before: &NextHop, answer: &FibLookup, slot, trust: &NextHopTrust, now_ns| {
            before.followed_by((question, &lookup), (answer, slot), trust, now_ns)
        };
        let first = noted(&NextHop::default(), &answer, 3, &heard(NOW_NS), NOW_NS);
        let answers = |record: &NextHop, trust: &NextHopTrust| {
            record.answers((&question, &lookup), trust, NOW_NS + ANNOUNCED_NS)
        };
        let at_once = matched.is_everything();
        assert_eq!(answers(&first, &heard(NOW_NS)), at_once);
        let almost = heard(NOW_NS + ANNOUNCED_NS - 1);
        assert_eq!(answers(&first, &almost), at_once);
        assert_eq!(first.is_believed(&almost), at_once);
        let later = heard(NOW_NS + ANNOUNCED_NS);
        assert!(answers(&first, &later) && first.is_believed(&later));

        let again = |answer: &FibLookup, slot, trust: &NextHopTrust| {
            noted(&first, answer, slot, trust, NOW_NS + ANNOUNCED_NS)
        };
        assert!(answers(&again(&answer, 3, &later), &later));
        let other_hop = answer.with_link([1; 6], [8; 6]);
        assert_eq!(answers(&again(&other_hop, 3, &later), &later), at_once);
        assert_eq!(answers(&again(&answer, 4, &later), &later), at_once);
        // What has a larger packet is not what it was, as far as anybody knows.
        let mut longer = frame.clone();
        longer.push(0);
        longer[17] += 1;
        let larger = asked(&longer, DEVICE).with_link([1; 6], [7; 6]);
        assert_eq!(answers(&again(&larger, 3, &later), &later), at_once);
        let next = NextHopTrust {
            generation: Generation::new(10),
            ..later
        };
        assert_eq!(answers(&again(&answer, 3, &next), &next), at_once);
    }
}

#[test]
fn record_of_one_flow_takes_no_place_of_one_that_will_serve_many() {
    let frame = v4();
    let (lookup, many) = (
        asked(&frame, DEVICE),
        question(&frame, MatchedBits::DESTINATION),
    );
    let one = Question::of_one_flow(&lookup, TunnelRole::Short, OWN);
    assert_eq!(one, question(&frame, MatchedBits::EVERYTHING));
    let noted = |question| {
        NextHop::default().followed_by((question, &lookup), (&lookup, 3), &trust(), NOW_NS)
    };
    let end_ns = NOW_NS + NextHop::LIFETIME_NS;
    assert!(noted(one).yields_to_one_flow(&trust(), NOW_NS));
    assert!(!noted(many).yields_to_one_flow(&trust(), NOW_NS));
    assert!(!noted(many).yields_to_one_flow(&trust(), end_ns - 1));
    assert!(noted(many).yields_to_one_flow(&trust(), end_ns));
    let next = NextHopTrust {
        generation: Generation::new(10),
        ..trust()
    };
    assert!(noted(many).yields_to_one_flow(&next, NOW_NS));
    assert!(NextHop::default().yields_to_one_flow(&trust(), NOW_NS));
}

#[test]
fn nobody_vouches_without_an_agent() {
    assert!(trust().is_given(NOW_NS));
    assert!(!trust().is_given(NOW_NS + 1));
    assert!(!NextHopTrust::default().is_given(0));
}

#[test]
fn record_makes_of_a_frame_what_the_answer_would() {
    for frame in [v4(), v6()] {
        let answer = asked(&frame, DEVICE).with_link([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]);
        let question = question(&frame, MatchedBits::DESTINATION);
        let asked = asked(&frame, DEVICE);
        let record =
            NextHop::default().followed_by((question, &asked), (&answer, 3), &trust(), NOW_NS);
        let (mut by_record, mut by_answer) = (frame.clone(), frame.clone());
        record.forward(by_record.as_mut_slice()).expect("fits");
        answer.forward(by_answer.as_mut_slice()).expect("fits");
        assert_eq!(by_record, by_answer);
        let mut by_tunnel = frame.clone();
        let hop = TunnelHop {
            link: answer.link_addresses(),
            ..TunnelHop::default()
        };
        hop.forward(by_tunnel.as_mut_slice()).expect("fits");
        assert_eq!(by_tunnel, by_answer);
        assert_eq!(by_record[..12], [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6]);
        assert_eq!(record.slot(), 3);
        let name = neighbour(answer.next_hop(), record.slot());
        assert_eq!(name.to_le_bytes(), [7, 8, 9, 10, 11, 12, 3, 0]);
    }
}

#[test]
fn hash_of_a_flow_is_of_all_that_tells_flows_apart_and_of_the_seed() {
    // Addresses and ports; and class, flow label and hops to go, which one flow may change.
    for (frame, places, beside) in [
        (v4(), [26, 29, 30, 33, 34, 37], [15, 22, 22]),
        (v6(), [22, 37, 38, 53, 54, 57], [15, 17, 21]),
    ] {
        let hash = |frame: &[u8], seed| asked(frame, DEVICE).flow_hash(seed);
        let changed = |at: usize| {
            let mut frame = frame.clone();
            frame[at] ^= 2;
            hash(&frame, 1)
        };
        let own = hash(&frame, 1);
        assert_ne!(hash(&frame, 2), own);
        assert!(places.into_iter().all(|at| changed(at) != own));
        assert!(beside.into_iter().all(|at| changed(at) == own));
    }
}

#[test]
fn questions_of_neighbouring_destinations_have_records_of_their_own() {
    let mut taken = std::collections::BTreeSet::new();
    for last in 0..=255 {
        let mut frame = v4();
        frame[DESTINATION_LAST] = last;
        let index = question(&frame, MatchedBits::DESTINATION).index(&asked(&frame, DEVICE));
        assert!(index < Question::RECORDS);
        taken.insert(index);
    }
    // Of 256 draws out of 1,024 some 226 differ, give or take 5.
    assert!(taken.len() > 200, "{}", taken.len());
}
