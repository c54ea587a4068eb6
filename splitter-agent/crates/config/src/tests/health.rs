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
    assert_eq!(example.watched_by(short), "probes to 192.0.2.1");
    let alone = Config::parse(SMALLEST, "smallest").unwrap();
    let long = alone.long.only().unwrap();
    assert_eq!(alone.watched_by(long), "its link alone");
    let mut nobody_asks = example.clone();
    nobody_asks.health.enabled = false;
    assert_eq!(nobody_asks.watched_by(short), "its link alone");
}
