//! How the tunnels are to be watched.

use super::*;

#[test]
fn health_is_on_and_moves_within_a_second_by_default() {
    let health = Config::parse(SMALLEST, "smallest").unwrap().health;
    assert!(health.enabled && health.key_file.is_none());
    assert!(health.dead_after <= Duration::from_millis(800));
    assert_eq!(health.port.get(), 9462);
    // Only a maximum that is stated can contradict.
    let long = with("health", "hold_down_s = 1000").unwrap().health;
    assert_eq!(long.max_hold_down, Duration::from_secs(1000));
    let example = Config::parse(&example(), "example").unwrap();
    let short = example.short.only().unwrap();
    assert_eq!(short.peer, Some("192.0.2.1".parse().unwrap()));
    assert_eq!(short.watched_by(), "probes to 192.0.2.1");
    let alone = Config::parse(SMALLEST, "smallest").unwrap();
    assert_eq!(alone.long.only().unwrap().watched_by(), "its link alone");
}

#[test]
fn peers_and_keys_go_together() {
    let peer = mistake_with("short", "peer = '192.0.2.1'");
    assert!(
        peer.starts_with("splitter.toml:3: short.peer = '192.0.2.1': probes to it need a key"),
        "{peer}"
    );
    assert!(peer.contains("openssl rand -hex 32"), "{peer}");
    let key = mistake_with("health", "key_file = '/etc/key'");
    assert!(
        key.contains("health.key_file = '/etc/key': no tunnel has a peer"),
        "{key}"
    );
    for (value, expected) in [
        ("'0.0.0.0'", "no other border has this address"),
        ("'ff02::1'", "no other border has this address"),
        ("'wan0'", "this is not an IP address"),
        ("7", "this is an integer, not a string"),
    ] {
        let message = mistake_with("long", &format!("peer = {value}"));
        assert!(
            message.contains(&format!("long.peer = {value}: {expected}")),
            "{message}"
        );
    }
}

#[test]
fn times_of_health_that_contradict_are_told() {
    let cases = [
        (
            "enabled = 'yes'",
            "health.enabled = 'yes': this is a string, not a yes or no",
        ),
        (
            "port = 0",
            "health.port = 0: this is out of range; give a whole number from 1 to 65535",
        ),
        ("port = 65536", "out of range"),
        (
            "key_file = 'key'",
            "health.key_file = 'key': this is not an absolute path",
        ),
        (
            "interval_ms = 9",
            "health.interval_ms = 9: this is out of range",
        ),
        ("dead_after_ms = 60001", "out of range"),
        (
            "dead_after_ms = 299",
            "health.dead_after_ms = 299: in 299 ms fewer than three probes",
        ),
        (
            "interval_ms = 300",
            "health.dead_after_ms: in 700 ms fewer than three probes",
        ),
        (
            "hold_down_s = 0",
            "health.hold_down_s = 0: this is out of range",
        ),
        (
            "max_hold_down_s = 4",
            "health.max_hold_down_s = 4: this is less than hold_down_s, 5 s",
        ),
        (
            "hold_down = 4",
            "unknown key; did you mean health.hold_down_s?",
        ),
    ];
    for (line, expected) in cases {
        let message = mistake_with("health", line);
        assert!(message.contains(expected), "{message}\n{expected}");
    }
}
