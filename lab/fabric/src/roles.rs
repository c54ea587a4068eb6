//! The roles of a leaf and of a spine, with which spines report to leaves how full their ports are.

use std::{fmt::Write as _, path::Path};

use anyhow::Result;
use flow_testbed::scheme::{Agent, METRICS};
use tokio_util::sync::CancellationToken;

use crate::rig::{Leaf, QUEUE_MS, Rig, Spine};

/// The name of the role, on each machine.
pub(crate) const NAME: &str = "fabric";
/// The file of a leaf's role, beside that of its daemon.
const FILE: &str = "fabric.toml";
/// Nobody else's here.
const DSCP: u8 = 41;
/// Nobody's here: who goes by it finds no ACK that was written.
const OTHER_DSCP: u8 = 33;

/// Puts the role in place at a leaf, beside the daemon there. It stays until it is taken away.
pub(crate) fn put_at_leaf(agent: &Agent, rig: &Rig, leaf: &Leaf, splitter: &Path) -> Result<()> {
    let command: (_, &[_]) = (splitter, &["fabric", "up"]);
    Ok(agent.run_beside(command, FILE, |directory| of_leaf(rig, leaf, directory))?)
}

/// Waits until the daemon at a leaf has its packets choose by what is reported, behind all uplinks.
pub(crate) fn wait_until_heard(
    agent: &Agent,
    leaf: &Leaf,
    cancel: &CancellationToken,
) -> Result<()> {
    let uplinks = format!("uplinks={}", leaf.spines.len());
    Ok(agent.wait_until_logged(&["fabric_heard", &uplinks], cancel)?)
}

/// Takes the role away from a leaf.
pub(crate) fn take_from_leaf(agent: &Agent, rig: &Rig, leaf: &Leaf, splitter: &Path) -> Result<()> {
    let command: (_, &[_]) = (splitter, &["fabric", "down"]);
    Ok(agent.run_beside(command, FILE, |directory| of_leaf(rig, leaf, directory))?)
}

/// Starts what keeps a spine in its role; it is not ready yet. Without `reports` the spine does all but report.
pub(crate) fn launch_spine(spine: &Spine, splitter: &Path, reports: bool) -> Result<Agent> {
    let command: (_, &[_]) = (splitter, &["fabric", "run"]);
    let dscp = if reports { DSCP } else { OTHER_DSCP };
    let agent = Agent::launch_command(&spine.namespace, command, |directory| {
        of_spine(spine, dscp, directory)
    });
    Ok(agent?)
}

fn of_leaf(rig: &Rig, leaf: &Leaf, directory: &Path) -> String {
    let mut text = head("leaf", DSCP, directory);
    for spine in &leaf.spines {
        let _ = writeln!(text, "[[fabric.ports]]\ndevice = \"{}\"", spine.device);
    }
    for (number, _) in rig.leaves.iter().enumerate() {
        let prefix = Rig::prefix(number as u8);
        let _ = writeln!(text, "[[fabric.leaves]]\nnumber = {number}");
        let _ = writeln!(text, "prefixes = [\"{prefix}\"]");
    }
    text
}

fn of_spine(spine: &Spine, dscp: u8, directory: &Path) -> String {
    let mut text = head("spine", dscp, directory);
    for device in &spine.leaf_devices {
        let _ = writeln!(text, "[[fabric.ports]]\ndevice = \"{device}\"");
        let _ = writeln!(text, "rate_mbit = {}", spine.rate_mbit);
    }
    let (address, port) = METRICS;
    let _ = writeln!(text, "[metrics]\naddress = \"{address}:{port}\"");
    text
}

fn head(role: &str, dscp: u8, directory: &Path) -> String {
    let bpffs = toml::Value::from(directory.join("bpf").display().to_string());
    format!(
        "name = \"{NAME}\"\nbpffs = {bpffs}\n\
         [fabric]\nrole = \"{role}\"\ndscp = {dscp}\nqueue_ms = {QUEUE_MS}\n"
    )
}
