//! Laws of the hand-over between a tunnel for each class.

use super::*;

#[test]
fn without_a_rate_a_flow_moves_at_the_first_gap() {
    let mut bench = Bench::new(PolicyConfig {
        max_wait_ns: 200 * MILLISECOND,
        ..PolicyConfig::default()
    });
    let burst = bench.stream(60, SECOND, MICROSECOND);
    assert!(
        burst
            .iter()
            .all(|verdict| verdict.tunnel == TunnelRole::Short)
    );
    assert_eq!(burst[59].class, Class::Long);

    let early = bench.packet(
        DATA,
        bench.entry.last_seen_ns + PolicyConfig::DEFAULT_GAP_NS - 1,
    );
    assert_eq!(early.hand_over, None);
    let late = bench.packet(
        DATA,
        bench.entry.last_seen_ns + PolicyConfig::DEFAULT_GAP_NS,
    );
    assert_eq!(
        (late.tunnel, late.hand_over),
        (TunnelRole::Long, Some(FlowEvent::HandedOverDrained))
    );
    let next = bench.packet(DATA, bench.entry.last_seen_ns);
    assert_eq!((next.tunnel, next.hand_over), (TunnelRole::Long, None));
}

#[test]
fn the_cap_moves_a_flow_that_never_pauses() {
    let mut bench = Bench::new(PolicyConfig::default());
    let verdicts = bench.stream(3_000, SECOND, 100 * MICROSECOND);
    let hand_over = verdicts
        .iter()
        .position(|verdict| verdict.hand_over.is_some())
        .expect("moves");
    assert_eq!(
        verdicts[hand_over].hand_over,
        Some(FlowEvent::HandedOverAtMaxWait)
    );
    assert_eq!(
        hand_over as u64,
        40 + PolicyConfig::DEFAULT_BLIND_MAX_WAIT_NS / (100 * MICROSECOND)
    );
}

/// Of a tunnel of 100 Mbit/s and a sender at 200 that never pauses.
#[test]
fn with_rates_a_flow_that_never_pauses_is_made_to_and_moves_in_order() {
    let mut bench = Bench::new(PolicyConfig {
        max_wait_ns: PolicyConfig::DEFAULT_MAX_WAIT_NS,
        ..with_rates(100)
    });
    let gap_ns = 60 * MICROSECOND;
    let verdicts = bench.stream(400, SECOND, gap_ns);
    let events = |event| {
        verdicts
            .iter()
            .filter(move |it| it.hand_over == Some(event))
    };
    let moved = verdicts
        .iter()
        .position(|it| it.hand_over == Some(FlowEvent::HandedOverDrained));
    let moved = moved.expect("moves");
    assert_eq!(events(FlowEvent::HandedOverAtMaxWait).count(), 0);

    // It waits for a pause of its own, then all is dropped until what was sent has left.
    let waited = (bench.config.max_wait_ns / gap_ns) as usize + 1;
    let sent_ns = (40 + waited) as u64 * bench.config.short_service.of(FULL_FRAME);
    let left = (sent_ns / gap_ns) as usize;
    assert!(
        (left..left + 3).contains(&moved),
        "{moved}, {left} expected"
    );
    assert_eq!(
        events(FlowEvent::DroppedToDrain).count(),
        moved - 40 - waited
    );
    let after = &verdicts[moved..];
    assert!(after.iter().all(|it| it.tunnel == TunnelRole::Long));
}

#[test]
fn packets_that_open_or_end_a_connection_are_neither_dropped_nor_sent_ahead_of_others() {
    for flag in [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST] {
        let mut bench = Bench::new(with_rates(10));
        bench.stream(60, SECOND, MICROSECOND);
        let now_ns = SECOND + bench.config.max_wait_ns + MILLISECOND;
        let dropped = bench.packet(DATA, now_ns);
        assert_eq!(dropped.hand_over, Some(FlowEvent::DroppedToDrain));
        let kept = bench.packet(TcpFlags(flag), now_ns);
        assert_eq!(
            (kept.tunnel, kept.hand_over),
            (TunnelRole::Short, None),
            "{flag:#x}"
        );
    }
}

#[test]
fn a_shadow_and_a_tunnel_of_unknown_rate_drop_nothing() {
    let known = with_rates(10);
    let shadow = PolicyConfig {
        marking: Marking::SHADOW,
        ..known
    };
    let blind = PolicyConfig {
        long_service: ServiceTime::UNKNOWN,
        ..known
    };
    for config in [shadow, blind] {
        let verdicts = Bench::new(config).stream(3_000, SECOND, 100 * MICROSECOND);
        let drops = |it: &Verdict| it.hand_over == Some(FlowEvent::DroppedToDrain);
        assert!(!verdicts.iter().any(drops));
        assert!(verdicts.iter().any(|it| it.tunnel == TunnelRole::Long));
    }
}

#[test]
fn with_a_rate_a_paced_flow_moves_at_once_and_a_burst_when_it_has_drained() {
    // At 10 Mbit/s into a tunnel of 100: nothing waits.
    let paced = Bench::new(with_rates(100)).stream(60, SECOND, 1_200 * MICROSECOND);
    assert_eq!(paced[40].tunnel, TunnelRole::Long);

    // 60 packets within 60 us need 7.2 ms to leave.
    let mut bench = Bench::new(with_rates(100));
    let burst = bench.stream(60, SECOND, MICROSECOND);
    assert!(
        burst
            .iter()
            .all(|verdict| verdict.tunnel == TunnelRole::Short)
    );
    assert_eq!(
        bench.packet(DATA, SECOND + 7 * MILLISECOND).tunnel,
        TunnelRole::Short
    );
    assert_eq!(
        bench.packet(DATA, SECOND + 8 * MILLISECOND).tunnel,
        TunnelRole::Long
    );
}

#[test]
fn other_flows_in_the_short_tunnel_are_waited_for() {
    let mut bench = Bench::new(with_rates(100));
    bench.stream(40, SECOND, 1_200 * MICROSECOND);
    let now_ns = bench.entry.last_seen_ns + 1_200 * MICROSECOND;
    // A burst of others just ahead of our 40th packet, which waits behind it.
    let service = bench.config.short_service;
    let mut tunnels = bench.models.dedicated().expect("of a host");
    for _ in 0..20 {
        tunnels.send_short(FULL_FRAME, service, SECOND, now_ns);
    }
    bench.entry.drained_ns = tunnels.send_short(FULL_FRAME, service, SECOND, now_ns);
    assert_eq!(
        bench.packet(DATA, now_ns + MILLISECOND).tunnel,
        TunnelRole::Short
    );
    assert_eq!(
        bench.packet(DATA, now_ns + 4 * MILLISECOND).tunnel,
        TunnelRole::Long
    );
}
