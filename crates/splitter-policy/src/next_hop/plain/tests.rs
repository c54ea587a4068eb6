//! Records alone against the lookup that they stand for.

use super::*;
use crate::forward::FibLookup;
use crate::next_hop::Generation;
use crate::prefix_lengths::{PrefixLengthsBuilder, Reach};
use core::cell::Cell;
use proptest::prelude::*;
use std::boxed::Box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

const DEVICE: u32 = 7;
const SLOT: u16 = 3;
const NOW_NS: u64 = 10_000_000_000;
const LINK: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]];

/// One CPU's records, with what became of them.
struct Records {
    lengths: PrefixLengths,
    records: Vec<NextHop>,
    trust: NextHopTrust,
    now_ns: u64,
    has_device: bool,
    redirected: Cell<Option<u32>>,
}

impl NextHops for Records {
    fn prefix_lengths(&self) -> &PrefixLengths {
        &self.lengths
    }

    fn trust(&self) -> NextHopTrust {
        self.trust
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn record(&self, index: u32) -> Option<&NextHop> {
        self.records.get(index as usize)
    }

    fn redirect(&self, slot: u32) -> Option<()> {
        self.redirected.set(self.has_device.then_some(slot));
        self.redirected.get().map(|_| ())
    }
}

/// Who only looks for the paths of segments, and what was noted of the last.
struct Looking<'a> {
    records: &'a Records,
    noted: Cell<Option<(u32, IpStart)>>,
}

const SEED: u64 = 7;

impl NextHops for Looking<'_> {
    const FORWARDS: bool = false;

    fn prefix_lengths(&self) -> &PrefixLengths {
        self.records.prefix_lengths()
    }

    fn trust(&self) -> NextHopTrust {
        self.records.trust()
    }

    fn now_ns(&self) -> u64 {
        self.records.now_ns()
    }

    fn record(&self, index: u32) -> Option<&NextHop> {
        self.records.record(index)
    }

    fn redirect(&self, slot: u32) -> Option<()> {
        self.records.redirect(slot)
    }

    fn note<K: RoutingKey>(&self, key: &K, ip: &IpStart) {
        self.noted.set(Some((key.flow_hash(SEED), *ip)));
    }
}

impl Records {
    /// Without any record, and routes of which those to documentation's prefixes are of a kind.
    fn new(reach: Reach) -> Self {
        let mut lengths = PrefixLengthsBuilder::new();
        lengths.add(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0, Reach::Prefix);
        lengths.add(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0, Reach::Prefix);
        lengths.add([10, 2, 0, 0].into(), 16, reach);
        lengths.add([0x3030, 0, 0, 0, 0, 0, 0, 0].into(), 16, reach);
        Self {
            lengths: lengths.build(),
            records: std::vec![NextHop::default(); Question::RECORDS as usize],
            trust: NextHopTrust {
                generation: Generation::new(9),
                until_ns: NOW_NS + 2 * NextHopTrust::PERIOD_NS,
            },
            now_ns: NOW_NS,
            has_device: true,
            redirected: Cell::new(None),
        }
    }

    /// The question of a frame, as it is put to the kernel.
    fn asked(&self, frame: &[u8], tunnel: TunnelRole) -> Option<(FibLookup, Question)> {
        let mut asked = FibLookup::default();
        asked.fill(frame, DEVICE).ok()?;
        let matched = asked.matched_bits(&self.lengths);
        let to = Mac::destination(frame)?;
        let question = Question::new(&asked, tunnel, to, matched);
        Some((asked, question))
    }

    /// Keeps what the kernel answers to a frame.
    fn answer(&mut self, frame: &[u8], tunnel: TunnelRole) {
        if let Some((asked, question)) = self.asked(frame, tunnel) {
            let record = &mut self.records[question.index(&asked) as usize];
            let answer = asked.with_link(LINK[0], LINK[1]);
            *record = record.followed_by(
                (question, &asked),
                (&answer, SLOT),
                &self.trust,
                self.now_ns,
            );
        }
    }

    /// What the lookup and the record that answers it make of a frame.
    fn by_lookup(&self, frame: &mut [u8], tunnel: TunnelRole) -> Option<(u32, IpStart)> {
        let (asked, question) = self.asked(frame, tunnel)?;
        let record = &self.records[question.index(&asked) as usize];
        let is_answer = self.trust.is_given(self.now_ns)
            && record.answers((&question, &asked), &self.trust, self.now_ns);
        if !is_answer || !self.has_device {
            return None;
        }
        record.forward(frame)?;
        Some((record.slot(), asked.ip_start()))
    }
}

/// A segment of TCP without options, with a payload.
fn segment(is_v6: bool, source: u8, destination: u8, checksum: u16) -> Vec<u8> {
    let mut frame = std::vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60 | destination & 1, 0x20, 0, 9, 0, 24, 6, 64]);
        frame.extend([0x20; 15]);
        frame.push(source);
        frame.extend([0x30; 15]);
        frame.push(destination);
    } else {
        frame.extend([8, 0, 0x45, 0x10, 0, 44, 0, 9, 0x40, 0, 64, 6, 0xfe, 0xff]);
        frame.extend([10, 1, 0, source, 10, 2, 0, destination]);
    }
    frame.extend([0x12, source, 0x56, 0x78]);
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0]);
    frame.extend(checksum.to_be_bytes());
    frame.extend([0, 0, 1, 2, 3, 4]);
    frame
}

/// How a frame is changed before it comes.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    Byte(usize, u8),
    Cut(usize),
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Nothing),
        (0usize..78, any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (0usize..78).prop_map(Change::Cut),
    ]
}

fn apply(frame: &mut Vec<u8>, change: &Change) {
    match *change {
        Change::Nothing => {}
        Change::Byte(at, byte) => {
            if let Some(it) = frame.get_mut(at) {
                *it = byte;
            }
        }
        Change::Cut(length) => frame.truncate(length),
    }
}

fn reach() -> impl Strategy<Value = Reach> {
    prop_oneof![
        Just(Reach::Prefix),
        Just(Reach::Destination),
        Just(Reach::Flow)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    /// Whatever comes, it does what the lookup and its record do, or nothing.
    #[test]
    fn plain_segments_are_forwarded_as_their_lookup_says(
        is_v6: bool,
        reach in reach(),
        (source, destination) in (0u8..3, 0u8..3),
        checksum: u16,
        change in changes(),
        is_of_the_change: bool,
        age_ns in prop_oneof![Just(0), Just(NextHop::LIFETIME_NS - 1), Just(NextHop::LIFETIME_NS)],
        generation in 8u64..10,
        has_device: bool,
    ) {
        let mut records = Box::new(Records::new(reach));
        let known = segment(is_v6, 1, 1, checksum);
        let mut came = segment(is_v6, source, destination, checksum);
        apply(&mut came, &change);
        records.answer(if is_of_the_change { &came } else { &known }, TunnelRole::Long);
        records.now_ns += age_ns;
        records.trust.generation = Generation::new(generation);
        records.has_device = has_device;
        for tunnel in TunnelRole::ALL {
            let (mut by_lookup, mut by_record) = (came.clone(), came.clone());
            let expected = records.by_lookup(&mut by_lookup, tunnel);
            let done = forward_plain(&mut by_record[..], DEVICE, tunnel, &*records);
            match done {
                None => prop_assert_eq!(&by_record, &came),
                Some(_) => {
                    prop_assert_eq!(done, expected);
                    prop_assert_eq!(by_record, by_lookup);
                    prop_assert_eq!(records.redirected.get(), Some(SLOT.into()));
                    let (noted, left) = (Cell::new(None), &mut came.clone()[..]);
                    let looking = Looking { records: &records, noted };
                    prop_assert_eq!(forward_plain(left, DEVICE, tunnel, &looking), done);
                    prop_assert_eq!(&*left, &came[..]);
                    let asked = records.asked(&came, tunnel).map(|(asked, _)| asked);
                    let noted = asked.map(|it| (it.flow_hash(SEED), it.ip_start()));
                    prop_assert_eq!(looking.noted.get(), noted);
                }
            }
        }
    }
}

#[test]
fn known_segment_is_forwarded_whatever_routing_looks_at() {
    for (is_v6, reach) in [false, true].into_iter().flat_map(|is_v6| {
        [Reach::Prefix, Reach::Destination, Reach::Flow].map(|reach| (is_v6, reach))
    }) {
        let mut records = Records::new(reach);
        let known = segment(is_v6, 1, 1, 0x1234);
        records.answer(&known, TunnelRole::Short);
        let mut leaves = known.clone();
        let done = forward_plain(&mut leaves[..], DEVICE, TunnelRole::Short, &records);
        assert_eq!(
            done.map(|(slot, _)| slot),
            Some(SLOT.into()),
            "{is_v6} {reach:?}"
        );
        assert_eq!((&leaves[..6], &leaves[6..12]), (&LINK[1][..], &LINK[0][..]));
        // A record is believed as long as somebody vouches.
        records.trust.until_ns = NOW_NS;
        let done = forward_plain(&mut known.clone()[..], DEVICE, TunnelRole::Short, &records);
        assert_eq!(done, None);
    }
}

/// A change of a segment, and whether it is of IPv6.
type Changed = (&'static str, bool, fn(&mut Vec<u8>));

#[test]
fn what_a_lookup_leaves_to_the_stack_no_record_forwards() {
    let changes: &[Changed] = &[
        ("TTL of 1", false, |it| it[22] = 1),
        ("TTL of 0", false, |it| it[22] = 0),
        ("hop limit of 1", true, |it| it[21] = 1),
        ("SYN", false, |it| it[47] |= 2),
        ("SYN", true, |it| it[67] |= 2),
        ("source of this network", false, |it| it[26] = 0),
        ("source of loopback", false, |it| it[26] = 127),
        ("source of multicast", false, |it| it[26] = 224),
        ("source of multicast", true, |it| it[22] = 0xff),
        ("link-local source", true, |it| {
            it[22..24].copy_from_slice(&[0xfe, 0x80]);
        }),
        ("loopback as source", true, |it| {
            it[22..38].fill(0);
            it[37] = 1;
        }),
        ("fragment", false, |it| it[20] = 0x20),
        ("options", false, |it| it[14] = 0x46),
        ("datagram", false, |it| it[23] = protocol::UDP),
        ("extension", true, |it| it[20] = 0),
        ("tag", false, |it| it[12] = 0x81),
        ("more than there is", false, |it| it[17] += 1),
        ("another station's", false, |it| it[0] = 4),
        ("another station's", true, |it| it[5] = 4),
        ("another destination", false, |it| it[33] = 2),
        ("another destination", true, |it| it[53] = 2),
        ("another class", false, |it| it[15] = 8),
        ("another class", true, |it| it[14] = 0x62),
        ("too large for the path", false, |it| {
            it[17] += 1;
            it.push(0);
        }),
        ("too large for the path", true, |it| {
            it[19] += 1;
            it.push(0);
        }),
    ];
    for (what, is_v6, change) in changes {
        let mut records = Records::new(Reach::Destination);
        let known = segment(*is_v6, 1, 1, 0x1234);
        records.answer(&known, TunnelRole::Long);
        let mut changed = known.clone();
        change(&mut changed);
        let before = changed.clone();
        let forward = |frame: &mut Vec<u8>, device, tunnel| {
            forward_plain(&mut frame[..], device, tunnel, &records)
        };
        let done = forward(&mut changed, DEVICE, TunnelRole::Long);
        assert_eq!((done, &changed), (None, &before), "{what}");
        assert_eq!(
            forward(&mut known.clone(), DEVICE + 1, TunnelRole::Long),
            None
        );
        assert_eq!(forward(&mut known.clone(), DEVICE, TunnelRole::Short), None);
        assert!(forward(&mut known.clone(), DEVICE, TunnelRole::Long).is_some());
    }
}

#[test]
fn checksum_that_is_left_to_the_device_is_seen_whatever_it_is() {
    // All sums that there are, by the last two bytes of the source.
    for (is_v6, addresses, at) in [(false, 26..34, 50), (true, 22..54, 70)] {
        let mut records = Records::new(Reach::Prefix);
        let mut frame = segment(is_v6, 1, 1, 0);
        records.answer(&frame, TunnelRole::Short);
        let source_end = if is_v6 { 38 } else { 30 };
        for last in 0..=u16::MAX {
            frame[source_end - 2..source_end].copy_from_slice(&last.to_be_bytes());
            let pseudo: u32 = frame[addresses.clone()]
                .chunks(2)
                .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
                .sum::<u32>()
                + 6
                + 24;
            let pseudo = (pseudo & 0xffff) + (pseudo >> 16);
            let pseudo = ((pseudo & 0xffff) + (pseudo >> 16)) as u16;
            frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            let done = forward_plain(&mut frame.clone()[..], DEVICE, TunnelRole::Short, &records);
            assert_eq!(done, None, "{last:#x}");
        }
        frame[at + 1] ^= 1;
        let done = forward_plain(&mut frame.clone()[..], DEVICE, TunnelRole::Short, &records);
        assert!(done.is_some(), "{is_v6}");
    }
}
