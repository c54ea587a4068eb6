//! Link failures during a run, and recovery.

use crate::support::outcome;
use netsim::Outcome;

/// One message of one segment at each of these times, between the hosts of two leaves.
fn messages(spines: u16, policy: &str, outage: &str, at_us: &[u32]) -> Outcome {
    let message =
        |at| format!("{{ kind = 'message', from = 0, to = 1, bytes = 1460, at_us = {at} }}");
    let traffic: Vec<String> = at_us.iter().map(message).collect();
    outcome(&format!(
        "about = 'links fail'
         balance.policy = '{policy}'
         fabric = {{ leaves = 2, spines = {spines}, hosts_per_leaf = 1, host_gbps = 10,
           uplink_gbps = 10, link_delay_us = 1, outage = [{outage}] }}
         transport = {{ rto_min_us = 1_000 }}
         traffic = [{}]",
        traffic.join(", ")
    ))
}

/// Four links of 1 us, and 1.2 us for each of four transmissions.
const IDLE_NS: u64 = 8_800;

fn times(outcome: &Outcome) -> Vec<u64> {
    outcome.flows.iter().filter_map(|it| it.fct_ns).collect()
}

#[test]
fn what_is_sent_into_an_outage_is_lost_and_sent_again_when_it_is_over() {
    let outage = "{ spine = 0, at_us = 100, back_us = 1500 }";
    let outcome = messages(1, "ecmp", outage, &[10, 200, 1600]);
    // Sent at 200, again at 1200, still into the outage, and at 3200: the timeout has doubled.
    assert_eq!(times(&outcome), [IDLE_NS, 3_000_000 + IDLE_NS, IDLE_NS]);
    assert_eq!(outcome.totals.dropped, 2);
    assert_eq!(outcome.paths.iter().map(|it| it.drops).sum::<u32>(), 2);
}

#[test]
fn policies_go_round_a_failure_as_soon_as_they_know() {
    // Each has arrived and is acknowledged within 13 us.
    let at_us: Vec<u32> = (0..200).map(|it| 20 * it).collect();
    for policy in [
        "ecmp",
        "rps",
        "drb",
        "presto",
        "letflow",
        "tr",
        "tr_guarded",
    ] {
        let outage = "{ spine = 1, at_us = 1015, back_us = 3015 }";
        let known = messages(3, policy, outage, &at_us);
        assert_eq!(known.totals.dropped, 0, "{policy}");
        let outage = "{ spine = 1, at_us = 1015, back_us = 3015, known_after_us = 500 }";
        let late = messages(3, policy, outage, &at_us);
        let lost: Vec<u64> = late
            .flows
            .iter()
            .filter(|it| it.retransmitted > 0)
            .map(|it| it.start_ns)
            .collect();
        assert!(!lost.is_empty(), "{policy}");
        let before_known = |it: &u64| (1_015_000..1_515_000).contains(it);
        assert!(lost.iter().all(before_known), "{policy}: {lost:?}");
        assert_eq!(late.totals.unfinished, 0, "{policy}");
    }
}

#[test]
fn a_path_is_used_again_after_its_return() {
    let at_us: Vec<u32> = (0..400).map(|it| 10 * it).collect();
    let busy = |outage: &str| {
        let outcome = messages(2, "rps", outage, &at_us);
        let path = outcome.paths.iter().find(|it| it.link == "leaf0->spine1");
        path.expect("there is such a link").utilisation
    };
    let (always, never) = (busy(""), busy("{ spine = 1, at_us = 0 }"));
    let half = busy("{ spine = 1, at_us = 0, back_us = 2000 }");
    assert_eq!(never, 0.0);
    assert!((half / always - 0.5).abs() < 0.12, "{half} of {always}");
}

#[test]
fn two_outages_of_a_link_are_over_when_both_are() {
    let outages = "{ spine = 0, at_us = 100, back_us = 400 }, { spine = 0, leaf = 1, at_us = 200, back_us = 900 }";
    let outcome = messages(1, "ecmp", outages, &[500, 950]);
    assert_eq!(times(&outcome), [1_000_000 + IDLE_NS, IDLE_NS]);
}
