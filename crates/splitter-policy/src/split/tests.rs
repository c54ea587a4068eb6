use super::*;
use crate::flow::Seeds;
use crate::models::HostQueues;
use crate::table::tests::Groups;
use crate::table::{GROUP_SLOTS, Layout};
use crate::thresholds::{ThresholdIndex, Thresholds};
use etherparse::PacketBuilder;
use proptest::prelude::*;
use std::vec::Vec;

pub(super) struct FixedClock(pub(super) u64);

impl Clock for FixedClock {
    fn coarse_ns(&self) -> u64 {
        self.0
    }

    fn precise_ns(&self) -> u64 {
        self.0
    }
}

/// Any will do here.
const SEEDS: Seeds = [3, 5, 7, 11, 13, 17, 19, 23, 29, 31];

struct Border {
    config: PolicyConfig,
    layout: Layout,
    groups: Groups,
    models: HostQueues,
    counters: Counters,
    now_ns: u64,
}

impl Border {
    fn new() -> Self {
        // One group.
        let layout = Layout::for_flows(4, SEEDS);
        Self {
            config: PolicyConfig {
                drain_margin_ns: 0,
                ..PolicyConfig::default()
            },
            layout,
            groups: Groups::new(&layout),
            models: HostQueues {
                slack_ns: 4_000_000,
                ..HostQueues::default()
            },
            counters: Counters::ZERO,
            now_ns: 1_000_000_000,
        }
    }

    fn split(&mut self, frame: &mut [u8]) -> Outcome {
        self.now_ns += 1_000;
        let mut splitter = Splitter {
            config: &self.config,
            table: Table {
                memory: &self.groups,
                layout: &self.layout,
            },
            clock: FixedClock(self.now_ns),
            models: &mut self.models,
            counters: &mut self.counters,
        };
        splitter.split(frame)
    }
}

fn tcp_frame(tos: u8, port: u16) -> Vec<u8> {
    let mut header = etherparse::Ipv4Header::new(
        40,
        64,
        etherparse::IpNumber::TCP,
        [10, 0, 0, 1],
        [10, 0, 1, 1],
    )
    .expect("fits");
    header.dscp = etherparse::IpDscp::try_new(tos >> 2).expect("six bits");
    header.ecn = etherparse::IpEcn::try_new(tos & 3).expect("two bits");
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(etherparse::IpHeaders::Ipv4(
            header,
            etherparse::Ipv4Extensions::default(),
        ))
        .tcp(port, 80, 1, 1_000);
    let mut frame = Vec::new();
    builder
        .write(&mut frame, &[0; 20])
        .expect("writes to memory");
    frame
}

fn udp_frame(tos: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 1, 1], 64)
        .udp(9, 9);
    builder
        .write(&mut frame, &[0; 8])
        .expect("writes to memory");
    frame[15] = tos;
    frame
}

#[test]
fn a_flood_passes_the_table_by_and_what_goes_on_gets_in() {
    let mut border = Border::new();
    border.layout.seeds = SEEDS.map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let start = border.now_ns;
    let at_one_time = |border: &mut Border, port| {
        border.now_ns = start;
        border.split(&mut tcp_frame(0, port))
    };
    let short = Outcome::Split {
        class: Class::Short,
        tunnel: TunnelRole::Short,
    };
    for _ in 0..30 {
        assert_eq!(at_one_time(&mut border, 1), short);
    }
    let evicted = |border: &Border| border.counters.events(FlowEvent::Evicted);
    let mut port = 1_000;
    while !border.counters.evicting.is_spent(start + 1_000) {
        port += 1;
        assert_eq!(at_one_time(&mut border, port), short);
    }
    let (before, started) = (evicted(&border), border.counters.events(FlowEvent::Started));
    for port in 10_000..10_800 {
        assert_eq!(at_one_time(&mut border, port), short);
    }
    // One in eight, and those that find a tag by chance.
    let admitted = border.counters.events(FlowEvent::Started) - started;
    assert!((100..160).contains(&admitted), "{admitted}");
    assert_eq!(evicted(&border) - before, admitted);
    let passed_by = border.counters.packets(Class::Short, TunnelRole::Short);
    assert_eq!(border.counters.passed(PassReason::TableFull), 0);

    // The one that was there still counts every packet.
    for _ in 30..40 {
        assert_eq!(at_one_time(&mut border, 1), short);
    }
    assert!(matches!(
        at_one_time(&mut border, 1),
        Outcome::Split {
            class: Class::Long,
            ..
        }
    ));
    assert_eq!(
        border.counters.packets(Class::Short, TunnelRole::Short) - passed_by,
        10
    );
    // Of one that goes on, 8 packets at most are missed.
    let turned_long = (0..60).position(|_| at_one_time(&mut border, 2) != short);
    assert!((40..=48).contains(&turned_long.expect("it is known by now")));
    // The next tick begins anew.
    border.now_ns += 10_000_000;
    let started = border.counters.events(FlowEvent::Started);
    border.split(&mut tcp_frame(0, 20_000));
    assert_eq!(border.counters.events(FlowEvent::Started), started + 1);
}

#[test]
fn a_shadow_counts_the_same_and_changes_nothing() {
    let frames = || {
        let mut frames: Vec<_> = (0..60).map(|_| tcp_frame(0xb8, 5_000)).collect();
        // One that comes with the mark of long flows.
        frames.push(udp_frame(PolicyConfig::DEFAULT_LONG_MARK.value() << 2));
        frames
    };
    let (mut splits, mut shadow) = (Border::new(), Border::new());
    shadow.config.marking = crate::config::Marking::SHADOW;
    for (mut split, mut seen) in frames().into_iter().zip(frames()) {
        let before = seen.clone();
        assert_eq!(splits.split(&mut split), shadow.split(&mut seen));
        assert_eq!(seen, before);
        assert_ne!(split, before);
    }
    assert!(shadow.counters.packets(Class::Long, TunnelRole::Long) > 0);
    // Where nothing is routed by marks, none is forged.
    assert_eq!(core::mem::take(&mut splits.counters.marks_overridden), 1);
    assert_eq!(shadow.counters, splits.counters);
}

#[test]
fn short_then_long_is_marked_and_counted_by_class_and_tunnel() {
    let mut border = Border::new();
    for index in 0..50 {
        let mut frame = tcp_frame(0b1011_1010, 1_000);
        let outcome = border.split(&mut frame);
        let (class, tunnel, mark) = if index < 40 {
            (Class::Short, TunnelRole::Short, 4)
        } else {
            (Class::Long, TunnelRole::Long, 2)
        };
        assert_eq!(outcome, Outcome::Split { class, tunnel });
        assert_eq!(
            frame[15],
            (mark << 2) | 0b10,
            "the host's mark is overridden, ECN stays"
        );
    }
    assert_eq!(border.counters.packets(Class::Short, TunnelRole::Short), 40);
    assert_eq!(border.counters.packets(Class::Long, TunnelRole::Long), 10);
    assert_eq!(
        border.counters.bytes(Class::Long, TunnelRole::Long),
        10 * 74
    );
    assert_eq!(border.counters.events(FlowEvent::Started), 1);
    assert_eq!(border.counters.events(FlowEvent::BecameLong), 1);
    assert_eq!(border.counters.events(FlowEvent::HandedOverDrained), 1);
}

#[test]
fn a_full_table_lets_packets_pass_as_short() {
    let mut border = Border::new();
    for port in 0..GROUP_SLOTS as u16 {
        for _ in 0..4 {
            border.split(&mut tcp_frame(0, port));
        }
    }
    let mut frame = tcp_frame(0x08, 99);
    assert_eq!(
        border.split(&mut frame),
        Outcome::Passed(PassReason::TableFull)
    );
    assert_eq!(frame[15], 0x10, "a forged long mark does not survive");
    assert_eq!(border.counters.passed(PassReason::TableFull), 1);
    assert_eq!(border.counters.events(FlowEvent::Evicted), 0);
    // Flows that are in the table are served as before.
    assert!(matches!(
        border.split(&mut tcp_frame(0, 3)),
        Outcome::Split { .. }
    ));
}

#[test]
fn what_is_not_split_passes_unchanged_but_for_a_forged_long_mark() {
    let mut border = Border::new();
    for tos in [0x00, 0x10, 0xb8, 0x28] {
        let mut frame = udp_frame(tos);
        let before = frame.clone();
        assert_eq!(border.split(&mut frame), Outcome::Passed(PassReason::Udp));
        assert_eq!(frame, before, "ToS {tos:#x}");
    }
    let mut forged = udp_frame(0x08);
    border.split(&mut forged);
    assert_eq!((forged[15], border.counters.marks_overridden), (0x10, 1));

    // A legacy rule sees three bits: 0x28 would be routed long as well.
    border.config.match_mask = Dscp::LEGACY_BITS;
    let mut masked = udp_frame(0x28);
    border.split(&mut masked);
    assert_eq!((masked[15], border.counters.marks_overridden), (0x10, 2));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_change_only_the_mark(mut frame in proptest::collection::vec(any::<u8>(), 0..200), ipv6: bool) {
        if frame.len() > 14 {
            frame[12..14].copy_from_slice(if ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
            frame[14] = if ipv6 { 0x60 } else { 0x45 } | (frame[14] & 0x0f & if ipv6 { 0x0f } else { 0 });
        }
        let before = frame.clone();
        Border::new().split(&mut frame);
        let changed: Vec<_> = (0..frame.len()).filter(|&at| frame[at] != before[at]).collect();
        // Two bytes of IPv6; ToS and checksum of IPv4.
        prop_assert!(changed.iter().all(|at| [14, 15, 24, 25].contains(at)), "{changed:?}");
    }
}

/// A clock of which the coarse reading lags behind, as a kernel's does.
struct TickingClock(u64);

impl Clock for TickingClock {
    fn coarse_ns(&self) -> u64 {
        self.0 / 4_000_000 * 4_000_000
    }

    fn precise_ns(&self) -> u64 {
        self.0
    }
}

impl Border {
    fn splitter(&mut self) -> Splitter<'_, Groups, TickingClock, &mut HostQueues> {
        Splitter {
            config: &self.config,
            table: Table {
                memory: &self.groups,
                layout: &self.layout,
            },
            clock: TickingClock(self.now_ns),
            models: &mut self.models,
            counters: &mut self.counters,
        }
    }

    /// Without the short cut.
    fn split_whole(&mut self, frame: &mut [u8]) -> Outcome {
        let mut splitter = self.splitter();
        let headers = Headers::read(frame, splitter.config, &splitter.fragments());
        let decision = headers
            .segment
            .and_then(|segment| splitter.decide_flow(&segment));
        splitter.finish(frame, headers.mark, decision)
    }

    fn flows(&self) -> Vec<(crate::flow::FlowKey, FlowEntry)> {
        let groups = (0..self.layout.groups_v4).filter_map(|group| self.groups.group_v4(group));
        let slots = groups.flat_map(|group| {
            (0..GROUP_SLOTS).filter_map(move |index| group.read(index, self.now_ns))
        });
        slots.map(|found| (found.key, found.entry)).collect()
    }
}

/// A port, TCP flags, payload, and how long after the packet before.
type Arrival = (u16, u8, usize, u64);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    const ACK: u8 = 0x10;
    let flags = prop_oneof![
        12 => Just(ACK),
        2 => Just(crate::packet::TcpFlags::SYN),
        1 => Just(crate::packet::TcpFlags::FIN | ACK),
    ];
    let bytes = prop_oneof![Just(0), Just(20), Just(1_400)];
    let gap_ns = prop_oneof![
        20 => 0u64..300_000,
        4 => 0u64..30_000_000,
        1 => 0u64..40_000_000_000,
    ];
    // More flows than one group has slots, of which some turn long.
    proptest::collection::vec((0u16..14, flags, bytes, gap_ns), 1..300)
}

std::thread_local! {
    static LOOK_UPS: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// A border with thresholds of 6, 12 and 3 packets, where source ports below 2 stand for the two sites
/// with one of their own.
fn border_of_sites() -> Border {
    let mut border = Border::new();
    border.config.thresholds = Thresholds::uniform(6)
        .followed_by(6, [12, 3])
        .expect("they fit");
    border.groups.threshold_of = |key| {
        LOOK_UPS.with(|it| it.set(it.get() + 1));
        let at = Thresholds::uniform(6)
            .followed_by(6, [12, 3])
            .expect("they fit");
        match key.ports().0 {
            0 => at.index_of(12),
            1 => at.index_of(3),
            _ => ThresholdIndex::UNKNOWN,
        }
    };
    border
}

/// The number of the first packet of a flow that is long.
fn first_long(border: &mut Border, port: u16) -> Option<usize> {
    let mut classes = (1..=20).map(|number| (number, border.split(&mut tcp_frame(0, port))));
    let is_long = |outcome: &Outcome| {
        matches!(
            outcome,
            Outcome::Split {
                class: Class::Long,
                ..
            }
        )
    };
    Some(classes.find(|(_, outcome)| is_long(outcome))?.0)
}

#[test]
fn flow_is_long_by_the_threshold_of_its_site() {
    let mut border = border_of_sites();
    for (port, expected) in [(0, 13), (1, 4), (2, 7)] {
        LOOK_UPS.set(0);
        assert_eq!(first_long(&mut border, port), Some(expected), "port {port}");
        // Beyond the lowest threshold, and beyond its own.
        assert!((1..=2).contains(&LOOK_UPS.get()), "{}", LOOK_UPS.get());
    }
}

#[test]
fn flow_below_the_lowest_threshold_is_not_looked_up() {
    let mut border = border_of_sites();
    LOOK_UPS.set(0);
    for port in 0..8 {
        for _ in 0..3 {
            border.split(&mut tcp_frame(0, port));
        }
    }
    assert_eq!(LOOK_UPS.get(), 0);
}

#[test]
fn other_thresholds_hold_for_flows_that_have_been_looked_up() {
    let mut border = border_of_sites();
    // Beyond the lowest, and short by that of its site.
    for _ in 0..8 {
        border.split(&mut tcp_frame(0, 0));
    }
    assert_eq!(border.counters.events(FlowEvent::BecameLong), 0);
    border.config.thresholds = border.config.thresholds.followed_by(6, [5]).expect("fits");
    border.groups.threshold_of = |_| {
        let before = border_of_sites().config.thresholds;
        before.followed_by(6, [5]).expect("fits").index_of(5)
    };
    border.split(&mut tcp_frame(0, 0));
    assert_eq!(border.counters.events(FlowEvent::BecameLong), 1);
}

/// One threshold, or three with one of the sites' above it and one below.
fn thresholds(are_several: bool, common: u64) -> Thresholds {
    let uniform = Thresholds::uniform(common);
    match are_several {
        true => uniform
            .followed_by(common, [2 * common, common / 2])
            .expect("they fit"),
        false => uniform,
    }
}

proptest! {
    /// The short cut says, writes, counts and keeps what the whole path does.
    #[test]
    fn the_short_cut_leads_to_the_same(
        arrivals in arrivals(),
        (short_rate, long_rate) in (0u64..2, 0u64..2),
        is_shared: bool,
        in_bytes: bool,
        are_several: bool,
        seeds: Seeds,
    ) {
        use crate::config::{TunnelUse, Unit};
        use flow_balance::ServiceTime;
        let config = PolicyConfig {
            thresholds: thresholds(are_several, if in_bytes { 5_000 } else { 6 }),
            unit: if in_bytes { Unit::BYTES } else { Unit::PACKETS },
            short_service: ServiceTime::from_bits_per_second(short_rate * 100_000_000),
            long_service: ServiceTime::from_bits_per_second(long_rate * 100_000_000),
            tunnel_use: if is_shared { TunnelUse::SHARED } else { TunnelUse::DEDICATED },
            ..PolicyConfig::default()
        };
        let [mut short, mut whole] = [(); 2].map(|()| {
            let mut border = Border::new();
            border.config = config;
            border.layout.seeds = seeds;
            border.groups.threshold_of = |key| ThresholdIndex::numbered((key.ports().0 % 3).into());
            border
        });
        for (port, flags, payload_bytes, gap_ns) in arrivals {
            let mut frame = tcp_frame(0, port);
            frame[47] = flags;
            let total = u16::try_from(40 + payload_bytes).expect("fits");
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame.resize(54 + payload_bytes, 0);
            let mut other = frame.clone();
            short.now_ns += gap_ns;
            whole.now_ns += gap_ns;
            let outcome = short.splitter().split(frame.as_mut_slice());
            prop_assert_eq!(outcome, whole.split_whole(&mut other));
            prop_assert_eq!(frame, other);
            prop_assert_eq!(&short.counters, &whole.counters);
            prop_assert_eq!(&short.models, &whole.models);
            prop_assert_eq!(short.flows(), whole.flows());
        }
    }
}
