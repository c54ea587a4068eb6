//! Scenario files: those that are built in, and what schemes change in others.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::{error, outcome};
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
        let embedded = netsim::embedded().iter().find(|it| it.name == name);
        let text = embedded.expect("it is built in").text;
        // Buffers of collective operations, as fewer messages of others.
        let text = text.replace("bytes = 64_000_000", "bytes = 640_000");
        let source = Source::from_text(&name, &text);
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

#[test]
fn schemes_are_checked_all_and_the_unknown_named() {
    let with = |scheme: &str| format!("{GOOD}\n[schemes.one]\n{scheme}");
    assert!(error(&with("zebra = 1")).contains("zebra"));
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
    assert!(error.contains("two") && error.contains("one"), "{error}");
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
    let fabric = |it: &netsim::Scenario| it.fabric.clone().expect("it has one");
    assert_eq!(fabric(&one).spines, 1);
    assert_eq!(fabric(&one).leaves, fabric(&plain).leaves);
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

/// The laboratory has it.
#[test]
fn mode_paper_needs_a_machine_that_is_given() {
    let source = Source::find("cloudburst-testbed").expect("it is built in");
    let overrides = Overrides {
        scheme: Some("cloudburst".to_owned()),
        ..Overrides::default()
    };
    let error = source.experiment(&overrides).expect_err("it has none");
    let named = "cloudburst.mode = \"paper\"";
    assert!(error.to_string().contains(named), "{error}");
    let source = source.with_paper_machine(paper_machine::simulated);
    assert!(source.experiment(&overrides).is_ok());
}

/// What is measured after it is what the same run has there, and nothing else is a result.
#[test]
fn warm_up_is_sent_and_not_measured() {
    let run = |changes: &str, messages: usize| {
        let text = GOOD.replace("messages = 10", &format!("messages = {messages}"));
        outcome(&format!("{changes}\n{text}"))
    };
    let whole = run("", 60);
    let after: Vec<_> = whole.flows.iter().skip(20).collect();
    let warm_up_ms = after[0].start_ns as f64 / 1e6;
    let measured = run(&format!("warm_up_ms = {warm_up_ms}"), after.len());
    assert_eq!(measured.flows.len(), after.len());
    for (ours, theirs) in measured.flows.iter().zip(after) {
        let same = [ours, theirs].map(|it| (it.start_ns, it.from, it.to, it.bytes, it.fct_ns));
        assert_eq!(same[0], same[1]);
    }
    assert_eq!(measured.totals.injected, whole.totals.injected);
    let error = |text: &str| error(&format!("warm_up_ms = 1\n{text}"));
    let one = "kind = 'message'\nfrom = 0\nto = 1\nbytes = 1";
    let (start, _) = GOOD.split_once("[[traffic]]").expect("it has traffic");
    assert!(error(&format!("{start}[[traffic]]\n{one}")).contains("no message is due after it"));
    let ring = "kind = 'ring_all_reduce'\nbytes = 1000";
    assert!(error(&format!("{start}[[traffic]]\n{ring}")).contains("warm_up_ms"));
}
