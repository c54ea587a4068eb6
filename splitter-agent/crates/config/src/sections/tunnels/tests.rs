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
    let told: Vec<_> = config
        .short
        .iter()
        .map(|it| (it.device.as_str(), it.weight.get()))
        .collect();
    assert_eq!(told, [("a", 255), ("b", 1)]);
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
fn mistakes_in_lists_of_tunnels() {
    let cases: [(&[&str], &str); 11] = [
        (
            &["device = 'a'", "device = 'b'\nweight = 0"],
            "f:6: short.tunnels.weight = 0: this is out of range; give a whole number from 1 to 255 (the default is 1)",
        ),
        (
            &["device = 'a'\nweight = 256"],
            "short.tunnels.weight = 256: this is out of range",
        ),
        (
            &["device = 'a'", "weight = 2"],
            "f:4: short.tunnels.device: this key is required; name the tunnel's interface",
        ),
        (
            &["device = 'a'", "device = 'a'"],
            "f:5: short.tunnels.device = 'a': a is listed twice; put the tunnels on different devices",
        ),
        (
            &["device = 'a'", "device = 'eth0'"],
            "f:1: lan = [\"eth0\"]: eth0 is the device of the short tunnel",
        ),
        (
            &["device = 'a'\nwieght = 2"],
            "f:4: short.tunnels.wieght = 2: unknown key; did you mean short.tunnels.weight?",
        ),
        (
            &["device = 'a'\ntable = 3"],
            "f:4: short.tunnels.table = 3: unknown key; did you mean ",
        ),
        (
            &[
                "device = 'a'\ngateway = '192.0.2.1'",
                "device = 'b'\ngateway = '2001:db8::1'",
            ],
            "f:7: short.tunnels.gateway = '2001:db8::1': the short tunnel a has an IPv4 next hop and the short tunnel b has none",
        ),
        (
            &["device = 'a'", "device = 'b'\npeer = '192.0.2.1'"],
            "f:6: short.tunnels.peer = '192.0.2.1': probes to it need a key",
        ),
        (
            &["device = 'a'\nrate_mbit = 0"],
            "short.tunnels.rate_mbit = 0: a tunnel of rate 0 would never drain",
        ),
        (
            &["device = 'wan1'"],
            "long.device = \"wan1\": the short tunnel is on wan1, too",
        ),
    ];
    for (tunnels, expected) in cases {
        let error = Config::parse(&listed(tunnels), "f").expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}\n{expected}");
    }
    let set = SMALLEST.replace(
        "device = \"wan0\"",
        "rate_mbit = 3\ntunnels = [{ device = 'a' }]",
    );
    let set = mistake(&set);
    assert!(
        set.starts_with(
            "splitter.toml:3: short.rate_mbit = 3: the tunnels of this class are listed"
        ),
        "{set}"
    );
    for (tunnels, expected) in [
        ("[]", "short.tunnels = []: the list names no tunnel; "),
        (
            "3",
            "short.tunnels = 3: this is an integer, not a section; write a line [[short.tunnels]]",
        ),
    ] {
        let text = SMALLEST.replace("device = \"wan0\"", &format!("tunnels = {tunnels}"));
        let error = Config::parse(&text, "f").expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let devices: Vec<_> = (0..17)
        .map(|index| format!("device = 'a{index}'"))
        .collect();
    let many = mistake(&listed(
        &devices.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    assert!(
        many.contains("these are 17 tunnels; give a class at most 16"),
        "{many}"
    );
}

#[test]
fn sharing_takes_a_single_tunnel_for_each_class() {
    let sharing = |short: &[&str]| {
        let text = listed(short).replace("device = \"wan1\"", "device = \"wan1\"\nrate_mbit = 9");
        format!("policy = \"share\"\n{text}")
    };
    let refused = "policy = \"share\" shapes a single tunnel for each class, and these are \
                   several; leave one of them, or set policy = \"dedicated\"";
    // Nothing more is told, such as that one of them has no rate.
    let [two, one] = [
        &["device = 'a'\nrate_mbit = 300", "device = 'b'"][..],
        &["device = 'a'\nrate_mbit = 300"],
    ];
    let short = mistake(&sharing(two));
    assert!(
        short.starts_with("splitter.toml:3: short.tunnels"),
        "{short}"
    );
    assert!(short.contains(refused), "{short}");
    let long = sharing(one).replace(
        "device = \"wan1\"\nrate_mbit = 9",
        "tunnels = [{ device = 'c' }, { device = 'd' }]",
    );
    let long = mistake(&long);
    assert!(
        long.starts_with("splitter.toml:7: long.tunnels = "),
        "{long}"
    );
    assert!(long.contains(refused), "{long}");
    let dedicated = sharing(two).replace("share", "dedicated");
    assert!(Config::parse(&dedicated, "f").unwrap().short.are_several());
    // A list of one is the same as none, and its rate is asked for where it stands.
    let listed_alone = Config::parse(&sharing(one), "f").unwrap();
    assert!(listed_alone.is_shared() && !listed_alone.short.are_several());
    let no_rate = mistake(&sharing(&["device = 'a'"]));
    let expected = "splitter.toml:3: short.tunnels.rate_mbit: policy = \"share\" shapes the tunnel";
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
    assert!(
        auto.contains(
            "flows.threshold = 'auto': a threshold is recommended by a model of one tunnel"
        ),
        "{auto}"
    );
}
