//! Flows that go by credits (ExpressPass).

use crate::support::{error, outcome};
use netsim::{FlowRecord, Outcome};

/// 10 Gbit/s, four paths, ports that hold `buffer_bytes` of data.
fn with(buffer_bytes: u32, transport: &str, traffic: &str) -> String {
    format!(
        "about = 'test'
until_ms = 200
classes_bytes = []
fabric = {{ leaves = 2, spines = 4, hosts_per_leaf = 8, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }}
port = {{ buffer_bytes = {buffer_bytes}, credit = {{}} }}
host_port = {{ buffer_bytes = 4_000_000, credit = {{}} }}
transport = {{ control = 'expresspass', header_bytes = 78, {transport} }}
traffic = [{traffic}]"
    )
}

fn message(from: u16, to: u16, bytes: u64, at_us: u64) -> String {
    format!("{{ kind = 'message', from = {from}, to = {to}, bytes = {bytes}, at_us = {at_us} }},")
}

fn goodput_gbps(flow: &FlowRecord) -> f64 {
    flow.bytes as f64 * 8.0 / flow.fct_ns.expect("it arrives") as f64
}

fn data_lost(outcome: &Outcome) -> u64 {
    outcome.totals.dropped - outcome.totals.credits_dropped
}

/// A request goes there, a credit comes back, and the segment goes there: of each hop a whole nanosecond.
#[test]
fn a_segment_takes_a_round_trip_more_than_its_own_way() {
    let control = 4 * (1_000 + 68);
    let data = |bytes: u64| 4 * (1_000 + (bytes * 4).div_ceil(5));
    for bytes in [100, 1_460] {
        let outcome = outcome(&with(150_000, "", &message(0, 8, bytes, 0)));
        let expected = 2 * control + data(bytes + 78);
        assert_eq!(outcome.flows[0].fct_ns, Some(expected), "{bytes} bytes");
        assert_eq!(outcome.flows[0].sent, 1);
    }
}

/// However many send to one: credits are limited at its port, so that data fit into it. TCP's window does not know.
#[test]
fn incast_loses_credits_and_no_data() {
    for senders in [8, 40, 120] {
        let incast = format!("{{ kind = 'incast', senders = {senders}, to = 0, bytes = 200_000 }}");
        let text = with(30 * 1_538, "", &incast);
        let credited = outcome(&text);
        assert_eq!(data_lost(&credited), 0, "{senders} senders");
        assert!(credited.totals.credits_dropped > 0);
        assert!(credited.flows.iter().all(|it| it.retransmitted == 0));
        let bytes = f64::from(senders) * 200_000.0;
        let took = credited.flows.iter().filter_map(|it| it.fct_ns).max();
        let gbps = bytes * 8.0 / took.expect("they arrive") as f64;
        assert!(gbps > 7.0, "{senders} senders: {gbps} Gbit/s");
        let windows = outcome(&text.replace("'expresspass'", "'dctcp'"));
        assert!(data_lost(&windows) > 0, "{senders} senders");
    }
}

/// A switch whose ports share its memory has the same for credits besides.
#[test]
fn credits_take_no_shared_memory() {
    let incast = "{ kind = 'incast', senders = 40, to = 0, bytes = 100_000 }";
    let text = with(60_000, "", incast);
    let shared = text.replacen(
        "credit = {}",
        "credit = {}, shared = { buffer_bytes = 60_000, alpha = 8 }",
        1,
    );
    let (shared, own) = (outcome(&shared), outcome(&text));
    assert_eq!(data_lost(&shared), 0);
    assert_eq!(shared.totals, own.totals);
}

/// What waits in a port is bounded by how far ways differ, and not by how many there are.
#[test]
fn queueing_delay_does_not_grow_with_senders() {
    let queued_us = |senders: u32| {
        let incast = format!("{{ kind = 'incast', senders = {senders}, to = 0, bytes = 100_000 }}");
        let outcome = outcome(&with(4_000_000, "", &incast));
        let sum = |of: fn(&FlowRecord) -> u64| outcome.flows.iter().map(of).sum::<u64>() as f64;
        sum(|it| it.queued_ns) / sum(|it| it.arrived.into()) / 1e3
    };
    let (few, many) = (queued_us(8), queued_us(160));
    assert!(few < 10.0 && many < 1.5 * few + 2.0, "{few} us, {many} us");
}

/// A second flow gets its half of a link that a first one fills, from its second millisecond on.
#[test]
fn a_second_flow_gets_its_share() {
    let traffic = message(8, 0, 20_000_000, 0) + &message(9, 0, 6_000_000, 5_000);
    let outcome = outcome(&with(150_000, "", &traffic));
    let [first, second] = &outcome.flows[..] else {
        panic!("two flows");
    };
    let share = goodput_gbps(second) / (10.0 * 1_460.0 / 1_622.0);
    assert!((0.42..0.58).contains(&share), "{share} of the link");
    // 26 MB at what credits leave of the link, and a bit for the beginning and the end.
    let ideal_ns = 26_000_000.0 * 8.0 / 10.0 * 1_622.0 / 1_460.0;
    let took = first.fct_ns.expect("it arrives") as f64;
    assert!(
        (1.0..1.12).contains(&(took / ideal_ns)),
        "{took} {ideal_ns}"
    );
    assert_eq!(data_lost(&outcome), 0);
}

/// Data take the spine that their credits came over, whichever that is.
#[test]
fn data_take_the_way_of_their_credits() {
    let mut spines = std::collections::BTreeSet::new();
    for seed in 1..=8 {
        let text = with(150_000, "", &message(0, 8, 1_000_000, 0));
        let outcome = outcome(&format!("seed = {seed}\n{text}"));
        let used = |leaf: &str| {
            let up = outcome.paths.iter();
            let up = up.filter(|it| it.link.starts_with(leaf) && it.utilisation > 0.0);
            up.map(|it| it.link.split("->").last().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        let (data, credits) = (used("leaf0"), used("leaf1"));
        assert_eq!(data.len(), 1, "seed {seed}");
        assert_eq!(data, credits, "seed {seed}");
        spines.extend(data);
    }
    assert!(spines.len() > 1, "{spines:?}");
}

/// Credits go on for a round trip after the last one that was needed, at the rate that the flow has by then.
#[test]
fn short_flows_waste_credits_and_long_ones_hardly_any() {
    let wasted = |transport: &str, bytes: u64| {
        // The run ends with the second one, when what the first has wasted is known.
        let traffic = message(0, 8, bytes, 0) + &message(1, 9, 100, 20_000);
        let totals = outcome(&with(150_000, transport, &traffic)).totals;
        assert!(totals.credits_wasted + bytes.div_ceil(1_460) <= totals.credits_sent);
        totals.credits_wasted as f64 / totals.credits_sent as f64
    };
    // 770,000 credits a second, and a round trip of 13 us between stop and credit: up to ten.
    let short = wasted("expresspass = { alpha = 1, w_init = 0.5 }", 2 * 1_460);
    assert!((0.6..0.9).contains(&short), "{short}");
    let slow = wasted("", 2 * 1_460);
    assert!(slow < 0.5 * short, "{slow} {short}");
    assert!(wasted("", 4_000_000) < 0.02);
}

/// A link that fails takes a request, credits, data or the stop along, whenever that is.
#[test]
fn what_a_failed_link_loses_is_sent_again() {
    let mut sent_again = 0;
    let mut asked_again = 0;
    let mut in_vain = 0;
    for at_us in 0..40 {
        let text = with(
            150_000,
            "expresspass = { alpha = 1 }",
            &message(0, 8, 30_000, 0),
        );
        let back_us = at_us + 12;
        let outage =
            |spine| format!("{{ spine = {spine}, at_us = {at_us}, back_us = {back_us} }},");
        let outages: String = (0..4).map(outage).collect();
        let delay = "link_delay_us = 1";
        let outcome = outcome(&text.replace(delay, &format!("{delay}, outage = [{outages}]")));
        assert_eq!(outcome.totals.unfinished, 0, "at {at_us} us");
        sent_again += outcome.flows[0].retransmitted;
        asked_again += outcome.flows[0].timeouts;
        in_vain += outcome.flows[0].arrived - outcome.flows[0].segments;
    }
    assert!(2 * in_vain <= sent_again, "{in_vain} of {sent_again}");
    assert!(
        sent_again > 0 && asked_again > 0,
        "{sent_again} {asked_again}"
    );
}

#[test]
fn what_credits_need_is_demanded() {
    let good = with(150_000, "", &message(0, 8, 1, 0));
    for (part, instead, says) in [
        ("buffer_bytes = 150000, credit = {}", "", "port.credit"),
        ("4_000_000, credit = {}", "4_000_000", "host_port.credit"),
        (
            "150000, credit = {}",
            "150000, credit = { buffer_bytes = 83 }",
            "83",
        ),
        (
            "150000, credit = {}",
            "150000, credit = { share = 0 }",
            "port.credit.share",
        ),
        (
            "150000, credit = {}",
            "150000, credit = { mbps = 0 }",
            "port.credit.mbps",
        ),
        (
            "traffic =",
            "balance.policy = 'rps'\ntraffic =",
            "balance.policy",
        ),
        ("header_bytes = 78", "replicas = 2", "replicas"),
        ("header_bytes = 78", "subflows = 2", "subflows"),
        (
            "header_bytes = 78",
            "expresspass = { alpha = 0 }",
            "expresspass.alpha",
        ),
        (
            "header_bytes = 78",
            "expresspass = { w_init = 0.6 }",
            "expresspass.w_init",
        ),
        (
            "header_bytes = 78",
            "expresspass = { w_max = 0.001 }",
            "expresspass.w_max",
        ),
        (
            "header_bytes = 78",
            "expresspass = { target_loss = 1 }",
            "target_loss",
        ),
        (
            "header_bytes = 78",
            "expresspass = { jitter = 2 }",
            "expresspass.jitter",
        ),
        (
            "header_bytes = 78",
            "expresspass = { credit_bytes = 0 }",
            "credit_bytes",
        ),
        (
            "header_bytes = 78",
            "expresspass = { timeout_us = 0 }",
            "timeout_us",
        ),
    ] {
        assert!(good.contains(part), "{part}");
        let said = error(&good.replace(part, instead));
        assert!(said.contains(says), "{says}: {said}");
    }
    let tree = "topology.fat_tree = { k = 4, host_gbps = 1, link_gbps = 1, link_delay_us = 1 }";
    let start = good.find("fabric =").expect("it is there");
    let end = start + good[start..].find('\n').expect("a line");
    let said = error(&format!("{}{tree}{}", &good[..start], &good[end..]));
    assert!(said.contains("take a [fabric]"), "{said}");
}
