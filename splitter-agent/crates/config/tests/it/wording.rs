//! The words of everything that is refused in a file, in one snapshot.
//!
//! `cargo xtask test` fails on a difference; `CONTRIBUTING.md` says how one that is meant is accepted.

use std::fmt::Write as _;
use std::path::Path;

use splitter_config::Config;

const SMALLEST: &str = "lan = [\"eth0\"]\n[short]\ndevice = \"wan0\"\n[long]\ndevice = \"wan1\"\n";

/// Lines that are added to a section of the smallest file.
type Lines<'a> = &'a [(&'a str, &'a [&'a str])];

const SECTIONS: Lines = &[
    (
        "",
        &[
            "name = '../etc'",
            "runtime_dir = 'run'",
            "shadow = 1",
            "threshold = 3",
            "balance = 'tr'",
            "balance = 'fastest'",
            "balance = 'placement'\ntunnels = [{ device = 'a' }, { device = 'b' }]",
            "tunnels = [{ device = 'a' }, { device = 'b' }]",
            "lans = ['a']",
            "flows = 3",
        ],
    ),
    ("flow", &["unit = 'bytes'"]),
    (
        "flows",
        &[
            "treshold = 3",
            "threshold = 0",
            "threshold = '40'",
            "threshold = -1",
            "threshold = 4294967296",
            "threshold = 99999999999999999999",
            "threshold = 'automatic'",
            "threshold = 'auto'",
            "unit = 'segments'",
            "idle_timeout_s = 0",
            "protocols = ['tcp', 'quic']",
            "protocols = ['udp']",
            "protocols = ['tcp', 'tcp']",
            "protocols = []",
            "table_size = 15",
            "table_size = 16777217",
            "table_size = 'large'",
            "table_size_ipv6 = 15",
            "table_growth_percent = 51",
            "table_numa_node = 1024",
            "table_numa_node = 'all'",
            "sweep_interval_s = 3601",
        ],
    ),
    (
        "advise",
        &["rtt_ms = 0", "period_s = 0", "max = 0", "min = 1001"],
    ),
    (
        "handover",
        &[
            "max_wait_ms = 0",
            "drain_margin_us = 0",
            "drain_margin_us = 12001",
            "max_wait_ms = 4\ndrain_margin_us = 4001",
        ],
    ),
    (
        "marks",
        &[
            "short = 64",
            "match = 'fwmark'",
            "short = 2",
            "long = 0",
            "long = 0\nmatch = 'tos'",
            "long = 12\nmatch = 'tos'",
            "long = 8\nmatch = 'tos'",
        ],
    ),
    ("attach", &["mode = true"]),
    (
        "routes",
        &[
            "rule_priority = 32764",
            "rule_priority = 32762\ndestinations = ['10.0.0.0/8', '10.2.0.0/16']",
            "destinations = ['10.2.0.1/16']",
            "destinations = ['nowhere']",
            "destinations = []",
            "destinations = ['10.0.0.0/8', '10.0.0.0/8']",
        ],
    ),
    (
        "metrics",
        &["address = 'localhost'", "flow_addresses = 'yes'"],
    ),
    (
        "otlp",
        &[
            "endpoint = '127.0.0.1:4318'",
            "endpoint = 'https://collector'",
            "endpoint = 'http://me:secret@collector'",
        ],
    ),
    ("log", &["packets = 'loud'", "zebra = 1"]),
    (
        "short",
        &[
            "table = 254",
            "gateway = '192.0.2'",
            "gateway = ['192.0.2.1', '192.0.2.2']",
            "gateway = []",
            "gateway = '0.0.0.0'",
            "rate_mbit = 0",
            "peer = '192.0.2.1'",
        ],
    ),
    (
        "long",
        &[
            "table = 0",
            "table = 10401",
            "rate_mbits = 1",
            "peer = '0.0.0.0'",
            "peer = 'ff02::1'",
            "peer = 'wan0'",
            "peer = 7",
        ],
    ),
    (
        "health",
        &[
            "enabled = 'yes'",
            "port = 0",
            "port = 65536",
            "key_file = 'key'",
            "key_file = '/etc/key'",
            "interval_ms = 9",
            "interval_ms = 300",
            "dead_after_ms = 60001",
            "dead_after_ms = 299",
            "hold_down_s = 0",
            "hold_down = 4",
            "max_hold_down_s = 4",
        ],
    ),
    (
        "steering",
        &[
            "mark_mask = 0x5",
            "mode = 'mark'\nmark_mask = 0x3",
            "mode = 'mark'\n[attach]\nmode = 'native'",
        ],
    ),
];

/// Interfaces of the site.
const LAN: [&str; 7] = [
    "['eth0', 'eth0']",
    "[]",
    "['wan1']",
    "['a-name-of-16-byt']",
    "['a/b']",
    "['']",
    "3",
];

/// Lists of the short class's tunnels.
const LISTS: &[&[&str]] = &[
    &["device = 'a'", "device = 'b'\nweight = 0"],
    &["device = 'a'\nweight = 256"],
    &["device = 'a'", "weight = 2"],
    &["device = 'a'", "device = 'a'"],
    &["device = 'a'", "device = 'eth0'"],
    &["device = 'a'\nwieght = 2"],
    &["device = 'a'\ntable = 3"],
    &[
        "device = 'a'\ngateway = '192.0.2.1'",
        "device = 'b'\ngateway = '2001:db8::1'",
    ],
    &["device = 'a'", "device = 'b'\npeer = '192.0.2.1'"],
    &["device = 'a'\nrate_mbit = 0"],
    &["device = 'wan1'"],
    &["device = 'a'"; 17],
];

/// What is added to a file of shared tunnels.
const SHARED: [&str; 6] = [
    "[marks]\nshort_on_long = 2",
    "[marks]\nlong_on_short = 0",
    "[marks]\nmatch = \"tos\"\nshort_on_long = 12",
    "[share]\ncloudburst_dscp = 5",
    "[share]\nshape_percent = 103",
    "[steering]\nmode = 'redirect'",
];

#[test]
fn each_wrong_file_is_refused_with_line_and_remedy_in_the_words_reviewed() {
    let mut said = String::new();
    for (section, lines) in SECTIONS {
        let header = ["keys above all sections", section][usize::from(!section.is_empty())];
        let _ = writeln!(said, "# {header}\n");
        for line in *lines {
            add(&mut said, line, &with(section, line));
        }
    }
    said += "# interfaces of the site\n\n";
    for lan in LAN {
        let lan = format!("lan = {lan}");
        add(&mut said, &lan, &SMALLEST.replace("lan = [\"eth0\"]", &lan));
    }
    said += "# tunnels\n\n";
    add(&mut said, "both on wan0", &SMALLEST.replace("wan1", "wan0"));
    let missing = SMALLEST.replace("device = \"wan1\"\n", "");
    add(&mut said, "no device of the long tunnel", &missing);
    for tunnels in ["[]", "3", "[{ device = 'a' }]\nrate_mbit = 3"] {
        let tunnels = format!("tunnels = {tunnels}");
        let text = SMALLEST.replace("device = \"wan0\"", &tunnels);
        add(&mut said, &tunnels, &text);
    }
    for tunnels in LISTS {
        let list: String = tunnels
            .iter()
            .map(|keys| format!("[[short.tunnels]]\n{keys}\n"))
            .collect();
        let text = SMALLEST.replace("[short]\ndevice = \"wan0\"\n", &list);
        add(&mut said, list.trim_end(), &text);
    }
    add_shared(&mut said);
    add_sites(&mut said);
    add_families(&mut said);
    said += "# what is not TOML\n\n";
    for text in ["lan = [\n\n", "a = 1\na = 2", "lan = ['eth0']\n[short"] {
        add(&mut said, text.trim_end(), text);
    }
    said += "# all that is wrong in one file\n\n";
    let many = "lan = 7\nnaem = 'x'\n[short]\ntable = 254\n[flows]\nthreshold = 0\nunit = 1";
    add(&mut said, many, many);
    compare(&said);
}

fn add_shared(said: &mut String) {
    *said += "# shared tunnels\n\n";
    let rates = "policy = \"share\"\n".to_owned()
        + &SMALLEST.replace("wan0\"\n", "wan0\"\nrate_mbit = 100\n")
        + "rate_mbit = 40\n";
    add(said, "no rate", &rates.replace("rate_mbit = 40\n", ""));
    for more in SHARED {
        add(said, more, &format!("{rates}{more}\n"));
    }
    let two = "tunnels = [{ device = 'a', rate_mbit = 300 }, { device = 'b' }]";
    add(
        said,
        two,
        &rates.replace("device = \"wan0\"\nrate_mbit = 100", two),
    );
}

fn add_sites(said: &mut String) {
    *said += "# several sites\n\n";
    let site = |name: &str, net: &str, devices: [&str; 2], more: &str| {
        let [short, long] = devices;
        format!(
            "[[site]]\nname = '{name}'\ndestinations = '{net}'\nshort = {{ device = '{short}' }}\n\
             long = {{ device = '{long}' }}\n{more}"
        )
    };
    let first = site("paris", "10.2.0.0/16", ["a", "b"], "");
    let second = site("oslo", "10.3.0.0/16", ["c", "d"], "");
    let listed = |sites: &str| format!("lan = 'eth0'\n{sites}");
    for sites in [
        site("paris", "10.3.0.0/16", ["c", "d"], ""),
        site("oslo", "10.2.0.0/16", ["c", "d"], ""),
        site("oslo", "10.3.0.0/16", ["b", "d"], ""),
        site("new york", "10.3.0.0/16", ["c", "d"], ""),
        site("oslo", "10.3.0.0/16", ["c", "d"], "colour = 'red'"),
        site("oslo", "10.3.0.0/16", ["c", "d"], "threshold = 0"),
        site("oslo", "10.3.0.0/16", ["c", "d"], "threshold = 'auto'"),
        site(
            "oslo",
            "10.3.0.0/16",
            ["c", "d"],
            "threshold = 9\n[flows]\nthreshold = 'auto'",
        ),
        second.replace("destinations = '10.3.0.0/16'\n", ""),
        second.replace("long = { device = 'd' }\n", ""),
        second.replace("{ device = 'd' }", "'d'"),
        second.replace("{ device = 'd' }", "{ device = 'd', table = 3 }"),
        second
            .replace("'d'", "'d', gateway = '192.0.2.1'")
            .replace("'c'", "'c', gateway = 'fe80::1'"),
        second.clone() + "[short]\ndevice = 'e'\n",
        second.clone() + "[routes]\ndestinations = '10.4.0.0/16'\n",
        second.clone() + "[steering]\nmode = 'redirect'\n",
    ] {
        add(said, &sites, &listed(&(first.clone() + &sites)));
    }
    let rated = (first + &second).replace("' }", "', rate_mbit = 9 }");
    add(
        said,
        "policy = 'share'",
        &format!("policy = 'share'\n{}", listed(&rated)),
    );
    add(said, "site = []", "lan = 'eth0'\nsite = []\n");
    add(said, "site = 'paris'", "lan = 'eth0'\nsite = 'paris'\n");
}

fn add_families(said: &mut String) {
    *said += "# families of addresses\n\n";
    let v4 = "gateway = '192.0.2.1'";
    for (long, more) in [
        ("gateway = '2001:db8::1'", ""),
        (v4, "[routes]\ndestinations = '2001:db8::/32'\n"),
    ] {
        let text = format!(
            "lan = 'eth0'\n[short]\ndevice = 'a'\n{v4}\n[long]\ndevice = 'b'\n{long}\n{more}"
        );
        add(said, text.trim_end(), &text);
    }
}

/// Returns the smallest file with lines added to a section (`""` for the top).
fn with(section: &str, lines: &str) -> String {
    let header = format!("[{section}]\n");
    if section.is_empty() {
        format!("{lines}\n{SMALLEST}")
    } else if SMALLEST.contains(&header) {
        SMALLEST.replace(&header, &format!("{header}{lines}\n"))
    } else {
        format!("{SMALLEST}{header}{lines}\n")
    }
}

/// Adds what is said of a wrong text, after the part of it that matters.
fn add(said: &mut String, shown: &str, text: &str) {
    let refused = Config::parse(text, "splitter.toml");
    let refused = refused.expect_err(shown);
    let shown = shown.replace('\n', "\n> ");
    let _ = writeln!(said, "> {shown}\n{refused}\n");
}

fn compare(said: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("configuration", said));
}
