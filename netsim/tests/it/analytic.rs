//! Runs whose outcome can be computed by hand.

use crate::support::{outcome, percent_off};

/// 10 Gbit/s everywhere, 1 us a link, full packets of 1500 B.
const FABRIC: &str = "about = 'test'
fabric = { leaves = 2, spines = 1, hosts_per_leaf = 4, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }
";

const PACKET_NS: u64 = 1_200;
const ACK_NS: u64 = 32;
const ONE_WAY_NS: u64 = 4_000;

/// The first packet crosses four links, each of which takes it as a whole; the others follow at the
/// rate of the links.
#[test]
fn a_flow_within_its_initial_window_takes_propagation_and_transmission() {
    for segments in [1, 2, 10] {
        let text = format!(
            "{FABRIC}traffic = [{{ kind = 'message', from = 0, to = 4, bytes = {} }}]",
            segments * 1460
        );
        let expected = ONE_WAY_NS + (4 + segments - 1) * PACKET_NS;
        assert_eq!(outcome(&text).flows[0].fct_ns, Some(expected));
    }
}

/// 30 segments: 10 at once, and two for each ACK; the pipe is full from the second round on.
#[test]
fn slow_start_takes_a_round_trip_and_then_fills_the_link() {
    let text = format!(
        "{FABRIC}traffic = [{{ kind = 'message', from = 0, to = 4, bytes = {} }}]",
        30 * 1460
    );
    // The first ACK is back after a round trip: propagation, four transmissions each way. From then
    // on two segments leave for each ACK, and ACKs come a packet's time apart: 20 segments in a row.
    let first_ack = 2 * ONE_WAY_NS + 4 * PACKET_NS + 4 * ACK_NS;
    let expected = first_ack + ONE_WAY_NS + (4 + 19) * PACKET_NS;
    assert_eq!(outcome(&text).flows[0].fct_ns, Some(expected));
}

#[test]
fn a_last_segment_that_is_not_full_is_shorter_on_the_wire() {
    let text = format!("{FABRIC}traffic = [{{ kind = 'message', from = 0, to = 1, bytes = 85 }}]");
    // Two links within the leaf, 125 bytes.
    assert_eq!(outcome(&text).flows[0].fct_ns, Some(2 * (1_000 + 100)));
}

#[test]
fn an_answer_waits_for_its_request() {
    let text = format!(
        "{FABRIC}traffic = [{{ kind = 'poisson', sizes = 1460, per_second = 1, messages = 1,
          request_bytes = 1460, hosts = {{ pattern = 'leaves', from = 0, to = 1 }} }}]"
    );
    let one = ONE_WAY_NS + 4 * PACKET_NS;
    assert_eq!(outcome(&text).flows[0].fct_ns, Some(2 * one));
}

/// The SYN goes there and its answer comes back, as headers alone; what answers a request finds the connection set up.
#[test]
fn handshake_takes_a_round_trip_before_the_first_segment() {
    let round_trip = 2 * (ONE_WAY_NS + 4 * ACK_NS);
    let one = ONE_WAY_NS + 4 * PACKET_NS;
    let with = |traffic: &str| {
        let text = format!("{FABRIC}transport.handshake = true\ntraffic = [{{ {traffic} }}]");
        let flow = outcome(&text).flows.remove(0);
        assert_eq!(flow.segments, 1);
        flow.fct_ns
    };
    let message = with("kind = 'message', from = 0, to = 4, bytes = 1460");
    assert_eq!(message, Some(round_trip + one));
    let answer = with(
        "kind = 'poisson', sizes = 1460, per_second = 1, messages = 1, request_bytes = 1460,
         hosts = { pattern = 'leaves', from = 0, to = 1 }",
    );
    assert_eq!(answer, Some(round_trip + 2 * one));
}

/// Eight packets come in a row to a link of a tenth of their rate: the last one finds seven less what has left, 75.6 us.
#[test]
fn buffer_of_time_is_smaller_where_the_link_is_slower() {
    for (buffer_us, lost) in [(88, false), (87, true)] {
        let text = format!(
            "about = 'test'
             fabric = {{ leaves = 2, spines = 1, hosts_per_leaf = 1, host_gbps = 10, uplink_gbps = 1, link_delay_us = 1 }}
             port.buffer_us = {buffer_us}
             transport = {{ control = 'fixed', initial_window = 8 }}
             traffic = [{{ kind = 'message', from = 0, to = 1, bytes = {} }}]",
            8 * 1460
        );
        let flow = &outcome(&text).flows[0];
        assert_eq!(flow.retransmitted > 0, lost, "{buffer_us} us: {flow:?}");
    }
}

/// With a full pipe the goodput is the link's rate less headers.
#[test]
fn a_long_flow_takes_the_whole_link() {
    for (control, recovery) in [
        ("dctcp", "newreno"),
        ("dctcp", "sack"),
        ("reno", "sack"),
        ("reno", "rack"),
        ("cubic", "rack"),
    ] {
        let text = format!(
            "{FABRIC}transport = {{ control = '{control}', recovery = '{recovery}' }}
             traffic = [{{ kind = 'message', from = 0, to = 4, bytes = 100_000_000 }}]"
        );
        let outcome = outcome(&text);
        let expected = (100e6f64 / 1460.0).ceil() * PACKET_NS as f64;
        let fct = outcome.flows[0].fct_ns.expect("it completes") as f64;
        assert!(
            percent_off(fct, expected) < 1.0,
            "{control} {recovery}: {fct} {expected}"
        );
    }
}

#[test]
fn two_flows_share_a_link_fairly() {
    let text = format!(
        "{FABRIC}traffic = [
           {{ kind = 'message', from = 0, to = 4, bytes = 50_000_000 }},
           {{ kind = 'message', from = 1, to = 5, bytes = 50_000_000, at_us = 2000 }},
         ]"
    );
    let outcome = outcome(&text);
    let fct: Vec<f64> = outcome
        .flows
        .iter()
        .filter_map(|it| it.fct_ns)
        .map(|it| it as f64)
        .collect();
    // The later one starts 2 ms on, and both end at about the same distance from each other.
    let alone = 50e6 / 1460.0 * PACKET_NS as f64;
    assert!(
        percent_off(fct[0] + 0.0, 2.0 * alone - 2e6) < 6.0,
        "{fct:?}"
    );
    assert!(percent_off(fct[1], 2.0 * alone - 2e6) < 6.0, "{fct:?}");
    assert_eq!(outcome.totals.dropped, 0);
}

/// Two long DCTCP flows keep the queue of the shared port around K (Alizadeh et al. 2010, §3.3),
/// without a drop, where Reno fills the buffer.
#[test]
fn dctcp_keeps_the_queue_near_its_threshold() {
    let run = |control: &str| {
        let text = format!(
            "{FABRIC}
             transport = {{ control = '{control}', recovery = 'sack' }}
             port = {{ buffer_bytes = 375_000, ecn_bytes = 97_500 }}
             traffic = [
               {{ kind = 'message', from = 0, to = 4, bytes = 60_000_000 }},
               {{ kind = 'message', from = 1, to = 5, bytes = 60_000_000 }},
             ]"
        );
        outcome(&text)
    };
    let dctcp = run("dctcp");
    let flow = &dctcp.flows[0];
    let queued_bytes = flow.queued_ns as f64 / f64::from(flow.arrived) * 1.25;
    assert!(
        (48_750.0..=107_250.0).contains(&queued_bytes),
        "{queued_bytes}"
    );
    assert_eq!(dctcp.totals.dropped, 0);
    let reno = run("reno");
    assert!(reno.totals.dropped > 0);
    let flow = &reno.flows[0];
    assert!(flow.queued_ns as f64 / f64::from(flow.arrived) * 1.25 > 107_250.0);
}

/// Strict priority: an urgent message does not notice a long flow, but for one packet at each port.
#[test]
fn the_urgent_overtake() {
    let text = format!(
        "{FABRIC}port = {{ discipline = 'priority', queue = [{{}}, {{}}] }}
         traffic = [
           {{ kind = 'message', from = 0, to = 4, bytes = 20_000_000, priority = 1 }},
           {{ kind = 'message', from = 1, to = 4, bytes = 14_600, at_us = 5000 }},
         ]"
    );
    let fct = outcome(&text).flows[1].fct_ns.expect("it completes");
    let alone = ONE_WAY_NS + 13 * PACKET_NS;
    assert!(
        (alone..=alone + 4 * PACKET_NS).contains(&fct),
        "{fct} {alone}"
    );
}

/// With weights 1 and 3 the first of two long flows gets a quarter.
#[test]
fn weights_divide_a_link() {
    let text = format!(
        "{FABRIC}port = {{ discipline = 'wrr', ecn_bytes = 97_500, queue = [
           {{ weight = 1, ecn_bytes = 60_000 }}, {{ weight = 3, ecn_bytes = 60_000 }}] }}
         until_ms = 40
         traffic = [
           {{ kind = 'message', from = 0, to = 4, bytes = 200_000_000 }},
           {{ kind = 'message', from = 1, to = 5, bytes = 200_000_000, priority = 1 }},
         ]"
    );
    let outcome = outcome(&text);
    let arrived: Vec<f64> = outcome.flows.iter().map(|it| it.arrived.into()).collect();
    let share = arrived[0] / (arrived[0] + arrived[1]);
    assert!((share - 0.25).abs() < 0.02, "{share}");
    assert_eq!(outcome.totals.unfinished, 2);
}

/// pFabric: a short message goes through a standing queue of long ones, with a buffer of 24 packets.
#[test]
fn pfabric_lets_short_messages_pass() {
    let text = format!(
        "{FABRIC}port = {{ discipline = 'pfabric', buffer_bytes = 36_000 }}
         transport = {{ control = 'fixed', initial_window = 17, recovery = 'sack', rto_min_us = 100 }}
         traffic = [
           {{ kind = 'message', from = 0, to = 4, bytes = 20_000_000 }},
           {{ kind = 'message', from = 1, to = 4, bytes = 20_000_000 }},
           {{ kind = 'message', from = 2, to = 4, bytes = 14_600, at_us = 5000 }},
         ]"
    );
    let outcome = outcome(&text);
    let fct = outcome.flows[2].fct_ns.expect("it completes");
    let alone = ONE_WAY_NS + 13 * PACKET_NS;
    assert!(
        (alone..=alone + 4 * PACKET_NS).contains(&fct),
        "{fct} {alone}"
    );
    assert_eq!(outcome.totals.unfinished, 0);
}

/// Four subflows over four spines of a quarter of the rate each together fill the host's link.
#[test]
fn subflows_use_all_paths() {
    let run = |subflows: u32| {
        let text = format!(
            "about = 'test'
             fabric = {{ leaves = 2, spines = 4, hosts_per_leaf = 1, host_gbps = 10, uplink_gbps = 2.5, link_delay_us = 1 }}
             transport = {{ control = 'reno', recovery = 'sack', subflows = {subflows} }}
             traffic = [{{ kind = 'message', from = 0, to = 1, bytes = 30_000_000 }}]"
        );
        outcome(&text).flows[0].fct_ns.expect("it completes") as f64
    };
    let (one, eight) = (run(1), run(16));
    assert!(one / eight > 2.0, "{one} {eight}");
}

/// What a window sends is sent when the first of it arrives, and what comes after it is not.
#[test]
fn segments_that_were_sent_by_the_end_are_counted() {
    let sent = |bytes: u32, replicas: u32| {
        let text = format!(
            "about = 'test'
             fabric = {{ leaves = 2, spines = 2, hosts_per_leaf = 1, host_gbps = 10, uplink_gbps = 10, link_delay_us = 50 }}
             transport = {{ replicas = {replicas} }}
             traffic = [{{ kind = 'message', from = 0, to = 1, bytes = {bytes} }}]"
        );
        let outcome = outcome(&text);
        let flow = &outcome.flows[0];
        (flow.segments, flow.needed, flow.sent_by_end)
    };
    assert_eq!(sent(8 * 1460, 1), (8, 8, 8));
    let (segments, needed, sent_by_end) = sent(8 * 1460, 2);
    // The copy has been sent, too, and not all of it has arrived.
    assert_eq!((segments, sent_by_end), (8, 16));
    assert!((8..16).contains(&needed), "{needed}");
}

/// Of a message that the first window holds the other subflows get nothing once the first has an ACK, and of a longer
/// one they get their part a round trip later for each that they wait.
#[test]
fn subflows_join_after_round_trips() {
    let run = |bytes: u32, rounds: u32| {
        let text = format!(
            "about = 'test'
             fabric = {{ leaves = 2, spines = 4, hosts_per_leaf = 1, host_gbps = 10, uplink_gbps = 1, link_delay_us = 50 }}
             balance.policy = 'drb'
             transport = {{ control = 'reno', recovery = 'sack', subflows = 4, join_round_trips = {rounds} }}
             traffic = [{{ kind = 'message', from = 0, to = 1, bytes = {bytes} }}]"
        );
        let outcome = outcome(&text);
        outcome.flows[0].fct_ns.expect("it completes")
    };
    let window = 10 * 1460;
    assert_eq!(
        run(window, 1),
        run(window, 2),
        "all of it is in the first window"
    );
    let long = 100 * 1460;
    let [at_once, one, two] = [0, 1, 2].map(|rounds| run(long, rounds));
    // A round trip of eight links of 50 us.
    assert!(at_once < one && one < two, "{at_once} {one} {two}");
    assert!(two - at_once < 3 * 400_000, "{at_once} {two}");
}

/// The first of the copies counts, so messages whose hash finds an idle path are not slower for the
/// loaded one.
#[test]
fn copies_make_the_faster_path_count() {
    let run = |replicas: u32| {
        let text = format!(
            "about = 'test'
             fabric = {{ leaves = 2, spines = 2, hosts_per_leaf = 1, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1,
               path = [{{ spine = 0, extra_delay_us = 500 }}] }}
             transport = {{ replicas = {replicas} }}
             traffic = [{{ kind = 'poisson', sizes = 1460, per_second = 500, messages = 40,
               hosts = {{ pattern = 'leaves', from = 0, to = 1 }} }}]"
        );
        let outcome = outcome(&text);
        outcome
            .flows
            .iter()
            .filter(|it| it.fct_ns > Some(400_000))
            .count()
    };
    let (one, eight) = (run(1), run(8));
    assert!(one > 10 && eight < one / 4, "{one} {eight}");
}

/// More at once than the buffer holds: what is lost at the tail takes a timeout, and all arrives.
#[test]
fn incast_loses_and_recovers() {
    let text = "about = 'test'
         fabric = { leaves = 2, spines = 4, hosts_per_leaf = 4, host_gbps = 1, uplink_gbps = 1, link_delay_us = 5 }
         port = { buffer_bytes = 30_000 }
         traffic = [{ kind = 'incast', senders = 12, to = 0, bytes = 90_000, rounds = 2, every_us = 50_000 }]";
    let outcome = outcome(text);
    assert_eq!((outcome.flows.len(), outcome.totals.unfinished), (24, 0));
    assert!(outcome.totals.dropped > 0);
    let timeouts: u32 = outcome.flows.iter().map(|it| it.timeouts).sum();
    assert!(timeouts > 0);
    assert!(outcome.flows.iter().all(|it| it.fct_ns >= Some(90_000 * 8)));
}
