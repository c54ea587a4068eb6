//! Scenario files: those that are built in, and all that may be wrong with others.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::error;
use netsim::{Overrides, Source};

pub(crate) const GOOD: &str = "about = 'test'
[fabric]
leaves = 2
spines = 2
hosts_per_leaf = 2
host_gbps = 10
uplink_gbps = 10
link_delay_us = 1
[[traffic]]
kind = 'poisson'
sizes = 'web_search_xpass'
load = 0.5
messages = 10
hosts = { pattern = 'all' }
";

#[test]
fn all_that_lie_in_the_directory_are_built_in_and_run_with_each_scheme() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("it can be read").path();
        files.insert(
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
        );
    }
    let names: BTreeSet<String> = netsim::embedded()
        .iter()
        .map(|it| it.name.to_owned())
        .collect();
    assert_eq!(names, files);
    for name in names {
        let source = Source::find(&name).expect("it is built in");
        let source = source.with_paper_machine(paper_machine::simulated);
        let schemes = source.scenario().expect("it is right").schemes.into_keys();
        for scheme in schemes.map(Some).chain([None]) {
            let overrides = Overrides {
                scheme: scheme.clone(),
                messages: Some(50),
                ..Overrides::default()
            };
            let experiment = source.experiment(&overrides);
            let experiment = experiment.unwrap_or_else(|error| panic!("{scheme:?}: {error}"));
            let outcome = netsim::run(&experiment);
            assert_eq!(outcome.totals.unfinished, 0, "{name} {scheme:?}");
        }
    }
}

/// Replaces a part of what is right, and expects key and problem in the message.
#[track_caller]
pub(crate) fn refused(part: &str, instead: &str, told: &[&str]) {
    assert!(GOOD.contains(part), "{part}");
    let error = error(&GOOD.replace(part, instead));
    assert!(error.starts_with("test.toml: "), "{error}");
    for it in told {
        assert!(error.contains(it), "{it} is not in: {error}");
    }
}

#[test]
fn unknown_keys_are_named() {
    refused(
        "leaves = 2",
        "leaves = 2\nzebra = 1",
        &["unknown field `zebra`", "line 4"],
    );
    refused("load = 0.5", "laod = 0.5", &["unknown field `laod`"]);
    refused(
        "kind = 'poisson'",
        "kind = 'possion'",
        &["unknown variant `possion`"],
    );
    refused("about = 'test'", "", &["missing field `about`"]);
    refused("leaves = 2", "leaves = -2", &["line 3"]);
    refused("leaves = 2", "leaves = ", &["line 3"]);
}

#[test]
fn nothing_has_no_capacity() {
    refused(
        "host_gbps = 10",
        "host_gbps = 0",
        &["fabric.host_gbps = 0", "capacity"],
    );
    refused(
        "uplink_gbps = 10",
        "uplink_gbps = nan",
        &["fabric.uplink_gbps"],
    );
    refused(
        "spines = 2",
        "spines = 0",
        &["fabric.spines = 0", "at least one"],
    );
    refused("leaves = 2", "leaves = 60000", &["fabric", "ports"]);
    refused("leaves = 2", "leaves = 5000", &["fabric.leaves", "paths"]);
    refused("spines = 2", "spines = 17", &["fabric.spines = 17", "16"]);
    refused(
        "[fabric]",
        "[port]\nbuffer_bytes = 1000\n[fabric]",
        &["port.buffer_bytes = 1000", "1500"],
    );
    refused(
        "[fabric]",
        "[port]\ndiscipline = 'wrr'\n[fabric]",
        &["port.queue", "need queues"],
    );
    refused(
        "link_delay_us = 1",
        "link_delay_us = -1",
        &["fabric.link_delay_us = -1"],
    );
}

#[test]
fn every_host_must_be_reachable() {
    refused(
        "spines = 2",
        "spines = 2\nfailed = 2",
        &["fabric.failed = 2", "reachable"],
    );
    refused(
        "[[traffic]]",
        "path = [{ spine = 0, leaf = 0, failed = true }, { spine = 1, leaf = 1, failed = true }]\n[[traffic]]",
        &["fabric.path", "cannot be reached"],
    );
    refused(
        "spines = 2",
        "spines = 2\npath = [{ spine = 2 }]",
        &["fabric.path[0].spine = 2", "2 spines"],
    );
    refused(
        "[[traffic]]",
        "[[traffic]]\nkind = 'message'\nfrom = 0\nto = 4\nbytes = 1\n[[traffic]]",
        &["traffic[0].to = 4", "4 hosts"],
    );
    refused(
        "'all' }",
        "'split', senders = 4 }",
        &["traffic[0].hosts.senders = 4"],
    );
    refused(
        "'all' }",
        "'leaves', from = 0, to = 2 }",
        &["traffic[0].hosts.to = 2"],
    );
}

#[test]
fn loads_lie_between_0_and_1() {
    refused(
        "load = 0.5",
        "load = 1.1",
        &["traffic[0].load = 1.1", "at most 1"],
    );
    refused("load = 0.5", "load = 0", &["traffic[0].load = 0"]);
    refused("load = 0.5", "", &["traffic[0]", "`load` or `per_second`"]);
    refused(
        "load = 0.5",
        "load = 0.5\nper_second = 3",
        &["`load` or `per_second`"],
    );
    refused(
        "load = 0.5",
        "per_second = 0.01",
        &["traffic[0].messages = 10", "1000 s to start"],
    );
    refused(
        "messages = 10",
        "messages = 0",
        &["traffic[0].messages = 0"],
    );
}

#[test]
fn distributions_reach_1_and_rise() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |text: &str, told: &[&str]| {
        fs::write(directory.path().join("sizes.csv"), text).expect("it can be written");
        let scenario = directory.path().join("test.toml");
        fs::write(&scenario, GOOD.replace("web_search_xpass", "sizes.csv")).expect("written");
        let path = scenario.to_string_lossy().into_owned();
        let source = Source::find(&path).expect("it is there");
        let error = source
            .experiment(&Overrides::default())
            .expect_err("it is wrong");
        let error = error.to_string();
        for it in [path.as_str(), "traffic[0].sizes = \"sizes.csv\""]
            .iter()
            .chain(told)
        {
            assert!(error.contains(it), "{it} is not in: {error}");
        }
    };
    refused("1,0\n10,0.9\n", &["ends at 0.9 instead of 1"]);
    refused(
        "1,0\n10,0.9\n20,0.8\n30,1\n",
        &["line 3", "0.8 is less than 0.9"],
    );
    refused("10,0\n5,1\n", &["line 2", "size 5 is less than 10"]);
    refused("ten,0\n20,1\n", &["line 1"]);
    let error = error(&GOOD.replace("web_search_xpass", "no_such"));
    assert!(
        error.contains("no_such") && error.contains("web_search_xpass"),
        "{error}"
    );
}

#[test]
fn schemes_are_checked_all_and_the_unknown_named() {
    let with = |scheme: &str| format!("{GOOD}\n[schemes.one]\n{scheme}");
    assert!(error(&with("zebra = 1")).contains("schemes.one: unknown field `zebra`"));
    assert!(error(&with("balance.policy = 'zebra'")).contains("zebra"));
    let source = Source::from_text("test.toml", &with("transport.control = 'reno'"));
    let overrides = Overrides {
        scheme: Some("two".to_owned()),
        ..Overrides::default()
    };
    let error = source
        .experiment(&overrides)
        .expect_err("there is none")
        .to_string();
    assert!(
        error.contains("no scheme \"two\"") && error.contains("[one]"),
        "{error}"
    );
}

#[test]
fn schemes_change_what_they_name_and_nothing_else() {
    let text = format!("{GOOD}\n[schemes.one]\ntransport.control = 'reno'\nfabric.spines = 1");
    let source = Source::from_text("test.toml", &text);
    let settings = |scheme: Option<&str>| {
        let overrides = Overrides {
            scheme: scheme.map(str::to_owned),
            ..Overrides::default()
        };
        source
            .experiment(&overrides)
            .expect("it is right")
            .settings()
    };
    let (plain, one, rps) = (settings(None), settings(Some("one")), settings(Some("rps")));
    assert_eq!(one.fabric.spines, 1);
    assert_eq!(one.fabric.leaves, plain.fabric.leaves);
    assert_ne!(one.transport.control, plain.transport.control);
    assert_eq!(one.transport.recovery, plain.transport.recovery);
    assert_eq!(rps.balance.policy, netsim::BalancingPolicy::Rps);
}

#[test]
fn schemes_name_elements_of_lists_by_number() {
    let with = |changes: &str| format!("{GOOD}\n[schemes.one]\n{changes}");
    let source = Source::from_text("test.toml", &with("traffic.0.messages = 77"));
    let overrides = Overrides {
        scheme: Some("one".to_owned()),
        ..Overrides::default()
    };
    let settings = source.experiment(&overrides).expect("right").settings();
    let netsim::Traffic::Poisson { messages, load, .. } = &settings.traffic[0] else {
        panic!("{:?}", settings.traffic);
    };
    assert_eq!((*messages, *load), (77, Some(0.5)));
    let error = error(&with("traffic.1.messages = 77"));
    assert!(
        error.contains("schemes.one"),
        "there is no second one: {error}"
    );
}
