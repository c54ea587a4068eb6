//! `splitter fabric`: the roles of a leaf and of a spine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use flow_balance::{Ageing, PathId};
use flow_cli::{ExitCode, print, print_json};
use flow_report::Table;
use flow_telemetry::{MetricsEndpoint, Readiness, Server};
use serde::Serialize;
use serde_json::json;
use splitter_agent::metrics::fabric_registry;
use splitter_config::{FABRIC_PATH, FabricConfig, FabricRole};
use splitter_datapath::clock::monotonic_ns;
use splitter_datapath::{FabricDataplane, FabricPortState, fabric_programs};
use splitter_instance::fabric::{FabricError, FabricState, cease, keep_up, warn_of_dscp};
use splitter_instance::privileges::drop_unneeded;
use splitter_netlink::Netlink;
use splitter_policy::fabric::{FabricPass, FabricStep};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::cli::{Cli, FabricCommand};

/// Does what a subcommand says.
pub(crate) async fn dispatch(cli: &Cli, command: FabricCommand) -> Result<ExitCode> {
    let path = cli.named_config().unwrap_or(Path::new(FABRIC_PATH));
    let config = FabricConfig::load(path)?;
    let is_asked = matches!(command, FabricCommand::Plan | FabricCommand::Check);
    if is_asked && !config.is_best_effort() {
        warn_of_dscp(&config);
    }
    match command {
        FabricCommand::Run => run(&config, path).await?,
        FabricCommand::Up => up(&config).await?,
        FabricCommand::Down => down(&config)?,
        FabricCommand::Plan => plan(&config, cli.json).await?,
        FabricCommand::Status => status(&config, cli.json).await?,
        FabricCommand::Check => print(format_args!("{}: ok", path.display()))?,
    }
    Ok(ExitCode::Ok)
}

async fn run(config: &FabricConfig, path: &Path) -> Result<()> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    let server = Server::bind(config.metrics.address).context("`address` under [metrics]")?;
    let netlink = Netlink::connect()?;
    let state = Arc::new(FabricState::up(config, &netlink).await?);
    warn_of_absent(config, &state);
    let pins = config.pin_dir();
    if let Err(error) = drop_unneeded(&[], &[&pins, path]) {
        tracing::warn!(event = "rights_kept", %error, "keeping all capabilities");
    }
    let readiness = Readiness::new();
    let endpoint = MetricsEndpoint::new(fabric_registry(Arc::clone(&state))?, readiness.clone());
    tracing::info!(event = "serving", address = %server.local_addr(), "serving /metrics, /live and /ready");
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(server.serve(endpoint, async {
        let _ = stopped.await;
    }));
    let signal = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "Ctrl-C",
        never = keep_up(config, Arc::clone(&state), &netlink) => never,
        ended = &mut serving => {
            ended.context("the metrics endpoint panicked")??;
            "the end of the metrics endpoint"
        }
    };
    tracing::info!(event = "ending", signal, "ending");
    readiness.fail("agent", "shutting down");
    if state.plane().is_kept() {
        tracing::info!(
            event = "left_up",
            "left in place what `splitter fabric up` had brought up"
        );
    } else {
        cease(config)?;
    }
    drop(stop);
    if !serving.is_finished() {
        serving.await.context("the metrics endpoint panicked")??;
    }
    Ok(())
}

fn warn_of_absent(config: &FabricConfig, state: &FabricState) {
    let listed = config.fabric.ports.len();
    if state.attached() < listed {
        let attached = state.attached();
        tracing::warn!(
            event = "ports_absent",
            attached,
            listed,
            "not all ports are there; they are attached to when they come"
        );
    }
}

async fn up(config: &FabricConfig) -> Result<()> {
    let state = FabricState::up(config, &Netlink::connect()?).await?;
    state.plane().keep()?;
    warn_of_absent(config, &state);
    Ok(())
}

fn down(config: &FabricConfig) -> Result<()> {
    Ok(FabricDataplane::down(&config.bpffs, &config.pin_dir())?)
}

/// A port as `plan` shows it.
#[derive(Serialize)]
struct PlannedPort<'a> {
    device: &'a str,
    rate_mbit: Option<u32>,
    action: &'static str,
}

async fn plan(config: &FabricConfig, as_json: bool) -> Result<()> {
    let interfaces = Netlink::connect()?.interfaces().await?;
    let fabric = &config.fabric;
    let states = port_states(config).await?;
    let ports = fabric.ports.iter().map(|port| {
        let device = port.device.as_str();
        let is_attached = |it: &FabricPortState| it.device == device && it.is_attached();
        let action = match interfaces.named(&port.device) {
            Err(_) => "wait for the device",
            Ok(interface) if !interface.is_ethernet => {
                return Err(FabricError::NotEthernet(device.to_owned()));
            }
            Ok(_) if states.iter().flatten().any(is_attached) => "keep",
            Ok(_) => "attach",
        };
        Ok(PlannedPort {
            device,
            rate_mbit: port.rate_mbit.map(Into::into),
            action,
        })
    });
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    let programs = fabric_programs(fabric.role);
    if as_json {
        return print_json(&json!({
            "role": fabric.role,
            "dscp": fabric.dscp,
            "hops": fabric.hops,
            "queue_ms": u64::try_from(fabric.queue.as_millis()).unwrap_or(u64::MAX),
            "programs": programs,
            "ports": ports,
            "leaves": fabric.leaves.len(),
        }));
    }
    print(format_args!(
        "{}: {} at ingress and {} at egress of each port; ACKs that are written have DSCP {}",
        fabric.role, programs[0], programs[1], fabric.dscp
    ))?;
    let mut table = Table::new(["port", "rate", "action"]);
    for port in &ports {
        let rate = port
            .rate_mbit
            .map_or("-".to_owned(), |it| format!("{it} Mbit/s"));
        table.row([port.device.to_owned(), rate, port.action.to_owned()]);
    }
    print(table.to_text())
}

/// How the ports are, where something is in place.
async fn port_states(config: &FabricConfig) -> Result<Option<Vec<FabricPortState>>> {
    let Some(plane) = FabricDataplane::open(&config.bpffs, &config.pin_dir()) else {
        return Ok(None);
    };
    if plane.role() != config.fabric.role {
        return Ok(None);
    }
    let interfaces = Netlink::connect()?.interfaces().await?;
    Ok(Some(plane.port_states(&config.fabric, &interfaces)?))
}

/// A port as `status` shows it.
#[derive(Serialize)]
struct ShownPort {
    device: String,
    attached: bool,
    mode: Option<&'static str>,
    /// Of a spine's port, by its model.
    backlog_ms: Option<f64>,
    /// Of a leaf's uplink: what the spine behind it has reported, by leaf.
    remote_backlog_ms: Vec<(u32, f64)>,
}

async fn status(config: &FabricConfig, as_json: bool) -> Result<()> {
    let plane = FabricDataplane::open(&config.bpffs, &config.pin_dir());
    let Some(plane) = plane.filter(|it| it.role() == config.fabric.role) else {
        if as_json {
            return print_json(&json!({ "up": false, "role": config.fabric.role }));
        }
        return print(format_args!("{}: down", config.fabric.role));
    };
    let ports = shown_ports(config, &plane).await?;
    let counters = plane.counters()?;
    let steps = FabricStep::ALL.map(|it| (it.name(), counters.done(it)));
    let passed = FabricPass::ALL.map(|it| (it.name(), counters.passed(it)));
    if as_json {
        let map = |counts: &[(&str, u64)]| -> serde_json::Map<String, serde_json::Value> {
            let counts = counts.iter();
            counts
                .map(|(name, count)| ((*name).to_owned(), json!(count)))
                .collect()
        };
        return print_json(&json!({
            "up": true,
            "role": plane.role(),
            "kept": plane.is_kept(),
            "ports": ports,
            "acks": map(&steps),
            "passed": map(&passed),
        }));
    }
    print(format_args!("{}: up", plane.role()))?;
    let mut table = Table::new(["port", "attached", "backlog", "reported of leaves"]);
    for port in ports {
        let remote = port.remote_backlog_ms.iter();
        let remote: Vec<_> = remote
            .map(|(leaf, ms)| format!("{leaf}: {ms:.1} ms"))
            .collect();
        table.row([
            port.device,
            port.mode.unwrap_or("no").to_owned(),
            port.backlog_ms
                .map_or("-".to_owned(), |it| format!("{it:.1} ms")),
            remote.join(", "),
        ]);
    }
    print(table.to_text())?;
    let mut table = Table::new(["ACKs", "packets"]);
    for (name, count) in steps {
        table.row([name.to_owned(), count.to_string()]);
    }
    print(table.to_text())?;
    let mut table = Table::new(["passed for", "packets"]);
    for (name, count) in passed {
        table.row([name.to_owned(), count.to_string()]);
    }
    print(table.to_text())
}

async fn shown_ports(config: &FabricConfig, plane: &FabricDataplane) -> Result<Vec<ShownPort>> {
    let states = port_states(config).await?.unwrap_or_default();
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
            attached: state.is_some_and(FabricPortState::is_attached),
            mode: state.and_then(|it| it.attached[0]).map(|it| it.as_str()),
            backlog_ms: queues.as_ref().map(|it| milliseconds(waits_ns(it))),
            remote_backlog_ms,
        });
    }
    Ok(shown)
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}
