//! What the parser makes of a text: the defaults, and by section the rest.

mod balance;
mod health;
mod keys;
mod mistakes;
mod sharing;
mod steering;

use std::time::Duration;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use splitter_netlink::Family;

use super::*;

/// The example with the tunnels of the short class listed, as its comment shows.
pub(crate) fn example_with_list() -> String {
    let example = example();
    let begin = example.find("# [[short.tunnels]]").expect("it is there");
    let end = begin + example[begin..].find("\n\n").expect("it ends");
    let list = example[begin..end].lines();
    let list = list.map(|line| line.trim_start_matches('#').trim());
    let list = list.collect::<Vec<_>>().join("\n");
    let (before, after) = example.split_once("[short]\n").expect("it is there");
    let (section, after) = after.split_once("\n[long]").expect("it follows");
    let table = section.lines().find(|line| line.starts_with("table"));
    let table = table.expect("it is documented");
    format!("{before}[short]\n{table}\n{list}\n[long]{after}")
}

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
    assert_eq!(error.diagnostics().len(), 1, "{error}");
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
    assert_eq!(config.handover.drain_margin, Duration::from_millis(10));
    assert_eq!(config.handover.max_wait, Duration::from_millis(12));
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
fn handover_waits_as_long_as_the_rates_allow() {
    let short = with("short", "rate_mbit = 100").unwrap().handover;
    assert_eq!(short.drain_margin, Duration::from_micros(500));
    assert_eq!(short.max_wait, Duration::from_millis(12));

    let long = with("long", "rate_mbit = 100").unwrap().handover;
    assert_eq!(long.drain_margin, Duration::from_millis(10));
    assert_eq!(long.max_wait, Duration::from_millis(12));

    let both = Config::parse(&example(), "example").unwrap().handover;
    assert_eq!(both.drain_margin, Duration::from_micros(500));
    assert_eq!(both.max_wait, Duration::from_millis(2));

    for (mbit, ms) in [(1_000, 2), (100, 2), (30, 7), (10, 20), (1, 20)] {
        let text = format!("{SMALLEST}rate_mbit = 9")
            .replace("[short]", &format!("[short]\nrate_mbit = {mbit}"));
        let both = Config::parse(&text, "f").unwrap().handover;
        assert_eq!(both.max_wait, Duration::from_millis(ms), "{mbit} Mbit/s");
    }
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
    assert!(blind.contains("flows.threshold = 'auto'"), "{blind}");
    assert_eq!(auto(""), 40);
    assert_eq!(auto("[advise]\nmin = 50"), 50);
    assert_eq!(auto("[advise]\nmax = 30"), 30);
    assert_eq!(auto("unit = 'bytes'"), 60_000);
}

#[test]
fn gap_is_never_longer_than_the_cap() {
    let handover = with("handover", "max_wait_ms = 4").unwrap().handover;
    assert_eq!(handover.drain_margin, Duration::from_millis(4));
}

#[test]
fn example_parses() {
    let config = Config::parse(&example(), "splitter.example.toml").unwrap();
    assert_eq!(config.routes.destinations.map(|list| list.len()), Some(2));
    let [short, long] = [&config.short, &config.long].map(|it| it.only().unwrap());
    assert_eq!(short.rate_mbit.map(NonZeroU32::get), Some(100));
    assert_eq!(long.gateway.v6, Some("2001:db8:2::1".parse().unwrap()));
}

#[test]
fn configuration_written_as_a_file_means_the_same() {
    let shared = format!("policy = 'share'\n{SMALLEST}rate_mbit = 7\n[marks]\nmatch = 'dscp'\n");
    let shared = shared.replace("[short]", "[short]\nrate_mbit = 9");
    let watched = format!("{SMALLEST}peer = '192.0.2.9'\n[health]\nkey_file = '/k'\n");
    let texts = [
        SMALLEST.to_owned(),
        example(),
        example_with_list(),
        shared,
        watched,
    ];
    for text in texts {
        let config = Config::parse(&text, "f").unwrap();
        let again = Config::parse(&config.to_toml(), "again").unwrap();
        assert_eq!(again, config, "{}", config.to_toml());
    }
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
    assert_eq!(differ.diagnostics().len(), 2, "{differ}");
    let beyond = mistake(&text(v4, v4, "destinations = '2001:db8::/32'"));
    assert!(
        beyond.contains("routes.destinations = '2001:db8::/32'"),
        "{beyond}"
    );
}
