//! Laws that hold in every fabric: random small ones under random loads.

use crate::support::outcome;
use proptest::prelude::*;

/// A scenario out of what proptest draws.
fn scenario() -> impl Strategy<Value = String> {
    let fabric = (1..4u16, 1..5u16, 1..5u16, 0..3u16, 0..2u16).prop_filter(
        "somebody must be there to send to",
        |(leaves, _, hosts, ..)| leaves * hosts > 1,
    );
    let transport = (
        prop_oneof![Just("reno"), Just("dctcp"), Just("fixed")],
        prop_oneof![Just("newreno"), Just("sack")],
        prop_oneof![Just((1, 1)), Just((3, 1)), Just((1, 4))],
        prop_oneof![Just("[]"), Just("[3000, 20_000]")],
    );
    let ports = prop_oneof![
        Just("discipline = 'fifo'"),
        Just("discipline = 'pfabric'"),
        Just("discipline = 'priority', queue = [{}, { buffer_bytes = 4500, ecn_bytes = 1500 }]"),
        Just("discipline = 'wrr', queue = [{ weight = 3 }, {}, { buffer_bytes = 1500 }]"),
        Just("shared = { buffer_bytes = 20_000, alpha = 0.5 }"),
    ];
    let policy = prop_oneof![
        Just("ecmp"),
        Just("rps"),
        Just("drb"),
        Just("presto"),
        Just("letflow"),
        Just("tr"),
        Just("tr_guarded")
    ];
    let buffer = 1_500..40_000u32;
    let load = (1..=100u32, 0..100u64);
    (fabric, transport, ports, policy, buffer, load).prop_map(
        |((leaves, spines, hosts, slow, failed), transport, ports, policy, buffer, load)| {
            let (control, recovery, (subflows, replicas), pias) = transport;
            let (slow, failed) = (slow.min(spines), failed.min(spines - 1));
            let (load, seed) = (f64::from(load.0) / 100.0, load.1);
            format!(
                "about = 'drawn'
                 seed = {seed}
                 balance.policy = '{policy}'
                 fabric = {{ leaves = {leaves}, spines = {spines}, hosts_per_leaf = {hosts},
                   host_gbps = 1, uplink_gbps = 0.7, link_delay_us = 3.3, failed = {failed},
                   slow = {{ paths = {slow}, rtt_ratio = 2.5 }} }}
                 port = {{ buffer_bytes = {buffer}, ecn_bytes = 6000, {ports} }}
                 transport = {{ control = '{control}', recovery = '{recovery}', subflows = {subflows},
                   replicas = {replicas}, pias_bytes = {pias}, rto_min_us = 300 }}
                 traffic = [{{ kind = 'poisson', sizes = 'web_server_xpass', load = {load},
                   messages = 60, hosts = {{ pattern = 'all' }}, request_bytes = 500 }}]"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// That no packet is lost or made up and nothing happens in the past is asserted within; here,
    /// that everything arrives, in no less time than light and links take.
    #[test]
    fn every_message_arrives_whole(text in scenario()) {
        let outcome = outcome(&text);
        prop_assert_eq!(outcome.totals.unfinished, 0, "{}", text);
        prop_assert_eq!(outcome.flows.len(), 60);
        for flow in &outcome.flows {
            let least_ns = 2 * 2 * 3_300 + flow.bytes * 8;
            prop_assert!(flow.fct_ns >= Some(least_ns), "{flow:?}");
            prop_assert!(u64::from(flow.arrived) >= flow.bytes.div_ceil(1460), "{flow:?}");
            prop_assert!(flow.arrived <= flow.sent && flow.retransmitted <= flow.sent);
        }
        let totals = outcome.totals;
        prop_assert!(totals.injected >= totals.delivered + totals.dropped);
        prop_assert!(outcome.paths.iter().all(|it| (0.0..=1.001).contains(&it.utilisation)));
    }

    #[test]
    fn the_same_experiment_has_the_same_outcome(text in scenario()) {
        let (first, second) = (outcome(&text), outcome(&text));
        prop_assert_eq!(first.flows, second.flows);
        prop_assert_eq!(first.totals, second.totals);
        prop_assert_eq!(first.paths, second.paths);
    }

    /// Common random numbers: whatever the scheme, the same messages start at the same times
    /// between the same hosts.
    #[test]
    fn schemes_meet_the_same_messages(first in scenario(), second in scenario()) {
        let traffic = |text: &str| {
            let fabric = "fabric = { leaves = 2, spines = 2, hosts_per_leaf = 2, host_gbps = 1,
                uplink_gbps = 1, link_delay_us = 1 }";
            let other = |line: &&str| !line.contains("fabric") && !line.contains("host_gbps") && !line.contains("slow");
            let rest: Vec<&str> = text.lines().filter(other).map(str::trim).collect();
            let text = rest.join("\n");
            let from = text.find("seed").unwrap_or(0);
            let line = text[from..].find('\n').unwrap_or(0) + from;
            let same = format!("{}seed = 7{}\n{fabric}", &text[..from], &text[line..]);
            let load = same.find("load = ").unwrap_or(0);
            let comma = same[load..].find(',').unwrap_or(0) + load;
            format!("{}load = 0.5{}", &same[..load], &same[comma..])
        };
        let starts = |text: &str| {
            let flows = outcome(&traffic(text)).flows.into_iter();
            flows.map(|it| (it.start_ns, it.bytes, it.from, it.to)).collect::<Vec<_>>()
        };
        prop_assert_eq!(starts(&first), starts(&second));
    }
}
