//! Hosts that run Cloudburst's state machine.

use crate::support::outcome;
use netsim::{FlowRecord, Outcome};
use proptest::prelude::*;

/// 1 Gbit/s, four paths, a queue of 8 packets for datagrams and one for bulk.
const TESTBED: &str = "about = 'test'
fabric = { leaves = 2, spines = 4, hosts_per_leaf = 4, host_gbps = 1, uplink_gbps = 1, link_delay_us = 5 }
port = { discipline = 'wrr', ecn_bytes = 375_000, queue = [{ buffer_bytes = 12_000 }, { ecn_bytes = 97_500 }] }
host_port = { buffer_bytes = 4_000_000 }
";

fn with(transport: &str, rest: &str) -> String {
    format!(
        "{TESTBED}transport = {{ control = 'cloudburst', cloudburst = {{ encode_ns = 0, decode_ns = 0, {transport} }} }}\n{rest}"
    )
}

fn message(bytes: u64, from: u16, to: u16) -> String {
    format!("traffic = [{{ kind = 'message', from = {from}, to = {to}, bytes = {bytes} }}]")
}

#[track_caller]
fn only(outcome: &Outcome) -> &FlowRecord {
    assert_eq!(outcome.flows.len(), 1);
    &outcome.flows[0]
}

/// Its symbols leave one after the other and cross four links, whichever paths they take.
#[test]
fn a_message_takes_propagation_and_transmission() {
    // 8 symbols of mode native: no coding is needed, and what it is cut into fills datagrams.
    for (bytes, to, links) in [(1_000, 4, 4), (1_000, 1, 2), (11_000, 4, 4)] {
        let outcome = outcome(&with("mode = 'native'", &message(bytes, 0, to)));
        let flow = only(&outcome);
        let n = u64::from(flow.segments);
        assert_eq!(flow.needed, flow.segments);
        // Message, envelope, and for each symbol the code's header, the datagram's and UDP's.
        let datagram = (bytes + 17).div_ceil(n) + 12 + 8 + 24 + 28;
        let ns = links * 5_000 + (links + n - 1) * datagram * 8;
        // Between several symbols an endpoint may ask its peer something.
        let most = if n == 1 { ns } else { ns + 2_000 };
        let took = flow.fct_ns.expect("it arrives");
        assert!(
            (ns..=most).contains(&took),
            "{bytes} bytes, {n} symbols: {took}"
        );
    }
}

/// Queues of 8 packets drop what four hosts send to one at once. What a first message has lost is
/// sent again when its receiver says so, and does not wait for an answer as long as its sender
/// assumes a round trip to take.
#[test]
fn what_a_first_message_lost_waits_for_no_round_trip_that_is_assumed() {
    let slowest = |initial_round_trip_us: u32| {
        let settings = format!("mode = 'native', initial_round_trip_us = {initial_round_trip_us}");
        let incast = "traffic = [{ kind = 'incast', senders = 4, to = 4, bytes = 60_000 }]";
        let outcome = outcome(&with(&settings, incast));
        assert!(outcome.totals.dropped > 0);
        let times = outcome.flows.iter().map(|it| it.fct_ns.expect("arrives"));
        times.max().expect("four messages")
    };
    let (short, long) = (slowest(200), slowest(5_000));
    assert!(short.max(long) < 5_000_000, "{short} {long}");
}

#[test]
fn coding_takes_the_time_that_is_stated() {
    let run = |times: &str| {
        let text = with("mode = 'native'", &message(11_000, 0, 4));
        let text = text.replace("encode_ns = 0, decode_ns = 0", times);
        let outcome = outcome(&text);
        let flow = only(&outcome);
        (flow.fct_ns.expect("it arrives"), u64::from(flow.segments))
    };
    let (without, n) = run("encode_ns = 0, decode_ns = 0");
    assert_eq!(
        run("encode_ns = 700, decode_ns = 30"),
        (without + 700 + 30 * n, n)
    );
}

/// Algorithm 1 goes on until the stop is there: at 1 Gbit/s that is a round trip later.
#[test]
fn the_papers_sender_goes_on_until_it_hears_stop() {
    let outcome = outcome(&with("mode = 'paper'", &message(5_000, 0, 4)));
    let flow = only(&outcome);
    assert_eq!(flow.segments, 4);
    assert!(flow.needed >= 4 && flow.sent > flow.needed, "{flow:?}");
    let round_trip = 2 * 4 * (5_000 + 12_000 / 2);
    let late = round_trip / 12_000;
    assert!(flow.sent <= flow.needed + late as u32 + 6, "{flow:?}");
    // When it is decoded some are on their way, and there the run has ended.
    assert!(flow.needed < flow.sent_by_end, "{flow:?}");
    assert_eq!(flow.sent_by_end, flow.sent);
}

/// An endpoint's only path is as wide as its spine.
#[test]
fn several_paths_share_a_message_and_one_path_does_not() {
    let used = |transport: &str| {
        let outcome = outcome(&with(transport, &message(90_000, 0, 4)));
        let up = outcome
            .paths
            .iter()
            .filter(|it| it.link.starts_with("leaf0"));
        up.filter(|it| it.utilisation > 0.01).count()
    };
    assert_eq!(used("mode = 'paper'"), 4);
    assert_eq!(used("mode = 'paper', paths = 2"), 2);
    assert_eq!(used("mode = 'paper', single_path = true"), 1);
    assert!((1..=4).contains(&used("mode = 'paper', routing = 'ecmp'")));
    assert!((2..=4).contains(&used("mode = 'paper', routing = 'ecmp', paths = 16")));
}

#[test]
fn broken_paths_are_avoided_if_they_are_known() {
    let run = |transport: &str| {
        let text = with(transport, &message(50_000, 0, 4));
        outcome(&text.replace("link_delay_us = 5", "link_delay_us = 5, failed = 2"))
    };
    for mode in ["paper", "native"] {
        let known = run(&format!("mode = '{mode}'"));
        assert_eq!(known.totals.dropped, 0);
        let unknown = run(&format!("mode = '{mode}', avoids_failed = false"));
        assert_eq!(unknown.totals.unfinished, 0);
        assert!(unknown.totals.dropped > 0);
        assert!(unknown.flows[0].fct_ns > known.flows[0].fct_ns);
    }
}

/// The tiny queue loses datagrams of others before the bulk notices any of it.
#[test]
fn bulk_has_a_transport_and_a_queue_of_its_own() {
    let text = with(
        "mode = 'paper'",
        "background_transport = { priority = 1 }
         until_ms = 200
         traffic = [
           { kind = 'poisson', sizes = 90_000, per_second = 1_000, messages = 100, hosts = { pattern = 'leaves', from = 0, to = 1 } },
           { kind = 'background', bytes = 2_000_000, hosts = { pattern = 'leaves', from = 0, to = 1 } },
         ]",
    );
    let outcome = outcome(&text);
    assert!(outcome.totals.dropped > 100, "{:?}", outcome.totals);
    assert!(outcome.totals.background_bytes > 2_000_000);
    // ECN alone keeps the bulk's queue short of its limit.
    assert!(outcome.paths.iter().any(|it| it.marks > 0));
}

/// An answer comes after its request, by the same machine.
#[test]
fn requests_are_answered() {
    for mode in ["paper", "native"] {
        let text = with(
            &format!("mode = '{mode}'"),
            "traffic = [{ kind = 'poisson', sizes = 1_000, per_second = 10, messages = 3, request_bytes = 1_000,
              hosts = { pattern = 'leaves', from = 0, to = 1 } }]",
        );
        let outcome = outcome(&text);
        assert_eq!(outcome.totals.unfinished, 0);
        let both_ways = 2 * (4 * 5_000 + 4 * 1_000 * 8);
        for flow in &outcome.flows {
            assert!(flow.fct_ns > Some(both_ways), "{flow:?}");
            assert_eq!(flow.segments, 1);
        }
    }
}

/// QJump: 3,000 bytes in 100 us are 240 Mbit/s, of all flows of a host together.
#[test]
fn a_pace_bounds_a_host() {
    let text = format!(
        "{TESTBED}transport = {{ control = 'fixed', initial_window = 100, rto_min_us = 100_000, pace = {{ bytes = 3_000, every_us = 100 }} }}
         traffic = [
           {{ kind = 'message', from = 0, to = 4, bytes = 29_200 }},
           {{ kind = 'message', from = 0, to = 5, bytes = 29_200 }},
           {{ kind = 'message', from = 1, to = 6, bytes = 2_920 }},
         ]"
    );
    let outcome = outcome(&text);
    let us: Vec<u64> = outcome
        .flows
        .iter()
        .filter_map(|it| Some(it.fct_ns? / 1_000))
        .collect();
    // 20 epochs for 40 segments; the flow that came first goes first.
    assert!((900..1_000).contains(&us[0]), "{us:?}");
    assert!((1_900..2_000).contains(&us[1]), "{us:?}");
    assert!(us[2] < 100, "{us:?}");
}

/// A scenario out of what proptest draws.
fn scenario() -> impl Strategy<Value = String> {
    let fabric = (1..4u16, 1..5u16, 1..4u16, 0..2u16).prop_filter(
        "somebody must be there to send to",
        |(leaves, _, hosts, _)| leaves * hosts > 1,
    );
    let transport = prop_oneof![
        Just("mode = 'paper'"),
        Just("mode = 'paper', single_path = true"),
        Just("mode = 'paper', schedule = 'fixed', share = 0.5"),
        Just("mode = 'paper', schedule = 'default', avoids_failed = false"),
        Just("mode = 'paper', routing = 'ecmp', paths = 7"),
        Just("mode = 'native'"),
        Just("mode = 'native', schedule = 'default', paths = 2"),
        Just("mode = 'native', single_path = true"),
    ];
    let ports = prop_oneof![
        Just("discipline = 'fifo', buffer_bytes = 9000"),
        Just("discipline = 'wrr', queue = [{ buffer_bytes = 4500 }, { ecn_bytes = 6000 }]"),
        Just("discipline = 'priority', queue = [{}, { buffer_bytes = 4500 }]"),
        Just("shared = { buffer_bytes = 20_000, alpha = 0.5 }"),
        Just("discipline = 'pfabric', buffer_bytes = 20_000"),
    ];
    let policy = prop_oneof![Just("ecmp"), Just("rps"), Just("letflow"), Just("tr")];
    let load = (1..=60u32, 0..100u64);
    (fabric, transport, ports, policy, load).prop_map(
        |((leaves, spines, hosts, failed), transport, ports, policy, (load, seed))| {
            let failed = failed.min(spines - 1);
            let load = f64::from(load) / 100.0;
            format!(
                "about = 'drawn'
                 seed = {seed}
                 balance.policy = '{policy}'
                 fabric = {{ leaves = {leaves}, spines = {spines}, hosts_per_leaf = {hosts},
                   host_gbps = 1, uplink_gbps = 0.7, link_delay_us = 3.3, failed = {failed} }}
                 port = {{ {ports} }}
                 host_port = {{ buffer_bytes = 1_000_000 }}
                 transport = {{ control = 'cloudburst', cloudburst = {{ {transport} }} }}
                 background_transport = {{ priority = 1, rto_min_us = 500 }}
                 traffic = [
                   {{ kind = 'poisson', sizes = [1, 4_000, 20_000, 93_000], load = {load}, messages = 40,
                     hosts = {{ pattern = 'all' }}, request_bytes = 500 }},
                   {{ kind = 'background', bytes = 40_000, hosts = {{ pattern = 'all' }} }},
                 ]"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// That no packet and no datagram is lost or made up, and that messages come out as they went
    /// in, is asserted within.
    #[test]
    fn every_message_arrives_whole(text in scenario()) {
        let outcome = outcome(&text);
        prop_assert_eq!(outcome.totals.unfinished, 0, "{}", text);
        prop_assert_eq!(outcome.flows.len(), 40);
        for flow in &outcome.flows {
            let least_ns = 2 * 2 * 3_300 + flow.bytes * 8;
            prop_assert!(flow.fct_ns >= Some(least_ns), "{flow:?}");
            prop_assert!(flow.segments > 0 && flow.needed >= flow.segments, "{flow:?}");
            prop_assert!(flow.needed <= flow.sent, "{flow:?}");
        }
        // What waits at the end of a short run counts as sent.
        prop_assert!(outcome.paths.iter().all(|it| (0.0..=1.05).contains(&it.utilisation)));
    }

    #[test]
    fn the_same_experiment_has_the_same_outcome(text in scenario()) {
        let (first, second) = (outcome(&text), outcome(&text));
        prop_assert_eq!(first.flows, second.flows);
        prop_assert_eq!(first.totals, second.totals);
    }
}
