//! A role as `plan` and `status` show it.

use flow_balance::{Ageing, PathId};
use serde::Serialize;
use splitter_config::{FabricConfig, FabricRole};
use splitter_datapath::clock::monotonic_ns;
use splitter_datapath::{FabricDataplane, FabricPortState};
use splitter_netlink::Netlink;

use super::FabricError;

/// A port as `plan` shows it.
#[derive(Debug, Serialize)]
pub struct PlannedPort {
    /// Its device.
    pub device: String,
    /// What the configuration has it carry.
    pub rate_mbit: Option<u32>,
    /// What `up` would do.
    pub action: &'static str,
}

/// Says what `up` would do at each port.
///
/// # Errors
/// Of a port that cannot be one, and when the kernel does not answer.
pub async fn planned_ports(
    config: &FabricConfig,
    netlink: &Netlink,
) -> Result<Vec<PlannedPort>, FabricError> {
    let interfaces = netlink.interfaces().await?;
    let states = port_states(config, netlink).await?;
    let ports = config.fabric.ports.iter().map(|port| {
        let device = port.device.as_str();
        let state = states.iter().flatten().find(|it| it.device == device);
        let action = match interfaces.named(&port.device) {
            Err(_) => "wait for the device",
            Ok(interface) if !interface.is_ethernet => {
                return Err(FabricError::NotEthernet(device.to_owned()));
            }
            Ok(_) if state.is_some_and(FabricPortState::is_in_place) => "keep",
            Ok(_) if state.is_some_and(|it| it.attached[0].is_some() && !it.is_writer) => {
                "cease to write"
            }
            Ok(_) => "attach",
        };
        Ok(PlannedPort {
            device: device.to_owned(),
            rate_mbit: port.rate_mbit.map(Into::into),
            action,
        })
    });
    ports.collect()
}

/// How the ports are, where something is in place.
async fn port_states(
    config: &FabricConfig,
    netlink: &Netlink,
) -> Result<Option<Vec<FabricPortState>>, FabricError> {
    let Some(plane) = FabricDataplane::open(&config.bpffs, &config.pin_dir()) else {
        return Ok(None);
    };
    if plane.role() != config.fabric.role {
        return Ok(None);
    }
    let interfaces = netlink.interfaces().await?;
    Ok(Some(plane.port_states(&config.fabric, &interfaces)?))
}

/// A port as `status` shows it.
#[derive(Debug, Serialize)]
pub struct ShownPort {
    /// Its device.
    pub device: String,
    /// All that belongs there is attached.
    pub attached: bool,
    /// How it is attached.
    pub mode: Option<&'static str>,
    /// A leaf writes what leaves by it, or a spine puts it into its model.
    pub writes: bool,
    /// Of a spine's port, by its model.
    pub backlog_ms: Option<f64>,
    /// Of a leaf's uplink: what the spine behind it has reported, by leaf.
    pub remote_backlog_ms: Vec<(u32, f64)>,
}

/// Looks at the ports of a role that is in place.
///
/// # Errors
/// When the kernel does not answer.
pub async fn shown_ports(
    config: &FabricConfig,
    plane: &FabricDataplane,
    netlink: &Netlink,
) -> Result<Vec<ShownPort>, FabricError> {
    let states = port_states(config, netlink).await?.unwrap_or_default();
    let queues = match plane.role() {
        FabricRole::Spine => Some(plane.port_queues()?),
        FabricRole::Leaf => None,
    };
    let now_ns = monotonic_ns();
    let mut shown = Vec::new();
    for (path, port) in PathId::all().zip(&config.fabric.ports) {
        let state = states.iter().find(|it| it.device == port.device.as_str());
        let waits_ns = |it: &splitter_datapath::PathQueues| {
            it.queues().free_at_ns(path).saturating_sub(now_ns)
        };
        let mut remote_backlog_ms = Vec::new();
        for leaf in &config.fabric.leaves {
            let remote = plane.remote_backlogs(leaf.number)?;
            let remote_ns = remote.behind(path).at(now_ns, Ageing::Drains);
            remote_backlog_ms.push((leaf.number, milliseconds(remote_ns)));
        }
        shown.push(ShownPort {
            device: port.device.to_string(),
            attached: state.is_some_and(FabricPortState::is_in_place),
            mode: state.and_then(|it| it.attached[0]).map(|it| it.as_str()),
            writes: state.is_some_and(|it| it.attached[1].is_some()),
            backlog_ms: queues.as_ref().map(|it| milliseconds(waits_ns(it))),
            remote_backlog_ms,
        });
    }
    Ok(shown)
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}
