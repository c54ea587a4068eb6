//! A role as `plan` and `status` show it.

use flow_balance::{Ageing, PathId};
use flow_report::Table;
use serde::{Serialize, Serializer};
use splitter_config::{FabricConfig, FabricRole};
use splitter_datapath::clock::monotonic_ns;
use splitter_datapath::{FabricDataplane, FabricPortState, fabric_programs};
use splitter_netlink::Netlink;
use splitter_policy::fabric::{FabricPass, FabricStep};

use super::{FabricError, PinnedRole};

/// Shows what `up` would do.
#[derive(Debug, Serialize)]
pub struct RolePlan {
    role: FabricRole,
    dscp: u8,
    hops: u32,
    queue_ms: u64,
    restore_only: bool,
    programs: [&'static str; 2],
    ports: Vec<PlannedPort>,
    /// How many there are.
    leaves: usize,
}

impl RolePlan {
    /// Looks what a configuration would change.
    ///
    /// # Errors
    /// Of a port that cannot be one, where the caller may not look, and when the kernel does not answer.
    pub async fn of(config: &FabricConfig, netlink: &Netlink) -> Result<Self, FabricError> {
        // Who may not look would read that nothing is in place.
        PinnedRole::of(config).as_pins().check_readable()?;
        let fabric = &config.fabric;
        Ok(Self {
            role: fabric.role,
            dscp: fabric.dscp.get(),
            hops: fabric.hops,
            queue_ms: u64::try_from(fabric.queue.as_millis()).unwrap_or(u64::MAX),
            restore_only: fabric.restore_only,
            programs: fabric_programs(fabric.role),
            ports: planned_ports(config, netlink).await?,
            leaves: fabric.leaves.len(),
        })
    }

    /// Returns the plan in words, and as a table of the ports.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { role, dscp, .. } = self;
        let [ingress, egress] = self.programs;
        let head = match self.restore_only {
            true => format!("{role}: {ingress} at ingress of each port; it writes nothing"),
            false => format!(
                "{role}: {ingress} at ingress and {egress} at egress of each port; ACKs that are written have DSCP {dscp}"
            ),
        };
        let mut table = Table::new(["port", "rate", "action"]);
        for port in &self.ports {
            let rate = port
                .rate_mbit
                .map_or("-".to_owned(), |it| format!("{it} Mbit/s"));
            table.row([port.device.clone(), rate, port.action.to_owned()]);
        }
        format!("{head}\n{}", table.to_text())
    }
}

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
async fn planned_ports(
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

/// Shows how a role is.
#[derive(Debug, Serialize)]
pub struct RoleStatus {
    up: bool,
    role: FabricRole,
    #[serde(flatten)]
    in_place: Option<InPlace>,
}

#[derive(Debug, Serialize)]
struct InPlace {
    kept: bool,
    ports: Vec<ShownPort>,
    #[serde(serialize_with = "as_map")]
    acks: Vec<(&'static str, u64)>,
    #[serde(serialize_with = "as_map")]
    passed: Vec<(&'static str, u64)>,
}

fn as_map<S: Serializer>(counts: &[(&'static str, u64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(counts.iter().copied())
}

impl RoleStatus {
    /// Looks how the role of a configuration is.
    ///
    /// # Errors
    /// Where the caller may not look, and when the kernel does not answer.
    pub async fn of(config: &FabricConfig, netlink: &Netlink) -> Result<Self, FabricError> {
        PinnedRole::of(config).as_pins().check_readable()?;
        let role = config.fabric.role;
        let plane = FabricDataplane::open(&config.bpffs, &config.pin_dir());
        let Some(plane) = plane.filter(|it| it.role() == role) else {
            return Ok(Self {
                up: false,
                role,
                in_place: None,
            });
        };
        let ports = shown_ports(config, &plane, netlink).await?;
        let counters = plane.counters()?;
        let steps = FabricStep::ALL.into_iter();
        let reasons = FabricPass::ALL.into_iter();
        let in_place = InPlace {
            kept: plane.is_kept(),
            ports,
            acks: steps.map(|it| (it.name(), counters.done(it))).collect(),
            passed: reasons.map(|it| (it.name(), counters.passed(it))).collect(),
        };
        Ok(Self {
            up: true,
            role,
            in_place: Some(in_place),
        })
    }

    /// Returns it in words, and as tables of ports and counters.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(in_place) = &self.in_place else {
            return format!("{}: down", self.role);
        };
        let head = [
            "port",
            "attached",
            "writes",
            "backlog",
            "reported of leaves",
        ];
        let mut ports = Table::new(head);
        for port in &in_place.ports {
            let remote = port.remote_backlog_ms.iter();
            let remote: Vec<_> = remote
                .map(|(leaf, ms)| format!("{leaf}: {ms:.1} ms"))
                .collect();
            let backlog = port
                .backlog_ms
                .map_or("-".to_owned(), |it| format!("{it:.1} ms"));
            ports.row([
                port.device.clone(),
                port.mode.unwrap_or("no").to_owned(),
                if port.writes { "yes" } else { "no" }.to_owned(),
                backlog,
                remote.join(", "),
            ]);
        }
        let counts = |head, counts: &[(&str, u64)]| {
            let mut table = Table::new([head, "packets"]);
            for (name, count) in counts {
                table.row([(*name).to_owned(), count.to_string()]);
            }
            table.to_text()
        };
        let tables = [
            ports.to_text(),
            counts("ACKs", &in_place.acks),
            counts("passed for", &in_place.passed),
        ];
        format!("{}: up\n{}", self.role, tables.join("\n"))
    }
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
async fn shown_ports(
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
