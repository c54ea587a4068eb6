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
    let told = mistake(&text);
    assert!(
        told.contains("long.rate_mbit: policy = \"share\" shapes the tunnel"),
        "{told}"
    );
}

#[test]
fn sharing_takes_four_marks() {
    let told = mistake(&sharing("[marks]\nshort_on_long = 2\n"));
    assert!(
        told.contains("must differ from marks.long, which is 2, too"),
        "{told}"
    );
    let told = mistake(&sharing("[marks]\nlong_on_short = 0\n"));
    assert!(
        told.contains("0 is for packets that are not split"),
        "{told}"
    );
    let told = mistake(&sharing("[marks]\nmatch = \"tos\"\nshort_on_long = 12\n"));
    assert!(
        told.contains("4 (short) and 12 (short_on_long) are the same"),
        "{told}"
    );
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
    let told = mistake(&sharing("[share]\ncloudburst_dscp = 5\n"));
    assert!(
        told.contains("one of the marks that the splitter writes itself"),
        "{told}"
    );
    let told = mistake(&sharing("[share]\nshape_percent = 103\n"));
    assert!(told.contains("from 50 to 100 percent"), "{told}");
}
