mod handed_over;
mod shared;

use super::*;
use crate::config::{Marking, Unit};
use crate::models::HostQueues;
use crate::thresholds::Thresholds;
use flow_balance::ServiceTime;
use proptest::prelude::*;
use std::vec::Vec;

const DATA: TcpFlags = TcpFlags(0x10);
const FULL_FRAME: u64 = 1514;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// One flow in front of one border, driven packet by packet.
struct Bench {
    config: PolicyConfig,
    entry: FlowEntry,
    models: HostQueues,
}

impl Bench {
    fn new(config: PolicyConfig) -> Self {
        Self {
            config,
            entry: FlowEntry::default(),
            models: HostQueues::default(),
        }
    }

    fn packet(&mut self, flags: TcpFlags, now_ns: u64) -> Verdict {
        let packet = FlowPacket {
            segments: 1,
            bytes: FULL_FRAME,
            flags,
            payload_bytes: 1_448,
        };
        classify(
            &mut self.entry,
            packet,
            &self.config,
            &mut self.models,
            now_ns,
        )
    }

    /// Sends `count` packets, `gap_ns` apart, from `start_ns` on.
    fn stream(&mut self, count: u64, start_ns: u64, gap_ns: u64) -> Vec<Verdict> {
        (0..count)
            .map(|index| self.packet(DATA, start_ns + index * gap_ns))
            .collect()
    }
}

/// Moves a flow as soon as it is long.
fn eager() -> PolicyConfig {
    PolicyConfig {
        drain_margin_ns: 0,
        ..PolicyConfig::default()
    }
}

fn with_rates(megabits: u64) -> PolicyConfig {
    let service = ServiceTime::from_bits_per_second(megabits * 1_000_000);
    PolicyConfig {
        drain_margin_ns: 0,
        short_service: service,
        long_service: service,
        ..PolicyConfig::default()
    }
}

#[test]
fn packet_threshold_plus_one_is_the_first_long_one() {
    let verdicts = Bench::new(eager()).stream(60, SECOND, MICROSECOND);
    let first_long = verdicts
        .iter()
        .position(|verdict| verdict.class == Class::Long);
    assert_eq!(first_long, Some(40), "the 41st packet");
    assert!(verdicts[40].became_long);
    assert_eq!(
        verdicts
            .iter()
            .filter(|verdict| verdict.became_long)
            .count(),
        1
    );
}

#[test]
fn bytes_can_be_counted_instead() {
    let config = PolicyConfig {
        thresholds: Thresholds::uniform(10 * FULL_FRAME),
        unit: Unit::BYTES,
        ..eager()
    };
    let verdicts = Bench::new(config).stream(12, SECOND, MICROSECOND);
    assert_eq!(verdicts[9].class, Class::Short);
    assert_eq!(verdicts[10].class, Class::Long);
}

#[test]
fn segments_of_an_aggregate_count_one_each() {
    let config = PolicyConfig {
        segment_bytes: 1_460,
        ..eager()
    };
    let segments = |payload| FlowPacket::new(payload + 54, payload, DATA, &config).segments;
    assert_eq!([0, 1, 1_460, 1_461].map(segments), [1, 1, 1, 2]);
    // With timestamps a segment carries 1,448 bytes; the count stays right.
    assert_eq!(
        [2, 10, 45].map(|count| segments(count * 1_448)),
        [2, 10, 45]
    );

    let mut entry = FlowEntry::default();
    let aggregate = FlowPacket::new(60_000, 59_946, DATA, &config);
    let verdict = classify(
        &mut entry,
        aggregate,
        &config,
        &mut HostQueues::default(),
        SECOND,
    );
    assert_eq!((entry.packets, verdict.class), (42, Class::Long));
}

#[test]
fn an_idle_flow_starts_afresh_on_its_next_packet() {
    let mut bench = Bench::new(eager());
    bench.stream(50, SECOND, MICROSECOND);
    assert_eq!(bench.entry.tunnel(), TunnelRole::Long);
    let last_ns = bench.entry.last_seen_ns;

    let almost = bench.packet(DATA, last_ns + 30 * SECOND - 1);
    assert_eq!((almost.class, almost.start), (Class::Long, None));
    let after = bench.packet(DATA, bench.entry.last_seen_ns + 30 * SECOND);
    assert_eq!(
        (after.class, after.tunnel),
        (Class::Short, TunnelRole::Short)
    );
    assert_eq!(after.start, Some(FlowEvent::RestartedIdle));
    assert_eq!(bench.entry.packets, 1);
}

#[test]
fn a_syn_starts_afresh_only_after_the_end() {
    let mut bench = Bench::new(eager());
    bench.stream(50, SECOND, MICROSECOND);
    let retransmitted = bench.packet(TcpFlags(TcpFlags::SYN), 2 * SECOND);
    assert_eq!(
        (retransmitted.start, retransmitted.class),
        (None, Class::Long)
    );

    for end in [TcpFlags::FIN, TcpFlags::RST] {
        bench.stream(50, 3 * SECOND, MICROSECOND);
        bench.packet(TcpFlags(end), 4 * SECOND);
        let late_ack = bench.packet(DATA, 4 * SECOND + 1);
        assert_eq!(late_ack.start, None);
        let reopened = bench.packet(TcpFlags(TcpFlags::SYN), 5 * SECOND);
        assert_eq!(reopened.start, Some(FlowEvent::RestartedSyn));
        assert_eq!(reopened.class, Class::Short);
    }
}

#[test]
fn completion_is_told_once_from_first_packet_to_first_fin() {
    let mut bench = Bench::new(eager());
    assert_eq!(
        bench.packet(TcpFlags(TcpFlags::SYN), SECOND).completed_ns,
        None
    );
    let end = bench.packet(TcpFlags(TcpFlags::FIN), SECOND + 3 * MILLISECOND);
    assert_eq!(end.completed_ns, Some(3 * MILLISECOND));
    let again = bench.packet(TcpFlags(TcpFlags::FIN), SECOND + 9 * MILLISECOND);
    assert_eq!(again.completed_ns, None);
}

#[test]
fn precise_time_is_asked_for_only_where_it_matters() {
    use Precision::{Coarse, Needed, Preferred};
    let fresh = FlowEntry::default();
    let short = FlowEntry {
        packets: 5,
        ..fresh
    };
    let at_threshold = FlowEntry {
        packets: 40,
        ..fresh
    };
    let draining = FlowEntry {
        packets: 41,
        long_since_ns: 1,
        ..fresh
    };
    let hand_over = FlowEntry {
        flags: FlowEntry::ON_LONG_TUNNEL,
        ..draining
    };
    let over = FlowEntry {
        flags: FlowEntry::FINISHED,
        ..short
    };
    let (syn, fin) = (TcpFlags(TcpFlags::SYN), TcpFlags(TcpFlags::FIN));
    let (blind, rated) = (eager(), with_rates(100));
    let cases = [
        (fresh, FULL_FRAME, DATA, blind, Preferred),
        (fresh, FULL_FRAME, DATA, rated, Needed),
        (fresh, 66, syn, rated, Preferred),
        (short, FULL_FRAME, DATA, blind, Coarse),
        (at_threshold, FULL_FRAME, DATA, blind, Needed),
        (draining, FULL_FRAME, DATA, blind, Needed),
        (hand_over, FULL_FRAME, DATA, blind, Coarse),
        (short, FULL_FRAME, DATA, rated, Needed),
        (short, 66, DATA, rated, Coarse),
        (hand_over, FULL_FRAME, DATA, rated, Coarse),
        (hand_over, 66, fin, rated, Preferred),
        (short, 66, syn, blind, Coarse),
        (over, 66, syn, blind, Preferred),
        (over, 66, fin, blind, Coarse),
    ];
    for (entry, bytes, flags, config, expected) in cases {
        let packet = FlowPacket {
            segments: 1,
            bytes,
            flags,
            payload_bytes: 1_448,
        };
        let found = precision(&entry, packet, &config, ShortTunnel::default());
        assert_eq!(found, expected, "{entry:?} {bytes} {flags:?}");
    }

    // Whether it starts on the long tunnel depends on whether a long flow is there still.
    let packet = FlowPacket {
        segments: 1,
        bytes: 66,
        flags: syn,
        payload_bytes: 0,
    };
    assert_eq!(
        precision(
            &fresh,
            packet,
            &rated,
            ShortTunnel {
                may_have_long: true,
                is_busy: false
            }
        ),
        Needed
    );
    // What joins a queue beyond now leaves when it does whatever the time is.
    let busy = ShortTunnel {
        may_have_long: false,
        is_busy: true,
    };
    let full = FlowPacket {
        bytes: FULL_FRAME,
        flags: DATA,
        payload_bytes: 1_448,
        ..packet
    };
    assert_eq!(precision(&short, full, &rated, busy), Coarse);
    assert_eq!(precision(&at_threshold, full, &rated, busy), Needed);
    assert_eq!(precision(&draining, full, &rated, busy), Needed);
}

#[test]
fn a_rate_of_the_long_tunnel_alone_does_not_replace_the_gap() {
    let service = ServiceTime::from_bits_per_second(100_000_000);
    let mut bench = Bench::new(PolicyConfig {
        long_service: service,
        ..PolicyConfig::default()
    });
    // A backlog in the long tunnel as long as the gap.
    let mut tunnels = bench.models.dedicated().expect("of a host");
    tunnels.send_long(100 * FULL_FRAME, service, SECOND, SECOND);
    let burst = bench.stream(60, SECOND, MICROSECOND);
    assert!(burst.iter().all(|verdict| verdict.hand_over.is_none()));
}

#[test]
fn new_flows_start_aside_while_a_long_one_occupies_the_short_tunnel() {
    let mut bench = Bench::new(with_rates(100));
    bench.stream(60, SECOND, MICROSECOND);
    let now_ns = bench.entry.last_seen_ns + MICROSECOND;
    bench.entry = FlowEntry::default();
    let on_long = bench.packet(DATA, now_ns);
    assert_eq!(
        (on_long.class, on_long.tunnel),
        (Class::Short, TunnelRole::Long)
    );
    assert_eq!(
        on_long.hand_over, None,
        "it has not changed, it started there"
    );

    // A burst of short flows alone is no reason.
    let mut bench = Bench::new(with_rates(100));
    bench.stream(40, SECOND, MICROSECOND);
    let now_ns = bench.entry.last_seen_ns + MICROSECOND;
    bench.entry = FlowEntry::default();
    assert_eq!(bench.packet(DATA, now_ns).tunnel, TunnelRole::Short);
}

proptest! {
    /// Whatever is sent, a flow waits for the model no longer than for the cap.
    #[test]
    fn no_flood_makes_the_model_of_the_short_tunnel_believe_in_more_than_the_cap(
        frames in proptest::collection::vec((1u64..70_000, 0u64..100), 1..300),
    ) {
        let mut bench = Bench::new(PolicyConfig { thresholds: Thresholds::uniform(u64::MAX), ..with_rates(10) });
        let mut now_ns = SECOND;
        for (bytes, gap_ns) in frames {
            now_ns += gap_ns;
            let packet = FlowPacket { segments: 1, bytes, flags: DATA, payload_bytes: 1_448 };
            classify(&mut bench.entry, packet, &bench.config, &mut bench.models, now_ns);
            let wait_ns = bench.models.dedicated().expect("of a host").short_start_ns(now_ns) - now_ns;
            prop_assert!(wait_ns <= dedicated::MOST_BACKLOG_NS);
        }
    }

    #[test]
    fn class_is_monotone_in_count(
        gaps in proptest::collection::vec(0u64..2 * MILLISECOND, 1..200),
        threshold in 1u64..100,
        drain_margin_ns in 0u64..5 * MILLISECOND,
        rate in 0u64..200,
    ) {
        let config = PolicyConfig { drain_margin_ns, thresholds: Thresholds::uniform(threshold), ..with_rates(rate) };
        let mut bench = Bench::new(config);
        let mut now_ns = SECOND;
        let mut before = (Class::Short, TunnelRole::Short);
        for (index, gap) in gaps.into_iter().enumerate() {
            now_ns += gap;
            let verdict = bench.packet(DATA, now_ns);
            let expected = if index as u64 + 1 > threshold { Class::Long } else { Class::Short };
            prop_assert_eq!(verdict.class, expected);
            prop_assert!((verdict.class, verdict.tunnel) >= before, "never back without a restart");
            prop_assert!(verdict.tunnel == TunnelRole::Short || verdict.class == Class::Long);
            before = (verdict.class, verdict.tunnel);
        }
    }

    /// Two FIFO tunnels of the stated rates deliver every flow in order, unless
    /// the cap cuts the wait short.
    #[test]
    fn a_change_of_tunnel_never_reorders(
        packets in proptest::collection::vec((0u64..600 * MICROSECOND, 0usize..3), 1..400),
    ) {
        let config = with_rates(100);
        let mut entries = [FlowEntry::default(); 3];
        let mut models = HostQueues::default();
        let mut free_ns = [0u64; 2];
        let mut last_arrival_ns = [0u64; 3];
        let mut now_ns = SECOND;
        for (gap, flow) in packets {
            now_ns += gap;
            let packet = FlowPacket { segments: 1, bytes: FULL_FRAME, flags: DATA, payload_bytes: 1_448 };
            let verdict = classify(&mut entries[flow], packet, &config, &mut models, now_ns);
            let free = &mut free_ns[verdict.tunnel as usize];
            *free = (*free).max(now_ns) + FULL_FRAME * 80;
            prop_assert!(*free >= last_arrival_ns[flow] || verdict.hand_over == Some(FlowEvent::HandedOverAtMaxWait));
            last_arrival_ns[flow] = *free;
        }
    }
}
