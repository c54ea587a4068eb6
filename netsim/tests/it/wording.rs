//! The words of each command, and of what is refused in a scenario's file, one snapshot each.
//!
//! Other tests hold exit codes, JSON and the values that a message must name.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use netsim::{Overrides, Source};

use crate::{
    scenarios::GOOD,
    support::error,
    transcript::{Transcript, plain},
};

fn add(words: &mut Transcript, case: &str, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsim"));
    let output = plain(command.args(arguments)).output();
    words.add(case, arguments, &output.expect("the binary starts"));
}

/// Pins the words of a command: its help, an option that there is not, and these cases.
fn pin(command: &'static str, cases: &[(&str, &[&str])]) {
    let mut words = Transcript::new("netsim", command);
    add(&mut words, "help", &[command, "--help"]);
    add(&mut words, "no such option", &[command, "--nonsense"]);
    for (case, arguments) in cases {
        add(&mut words, case, &[&[command], *arguments].concat());
    }
    words.compare();
}

#[test]
fn words_of_the_program_are_those_reviewed() {
    let mut words = Transcript::new("netsim", "netsim");
    add(&mut words, "help", &["--help"]);
    add(&mut words, "no command", &[]);
    add(&mut words, "no such command", &["simulate"]);
    words.compare();
}

#[test]
fn words_of_run_are_those_reviewed() {
    pin(
        "run",
        &[
            ("no scenario named", &[]),
            ("no such scenario", &["no-such"]),
            ("no such scheme", &["tr-large", "--scheme", "no-such"]),
            ("a load above all", &["tr-large", "--load", "1.5"]),
            ("a recording without uplinks", &["--trace", "day.flows"]),
            (
                "uplinks without a recording",
                &["tr-large", "--uplinks", "9mbit/1ms"],
            ),
            (
                "a recording and a scenario",
                &["tr-large", "--trace", "day.flows", "--uplinks", "9mbit/1ms"],
            ),
            (
                "no such recording",
                &["--trace", "no-such", "--uplinks", "9mbit/1ms"],
            ),
            (
                "an uplink that is none",
                &["--trace", "f", "--uplinks", "9mbit"],
            ),
            (
                "a scheme that there is not",
                &[
                    "--trace",
                    "f",
                    "--uplinks",
                    "9mbit/1ms",
                    "--schemes",
                    "cake",
                ],
            ),
            (
                "no time",
                &["--trace", "f", "--uplinks", "9mbit/1ms", "--for", "soon"],
            ),
            (
                "a machine of the laboratory",
                &["cloudburst-testbed", "--scheme", "cloudburst"],
            ),
        ],
    );
}

#[test]
fn words_of_sweep_are_those_reviewed() {
    pin(
        "sweep",
        &[
            ("no scenario named", &[]),
            ("no such scheme", &["tr-large", "--schemes", "no-such"]),
            ("a shard beyond the last", &["tr-large", "--shard", "4/3"]),
        ],
    );
}

#[test]
fn words_of_merge_are_those_reviewed() {
    pin(
        "merge",
        &[("no directory", &[]), ("none of a sweep", &["no-such"])],
    );
}

#[test]
fn words_of_bench_are_those_reviewed() {
    pin("bench", &[("no number", &["--messages", "many"])]);
}

#[test]
fn words_of_list_are_those_reviewed() {
    pin("list", &[("too much", &["tr-large"])]);
}

/// Parts of what is right, and what stands in their place.
type Cases<'a> = &'a [(&'a str, &'a str)];

const UNKNOWN_KEYS: Cases = &[
    ("leaves = 2", "leaves = 2\nzebra = 1"),
    ("load = 0.5", "laod = 0.5"),
    ("kind = 'poisson'", "kind = 'possion'"),
    ("about = 'test'", ""),
    ("leaves = 2", "leaves = -2"),
    ("leaves = 2", "leaves = "),
    ("[[traffic]]", "[schemes.one]\nzebra = 1\n[[traffic]]"),
    (
        "[[traffic]]",
        "[schemes.one]\nbalance.policy = 'zebra'\n[[traffic]]",
    ),
    (
        "[[traffic]]",
        "[schemes.one]\ntraffic.1.messages = 77\n[[traffic]]",
    ),
];
const CAPACITY: Cases = &[
    ("host_gbps = 10", "host_gbps = 0"),
    ("uplink_gbps = 10", "uplink_gbps = nan"),
    ("spines = 2", "spines = 0"),
    ("leaves = 2", "leaves = 60000"),
    ("leaves = 2", "leaves = 5000"),
    ("spines = 2", "spines = 17"),
    ("[fabric]", "[port]\nbuffer_bytes = 1000\n[fabric]"),
    ("[fabric]", "[port]\ndiscipline = 'wrr'\n[fabric]"),
    (
        "[fabric]",
        "[port]\ndiscipline = 'pfabric'\nburst_bytes = 3000\n[fabric]",
    ),
    ("link_delay_us = 1", "link_delay_us = -1"),
];
const REACHABILITY: Cases = &[
    ("spines = 2", "spines = 2\nfailed = 2"),
    (
        "[[traffic]]",
        "path = [{ spine = 0, leaf = 0, failed = true }, { spine = 1, leaf = 1, failed = true }]\n[[traffic]]",
    ),
    ("spines = 2", "spines = 2\npath = [{ spine = 2 }]"),
    (
        "[[traffic]]",
        "[[traffic]]\nkind = 'message'\nfrom = 0\nto = 4\nbytes = 1\n[[traffic]]",
    ),
    ("'all' }", "'split', senders = 4 }"),
    ("'all' }", "'leaves', from = 0, to = 2 }"),
];
const OUTAGES: Cases = &[
    (
        "spines = 2",
        "spines = 2\noutage = [{ spine = 2, at_us = 1 }]",
    ),
    (
        "spines = 2",
        "spines = 2\noutage = [{ spine = 0, leaf = 2, at_us = 1 }]",
    ),
    (
        "spines = 2",
        "spines = 2\noutage = [{ spine = 0, at_us = -1 }]",
    ),
    (
        "spines = 2",
        "spines = 2\noutage = [{ spine = 0, at_us = 5, back_us = 5 }]",
    ),
    (
        "spines = 2",
        "spines = 2\noutage = [{ spine = 0, at_us = 5, until_us = 9 }]",
    ),
    (
        "spines = 2",
        "spines = 2\noutage = [{ spine = 0, at_us = 5 }, { spine = 1, leaf = 1, at_us = 7 }]",
    ),
];
const LOADS: Cases = &[
    ("load = 0.5", "load = 1.1"),
    ("load = 0.5", "load = 0"),
    ("load = 0.5", ""),
    ("load = 0.5", "load = 0.5\nper_second = 3"),
    ("load = 0.5", "per_second = 0.01"),
    ("messages = 10", "messages = 0"),
    ("web_search_xpass", "no_such"),
    ("[[traffic]]\nkind", "[[elsewhere]]\nkind"),
];
const BALANCE: Cases = &[
    ("[fabric]", "balance = { policy = 'fastest' }\n[fabric]"),
    ("[fabric]", "balance = { letflow_gap_us = -1 }\n[fabric]"),
    (
        "[fabric]",
        "balance = { tr = { guard_us = nan } }\n[fabric]",
    ),
    (
        "[fabric]",
        "balance = { tr = { slack_us = 1e12 } }\n[fabric]",
    ),
    ("[fabric]", "balance = { tr = { grd_us = 1 } }\n[fabric]"),
];
const TRANSPORT: Cases = &[
    ("[fabric]", "transport = { initial_window = 0 }\n[fabric]"),
    ("[fabric]", "transport = { mss_bytes = 65_000 }\n[fabric]"),
    ("[fabric]", "transport = { mss_bytes = 1 }\n[fabric]"),
    (
        "[fabric]",
        "transport = { replicas = 2, subflows = 2 }\n[fabric]",
    ),
    ("[fabric]", "transport = { subflows = 100 }\n[fabric]"),
    (
        "[fabric]",
        "transport = { handshake = true, subflows = 2 }\n[fabric]",
    ),
    ("[fabric]", "transport = { pias_bytes = [2, 1] }\n[fabric]"),
    ("[fabric]", "transport = { rto_min_us = 0 }\n[fabric]"),
    ("[fabric]", "transport.priority = 8\n[fabric]"),
    (
        "[fabric]",
        "transport.pace = { bytes = 100, every_us = 1 }\n[fabric]",
    ),
    (
        "[fabric]",
        "transport.pace = { bytes = 2000, every_us = 0 }\n[fabric]",
    ),
    ("[fabric]", "background_transport.mss_bytes = 1\n[fabric]"),
    (
        "[fabric]",
        "background_transport.control = 'cloudburst'\n[fabric]",
    ),
];
/// With messages of 5,000 bytes.
const CLOUDBURST: Cases = &[
    ("[fabric]", "transport.cloudburst = { paths = 0 }\n[fabric]"),
    ("[fabric]", "transport.cloudburst = { share = 0 }\n[fabric]"),
    (
        "[fabric]",
        "transport.cloudburst = { share = 1.5 }\n[fabric]",
    ),
    (
        "[fabric]",
        "transport.cloudburst = { encode_ns = 2_000_000_000 }\n[fabric]",
    ),
    (
        "[fabric]",
        "transport.cloudburst = { mode = 'fast' }\n[fabric]",
    ),
    (
        "[fabric]",
        "transport.cloudburst = { routes = 3 }\n[fabric]",
    ),
    (
        "[fabric]",
        "transport.cloudburst = { schedule = 'uniform' }\n[fabric]",
    ),
    (
        "[fabric]",
        "transport = { control = 'cloudburst', replicas = 2 }\n[fabric]",
    ),
];
/// With Cloudburst as the paper has it.
const PAPER: Cases = &[
    ("sizes = 'web_search_xpass'", "sizes = 93_441"),
    (
        "sizes = 'web_search_xpass'",
        "sizes = 5000\nrequest_bytes = 100_000",
    ),
    ("sizes = 'web_search_xpass'", "sizes = 'web_search_xpass'"),
];

#[test]
fn each_wrong_scenario_is_refused_with_its_key_in_the_words_reviewed() {
    let messages = GOOD.replace("sizes = 'web_search_xpass'", "sizes = 5000");
    let paper = "transport = { control = 'cloudburst', cloudburst = { mode = 'paper' } }\n[fabric]";
    let paper = GOOD.replace("[fabric]", paper);
    let mut said = String::new();
    for (group, good, cases) in [
        ("unknown keys and types", GOOD, UNKNOWN_KEYS),
        ("capacity", GOOD, CAPACITY),
        ("reachability", GOOD, REACHABILITY),
        ("outages", GOOD, OUTAGES),
        ("load", GOOD, LOADS),
        ("balancing policies", GOOD, BALANCE),
        ("transports", GOOD, TRANSPORT),
        ("Cloudburst", &messages, CLOUDBURST),
        ("Cloudburst as in the paper", &paper, PAPER),
    ] {
        let _ = writeln!(said, "# {group}\n");
        for (part, instead) in cases {
            assert!(good.contains(part), "{part}");
            let shown = instead.replace('\n', "\n> ");
            let refused = error(&good.replacen(part, instead, 1));
            let _ = writeln!(said, "> {shown}\n{refused}\n");
        }
    }
    said += "# distributions\n\n";
    for sizes in [
        "1,0\n10,0.9\n",
        "1,0\n10,0.9\n20,0.8\n30,1\n",
        "10,0\n5,1\n",
        "ten,0\n20,1\n",
    ] {
        let shown = sizes.trim_end().replace('\n', "\n> ");
        let _ = writeln!(said, "> {shown}\n{}\n", refused_with_sizes(sizes));
    }
    let lines = said.lines().map(|line| format!("{}\n", line.trim_end()));
    compare(&lines.collect::<String>());
}

/// Returns the message for a file of a distribution that is wrong.
fn refused_with_sizes(text: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("sizes.csv"), text).expect("it can be written");
    let scenario = directory.path().join("test.toml");
    fs::write(&scenario, GOOD.replace("web_search_xpass", "sizes.csv")).expect("written");
    let source = Source::find(&scenario.to_string_lossy()).expect("it is there");
    let refused = source.experiment(&Overrides::default());
    let refused = refused.expect_err("it is wrong").to_string();
    refused.replace(&*directory.path().to_string_lossy(), "DIRECTORY")
}

fn compare(said: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("scenario", said));
}
