//! Topologies beyond leaf-spine: fat trees, and graphs from files.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use netsim::{Outcome, Overrides, Source};
use proptest::prelude::*;

use crate::support::{error, outcome};

const POLICIES: [&str; 7] = [
    "ecmp",
    "rps",
    "drb",
    "presto",
    "letflow",
    "tr",
    "tr_guarded",
];

fn fat_tree(k: u16, rest: &str) -> String {
    format!(
        "about = 'test'
         topology.fat_tree = {{ k = {k}, host_gbps = 10, link_gbps = 10, link_delay_us = 1 }}
         {rest}"
    )
}

/// A scenario with a topology from a file.
fn with_file(topology: &str, rest: &str) -> Result<Outcome, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let scenario = directory.path().join("scenario.toml");
    fs::write(directory.path().join("graph.toml"), topology).expect("it can be written");
    let text = format!("about = 'test'\ntopology.file = 'graph.toml'\n{rest}");
    fs::write(&scenario, text).expect("it can be written");
    let source = Source::find(&scenario.to_string_lossy()).expect("it can be read");
    let experiment = source.experiment(&Overrides::default());
    Ok(netsim::run(&experiment.map_err(|it| it.to_string())?))
}

/// One packet from each host to each other one, alone in the network: two links within a rack, four within a pod,
/// six between pods, each of 1 us and 1.2 us of transmission.
#[test]
fn every_pair_of_a_fat_tree_is_reached_over_a_shortest_path() {
    let mut traffic = String::new();
    for (index, (from, to)) in (0..16)
        .flat_map(|from| (0..16).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .enumerate()
    {
        let at = 100 * index;
        writeln!(
            traffic,
            "[[traffic]]\nkind = 'message'\nfrom = {from}\nto = {to}\nbytes = 1460\nat_us = {at}"
        )
        .expect("memory");
    }
    for policy in POLICIES {
        let outcome = outcome(&fat_tree(
            4,
            &format!("balance.policy = '{policy}'\n{traffic}"),
        ));
        assert_eq!(outcome.flows.len(), 240);
        for flow in &outcome.flows {
            let links = match (flow.from / 2 == flow.to / 2, flow.from / 4 == flow.to / 4) {
                (true, _) => 2,
                (_, true) => 4,
                _ => 6,
            };
            assert_eq!(flow.fct_ns, Some(links * 2_200), "{policy}: {flow:?}");
        }
        assert_eq!(outcome.totals.injected, outcome.totals.delivered + 1);
    }
}

/// Core switches over which something went up.
fn used_cores(outcome: &Outcome) -> BTreeSet<&str> {
    let ends = outcome.paths.iter().filter(|it| it.utilisation > 0.0);
    let ends = ends.filter_map(|it| it.link.split_once("->"));
    ends.filter(|(_, to)| to.starts_with("core"))
        .map(|(_, to)| to)
        .collect()
}

/// Flows of one rack meet two choices, one after the other: the second must not follow from the first.
#[test]
fn all_paths_between_pods_are_used() {
    for (k, policy) in [
        (4, "rps"),
        (8, "rps"),
        (8, "ecmp"),
        (8, "letflow"),
        (8, "drb"),
        (8, "tr"),
    ] {
        let rest = format!(
            "balance.policy = '{policy}'
             traffic = [{{ kind = 'poisson', sizes = 30_000, per_second = 100_000, messages = 300,
               hosts = {{ pattern = 'leaves', from = 0, to = {} }} }}]",
            k * k / 2 - 1
        );
        let outcome = outcome(&fat_tree(k, &rest));
        let half = usize::from(k / 2);
        assert_eq!(used_cores(&outcome).len(), half * half, "k {k}, {policy}");
        assert_eq!(outcome.totals.unfinished, 0);
    }
}

const DUMBBELL: &str = "switches = ['leaf0', 'leaf1', 'spine0']
hosts = [{ at = 'leaf0', count = 4, gbps = 10, delay_us = 1 }, { at = 'leaf1', count = 4, gbps = 10, delay_us = 1 }]
links = [
  { between = ['leaf0', 'spine0'], gbps = 20, delay_us = 3 },
  { between = ['leaf1', 'spine0'], gbps = 20, delay_us = 3 },
]";

/// The same network, said in both ways. With one spine nothing is left to chance.
#[test]
fn a_leaf_spine_fabric_from_a_file_behaves_like_one() {
    let fabric = "about = 'test'
        fabric = { leaves = 2, spines = 1, hosts_per_leaf = 4, host_gbps = 10, uplink_gbps = 20, link_delay_us = 1,
          path = [{ spine = 0, extra_delay_us = 2 }] }";
    for ports in [
        "",
        "port = { shared = { buffer_bytes = 100_000 }, buffer_bytes = 50_000 }",
        "port = { discipline = 'pfabric', buffer_bytes = 36_000 }",
    ] {
        let rest = format!(
            "{ports}
             traffic = [{{ kind = 'poisson', sizes = 'web_search_xpass', load = 0.8, messages = 200,
               hosts = {{ pattern = 'all' }} }}]"
        );
        let graph = with_file(DUMBBELL, &rest).expect("it is right");
        let fabric = outcome(&format!("{fabric}\n{rest}"));
        assert_eq!(graph.flows, fabric.flows);
        assert_eq!(graph.totals, fabric.totals);
        let names = |it: &Outcome| {
            it.paths
                .iter()
                .map(|it| it.link.clone())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(names(&graph), names(&fabric));
    }
}

/// Two ways of three links each; the last link of the second is slow. Its queue is two hops away, and only ACKs
/// tell of it.
#[test]
fn acks_report_what_waits_hops_away() {
    let topology = "switches = ['a', 'm1', 'm2', 'n1', 'n2', 'b']
        hosts = [{ at = 'a', gbps = 10, delay_us = 1 }, { at = 'b', gbps = 10, delay_us = 1 }]
        links = [
          { between = ['a', 'm1'], gbps = 10, delay_us = 1 }, { between = ['m1', 'n1'], gbps = 10, delay_us = 1 },
          { between = ['n1', 'b'], gbps = 10, delay_us = 1 },
          { between = ['a', 'm2'], gbps = 10, delay_us = 1 }, { between = ['m2', 'n2'], gbps = 10, delay_us = 1 },
          { between = ['n2', 'b'], gbps = 1, delay_us = 1 },
        ]";
    let run = |policy: &str| {
        let rest = format!(
            "balance.policy = '{policy}'
             traffic = [{{ kind = 'poisson', sizes = 15_000, per_second = 30_000, messages = 2000,
               hosts = {{ pattern = 'leaves', from = 0, to = 1 }} }}]"
        );
        with_file(topology, &rest).expect("it is right")
    };
    let share = |it: &Outcome| {
        let utilisation = |link: &str| {
            it.paths
                .iter()
                .find(|it| it.link == link)
                .map_or(0.0, |it| it.utilisation)
        };
        utilisation("m2->n2") / (utilisation("m1->n1") + utilisation("m2->n2"))
    };
    let (tr, ecmp) = (run("tr"), run("ecmp"));
    assert!(share(&ecmp) > 0.4, "{}", share(&ecmp));
    assert!(share(&tr) < 0.3, "{}", share(&tr));
}

#[test]
fn what_is_wrong_with_a_topology_is_named() {
    let traffic = "traffic = [{ kind = 'message', from = 0, to = 1, bytes = 1 }]";
    let fabric = "fabric = { leaves = 2, spines = 1, hosts_per_leaf = 1, host_gbps = 1, uplink_gbps = 1, link_delay_us = 1 }";
    let tree = "topology.fat_tree = { k = 4, host_gbps = 1, link_gbps = 1, link_delay_us = 1 }";
    for (network, named) in [
        ("", "test.toml: fabric: there is no network"),
        (
            &format!("{fabric}\n{tree}")[..],
            "test.toml: topology: there is a table [fabric] too",
        ),
        (
            "topology = {}",
            "test.toml: topology: say either `fat_tree` or `file`",
        ),
        (
            "topology.file = 'no-such'",
            "test.toml: topology.file = \"no-such\": cannot read the topology",
        ),
        (
            &tree.replace("k = 4", "k = 3"),
            "test.toml: topology.fat_tree: k = 3",
        ),
        (&tree.replace("k = 4", "k = 4, zebra = 1"), "zebra"),
        (
            &format!("{tree}\ntransport.control = 'cloudburst'"),
            "transport.control = \"cloudburst\"",
        ),
        (
            &format!("{tree}\nbalance.policy = 'tr'\nbalance.tr.far = 'exact'"),
            "balance.tr.far = \"exact\"",
        ),
        (
            &format!("{tree}\nbalance.policy = 'tr'\nbalance.tr.far = 'nothing'"),
            "balance.tr.far = \"nothing\"",
        ),
        (
            &format!("{tree}\nbalance.policy = 'tr'\ntransport.mss_bytes = 1"),
            "mss_bytes",
        ),
    ] {
        let error = error(&format!("about = 'test'\n{network}\n{traffic}"));
        assert!(error.contains(named), "{error}\n{named}");
    }
    let beyond = error(&format!(
        "about = 'test'\n{tree}\n{}",
        traffic.replace("to = 1", "to = 16")
    ));
    assert!(beyond.contains("there are 16 hosts"), "{beyond}");
    let wrong = DUMBBELL.replace("['leaf1', 'spine0']", "['leaf1', 'spine1']");
    let error = with_file(&wrong, traffic).expect_err("it is wrong");
    assert!(
        error.contains(
            "topology.file = \"graph.toml\": line 5: the link between \"leaf1\" and \"spine1\""
        ),
        "{error}"
    );
}

/// A scenario out of what proptest draws.
fn scenario() -> impl Strategy<Value = String> {
    let tree = (1..4u16, 1..4u16).prop_map(|(half, hosts)| (2 * half, hosts));
    let policy = prop::sample::select(&POLICIES[..]);
    let ports = prop_oneof![
        Just("discipline = 'fifo'"),
        Just("discipline = 'pfabric'"),
        Just("discipline = 'priority', queue = [{}, { buffer_bytes = 4500, ecn_bytes = 1500 }]"),
        Just("shared = { buffer_bytes = 20_000, alpha = 0.5 }"),
    ];
    let control = prop_oneof![Just("reno"), Just("dctcp"), Just("fixed")];
    (tree, policy, ports, control, 1_500..40_000u32, 0..100u64, any::<bool>()).prop_map(
        |((k, hosts), policy, ports, control, buffer, seed, weighted)| {
            format!(
                "about = 'drawn'
                 seed = {seed}
                 balance = {{ policy = '{policy}', weighted = {weighted}, tr = {{ ageing = 'drains' }} }}
                 topology.fat_tree = {{ k = {k}, hosts_per_edge = {hosts}, host_gbps = 1, link_gbps = 0.7,
                   link_delay_us = 3.3 }}
                 port = {{ buffer_bytes = {buffer}, ecn_bytes = 6000, {ports} }}
                 transport = {{ control = '{control}', rto_min_us = 300 }}
                 traffic = [{{ kind = 'poisson', sizes = 'web_server_xpass', load = 0.6, messages = 60,
                   hosts = {{ pattern = 'all' }} }}]"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// That no packet is lost or made up is asserted within.
    #[test]
    fn every_message_of_any_fat_tree_arrives_and_again_the_same(text in scenario()) {
        let (first, second) = (outcome(&text), outcome(&text));
        prop_assert_eq!(first.totals.unfinished, 0, "{}", text);
        prop_assert_eq!(first.flows.len(), 60);
        prop_assert!(first.flows.iter().all(|it| it.fct_ns >= Some(2 * 3_300 + it.bytes * 8)));
        prop_assert_eq!(first.flows, second.flows);
        prop_assert_eq!(first.totals, second.totals);
        prop_assert_eq!(first.paths, second.paths);
    }
}
