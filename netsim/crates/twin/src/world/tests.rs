//! Recordings that are written by hand, and what each scheme makes of them.

mod beside;

use flow_recording::{FlowEnd, Header, Transport, Writer};

use super::super::run_twin;
use super::*;

fn flow(start_ms: u64, payload: u64, back: u64) -> FlowRecord {
    let count = |payload: u64| {
        let packets = payload.div_ceil(1_448).max(1);
        Count {
            packets,
            // Each direction has a SYN with more options.
            bytes: payload + packets * 66 + 8,
        }
    };
    FlowRecord {
        start_us: start_ms * 1_000,
        duration_us: 50_000,
        is_long: false,
        transport: Transport::Tcp,
        is_ipv6: false,
        began_before: false,
        end: FlowEnd::Finished,
        out: count(payload),
        back: (back > 0).then(|| count(back)),
    }
}

/// The bytes of a recording of so many seconds.
fn recording(flows: &[FlowRecord], seconds: u64) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("day.flows");
    let mut writer = Writer::create(&path, false).expect("a file");
    for flow in flows {
        writer.add(flow).expect("space");
    }
    let header = Header {
        duration_us: seconds * 1_000_000,
        threshold: 40,
        ..Header::default()
    };
    writer.finish(header).expect("space");
    std::fs::read(path).expect("it is there")
}

fn settings(uplinks: &[&str]) -> TwinSettings {
    let uplinks = uplinks.iter().map(|it| it.parse().expect("an uplink"));
    TwinSettings::new(uplinks.collect::<Vec<Uplink>>())
}

fn run(bytes: &[u8], settings: &TwinSettings, scheme: &str) -> TwinOutcome {
    let reader = Reader::new(bytes).expect("a recording");
    let scheme = scheme.parse().expect("a scheme");
    run_twin(reader, settings, &scheme, |_| ()).expect("it is whole")
}

#[test]
fn flow_alone_takes_its_handshake_its_time_on_the_wire_and_half_a_round_trip() {
    let bytes = recording(&[flow(0, 1_000, 0), flow(500, 1_000, 0)], 1);
    let outcome = run(&bytes, &settings(&["10mbit/20ms"]), "ecmp");
    // Two SYNs of 74 bytes, an acknowledgement of 66 and 1,066 bytes at 10 Mbit/s, and 30 ms.
    assert_eq!(outcome.short.flows, 2);
    assert_eq!(outcome.short.mean_ms, Some(31.024));
    assert_eq!(outcome.short.unfinished + outcome.long.flows, 0);
    // Two handshakes of three packets, two segments and their acknowledgements.
    assert_eq!((outcome.segments, outcome.hops), (2, 10));
    let slowdown = outcome.short.mean_slowdown.expect("two flows");
    assert!((slowdown - 31.024 / 30.8).abs() < 1e-9, "{slowdown}");
}

#[test]
fn answer_waits_for_its_request_and_counts_with_it() {
    let exchange = flow(0, 1_000, 1_000);
    let mean_ms = |record: FlowRecord| {
        let outcome = run(
            &recording(&[record], 1),
            &settings(&["10mbit/20ms"]),
            "ecmp",
        );
        assert_eq!((outcome.short.flows, outcome.long.flows), (1, 0));
        outcome.short.mean_ms
    };
    // As above, then an acknowledgement of 66 bytes, 1,066 bytes and 10 ms.
    assert_eq!(mean_ms(exchange), Some(41.9296));
    let bare = |transport, headers: u64| {
        let count = Count {
            packets: 1,
            bytes: 1_000 + headers,
        };
        FlowRecord {
            transport,
            out: count,
            back: Some(count),
            ..exchange
        }
    };
    // UDP needs no handshake, and a tunnel asks nothing.
    assert_eq!(mean_ms(bare(Transport::Udp, 42)), Some(21.7008));
    assert_eq!(mean_ms(bare(Transport::Tunnel, 34)), Some(10.8272));
}

#[test]
fn options_of_acknowledgements_are_no_request_and_who_speaks_opens() {
    let transfer = |payload: u64, acks: u64| {
        let out = Count {
            packets: acks,
            bytes: payload + acks * 66 + 8,
        };
        let bytes = recording(
            &[FlowRecord {
                out,
                ..flow(0, 1, 144_800)
            }],
            2,
        );
        let outcome = run(&bytes, &settings(&["50mbit/200ms"]), "ecmp");
        outcome.long.mean_ms.expect("it ended")
    };
    let (bare, with_options, with_request) =
        (transfer(0, 100), transfer(400, 100), transfer(401, 100));
    assert_eq!(bare, with_options);
    // The other side's handshake and data, and half a round trip more for the request and its answer.
    assert!(
        (100.0..101.0).contains(&(with_request - bare)),
        "{bare} {with_request}"
    );
    // Few packets have no such options.
    assert!(transfer(100, 50) > bare + 99.0);
}

#[test]
fn every_second_segment_is_acknowledged_once_a_connection_is_not_young() {
    let hops_of_segments = |segments: u64| {
        let bytes = recording(&[flow(0, segments * 1_448, 0)], 2);
        let outcome = run(&bytes, &settings(&["50mbit/20ms"]), "ecmp");
        assert_eq!((outcome.segments, outcome.retransmitted), (segments, 0));
        // Without the handshake and the segments themselves.
        outcome.hops - 3 - segments
    };
    // 16 and the last one by themselves, and of what is between two at a time.
    assert_eq!(
        [16, 17, 18, 19, 20, 21].map(hops_of_segments),
        [16, 17, 17, 18, 18, 19]
    );
}

#[test]
fn handshake_that_is_lost_begins_again_after_a_second() {
    // The first two leave room for three SYNs in the least of all queues.
    let fill = FlowRecord {
        transport: Transport::Udp,
        ..flow(0, 100_000, 0)
    };
    let mut flows = vec![fill, fill];
    flows.extend([flow(0, 1_000, 0); 4]);
    let settings = TwinSettings {
        buffer_ms: 1,
        ..settings(&["1mbit/20ms"])
    };
    let outcome = run(&recording(&flows, 10), &settings, "ecmp");
    assert_eq!((outcome.short.flows, outcome.long.flows), (4, 2));
    let (half, longest) = (outcome.short.p50_ms, outcome.short.max_ms);
    assert!(
        half < Some(1_000.0) && longest > Some(1_000.0),
        "{outcome:?}"
    );
}

#[test]
fn each_direction_carries_its_own_payload() {
    let bytes = recording(&[flow(0, 500, 2_000_000)], 1);
    let outcome = run(&bytes, &settings(&["10mbit/20ms"]), "ecmp");
    // Request and answer are one.
    assert_eq!((outcome.short.flows, outcome.long.flows), (0, 1));
    let fct = outcome.long.max_ms.expect("it ended");
    // 16.7 Mbit with headers, and slow start.
    assert!((1_670.0..2_000.0).contains(&fct), "{fct}");
    let [out, back] = outcome.utilisation[0];
    assert!(out < 0.1 && back > 0.9, "{out} {back}");
}

#[test]
fn first_timeout_is_longer_than_a_round_trip() {
    let bytes = recording(&[flow(0, 100_000, 0)], 5);
    let outcome = run(&bytes, &settings(&["10mbit/500ms"]), "ecmp");
    assert_eq!((outcome.timeouts, outcome.retransmitted), (0, 0));
}

#[test]
fn slowdown_is_over_the_uplink_that_suits_the_transfer() {
    let bytes = recording(&[flow(0, 1_000, 0), flow(500, 5_000, 0)], 5);
    // The other uplink is as fast, or faster, and far: none of these transfers is better off there.
    for uplinks in [
        ["10mbit/20ms", "10mbit/200ms"],
        ["10mbit/20ms", "20mbit/200ms"],
    ] {
        let outcome = run(&bytes, &settings(&uplinks), "dedicated");
        let slowdown = outcome.short.mean_slowdown.expect("two flows");
        assert!((1.0..1.5).contains(&slowdown), "{uplinks:?}: {slowdown}");
    }
}

#[test]
fn utilisation_is_of_the_stated_rate_within_the_simulated_time() {
    // Two seconds of traffic in a recording of one.
    let bytes = recording(&[flow(0, 2_500_000, 0)], 1);
    for scheme in ["ecmp", "fair"] {
        let outcome = run(&bytes, &settings(&["10mbit/10ms"]), scheme);
        let [out, _] = outcome.utilisation[0];
        let most = if scheme == "fair" { 0.97 } else { 1.0 };
        assert!((0.9..most).contains(&out), "{scheme}: {out}");
    }
}

/// A transfer that fills what it gets, and a short flow every 20 ms beside it.
fn mixed() -> Vec<u8> {
    let mut flows = vec![flow(0, 30_000_000, 0), flow(0, 30_000_000, 0)];
    flows.extend((0..200).map(|it| flow(500 + 20 * it, 4_000, 0)));
    recording(&flows, 10)
}

#[test]
fn short_flows_pay_for_long_ones_under_ecmp_alone() {
    let (bytes, settings) = (mixed(), settings(&["50mbit/10ms", "50mbit/10ms"]));
    let p99 = |scheme| {
        let outcome = run(&bytes, &settings, scheme);
        assert_eq!(outcome.short.flows, 200, "{scheme}");
        assert_eq!(outcome.long.flows + outcome.long.unfinished, 2, "{scheme}");
        outcome.short.p99_ms.expect("200 flows")
    };
    let ecmp = p99("ecmp");
    assert!(ecmp > 30.0, "a queue of 50 ms: {ecmp}");
    for (scheme, most) in [
        ("fair", 25.0),
        ("dedicated", 17.0),
        ("share", 17.0),
        ("tr", 17.0),
    ] {
        let found = p99(scheme);
        assert!(found < most, "{scheme}: {found}, ecmp {ecmp}");
    }
}

#[test]
fn one_transfer_gets_more_than_an_uplink_where_packets_choose() {
    let bytes = recording(&[flow(0, 20_000_000, 0)], 20);
    let uplinks = settings(&["20mbit/20ms", "20mbit/20ms"]);
    let seconds = |scheme| {
        let outcome = run(&bytes, &uplinks, scheme);
        outcome.long.mean_ms.expect("it ended") / 1e3
    };
    let (ecmp, tr) = (seconds("ecmp"), seconds("tr"));
    assert!((8.3..10.0).contains(&ecmp), "{ecmp}");
    assert!(tr < 0.65 * ecmp, "{tr} and {ecmp}");
}

#[test]
fn threshold_of_a_scheme_decides_who_takes_the_short_tunnel() {
    let bytes = recording(&[flow(0, 5_000_000, 0)], 5);
    let uplinks = settings(&["50mbit/10ms", "50mbit/10ms"]);
    let share_of_first = |scheme| {
        let outcome = run(&bytes, &uplinks, scheme);
        let [first, second] = [0, 1].map(|it: usize| outcome.utilisation[it][0]);
        first / (first + second)
    };
    assert!(share_of_first("dedicated@100000") > 0.999);
    assert!(share_of_first("dedicated@10") < 0.1);
    let outcome = run(&bytes, &uplinks, "dedicated@10");
    assert_eq!(
        (outcome.threshold, outcome.scheme.as_str()),
        (Some(10), "dedicated@10")
    );
    // What is reported as short does not change with it.
    assert_eq!(outcome.long.flows, 1);
    assert_eq!(run(&bytes, &uplinks, "ecmp").threshold, None);
}

#[test]
fn same_recording_gives_the_same_outcome() {
    let (bytes, settings) = (mixed(), settings(&["20mbit/10ms", "10mbit/30ms"]));
    for scheme in ["ecmp", "fair", "dedicated", "share", "tr"] {
        let first = run(&bytes, &settings, scheme);
        assert_eq!(first, run(&bytes, &settings, scheme), "{scheme}");
    }
}

#[test]
fn flow_that_is_slow_by_itself_is_paced_and_has_no_completion_time() {
    let slow = FlowRecord {
        duration_us: 40_000_000,
        ..flow(1_000, 144_800, 0)
    };
    let bytes = recording(&[slow], 60);
    let outcome = run(&bytes, &settings(&["10mbit/20ms"]), "ecmp");
    assert_eq!((outcome.paced_flows, outcome.segments), (1, 100));
    assert_eq!((outcome.short.flows, outcome.long.flows), (0, 0));
    assert_eq!(outcome.long.unfinished, 0);
}

#[test]
fn flows_that_began_before_load_the_uplinks_and_count_as_none() {
    let before = FlowRecord {
        began_before: true,
        ..flow(0, 1_000_000, 0)
    };
    let outcome = run(
        &recording(&[before], 5),
        &settings(&["10mbit/20ms"]),
        "ecmp",
    );
    assert!(outcome.segments >= 691);
    assert_eq!((outcome.short.flows, outcome.long.flows), (0, 0));
}

#[test]
fn part_of_a_recording_has_the_flows_of_that_part() {
    let flows: Vec<_> = (0..10).map(|it| flow(it * 1_000, 1_000, 0)).collect();
    let bytes = recording(&flows, 10);
    let part = |skip_s, for_s| {
        let settings = TwinSettings {
            skip_s,
            for_s,
            ..settings(&["10mbit/20ms"])
        };
        run(&bytes, &settings, "ecmp").short.flows
    };
    assert_eq!((part(0, None), part(4, None)), (10, 6));
    assert_eq!((part(4, Some(3)), part(9, Some(u64::MAX))), (3, 1));
    assert_eq!((part(20, None), part(u64::MAX, Some(5))), (0, 0));
}

#[test]
fn flows_that_the_skipped_part_cuts_are_counted() {
    let lasting = |seconds: u64| FlowRecord {
        duration_us: seconds * 1_000_000,
        ..flow(1_000, 1_000, 0)
    };
    let bytes = recording(
        &[lasting(2), lasting(4), lasting(5), flow(5_000, 1_000, 0)],
        10,
    );
    let settings = TwinSettings {
        skip_s: 5,
        ..settings(&["10mbit/20ms"])
    };
    let outcome = run(&bytes, &settings, "ecmp");
    assert_eq!((outcome.cut_by_skip, outcome.short.flows), (1, 1));
}

#[test]
fn transfer_that_has_no_end_in_time_is_unfinished() {
    let bytes = recording(&[flow(0, 1_000_000_000, 0)], 1);
    let outcome = run(&bytes, &settings(&["1mbit/20ms"]), "ecmp");
    assert_eq!((outcome.long.flows, outcome.long.unfinished), (0, 1));
}

#[test]
fn recording_that_was_cut_off_is_an_error_whatever_part_is_simulated() {
    let bytes = recording(&[0, 5, 6, 7].map(|it| flow(it * 1_000, 1_000, 0)), 10);
    let reader = Reader::new(&bytes[..bytes.len() - 6]).expect("it begins well");
    let settings = TwinSettings {
        for_s: Some(1),
        ..settings(&["10mbit/20ms"])
    };
    let error = run_twin(reader, &settings, &Scheme::Ecmp, |_| ()).expect_err("cut off");
    assert!(matches!(error, ReadError::Truncated { .. }), "{error}");
}
