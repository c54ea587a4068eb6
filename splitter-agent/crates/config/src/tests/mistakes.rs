//! How the parser words what it refuses.

use super::*;

#[test]
fn threshold_zero() {
    assert_eq!(
        mistake_with("flows", "threshold = 0"),
        "splitter.toml:7: flows.threshold = 0: a threshold of 0 would make every packet long; \
         give 1 or more (the default is 40)"
    );
}

#[test]
fn unknown_keys_name_the_nearest() {
    let cases = [
        (
            "flows",
            "treshold = 3",
            "flows.treshold = 3: unknown key; did you mean flows.threshold?",
        ),
        (
            "",
            "threshold = 3",
            "threshold = 3: unknown key; did you mean flows.threshold?",
        ),
        (
            "",
            "lans = ['a']",
            "lans = ['a']: unknown key; did you mean lan?",
        ),
        (
            "flow",
            "unit = 'bytes'",
            "flow: unknown section; did you mean [flows]?",
        ),
        (
            "long",
            "rate_mbits = 1",
            "long.rate_mbits = 1: unknown key; did you mean long.rate_mbit?",
        ),
        (
            "log",
            "zebra = 1",
            "log.zebra = 1: unknown key; remove it; splitter.example.toml documents all there are",
        ),
    ];
    for (section, line, expected) in cases {
        let message = mistake_with(section, line);
        assert!(message.ends_with(expected), "{message}\n{expected}");
    }
}

#[test]
fn wrong_types_and_ranges() {
    let cases = [
        (
            "flows",
            "threshold = '40'",
            "flows.threshold = '40': this is a string, not a whole number; ",
        ),
        (
            "flows",
            "threshold = -1",
            "flows.threshold = -1: this is out of range; give a whole number from 1 to 4294967295",
        ),
        ("flows", "threshold = 4294967296", "out of range"),
        ("flows", "threshold = 99999999999999999999", "out of range"),
        (
            "flows",
            "unit = 'segments'",
            "give one of \"packets\", \"bytes\"",
        ),
        ("flows", "idle_timeout_s = 0", "from 1 to 86400 seconds"),
        (
            "flows",
            "protocols = ['tcp', 'quic']",
            "give one of \"tcp\", \"udp\", \"esp\", \"gre\"",
        ),
        ("flows", "protocols = ['udp']", "TCP is always split; "),
        (
            "flows",
            "protocols = ['tcp', 'tcp']",
            "tcp is listed twice; ",
        ),
        ("flows", "protocols = []", "nothing would be split; "),
        ("flows", "table_size = 15", "from 16 to 16777216 flows"),
        ("flows", "table_size = 16777217", "out of range"),
        ("flows", "sweep_interval_s = 3601", "from 1 to 3600 seconds"),
        (
            "flows",
            "threshold = 'automatic'",
            "this is a string, not a whole number; give a whole number from 1 to 4294967295 (the default is 40), or \"auto\"",
        ),
        (
            "",
            "shadow = 1",
            "shadow = 1: this is an integer, not a yes or no; write true or false",
        ),
        ("advise", "rtt_ms = 0", "from 1 to 10000 milliseconds"),
        ("advise", "period_s = 0", "from 1 to 86400 seconds"),
        (
            "advise",
            "max = 0",
            "give a whole number from 1 to 4294967295 packets",
        ),
        (
            "advise",
            "min = 1001",
            "advise.min = 1001: the lowest threshold, 1001, is above the highest, 1000; ",
        ),
        ("handover", "max_wait_ms = 0", "out of range"),
        (
            "handover",
            "drain_margin_us = 0",
            "any packet follows a gap of 0",
        ),
        (
            "handover",
            "drain_margin_us = 12001",
            "handover.drain_margin_us = 12001: the drain margin of 12001 us is longer than the longest wait of 12 ms",
        ),
        (
            "handover",
            "max_wait_ms = 4\ndrain_margin_us = 4001",
            "handover.drain_margin_us = 4001: the drain margin of 4001 us is longer than the longest wait of 4 ms",
        ),
        ("marks", "short = 64", "give a whole number from 0 to 63"),
        (
            "marks",
            "match = 'fwmark'",
            "give one of \"dscp\", \"tos\", \"auto\"",
        ),
        (
            "attach",
            "mode = true",
            "attach.mode = true: this is a boolean, not a string; write it in quotes",
        ),
        (
            "routes",
            "rule_priority = 32764",
            "give a whole number from 1 to 32763",
        ),
        (
            "routes",
            "destinations = ['10.2.0.1/16']",
            "give \"10.2.0.0/16\", or a longer prefix",
        ),
        (
            "routes",
            "destinations = ['nowhere']",
            "this is not a prefix",
        ),
        ("routes", "destinations = []", "nothing would be routed"),
        (
            "routes",
            "destinations = ['10.0.0.0/8', '10.0.0.0/8']",
            "10.0.0.0/8 is listed twice",
        ),
        (
            "metrics",
            "address = 'localhost'",
            "this is not an address with a port",
        ),
        (
            "metrics",
            "flow_addresses = 'yes'",
            "this is a string, not a yes or no; write true or false",
        ),
        (
            "log",
            "packets = 'loud'",
            "give one of \"off\", \"debug\", \"trace\"",
        ),
        (
            "short",
            "table = 254",
            "short.table = 254: table 254 is the kernel's table \"main\"; ",
        ),
        ("long", "table = 0", "table 0 means \"unspecified\""),
        (
            "long",
            "table = 10401",
            "long.table = 10401: the short tunnel has table 10401, too",
        ),
        ("short", "gateway = '192.0.2'", "this is not an IP address"),
        (
            "short",
            "gateway = ['192.0.2.1', '192.0.2.2']",
            "192.0.2.1 and 192.0.2.2 are of the same family",
        ),
        ("short", "gateway = []", "the list names no next hop"),
        (
            "short",
            "gateway = '0.0.0.0'",
            "this address cannot be a next hop",
        ),
        (
            "short",
            "rate_mbit = 0",
            "a tunnel of rate 0 would never drain",
        ),
        (
            "",
            "name = '../etc'",
            "name = '../etc': the name becomes part of paths",
        ),
        ("", "runtime_dir = 'run'", "this is not an absolute path"),
        (
            "",
            "flows = 3",
            "flows = 3: this is an integer, not a section; write a line [flows]",
        ),
    ];
    for (section, line, expected) in cases {
        let message = mistake_with(section, line);
        assert!(message.contains(expected), "{message}\n{expected}");
    }
}

#[test]
fn interfaces() {
    let cases = [
        ("['eth0', 'eth0']", "eth0 is listed twice"),
        ("[]", "without an interface nothing would be split"),
        ("['wan1']", "wan1 is the device of the long tunnel"),
        ("['a-name-of-16-byt']", "at most 15 bytes, this has 16"),
        ("['a/b']", "no slash, colon or white space"),
        ("['']", "cannot be empty"),
        ("3", "this is an integer, not a string"),
    ];
    for (lan, expected) in cases {
        let message = mistake(&SMALLEST.replace("[\"eth0\"]", lan));
        assert!(message.starts_with("splitter.toml:1: lan = "), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let same = mistake(&SMALLEST.replace("wan1", "wan0"));
    assert!(
        same.contains("long.device = \"wan0\": the short tunnel is on wan0, too"),
        "{same}"
    );
    let missing = mistake(&SMALLEST.replace("device = \"wan1\"\n", ""));
    assert!(
        missing.starts_with("splitter.toml:4: long.device: this key is required"),
        "{missing}"
    );
}

#[test]
fn marks_must_differ_as_the_rules_see_them() {
    let cases = [
        ("short = 2", "marks.long: short flows have the mark 2, too"),
        (
            "long = 0",
            "marks.long = 0: packets without a mark have DSCP 0, and would be routed as long; give a number from 1 to 63",
        ),
        ("long = 0\nmatch = 'tos'", "give a number from 1 to 63"),
        (
            "long = 12\nmatch = 'tos'",
            "those of 4 (short) and 12 (long) are the same",
        ),
        (
            "long = 8\nmatch = 'tos'",
            "those of 8 (long) are zero, which matches every packet",
        ),
    ];
    for (lines, expected) in cases {
        let message = mistake_with("marks", lines);
        assert!(message.contains(expected), "{message}");
    }
    assert!(with("marks", "long = 12\nmatch = 'dscp'").is_ok());
    assert!(with("marks", "short = 0\nmatch = 'tos'").is_ok());
}

#[test]
fn all_mistakes_are_told_at_once_and_in_order() {
    let text = "lan = 7\nnaem = 'x'\n[short]\ntable = 254\n[flows]\nthreshold = 0\nunit = 1\n";
    let error = Config::parse(text, "f").unwrap_err();
    let keys: Vec<_> = error
        .diagnostics()
        .iter()
        .map(|m| (m.line, m.key.as_str()))
        .collect();
    let expected = [
        (1, "lan"),
        (1, "long.device"),
        (2, "naem"),
        (3, "short.device"),
        (4, "short.table"),
        (6, "flows.threshold"),
        (7, "flows.unit"),
    ];
    assert_eq!(keys, expected, "{error}");
}

#[test]
fn what_is_not_toml_is_told_with_its_line() {
    for (text, line) in [
        ("lan = [\n\n", 1),
        ("a = 1\na = 2", 2),
        ("lan = ['eth0']\n[short", 2),
    ] {
        let error = Config::parse(text, "f").unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("f:{line}: this is not TOML: ")),
            "{message}"
        );
    }
}

#[test]
fn missing_file_is_told_with_what_to_do() {
    let message = Config::load(Path::new("/nonexistent/s.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("/nonexistent/s.toml") && message.contains("--config"),
        "{message}"
    );
}
