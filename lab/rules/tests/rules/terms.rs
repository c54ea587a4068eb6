//! Rule: somebody who knows the field finds things by the field's words.
//!
//! Each term stands in a public item's name, or in the first line of its documentation, in the file
//! where a stranger should land.

use std::collections::BTreeMap;

use workspace_rules::Item;

use crate::{CRATES, assert_none};

/// Terms of textbooks and RFCs, each with the beginning of the path where it should be found.
const TERMS: [(&str, &str); 20] = [
    ("leaf-spine", "netsim/src/"),
    ("load balanc", "netsim/src/"),
    ("5-tuple", "crates/splitter-policy/src/"),
    ("DSCP", "crates/splitter-policy/src/dscp.rs"),
    ("Prometheus", "crates/telemetry/src/"),
    ("load-balancing policy", "netsim/src/scenario/balance.rs"),
    ("flow completion time", "netsim/src/outcome.rs"),
    ("congestion control", "netsim/src/scenario/transport.rs"),
    ("DCTCP", "netsim/src/scenario/transport.rs"),
    ("retransmission timeout", "netsim/src/scenario/transport.rs"),
    ("fast retransmit", "netsim/src/scenario/transport.rs"),
    ("incast", "netsim/src/scenario/traffic.rs"),
    ("ECN marking", "netsim/src/scenario/port.rs"),
    ("shared buffer", "netsim/src/scenario/port.rs"),
    ("empirical distribution", "netsim/src/size_distribution.rs"),
    ("confidence interval", "crates/report/src/estimate.rs"),
    ("percentile", "crates/report/src/summary.rs"),
    ("exposition", "crates/telemetry/src/docs/exposition.rs"),
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
    } in CRATES.iter().flat_map(|krate| &krate.public_items)
    {
        let file = place.split(':').next().unwrap_or_default();
        let text = format!("{} {first_line}", words(name)).to_lowercase();
        files.entry(file).or_default().push(text);
    }
    let mut wrong = Vec::new();
    for (term, place) in TERMS {
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
