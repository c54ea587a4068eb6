//! Metrics of a leaf or a spine, read from the kernel when somebody scrapes.

use std::fmt;
use std::sync::Arc;

use flow_balance::{Ageing, PathId};
use flow_telemetry::{Descriptor, Kind, Metrics, NameError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use splitter_config::FabricRole;
use splitter_datapath::clock::monotonic_ns;
use splitter_policy::fabric::{FabricPass, FabricStep};

use super::families::families;
use super::reference::{self, Label, Row, of, open};
use super::{counters_by, unreadable};
use splitter_instance::fabric::FabricState;

families! {
    "fabric" {
        steps: "fabric_acks_total", Counter, "packets",
            [of("step", FabricStep::ALL.map(FabricStep::name))],
            "Pure ACKs that a leaf or a spine has changed, by what was done",
            "`written`: by this leaf, as it left. `cleared`: the fabric's DSCP was a host's. `reported`: \
             by this spine. `read`, `restored`: by this leaf, with a spine's report in it and without. \
             `unread`: restored, but from no known leaf, by more routers than `hops`, or at no port.";
        passed: "fabric_passed_packets_total", Counter, "packets",
            [of("reason", FabricPass::ALL.map(FabricPass::name))],
            "Packets that passed the programs of a leaf or a spine as they came",
            "By [why](fabric.md#packets-that-pass).";
        attached: "fabric_ports_attached", Gauge, "ports", [],
            "Ports at which all programs of the role are attached",
            "Fewer than are configured: a device is not there.";
        ports: "fabric_ports", Gauge, "ports", [],
            "Ports that the configuration lists",
            "";
        remote: "fabric_remote_backlog_seconds", Gauge, "seconds", [open("leaf"), open("device")],
            "Time in which the port drains that a spine behind an uplink has towards a leaf, by its last report",
            "Of a leaf alone. It drains as time passes, and is 0 where nothing was reported.";
        backlog: "fabric_port_backlog_seconds", Gauge, "seconds", [open("device")],
            "Time in which a port drains, by the model that reports come from",
            "Of a spine alone.";
        role: "fabric_role_info", Info, "-", [of("role", ["leaf", "spine"])],
            "Role of the machine in the fabric",
            "";
    }
}

/// The registry of a leaf or a spine.
///
/// # Errors
/// A [`NameError`] when two metrics are called the same.
pub fn fabric_registry(state: Arc<FabricState>) -> Result<Metrics, NameError> {
    let mut metrics = Metrics::new("splitter")?;
    metrics.build_info(env!("CARGO_PKG_VERSION"))?;
    let families = Families::new()?;
    let collector = FabricCollector {
        families: families.clone(),
        state,
    };
    metrics.collect(families.all(), collector)?;
    Ok(metrics)
}

/// The names of these families, with their prefix.
#[must_use]
pub fn fabric_names() -> Vec<String> {
    let rows = rows();
    rows.iter()
        .map(|it| format!("splitter_{}", it.name))
        .collect()
}

/// Fills the table of the page about a fabric again, between `<!-- metrics: fabric -->` and `<!-- end -->`.
///
/// # Errors
/// In words, when a marker names no section or has no end.
pub fn fill_fabric_reference(page: &str) -> Result<String, String> {
    reference::fill(page, &rows())
}

#[derive(Debug)]
struct FabricCollector {
    families: Families,
    state: Arc<FabricState>,
}

impl Collector for FabricCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let (families, state) = (&self.families, &*self.state);
        let counters = state.plane().counters().map_err(unreadable)?;
        let steps = FabricStep::ALL.map(|it| (it.name(), counters.done(it)));
        counters_by(encoder, &families.steps, "step", steps)?;
        let passed = FabricPass::ALL.map(|it| (it.name(), counters.passed(it)));
        counters_by(encoder, &families.passed, "reason", passed)?;
        let config = state.config();
        let mut attached = families.attached.encode(encoder)?;
        attached.encode_gauge(&(state.attached() as u64))?;
        let mut ports = families.ports.encode(encoder)?;
        ports.encode_gauge(&(config.ports.len() as u64))?;
        self.encode_remote(encoder)?;
        self.encode_backlogs(encoder)?;
        let mut role = families.role.encode(encoder)?;
        role.encode_info(&[("role", config.role.as_str())])
    }
}

impl FabricCollector {
    fn encode_remote(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let config = self.state.config();
        let mut family = self.families.remote.encode(encoder)?;
        for leaf in &config.leaves {
            let remote = self.state.plane().remote_backlogs(leaf.number);
            let (remote, now_ns) = (remote.map_err(unreadable)?, monotonic_ns());
            let number = leaf.number.to_string();
            for (path, port) in PathId::all().zip(&config.ports) {
                let waits_ns = remote.behind(path).at(now_ns, Ageing::Drains);
                family
                    .encode_family(&[("leaf", &*number), ("device", port.device.as_str())])?
                    .encode_gauge(&seconds(waits_ns))?;
            }
        }
        Ok(())
    }

    fn encode_backlogs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let config = self.state.config();
        let mut family = self.families.backlog.encode(encoder)?;
        if config.role != FabricRole::Spine {
            return Ok(());
        }
        // Of what is pinned now: somebody may have removed the pins, and the agent has put others there.
        let queues = self.state.plane().port_queues().map_err(unreadable)?;
        let now_ns = monotonic_ns();
        for (path, port) in PathId::all().zip(&config.ports) {
            let waits_ns = queues.queues().free_at_ns(path).saturating_sub(now_ns);
            family
                .encode_family(&[("device", port.device.as_str())])?
                .encode_gauge(&seconds(waits_ns))?;
        }
        Ok(())
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
