//! `splitter fabric`: the roles of a leaf and of a spine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use flow_cli::{ExitCode, print, print_json};
use flow_telemetry::{MetricsEndpoint, Readiness, Server};
use serde::Serialize;
use splitter_agent::metrics::fabric_registry;
use splitter_config::{Config, DEFAULT_PATH, FABRIC_PATH, FabricConfig};
use splitter_doctor::examine_fabric;
use splitter_instance::fabric::{
    Ending, FabricState, PinnedRole, RolePlan, RoleStatus, cease, keep_up, take_down,
    take_down_all, warn_unless_best_effort,
};
use splitter_instance::privileges::drop_unneeded;
use splitter_netlink::Netlink;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::service_manager::ServiceManager;
use crate::cli::{Cli, FabricCommand};

/// Does what a subcommand says.
pub(crate) async fn dispatch(cli: &Cli, command: FabricCommand) -> Result<ExitCode> {
    let path = cli.named_config().unwrap_or(Path::new(FABRIC_PATH));
    let load = || FabricConfig::load(path);
    match command {
        FabricCommand::Run => run(&load()?, path).await?,
        FabricCommand::Up => up(&load()?, path).await?,
        FabricCommand::Down { at_once, all: true } => {
            let cleared = take_down_all(ending(at_once)).await?;
            return super::up::show_cleared(&cleared, "role", cli.json);
        }
        FabricCommand::Down { at_once, .. } => {
            let role = PinnedRole::of(&load()?);
            let _lock = role.hold()?;
            take_down(&role, ending(at_once)).await?;
        }
        FabricCommand::Plan => {
            let config = load()?;
            warn_unless_best_effort(&config);
            let plan = RolePlan::of(&config, &Netlink::connect()?).await?;
            show(cli, &plan, RolePlan::text)?;
        }
        FabricCommand::Status => {
            let status = RoleStatus::of(&load()?, &Netlink::connect()?).await?;
            show(cli, &status, RoleStatus::text)?;
        }
        FabricCommand::Check => {
            warn_unless_best_effort(&load()?);
            print(format_args!("{}: ok", path.display()))?;
        }
        FabricCommand::Doctor => return doctor(cli, path).await,
    }
    Ok(ExitCode::Ok)
}

async fn run(config: &FabricConfig, path: &Path) -> Result<()> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    let _lock = PinnedRole::of(config).hold()?;
    let server = Server::bind(config.metrics.address).context("`address` under [metrics]")?;
    let netlink = Netlink::connect()?;
    let state = Arc::new(FabricState::up(config, path, &netlink).await?);
    warn_of_absent(config, &state);
    let pins = config.pin_dir();
    // The directory of all roles is locked while this one takes ports.
    let shared = pins.parent().unwrap_or(&pins);
    if let Err(error) = drop_unneeded(&[], &[&pins, shared, path]) {
        tracing::warn!(event = "rights_kept", %error, "could not give up all other capabilities");
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
        never = keep_up(Arc::clone(&state), &netlink, || manager.goes_round()) => never,
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

async fn up(config: &FabricConfig, path: &Path) -> Result<()> {
    let _lock = PinnedRole::of(config).hold()?;
    let state = FabricState::up(config, path, &Netlink::connect()?).await?;
    state.plane().keep()?;
    warn_of_absent(config, &state);
    Ok(())
}

const fn ending(at_once: bool) -> Ending {
    match at_once {
        true => Ending::AtOnce,
        false => Ending::Restored,
    }
}

fn show<T: Serialize>(cli: &Cli, shown: &T, text: fn(&T) -> String) -> Result<()> {
    match cli.json {
        true => print_json(shown),
        false => print(text(shown)),
    }
}

async fn doctor(cli: &Cli, path: &Path) -> Result<ExitCode> {
    let config = match cli.named_config() {
        // What is in place without a file is worth a look.
        None if !path.exists() => None,
        _ => Some(FabricConfig::load(path)?),
    };
    let mut checks = Vec::new();
    if let Some(config) = &config {
        // Where the same machine splits flows as well, by its file.
        let splitter = Config::load(Path::new(DEFAULT_PATH)).ok();
        checks = examine_fabric(&Netlink::connect()?, config, splitter.as_ref()).await?;
    }
    checks.extend(super::doctor::roles());
    super::doctor::report(&checks, cli.json)
}
