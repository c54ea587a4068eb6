//! Tunnels that both classes share.

use super::*;

/// The smallest configuration that shares its tunnels.
fn sharing(more: &str) -> String {
    format!(
        "policy = \"share\"\nlan = [\"eth0\"]\n[short]\ndevice = \"wan0\"\nrate_mbit = 100\n\
         [long]\ndevice = \"wan1\"\nrate_mbit = 40\n{more}"
    )
}

#[test]
fn sharing_has_defaults_of_its_own() {
    let config = Config::parse(&sharing(""), "splitter.toml").unwrap();
    assert!(config.is_shared());
    assert_eq!(config.share.shape_percent, 97);
    assert_eq!(config.share.cloudburst(), None);
    let long = config.long.only().unwrap();
    assert_eq!(config.bits_per_second(long), Some(38_800_000));
    assert_eq!(config.handover.max_wait, Duration::from_millis(5));
    assert_eq!(config.handover.long_queue, Duration::from_millis(18));
    let config = with("", "").unwrap();
    assert!(!config.is_shared(), "as in the paper");
}

#[test]
fn sharing_without_a_rate_is_refused() {
    let text = sharing("").replace("rate_mbit = 40\n", "");
    let refused = mistake(&text);
    assert!(refused.contains("long.rate_mbit: "), "{refused}");
}

#[test]
fn sharing_takes_four_marks() {
    for (marks, named) in [
        ("short_on_long = 2", "marks.long"),
        ("long_on_short = 0", "marks.long_on_short = 0"),
        ("match = \"tos\"\nshort_on_long = 12", "12 (short_on_long)"),
    ] {
        let refused = mistake(&sharing(&format!("[marks]\n{marks}\n")));
        assert!(refused.contains(named), "{refused}");
    }
    // Not used, so not looked at.
    assert!(with("marks", "short_on_long = 2").is_ok());
}

#[test]
fn cloudburst_keeps_its_own_mark() {
    let config = Config::parse(&sharing("[share]\ncloudburst_dscp = 44\n"), "x").unwrap();
    let queue = config.share.cloudburst().unwrap();
    assert_eq!(
        (queue.dscp.get(), queue.packets, queue.percent),
        (44, 4, 25)
    );
    let refused = mistake(&sharing("[share]\ncloudburst_dscp = 5\n"));
    assert!(refused.contains("share.cloudburst_dscp = 5"), "{refused}");
}
