//! Rule: somebody who knows the field finds things by the field's words.
//!
//! Each term stands in the name of an item that other modules see, or in the first line of its
//! documentation, in the file where a stranger should land.

use std::collections::BTreeMap;

use workspace_rules::Item;

use crate::{CRATES, assert_none};

/// Terms of textbooks and RFCs, each with the beginning of the path where it should be found.
const TERMS: &[(&str, &str)] = &[
    // Packets and paths.
    ("5-tuple", "crates/splitter-policy/src/flow.rs"),
    ("classif", "crates/splitter-policy/src/classify.rs"),
    ("DSCP", "crates/splitter-policy/src/dscp.rs"),
    ("RFC 1624", "crates/splitter-policy/src/dscp.rs"),
    ("fragment", "crates/splitter-policy/src/fragments.rs"),
    ("flow table", "crates/splitter-policy/src/table"),
    ("ECMP", "crates/balance/src/ecmp.rs"),
    ("flowlet", "crates/balance/src/letflow.rs"),
    ("placement", "crates/balance/src/placement.rs"),
    ("virtual queue", "crates/balance/src/virtual_queue.rs"),
    // The border router.
    (
        "capabilities",
        "splitter-agent/crates/instance/src/privileges.rs",
    ),
    ("control socket", "splitter-agent/crates/control/src/lib.rs"),
    ("failover", "splitter-agent/crates/failover/src/lib.rs"),
    (
        "foreign XDP",
        "splitter-agent/crates/datapath/src/foreign_xdp.rs",
    ),
    ("hysteresis", "splitter-agent/crates/health/src/machine.rs"),
    ("liveness", "splitter-agent/crates/health/src/"),
    (
        "neighbour",
        "splitter-agent/crates/netlink/src/neighbours.rs",
    ),
    (
        "policy routing",
        "splitter-agent/crates/steering/src/routes.rs",
    ),
    ("next hop", "splitter-agent/crates/"),
    (
        "queueing discipline",
        "splitter-agent/crates/steering/src/shaping.rs",
    ),
    (
        "strict priority",
        "splitter-agent/crates/steering/src/shaping.rs",
    ),
    // Messages.
    (
        "anti-amplification",
        "cloudburst/crates/security/src/address.rs",
    ),
    ("back-pressure", "cloudburst/crates/proto/src/receiver.rs"),
    (
        "black-hole",
        "cloudburst/crates/congestion/src/black_hole.rs",
    ),
    (
        "congestion control",
        "cloudburst/crates/congestion/src/lib.rs",
    ),
    ("DPLPMTUD", "cloudburst/crates/proto/src/path.rs"),
    (
        "explicit congestion notification",
        "cloudburst/crates/congestion/src/ecn.rs",
    ),
    ("failover", "cloudburst/crates/proto/src/path_manager.rs"),
    ("handshake", "cloudburst/crates/proto/src/handshake.rs"),
    ("keepalive", "cloudburst/crates/proto/src/path.rs"),
    ("key pair", "cloudburst/crates/security/src/security.rs"),
    ("loss detection", "cloudburst/crates/proto/src/sender.rs"),
    ("pacing", "cloudburst/crates/proto/src/scheduler.rs"),
    (
        "path validation",
        "cloudburst/crates/proto/src/path_manager.rs",
    ),
    (
        "port rotation",
        "cloudburst/crates/congestion/src/port_rotation.rs",
    ),
    ("replay", "cloudburst/crates/wire/src/replay.rs"),
    ("retransmission", "cloudburst/crates/proto/src/sender.rs"),
    (
        "round-trip time",
        "cloudburst/crates/congestion/src/estimate.rs",
    ),
    ("scheduler", "cloudburst/crates/proto/src/scheduler.rs"),
    (
        "shared-bottleneck",
        "cloudburst/crates/congestion/src/shared_bottleneck.rs",
    ),
    (
        "stateless retry",
        "cloudburst/crates/proto/src/handshake.rs",
    ),
    ("erasure code", "cloudburst/crates/code/src/lib.rs"),
    ("degree", "cloudburst/crates/code/src/schedule.rs"),
    ("forward error correction", "cloudburst/crates/code/src/"),
    ("fountain", "cloudburst/crates/code/src/"),
    // The simulator.
    ("congestion control", "netsim/src/scenario/transport.rs"),
    ("DCTCP", "netsim/src/"),
    (
        "empirical distribution",
        "netsim/crates/workload/src/size_distribution.rs",
    ),
    ("event queue", "netsim/crates/engine/src"),
    ("fast retransmit", "netsim/src/"),
    ("flow completion time", "netsim/src/outcome.rs"),
    ("incast", "netsim/src/scenario/traffic.rs"),
    ("leaf-spine", "netsim/src/lib.rs"),
    ("load balanc", "netsim/src/fabric"),
    // Figures and metrics.
    ("confidence interval", "crates/report/src/estimate.rs"),
    ("percentile", "crates/report/src/summary.rs"),
    ("OpenMetrics", "crates/telemetry/src/"),
    ("readiness probe", "crates/telemetry/src/readiness.rs"),
];

#[test]
fn terms_of_the_field_are_found_where_they_belong() {
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Item {
        name,
        place,
        first_line,
    } in CRATES.iter().flat_map(|krate| &krate.items)
    {
        let file = place.split(':').next().unwrap_or_default();
        let text = format!("{} {first_line}", words(name)).to_lowercase();
        files.entry(file).or_default().push(text);
    }
    let mut wrong = Vec::new();
    for (term, place) in TERMS.iter().copied() {
        let term = term.to_lowercase();
        let found = |place: &str| {
            let texts = files.iter().filter(|(file, _)| file.starts_with(place));
            texts
                .flat_map(|(file, texts)| texts.iter().map(move |text| (file, text)))
                .find(|(_, text)| text.contains(&term))
                .map(|(file, _)| file)
        };
        if found(place).is_none() {
            let elsewhere = found("").map_or("nowhere".to_owned(), |file| format!("in {file}"));
            wrong.push(format!("`{term}` not in {place}, but {elsewhere}"));
        }
    }
    assert_none("terms that a stranger would not find", &wrong);
}

/// `FlowTable` and `flow_table` as words.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.push(if letter == '_' || letter == ':' {
            ' '
        } else {
            letter
        });
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
