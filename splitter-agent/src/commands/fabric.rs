//! `splitter fabric`: the roles of a leaf and of a spine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use flow_cli::{ExitCode, print, print_json};
use flow_report::Table;
use flow_telemetry::{MetricsEndpoint, Readiness, Server};
use serde_json::json;
use splitter_agent::metrics::fabric_registry;
use splitter_config::{Config, DEFAULT_PATH, FABRIC_PATH, FabricConfig};
use splitter_datapath::{FabricDataplane, Pins, fabric_programs};
use splitter_doctor::examine_fabric;
use splitter_instance::fabric::{
    Ending, FabricState, cease, hold, keep_up, planned_ports, shown_ports, take_down, warn_of_dscp,
};
use splitter_instance::privileges::drop_unneeded;
use splitter_netlink::Netlink;
use splitter_policy::fabric::{FabricPass, FabricStep};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::service_manager::ServiceManager;
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
        FabricCommand::Down { at_once } => down(&config, at_once).await?,
        FabricCommand::Plan => plan(&config, cli.json).await?,
        FabricCommand::Status => status(&config, cli.json).await?,
        FabricCommand::Check => print(format_args!("{}: ok", path.display()))?,
        FabricCommand::Doctor => return doctor(&config, cli.json).await,
    }
    Ok(ExitCode::Ok)
}

async fn run(config: &FabricConfig, path: &Path) -> Result<()> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    let _lock = hold(config)?;
    let server = Server::bind(config.metrics.address).context("`address` under [metrics]")?;
    let netlink = Netlink::connect()?;
    let state = Arc::new(FabricState::up(config, &netlink).await?);
    warn_of_absent(config, &state);
    let pins = config.pin_dir();
    if let Err(error) = drop_unneeded(&[], &[&pins, path]) {
        tracing::warn!(event = "rights_kept", %error, "keeping all capabilities");
    }
    let readiness = Readiness::new();
    let mut manager = ServiceManager::new(readiness.clone());
    let endpoint = MetricsEndpoint::new(fabric_registry(Arc::clone(&state))?, readiness.clone());
    tracing::info!(event = "serving", address = %server.local_addr(), "serving /metrics, /live and /ready");
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(server.serve(endpoint, async {
        let _ = stopped.await;
    }));
    manager.ready();
    let signal = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "Ctrl-C",
        never = keep_up(config, Arc::clone(&state), &netlink, || manager.goes_round()) => never,
        ended = &mut serving => {
            ended.context("the metrics endpoint panicked")??;
            "the end of the metrics endpoint"
        }
    };
    tracing::info!(event = "ending", signal, "ending");
    manager.stopping();
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
    let _lock = hold(config)?;
    let state = FabricState::up(config, &Netlink::connect()?).await?;
    state.plane().keep()?;
    warn_of_absent(config, &state);
    Ok(())
}

async fn down(config: &FabricConfig, at_once: bool) -> Result<()> {
    let _lock = hold(config)?;
    let ending = match at_once {
        true => Ending::AtOnce,
        false => Ending::Restored,
    };
    Ok(take_down(config, ending).await?)
}

async fn plan(config: &FabricConfig, as_json: bool) -> Result<()> {
    let fabric = &config.fabric;
    // Who may not look would read that nothing is in place.
    Pins::new(&config.bpffs, &config.pin_dir()).check_readable()?;
    let ports = planned_ports(config, &Netlink::connect()?).await?;
    let programs = fabric_programs(fabric.role);
    if as_json {
        return print_json(&json!({
            "role": fabric.role,
            "dscp": fabric.dscp,
            "hops": fabric.hops,
            "queue_ms": u64::try_from(fabric.queue.as_millis()).unwrap_or(u64::MAX),
            "restore_only": fabric.restore_only,
            "programs": programs,
            "ports": ports,
            "leaves": fabric.leaves.len(),
        }));
    }
    if fabric.restore_only {
        print(format_args!(
            "{}: {} at ingress of each port; it writes nothing",
            fabric.role, programs[0]
        ))?;
    } else {
        print(format_args!(
            "{}: {} at ingress and {} at egress of each port; ACKs that are written have DSCP {}",
            fabric.role, programs[0], programs[1], fabric.dscp
        ))?;
    }
    let mut table = Table::new(["port", "rate", "action"]);
    for port in &ports {
        let rate = port
            .rate_mbit
            .map_or("-".to_owned(), |it| format!("{it} Mbit/s"));
        table.row([port.device.clone(), rate, port.action.to_owned()]);
    }
    print(table.to_text())
}

async fn status(config: &FabricConfig, as_json: bool) -> Result<()> {
    Pins::new(&config.bpffs, &config.pin_dir()).check_readable()?;
    let plane = FabricDataplane::open(&config.bpffs, &config.pin_dir());
    let Some(plane) = plane.filter(|it| it.role() == config.fabric.role) else {
        if as_json {
            return print_json(&json!({ "up": false, "role": config.fabric.role }));
        }
        return print(format_args!("{}: down", config.fabric.role));
    };
    let ports = shown_ports(config, &plane, &Netlink::connect()?).await?;
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
    let mut table = Table::new([
        "port",
        "attached",
        "writes",
        "backlog",
        "reported of leaves",
    ]);
    for port in ports {
        let remote = port.remote_backlog_ms.iter();
        let remote: Vec<_> = remote
            .map(|(leaf, ms)| format!("{leaf}: {ms:.1} ms"))
            .collect();
        table.row([
            port.device,
            port.mode.unwrap_or("no").to_owned(),
            if port.writes { "yes" } else { "no" }.to_owned(),
            port.backlog_ms
                .map_or("-".to_owned(), |it| format!("{it:.1} ms")),
            remote.join(", "),
        ]);
    }
    print(table.to_text())?;
    counts("ACKs", steps)?;
    counts("passed for", passed)
}

fn counts<const N: usize>(head: &str, counts: [(&str, u64); N]) -> Result<()> {
    let mut table = Table::new([head, "packets"]);
    for (name, count) in counts {
        table.row([name.to_owned(), count.to_string()]);
    }
    print(table.to_text())
}

async fn doctor(config: &FabricConfig, as_json: bool) -> Result<ExitCode> {
    // Where the same machine splits flows as well, by its file.
    let splitter = Config::load(Path::new(DEFAULT_PATH)).ok();
    let checks = examine_fabric(&Netlink::connect()?, config, splitter.as_ref()).await?;
    super::doctor::report(&checks, as_json)
}
