//! `splitter fabric`: two leaves and two spines, with real traffic and captures on every host.

mod backlog;
mod by_pins;
mod capture;
mod doctor;
mod heard;
mod hosts;
mod lock;
mod numbers;
mod packets;
mod phases;
mod restarts;
mod rig;
mod transfer;
mod vlan;

const DSCP: u8 = 41;
const IP: usize = 14;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TCP: u8 = 6;
/// From leaf to leaf over a spine.
const ROUTERS: u8 = 3;
/// What a spine's port to a leaf carries in the transfers that fill it.
const RATE_MBIT: u32 = 20;

#[test]
fn page_is_what_the_metrics_declare() {
    const PAGE: &str = include_str!("../../../docs/src/reference/fabric.md");
    const COMMAND: &str = "UPDATE=1 cargo test -p splitter-agent --test it fabric::page_is_what";
    let filled = splitter_agent::metrics::fill_fabric_reference(PAGE).expect("a marker");
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../docs/src/reference/fabric.md"
        );
        std::fs::write(path, filled).expect("the page can be written");
    } else {
        assert!(
            PAGE == filled,
            "the page has another table; run `{COMMAND}`"
        );
    }
}
