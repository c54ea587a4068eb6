//! Checks of the keys of switches and links.

use flow_balance::MAX_PATHS;

use super::{Checked, below, in_range, require};
use crate::scenario::FabricSettings;

/// More ports than this have no number in a packet.
const MAX_PORTS: usize = u16::MAX as usize;
/// Limit of the path table: a pair of leaves takes some 600 bytes.
const MAX_PAIRS: usize = 250_000;

pub(super) fn check_fabric(fabric: &FabricSettings) -> Checked {
    for (key, value) in [
        ("fabric.leaves", fabric.leaves),
        ("fabric.spines", fabric.spines),
        ("fabric.hosts_per_leaf", fabric.hosts_per_leaf),
    ] {
        require(value > 0, &format!("{key} = 0"), || {
            "there must be at least one".to_owned()
        })?;
    }
    let [leaves, spines, hosts] =
        [fabric.leaves, fabric.spines, fabric.hosts_per_leaf].map(usize::from);
    let ports = 2 * leaves * (spines + hosts);
    require(ports <= MAX_PORTS, "fabric", || {
        format!("{ports} ports are more than {MAX_PORTS}; take fewer leaves, spines or hosts")
    })?;
    require(
        spines <= MAX_PATHS,
        &format!("fabric.spines = {spines}"),
        || format!("policies choose among at most {MAX_PATHS} paths"),
    )?;
    require(
        leaves * leaves <= MAX_PAIRS,
        &format!("fabric.leaves = {leaves}"),
        || format!("they make more than {MAX_PAIRS} pairs with paths between them; take fewer"),
    )?;
    check_rate("fabric.host_gbps", fabric.host_gbps)?;
    check_rate("fabric.uplink_gbps", fabric.uplink_gbps)?;
    in_range("fabric.link_delay_us", fabric.link_delay_us, 0.0, 1e6)?;
    require(
        fabric.failed < fabric.spines,
        &format!("fabric.failed = {}", fabric.failed),
        || format!("of {spines} spines at least one must work, or no host is reachable"),
    )?;
    if let Some(slow) = &fabric.slow {
        require(
            slow.paths <= fabric.spines,
            &format!("fabric.slow.paths = {}", slow.paths),
            || format!("there are {spines} spines"),
        )?;
        in_range("fabric.slow.rtt_ratio", slow.rtt_ratio, 1.0, 1000.0)?;
    }
    for (index, path) in fabric.path.iter().enumerate() {
        let key = format!("fabric.path[{index}]");
        below(&format!("{key}.spine"), path.spine, fabric.spines, "spines")?;
        if let Some(leaf) = path.leaf {
            below(&format!("{key}.leaf"), leaf, fabric.leaves, "leaves")?;
        }
        in_range(
            &format!("{key}.extra_delay_us"),
            path.extra_delay_us,
            0.0,
            1e6,
        )?;
        if let Some(gbps) = path.gbps {
            check_rate(&format!("{key}.gbps"), gbps)?;
        }
    }
    Ok(())
}

fn check_rate(key: &str, gbps: f64) -> Checked {
    require(
        (1e-3..=3200.0).contains(&gbps),
        &format!("{key} = {gbps}"),
        || {
            "a link needs a capacity between 0.001 and 3200 Gbit/s; to take it out, say `failed = true` \
         of its path"
            .to_owned()
        },
    )
}
