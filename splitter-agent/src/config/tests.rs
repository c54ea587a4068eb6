//! What the parser accepts and how it words what it refuses.

mod health;
mod sharing;
mod steering;

use std::time::Duration;

use super::*;

pub(super) const SMALLEST: &str =
    "lan = [\"eth0\"]\n[short]\ndevice = \"wan0\"\n[long]\ndevice = \"wan1\"\n";

/// Parses the smallest configuration with a key added to a section (`""` for the top).
fn with(section: &str, line: &str) -> Result<Config, ConfigError> {
    Config::parse(&text_with(section, line), "splitter.toml")
}

fn text_with(section: &str, line: &str) -> String {
    let header = format!("[{section}]\n");
    if section.is_empty() {
        format!("{line}\n{SMALLEST}")
    } else if SMALLEST.contains(&header) {
        SMALLEST.replace(&header, &format!("{header}{line}\n"))
    } else {
        format!("{SMALLEST}{header}{line}\n")
    }
}

/// The only mistake in the text.
#[track_caller]
pub(super) fn mistake(text: &str) -> String {
    let error = Config::parse(text, "splitter.toml").expect_err("the text is wrong");
    assert_eq!(error.mistakes().len(), 1, "{error}");
    error.to_string()
}

#[track_caller]
fn mistake_with(section: &str, line: &str) -> String {
    mistake(&text_with(section, line))
}

#[test]
fn smallest_configuration_has_the_defaults() {
    let config = Config::parse(SMALLEST, "splitter.toml").unwrap();
    assert_eq!(config.flows.threshold.fixed(), Some(40));
    assert_eq!(config.flows.idle_timeout, Duration::from_secs(30));
    assert_eq!(config.demotion.guard, Duration::from_millis(10));
    assert_eq!(config.demotion.cap, Duration::from_millis(12));
    assert_eq!((config.marks.short.get(), config.marks.long.get()), (4, 2));
    assert_eq!(config.routes.destinations, None);
    assert_eq!(
        config.pin_dir(),
        PathBuf::from("/sys/fs/bpf/splitter/default")
    );
    assert_eq!(
        config.families().collect::<Vec<_>>(),
        [Family::V4, Family::V6]
    );
}

#[test]
fn demotion_waits_as_long_as_the_rates_allow() {
    let short = with("short", "rate_mbit = 100").unwrap().demotion;
    assert_eq!(short.guard, Duration::from_micros(500));
    assert_eq!(short.cap, Duration::from_millis(12));

    let long = with("long", "rate_mbit = 100").unwrap().demotion;
    assert_eq!(long.guard, Duration::from_millis(10));
    assert_eq!(long.cap, Duration::from_millis(12));

    let both = Config::parse(EXAMPLE, "example").unwrap().demotion;
    assert_eq!(both.guard, Duration::from_micros(500));
    assert_eq!(both.cap, Duration::from_millis(200));
}

#[test]
fn automatic_threshold_starts_within_its_bounds() {
    let first = |lines| with("advise", lines).unwrap().first_threshold();
    assert_eq!(first(""), 40);
    let auto = |lines: &str| {
        let text = format!("{SMALLEST}rate_mbit = 9\n[flows]\nthreshold = 'auto'\n{lines}");
        let text = text.replace("[short]", "[short]\nrate_mbit = 9");
        Config::parse(&text, "f").unwrap().first_threshold()
    };
    let blind = mistake_with("flows", "threshold = 'auto'");
    assert!(
        blind.contains("flows.threshold = 'auto': without the rates of both"),
        "{blind}"
    );
    assert_eq!(auto(""), 40);
    assert_eq!(auto("[advise]\nmin = 50"), 50);
    assert_eq!(auto("[advise]\nmax = 30"), 30);
    assert_eq!(auto("unit = 'bytes'"), 60_000);
}

#[test]
fn gap_is_never_longer_than_the_cap() {
    let demotion = with("demotion", "cap_ms = 4").unwrap().demotion;
    assert_eq!(demotion.guard, Duration::from_millis(4));
}

#[test]
fn example_parses() {
    let config = Config::parse(EXAMPLE, "splitter.example.toml").unwrap();
    assert_eq!(config.routes.destinations.map(|list| list.len()), Some(2));
    let [short, long] = [&config.short, &config.long].map(|it| it.only().unwrap());
    assert_eq!(short.rate_mbit.map(NonZeroU32::get), Some(100));
    assert_eq!(long.gateway.v6, Some("2001:db8:2::1".parse().unwrap()));
}

#[test]
fn documented_defaults_are_the_defaults() {
    let smallest = Config::parse(SMALLEST, "smallest").unwrap();
    let (mut section, mut comment, mut checked) = (String::new(), String::new(), Vec::new());
    for line in EXAMPLE.lines() {
        if let Some(text) = line.strip_prefix('#') {
            comment += text;
        } else if let Some(name) = line.strip_prefix('[') {
            name.trim_end_matches(']').clone_into(&mut section);
            comment.clear();
        } else if let Some((key, _)) = line.split_once(" = ") {
            if let Some((_, default)) = comment.split_once("Default ") {
                let default = default.trim_end_matches('.');
                let same = with(&section, &format!("{key} = {default}"));
                assert_eq!(
                    same.unwrap(),
                    smallest,
                    "[{section}] {key}, documented as {default}"
                );
                checked.push(format!("{section}.{key}"));
            }
            comment.clear();
        }
    }
    assert_eq!(checked.len(), 36, "{checked:?}");
}

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
            "flows.threshold = -1: this is out of range; give a whole number from 0 to 4294967295",
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
        ("flows", "sweep_s = 3601", "from 1 to 3600 seconds"),
        (
            "flows",
            "threshold = 'automatic'",
            "this is a string, not a whole number; give a whole number from 0 to 4294967295 (the default is 40), or \"auto\"",
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
        ("demotion", "cap_ms = 0", "out of range"),
        ("demotion", "guard_us = 0", "any packet follows a gap of 0"),
        (
            "demotion",
            "guard_us = 12001",
            "demotion.guard_us = 12001: the guard of 12001 us is longer than the cap of 12 ms",
        ),
        (
            "demotion",
            "cap_ms = 4\nguard_us = 4001",
            "demotion.guard_us = 4001: the guard of 4001 us is longer than the cap of 4 ms",
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
fn families_must_agree() {
    let text = |short: &str, long: &str, destination: &str| {
        format!(
            "lan = 'eth0'\n[short]\ndevice = 'a'\n{short}\n[long]\ndevice = 'b'\n{long}\n[routes]\n{destination}"
        )
    };
    let v4 = "gateway = '192.0.2.1'";
    let v6 = "gateway = '2001:db8::1'";
    let only_v4 = Config::parse(&text(v4, v4, ""), "").unwrap();
    assert_eq!(only_v4.families().collect::<Vec<_>>(), [Family::V4]);
    let mixed = Config::parse(&text("", v6, ""), "").unwrap();
    assert_eq!(mixed.families().collect::<Vec<_>>(), [Family::V6]);
    let differ = Config::parse(&text(v4, v6, ""), "").unwrap_err();
    assert_eq!(differ.mistakes().len(), 2, "{differ}");
    let beyond = mistake(&text(v4, v4, "destinations = '2001:db8::/32'"));
    assert!(
        beyond.contains("no tunnel has an IPv6 next hop"),
        "{beyond}"
    );
}

#[test]
fn all_mistakes_are_told_at_once_and_in_order() {
    let text = "lan = 7\nnaem = 'x'\n[short]\ntable = 254\n[flows]\nthreshold = 0\nunit = 1\n";
    let error = Config::parse(text, "f").unwrap_err();
    let keys: Vec<_> = error
        .mistakes()
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
