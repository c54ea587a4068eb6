//! TR where its paper promises order: two leaves, so that no queue builds up behind the spines.

use crate::support::outcome;

/// The motivation's fabric at an asymmetry, with messages whose last segments are full.
fn run(policy: &str, ratio: f64, seed: u64) -> netsim::Outcome {
    outcome(&format!(
        "about = 'TR in its motivation'
         seed = {seed}
         balance.policy = '{policy}'
         fabric = {{ leaves = 2, spines = 10, hosts_per_leaf = 10, host_gbps = 1, uplink_gbps = 1,
           link_delay_us = 25, slow = {{ paths = 5, rtt_ratio = {ratio:?} }} }}
         port = {{ ecn_bytes = 30_000 }}
         traffic = [{{ kind = 'poisson', sizes = [1460, 14_600, 146_000, 2_920_000], load = 0.6,
           messages = 100, hosts = {{ pattern = 'leaves', from = 0, to = 1 }} }}]"
    ))
}

#[test]
fn in_the_motivation_nothing_is_out_of_order_or_sent_again() {
    for policy in ["tr", "tr_guarded"] {
        for ratio in [1.0, 1.5, 3.5] {
            for seed in 1..4 {
                let outcome = run(policy, ratio, seed);
                assert_eq!(outcome.totals.dropped, 0);
                for flow in &outcome.flows {
                    let it = (flow.out_of_order, flow.retransmitted);
                    assert_eq!(it, (0, 0), "{policy} {ratio} {seed}: {flow:?}");
                }
            }
        }
    }
}

/// Of two spines one has a slow port to the other leaf, which leaves can only hear of: their own ports are the same.
#[test]
fn slow_port_of_a_spine_is_left_alone_where_leaves_hear_of_it() {
    let mean_ns = |far: &str| {
        let messages = (0..8).map(|it| {
            let to = 8 + it;
            format!("{{ kind = 'message', from = {it}, to = {to}, bytes = 1_000_000 }}")
        });
        let messages = messages.collect::<Vec<_>>().join(", ");
        let outcome = outcome(&format!(
            "about = 'a slow port'
             balance = {{ policy = 'tr', tr = {{ far = '{far}', ageing = 'drains' }} }}
             fabric = {{ leaves = 2, spines = 2, hosts_per_leaf = 8, host_gbps = 1, uplink_gbps = 10,
               link_delay_us = 5, path = [{{ spine = 0, leaf = 1, gbps = 0.2 }}] }}
             port = {{ ecn_bytes = 30_000 }}
             traffic = [{messages}]"
        ));
        let completions = outcome.flows.iter().map(|it| it.fct_ns.expect("it ends"));
        completions.sum::<u64>() / 8
    };
    let (heard, unheard) = (mean_ns("acks"), mean_ns("nothing"));
    println!("{heard} ns, and {unheard} without");
    assert!(heard < unheard / 2, "{heard} {unheard}");
    assert!(mean_ns("exact") < unheard / 2);
}

/// All of a long message goes up one of two paths by hash, and half of it up each by turns.
#[test]
fn long_flows_are_counted_by_path() {
    let deviation = |policy: &str, bytes: u32| {
        let text = format!(
            "about = 'one message'
             classes_bytes = [10_000, 99_999]
             balance.policy = '{policy}'
             fabric = {{ leaves = 2, spines = 2, hosts_per_leaf = 1, host_gbps = 1, uplink_gbps = 1, link_delay_us = 1 }}
             traffic = [{{ kind = 'message', from = 0, to = 1, bytes = {bytes} }}]"
        );
        let source = netsim::Source::from_text("test", &text);
        let experiment = source.experiment(&netsim::Overrides::default());
        let experiment = experiment.expect("the scenario is right");
        let outcome = netsim::run(&experiment);
        netsim::Manifest::new(&experiment, &outcome)
            .paths
            .long_deviation
    };
    assert_eq!(deviation("ecmp", 100_000), Some(1.0));
    let sprayed = deviation("drb", 100_000);
    assert!(sprayed.is_some_and(|it| it < 0.05), "{sprayed:?}");
    assert_eq!(deviation("ecmp", 99_999), None, "it is not long");
}

#[test]
fn spraying_there_sends_much_again() {
    let outcome = run("rps", 3.5, 1);
    let again: u32 = outcome.flows.iter().map(|it| it.retransmitted).sum();
    let sent: u32 = outcome.flows.iter().map(|it| it.sent).sum();
    assert!(again * 20 > sent, "{again} of {sent}");
}

/// TR uses more than the path that a hash happens to choose.
#[test]
fn short_messages_are_faster_than_by_hash() {
    let mean = |policy: &str| {
        let outcomes = (1..4).map(|seed| run(policy, 3.5, seed));
        let short = outcomes
            .flat_map(|it| it.flows)
            .filter(|it| it.bytes < 100_000);
        let times: Vec<u64> = short.filter_map(|it| it.fct_ns).collect();
        times.iter().sum::<u64>() as f64 / times.len() as f64
    };
    assert!(mean("tr") < 0.9 * mean("ecmp"));
}
