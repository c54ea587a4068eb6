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

/// Starts what keeps a spine in its role; it is not ready yet.
pub(crate) fn launch_spine(spine: &Spine, splitter: &Path) -> Result<Agent> {
    let command: (_, &[_]) = (splitter, &["fabric", "run"]);
    let agent = Agent::launch_command(&spine.namespace, command, |directory| {
        of_spine(spine, directory)
    });
    Ok(agent?)
}

fn of_leaf(rig: &Rig, leaf: &Leaf, directory: &Path) -> String {
    let mut text = head("leaf", directory);
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

fn of_spine(spine: &Spine, directory: &Path) -> String {
    let mut text = head("spine", directory);
    for device in &spine.leaf_devices {
        let _ = writeln!(text, "[[fabric.ports]]\ndevice = \"{device}\"");
        let _ = writeln!(text, "rate_mbit = {}", spine.rate_mbit);
    }
    let (address, port) = METRICS;
    let _ = writeln!(text, "[metrics]\naddress = \"{address}:{port}\"");
    text
}

fn head(role: &str, directory: &Path) -> String {
    let bpffs = toml::Value::from(directory.join("bpf").display().to_string());
    format!(
        "name = \"{NAME}\"\nbpffs = {bpffs}\n\
         [fabric]\nrole = \"{role}\"\ndscp = {DSCP}\nqueue_ms = {QUEUE_MS}\n"
    )
}
