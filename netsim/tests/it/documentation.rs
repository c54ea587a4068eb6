//! The page of the docs against what scenarios may say.

use std::{collections::BTreeSet, fs, path::Path};

use netsim::{Overrides, Source};
use serde_json::Value;

/// Has every table there is.
const ALL: &str = "about = 'all'
warm_up_ms = 0.001
fabric = { leaves = 2, spines = 2, hosts_per_leaf = 2, host_gbps = 1, uplink_gbps = 1, link_delay_us = 1,
  slow = { paths = 1, rtt_ratio = 2 }, path = [{ spine = 0, leaf = 0, extra_delay_us = 1, gbps = 1 }],
  outage = [{ spine = 0, leaf = 0, at_us = 1, back_us = 2, known_after_us = 1 }] }
port = { shared = { buffer_bytes = 100_000 }, credit = {}, discipline = 'wrr', queue = [{}] }
transport = { pace = { bytes = 1500, every_us = 1 }, cloudburst = { paths = 1, schedule = 'mds' } }
background_transport = {}
traffic = [
  { kind = 'poisson', sizes = 1, load = 0.1, messages = 1, hosts = { pattern = 'split', senders = 1 } },
  { kind = 'background', bytes = 1, hosts = { pattern = 'leaves', from = 0, to = 1 } },
  { kind = 'incast', senders = 1, to = 0, bytes = 1 },
  { kind = 'message', from = 0, to = 1, bytes = 1 },
]";

/// And the tables of another topology and its traffic.
const TOPOLOGY: &str = "about = 'all'
topology.fat_tree = { k = 2, hosts_per_edge = 1, host_gbps = 1, link_gbps = 1, link_delay_us = 1 }
traffic = [
  { kind = 'ring_all_reduce', bytes = 2, ranks = 2, at_once = 1 },
  { kind = 'tree_all_reduce', bytes = 16 },
  { kind = 'all_to_all', bytes = 2 },
]";

/// Keys that take a file.
const OF_FILES: [&str; 9] = [
    "file",
    "format",
    "start_unit",
    "from_us",
    "unit_bytes",
    "csv",
    "htsim",
    "ns2",
    "ns3",
];

fn keys(value: &Value, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                all.insert(key.clone());
                keys(value, all);
            }
        }
        Value::Array(values) => values.iter().for_each(|it| keys(it, all)),
        _ => (),
    }
}

#[test]
fn every_key_is_described() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/netsim.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let mut all: BTreeSet<String> = OF_FILES.iter().map(|it| (*it).to_owned()).collect();
    for text in [ALL, TOPOLOGY] {
        let experiment = Source::from_text("all", text).experiment(&Overrides::default());
        let settings = experiment.expect("it is right").settings();
        keys(&serde_json::to_value(settings).expect("JSON"), &mut all);
    }
    assert!(all.len() > 50, "{all:?}");
    let words: BTreeSet<&str> = page
        .split(|it: char| !it.is_alphanumeric() && it != '_')
        .collect();
    for key in all {
        assert!(words.contains(key.as_str()), "`{key}` is not on the page");
    }
}

#[test]
fn the_example_of_the_guide_is_a_scenario() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/how-to/netsim.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let example = page
        .split("```toml")
        .nth(1)
        .and_then(|it| it.split("```").next());
    let source = Source::from_text("guide", example.expect("an example"));
    for scheme in ["one-queue", "two-queues"] {
        let overrides = Overrides {
            scheme: Some(scheme.to_owned()),
            messages: Some(100),
            ..Overrides::default()
        };
        let experiment = source
            .experiment(&overrides)
            .unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(netsim::run(&experiment).totals.unfinished, 0);
    }
}

/// The topology of the page as well, with the traffic of the next block.
#[test]
fn the_topology_of_the_page_is_one() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/netsim.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).collect();
    let blocks: Vec<&str> = blocks
        .iter()
        .filter_map(|it| it.split("```").next())
        .collect();
    let [topology, scenario] = blocks[..] else {
        panic!("{blocks:?}");
    };
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("ring.toml"), topology).expect("written");
    let path = directory.path().join("scenario.toml");
    fs::write(&path, scenario).expect("written");
    let source = Source::find(&path.to_string_lossy()).expect("it is there");
    let experiment = source.experiment(&Overrides::default());
    let outcome = netsim::run(&experiment.unwrap_or_else(|it| panic!("{it}")));
    assert_eq!(outcome.totals.unfinished, 0);
    assert_eq!(outcome.iterations.len(), 10);
}

/// Scenarios that are no built-in ones are right too; they are large, and not run.
#[test]
fn scenarios_of_the_examples_are_right() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut seen = 0;
    for entry in fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_some_and(|it| it == "toml") {
            let source = Source::find(&path.to_string_lossy()).expect("it is there");
            let experiment = source.experiment(&Overrides::default());
            assert!(experiment.is_ok(), "{experiment:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 6);
}
