//! Collective operations, against what can be computed by hand.

use std::collections::BTreeSet;

use netsim::Outcome;

use crate::support::{netsim, outcome};

/// Eight hosts at one switch, 10 Gbit/s, 1 us a link; a buffer that holds all, and a window that does: with one of a few
/// round trips ACKs wait behind data and come all at once, and links are idle for a hop in each window.
fn one_switch(traffic: &str) -> Outcome {
    outcome(&format!(
        "about = 'test'
         fabric = {{ leaves = 1, spines = 1, hosts_per_leaf = 8, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }}
         port = {{ buffer_bytes = 16_000_000 }}
         transport = {{ control = 'fixed', initial_window = 1000 }}
         traffic = [{{ {traffic} }}]"
    ))
}

const GBPS: f64 = 10.0;
/// Two links of 1 us, and a packet that the second one takes as a whole.
const HOP_NS: f64 = 2_000.0 + 1_200.0;

/// Time on the wire of so many bytes, with headers; `acks` share it.
fn wire_ns(bytes: f64, acks: bool) -> f64 {
    let segments = (bytes / 1460.0).ceil();
    (bytes + segments * if acks { 80.0 } else { 40.0 }) * 8.0 / GBPS
}

fn completions(outcome: &Outcome) -> Vec<f64> {
    let times = outcome.iterations.iter();
    times
        .map(|it| it.completion_ns.expect("complete") as f64)
        .collect()
}

#[track_caller]
fn within(percent: f64, value: f64, expected: f64) {
    assert!(
        (value / expected - 1.0).abs() < percent / 100.0,
        "{value} is not within {percent} % of {expected}"
    );
}

/// 2 (n - 1) / n of the buffer over each link, and a hop for each step. The wire takes 5.5 % for headers, and for ACKs
/// of what a host receives, which share the link with what it sends.
#[test]
fn a_ring_takes_what_its_links_take() {
    let outcome =
        one_switch("kind = 'ring_all_reduce', bytes = 8_000_000, iterations = 2, compute_us = 100");
    let law_ns = 2.0 * 7.0 / 8.0 * 8e6 * 8.0 / GBPS + 14.0 * HOP_NS;
    for time_ns in completions(&outcome) {
        within(1.0, time_ns, 14.0 * (wire_ns(1e6, true) + HOP_NS));
        assert!(time_ns > law_ns, "{time_ns} {law_ns}");
        within(6.0, time_ns, law_ns);
    }
    assert_eq!(outcome.flows.len(), 2 * 14 * 8);
    assert_eq!((outcome.totals.unfinished, outcome.totals.dropped), (0, 0));
    let [first, second] = &outcome.iterations[..] else {
        panic!("{:?}", outcome.iterations);
    };
    let end_ns = first.start_ns + first.completion_ns.expect("complete");
    assert_eq!((first.start_ns, second.start_ns), (0, end_ns + 100_000));
}

/// Two leaves, four spines, ranks drawn so that six of eight steps cross. Packets in turn over all spines take what
/// four links take; with ECMP two connections share an uplink, and all wait for these.
#[test]
fn a_ring_over_a_fabric_takes_what_its_links_take() {
    let run = |policy: &str| {
        let outcome = outcome(&format!(
            "about = 'test'
             seed = 3
             balance.policy = '{policy}'
             fabric = {{ leaves = 2, spines = 4, hosts_per_leaf = 4, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }}
             port = {{ buffer_bytes = 16_000_000 }}
             transport = {{ control = 'fixed', initial_window = 1000, recovery = 'sack' }}
             traffic = [{{ kind = 'ring_all_reduce', bytes = 8_000_000, placement = 'shuffled' }}]"
        ));
        completions(&outcome)[0]
    };
    // Four links of 1 us, and a packet that three of them take as a whole.
    let hop_ns = 4_000.0 + 3.0 * 1_200.0;
    within(1.5, run("drb"), 14.0 * (wire_ns(1e6, true) + hop_ns));
    within(
        1.5,
        run("ecmp"),
        14.0 * (2.0 * wire_ns(1e6, false) + hop_ns),
    );
}

/// (n - 1) / n of the buffer over each link. One after the other there is a hop for each, and ACKs share the links; all at
/// once there is one, and ACKs wait behind all data.
#[test]
fn an_all_to_all_takes_what_its_links_take() {
    for (at_once, hops, acks) in [("at_once = 1", 7.0, true), ("at_once = 7", 1.0, false)] {
        let outcome = one_switch(&format!(
            "kind = 'all_to_all', bytes = 8_000_000, {at_once}"
        ));
        let law_ns = 7.0 / 8.0 * 8e6 * 8.0 / GBPS + hops * HOP_NS;
        let time_ns = completions(&outcome)[0];
        within(1.0, time_ns, 7.0 * wire_ns(1e6, acks) + hops * HOP_NS);
        assert!(time_ns > law_ns, "{time_ns} {law_ns}");
        within(6.0, time_ns, law_ns);
        assert_eq!(outcome.flows.len(), 56);
        assert_eq!((outcome.totals.unfinished, outcome.totals.dropped), (0, 0));
    }
}

/// Two ranks: up and down, one after the other as a whole, and in chunks at the same time.
#[test]
fn a_tree_goes_up_and_down_chunk_by_chunk() {
    let run = |chunks: u32| {
        let keys =
            format!("kind = 'tree_all_reduce', ranks = 2, bytes = 8_000_000, chunks = {chunks}");
        completions(&one_switch(&keys))[0]
    };
    within(0.1, run(1), 2.0 * (wire_ns(8e6, false) + HOP_NS));
    // The last chunk or two, which share the link, come down when they are up; the rest has come down meanwhile.
    let (time_ns, chunk) = (run(16), 8e6 / 16.0);
    let least_ns = wire_ns(8e6, false) + wire_ns(chunk, false);
    let most_ns = 1.01 * (wire_ns(8e6, true) + 2.0 * wire_ns(chunk, true));
    assert!(
        time_ns > least_ns && time_ns < most_ns,
        "{time_ns} {least_ns} {most_ns}"
    );
    // Of three, the root receives from two, one after the other on its link; of five, a rank inside does, and from its
    // parent.
    for (ranks, buffers) in [(3, 2.0), (5, 3.0)] {
        let keys =
            format!("kind = 'tree_all_reduce', ranks = {ranks}, bytes = 8_000_000, chunks = 64");
        let time_ns = completions(&one_switch(&keys))[0];
        let law_ns = buffers * 8e6 * 8.0 / GBPS;
        assert!(
            time_ns > law_ns && time_ns < 1.12 * law_ns,
            "{ranks}: {time_ns} {law_ns}"
        );
    }
}

/// Steps between the same hosts are of one connection, and ECMP keeps to its path.
#[test]
fn a_connection_keeps_its_path_under_ecmp_through_all_steps() {
    let used = |policy: &str| {
        let outcome = outcome(&format!(
            "about = 'test'
             balance.policy = '{policy}'
             fabric = {{ leaves = 2, spines = 8, hosts_per_leaf = 1, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }}
             traffic = [{{ kind = 'ring_all_reduce', bytes = 200_000, iterations = 20 }}]"
        ));
        assert_eq!(outcome.iterations.len(), 20);
        let busy = outcome.paths.iter().filter(|it| it.utilisation > 0.03);
        busy.filter(|it| it.link.starts_with("leaf0")).count()
    };
    assert_eq!(used("ecmp"), 1);
    assert_eq!(used("rps"), 8);
}

#[test]
fn ranks_are_placed_in_order_or_by_the_seed() {
    let pairs = |seed: u64, placement: &str| {
        let outcome = outcome(&format!(
            "about = 'test'
             seed = {seed}
             topology.fat_tree = {{ k = 4, host_gbps = 10, link_gbps = 10, link_delay_us = 1 }}
             traffic = [{{ kind = 'ring_all_reduce', bytes = 16_000, ranks = 8, placement = '{placement}' }}]"
        ));
        let pairs: BTreeSet<(u16, u16)> = outcome.flows.iter().map(|it| (it.from, it.to)).collect();
        assert_eq!(pairs.len(), 8);
        pairs
    };
    let in_order: BTreeSet<(u16, u16)> = (0..8).map(|it| (it, (it + 1) % 8)).collect();
    assert_eq!(pairs(1, "in_order"), in_order);
    assert_ne!(pairs(1, "shuffled"), in_order);
    assert_eq!(pairs(1, "shuffled"), pairs(1, "shuffled"));
    assert_ne!(pairs(1, "shuffled"), pairs(2, "shuffled"));
}

#[test]
fn iterations_are_a_class_of_the_table_and_rows_of_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_string_lossy();
    let output = netsim(&["run", "ring-all-reduce", "--scheme", "rps", "--out", &path]);
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(stdout.contains("traffic 0: ring all-reduce"), "{stdout}");
    let rows = std::fs::read_to_string(directory.path().join("iterations.csv")).expect("a file");
    let mut rows = rows.lines();
    assert_eq!(
        rows.next(),
        Some("traffic,iteration,start_ns,completion_ns")
    );
    assert_eq!(rows.count(), 1);
    // A run without any leaves no rows of another one.
    let output = netsim(&["run", "tr-motivation", "--messages", "20", "--out", &path]);
    assert!(output.status.success(), "{output:?}");
    assert!(!directory.path().join("iterations.csv").exists());
}

/// Iterations that begin before what is due next, and those that begin after it, start at their time.
#[test]
fn messages_and_iterations_start_when_they_are_due() {
    let outcome = outcome(
        "about = 'test'
         fabric = { leaves = 1, spines = 1, hosts_per_leaf = 4, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }
         traffic = [
           { kind = 'message', from = 0, to = 1, bytes = 100, at_us = 0 },
           { kind = 'message', from = 0, to = 1, bytes = 100, at_us = 150 },
           { kind = 'message', from = 0, to = 1, bytes = 100, at_us = 900 },
           { kind = 'all_to_all', bytes = 4_000, at_us = 50, iterations = 3, compute_us = 200 },
         ]",
    );
    let messages = outcome.flows.iter().filter(|it| it.traffic < 3);
    let messages: Vec<(u64, Option<u64>)> = messages.map(|it| (it.start_ns, it.fct_ns)).collect();
    // Two links of 1 us, and 140 bytes on each.
    let fct_ns = Some(2_000 + 2 * 112);
    assert_eq!(messages, [0, 150_000, 900_000].map(|it| (it, fct_ns)));
    let mut due_ns = 50_000;
    for iteration in &outcome.iterations {
        assert_eq!(iteration.start_ns, due_ns);
        due_ns += iteration.completion_ns.expect("complete") + 200_000;
    }
    assert_eq!(
        (outcome.iterations.len(), outcome.totals.unfinished),
        (3, 0)
    );
}

#[test]
fn a_run_that_ends_early_has_the_iterations_that_began() {
    let outcome = outcome(
        "about = 'test'
         until_ms = 1
         fabric = { leaves = 1, spines = 1, hosts_per_leaf = 4, host_gbps = 1, uplink_gbps = 1, link_delay_us = 1 }
         traffic = [{ kind = 'all_to_all', bytes = 4_000_000, iterations = 3 }]",
    );
    assert_eq!(outcome.iterations.len(), 1);
    assert_eq!(outcome.iterations[0].completion_ns, None);
}

#[test]
fn what_is_wrong_with_an_operation_is_named() {
    for (keys, named) in [
        (
            "bytes = 100, ranks = 9",
            "traffic[0].ranks = 9: there are 8 hosts",
        ),
        ("bytes = 100, ranks = 1", "traffic[0]: 1 ranks"),
        (
            "bytes = 7",
            "traffic[0]: 7 bytes cannot be divided into 8 parts",
        ),
        ("bytes = 8, iterations = 0", "traffic[0].iterations = 0"),
        (
            "bytes = 8, iterations = 100_000",
            "transfers are more than 10000000",
        ),
        ("bytes = 8, compute_us = -1", "traffic[0].compute_us = -1"),
        (
            "bytes = 8, iterations = 200, compute_us = 1e6",
            "compute_us * iterations",
        ),
        ("bytes = 8, priority = 8", "traffic[0].priority = 8"),
        ("bytes = 8, zebra = 8", "zebra"),
    ] {
        let text = format!(
            "about = 'test'
             fabric = {{ leaves = 1, spines = 1, hosts_per_leaf = 8, host_gbps = 1, uplink_gbps = 1, link_delay_us = 1 }}
             traffic = [{{ kind = 'ring_all_reduce', {keys} }}]"
        );
        let error = crate::support::error(&text);
        assert!(error.contains(named), "{error}\n{named}");
    }
}
