//! What the parser makes of lists of tunnels.

use std::time::Duration;

use super::*;
use crate::Config;
use crate::tests::{SMALLEST, example_with_list, mistake};

/// The smallest configuration with these tunnels of the short class in a list, from line 2 on.
fn listed(tunnels: &[&str]) -> String {
    let header = "[[short.tunnels]]\n";
    let list = tunnels.iter().map(|keys| format!("{header}{keys}\n"));
    SMALLEST.replace("[short]\ndevice = \"wan0\"\n", &list.collect::<String>())
}

#[test]
fn class_may_list_its_tunnels() {
    let text = listed(&["device = 'a'\nweight = 255", "device = 'b'"]);
    let config = Config::parse(&text, "f").unwrap();
    let weights: Vec<_> = config
        .short
        .iter()
        .map(|it| (it.device.as_str(), it.weight.get()))
        .collect();
    assert_eq!(weights, [("a", 255), ("b", 1)]);
    assert!(config.short.are_several() && config.long.only().is_some());
    // A list of one, or one without brackets, is the same as none.
    let same = Config::parse(&listed(&["device = 'wan0'\nweight = 7"]), "f").unwrap();
    assert_eq!(same, Config::parse(SMALLEST, "f").unwrap());
    let single = SMALLEST.replace("device = \"wan0\"", "tunnels = { device = 'wan0' }");
    assert_eq!(Config::parse(&single, "f").unwrap(), same);
    let example = Config::parse(&example_with_list(), "example").unwrap();
    assert_eq!(
        example.short.slowest_rate_mbit().map(NonZeroU32::get),
        Some(100)
    );
}

#[test]
fn sharing_takes_a_single_tunnel_for_each_class() {
    let sharing = |short: &[&str]| {
        let text = listed(short).replace("device = \"wan1\"", "device = \"wan1\"\nrate_mbit = 9");
        format!("policy = \"share\"\n{text}")
    };
    // Nothing more is reported, such as that one of them has no rate.
    let [two, one] = [
        &["device = 'a'\nrate_mbit = 300", "device = 'b'"][..],
        &["device = 'a'\nrate_mbit = 300"],
    ];
    let short = mistake(&sharing(two));
    assert!(
        short.starts_with("splitter.toml:3: short.tunnels"),
        "{short}"
    );
    let long = sharing(one).replace(
        "device = \"wan1\"\nrate_mbit = 9",
        "tunnels = [{ device = 'c' }, { device = 'd' }]",
    );
    let long = mistake(&long);
    assert!(
        long.starts_with("splitter.toml:7: long.tunnels = "),
        "{long}"
    );
    let dedicated = sharing(two).replace("share", "dedicated");
    assert!(Config::parse(&dedicated, "f").unwrap().short.are_several());
    // A list of one is the same as none, and its rate is asked for where it stands.
    let listed_alone = Config::parse(&sharing(one), "f").unwrap();
    assert!(listed_alone.is_shared() && !listed_alone.short.are_several());
    let no_rate = mistake(&sharing(&["device = 'a'"]));
    let expected = "splitter.toml:3: short.tunnels.rate_mbit: ";
    assert!(no_rate.starts_with(expected), "{no_rate}");
}

#[test]
fn several_tunnels_leave_the_model_of_queues_little_to_go_by() {
    let config = |short: &[&str], more: &str| {
        let text = listed(short).replace("device = \"wan1\"", "device = \"wan1\"\nrate_mbit = 9");
        Config::parse(&format!("{text}{more}"), "f")
    };
    let known = [
        "device = 'a'\nrate_mbit = 300",
        "device = 'b'\nrate_mbit = 100",
    ];
    let both = config(&known, "").unwrap();
    assert_eq!(both.handover.drain_margin, Duration::from_micros(500));
    assert_eq!(both.handover.max_wait, Duration::from_millis(12));
    let one = config(&["device = 'a'\nrate_mbit = 300", "device = 'b'"], "").unwrap();
    assert_eq!(one.short.slowest_rate_mbit(), None);
    assert_eq!(one.handover.drain_margin, Duration::from_millis(10));
    let auto = config(&known, "[flows]\nthreshold = 'auto'")
        .unwrap_err()
        .to_string();
    assert!(auto.contains("flows.threshold = 'auto': "), "{auto}");
}
