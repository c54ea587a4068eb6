//! `splitter run`: the daemon.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use flow_telemetry::{Endpoint, Readiness, Server};
use splitter_agent::config::Config;
use splitter_agent::instance::{AttachedInterface, BroughtUp, Instance, Lock, Owner};
use splitter_agent::metrics::registry;
use splitter_agent::monitor::Monitor;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

/// How often the flow table is swept and the census taken.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// How often it is checked that everything is still in place.
const REPAIR_INTERVAL: Duration = Duration::from_secs(1);

/// The part of readiness that the repair loop speaks for.
const DATAPLANE: &str = "dataplane";

/// Brings the instance up, watches and measures it until SIGTERM, SIGHUP or
/// Ctrl-C, and restores what it found, unless `splitter up` had brought it up.
pub(crate) async fn run(config: Config) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let instance = Instance::new(config)?;
    // Whatever can refuse without having changed anything comes first. Another
    // agent would also hold the port, but is the better reason to tell.
    let lock = instance.lock()?;
    let server = Server::bind(instance.config().metrics.address)?;
    let BroughtUp {
        dataplane,
        attached,
        owner,
        plan,
    } = instance.up(&lock, Owner::Run).await?;
    if plan.is_unchanged() {
        tracing::info!("adopted what an earlier agent had left");
    }
    let _logger = super::packet_log::forward(instance.config(), &dataplane)?;

    let monitor = Arc::new(Monitor::new(dataplane)?);
    report(&monitor, &attached);
    let readiness = Readiness::new();
    let endpoint = Endpoint::new(registry(Arc::clone(&monitor))?, readiness.clone());
    tracing::info!(address = %server.local_addr(), "serving /metrics, /live and /ready");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(endpoint, async {
        let _ = stopped.await;
    }));

    let ended_by = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "Ctrl-C",
        // The terminal is gone, and with it whoever would have pressed Ctrl-C.
        _ = hang_up.recv() => "SIGHUP",
        never = repair(&instance, &lock, &monitor, &readiness) => never,
        never = sweep(&monitor) => never,
    };
    tracing::info!(signal = ended_by, "ending");
    readiness.fail("agent", "shutting down");
    drop(stop);
    serving.await.context("the metrics endpoint panicked")??;
    match owner {
        Owner::Run => drop(instance.down(&lock).await?),
        Owner::Up => tracing::info!("left in place what `splitter up` had brought up"),
    }
    Ok(())
}

fn report(monitor: &Monitor, attached: &[AttachedInterface]) {
    for AttachedInterface { interface, mode } in attached {
        tracing::info!(%interface, mode = mode.as_str(), "splitting");
    }
    monitor.set_attached(attached.iter().map(|it| it.mode).collect());
}

/// Puts back what went missing: an interface that was deleted and made anew, a
/// rule that somebody removed.
async fn repair(
    instance: &Instance,
    lock: &Lock,
    monitor: &Monitor,
    readiness: &Readiness,
) -> &'static str {
    let mut ticks = interval(REPAIR_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_problem = String::new();
    loop {
        ticks.tick().await;
        match put_back(instance, lock, monitor).await {
            Ok(()) => {
                if !last_problem.is_empty() {
                    tracing::info!("everything is in place again");
                    last_problem.clear();
                }
                readiness.ok(DATAPLANE);
            }
            Err(error) => {
                let problem = format!("{error:#}");
                if problem != last_problem {
                    tracing::error!(%problem, "not everything is in place; trying again every second");
                    last_problem.clone_from(&problem);
                }
                report_attached(instance, monitor).await;
                readiness.fail(DATAPLANE, problem);
            }
        }
    }
}

async fn put_back(instance: &Instance, lock: &Lock, monitor: &Monitor) -> Result<()> {
    let plan = instance.plan().await?;
    if plan.is_unchanged() {
        report_attached(instance, monitor).await;
        return Ok(());
    }
    tracing::warn!("something was changed behind our back; putting it back:\n{plan}");
    let up = instance.up(lock, Owner::Run).await?;
    monitor.replace(up.dataplane);
    report(monitor, &up.attached);
    Ok(())
}

/// Counts the interfaces that packets are split on, also while others are missing.
async fn report_attached(instance: &Instance, monitor: &Monitor) {
    let program_id = monitor.dataplane().program_id();
    let attached = match program_id {
        Ok(id) => instance.attached(id).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    monitor.set_attached(attached.iter().map(|it| it.mode).collect());
}

async fn sweep(monitor: &Arc<Monitor>) -> &'static str {
    let mut ticks = interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let monitor = Arc::clone(monitor);
        // Walking a large table takes a while; the endpoint must answer meanwhile.
        match tokio::task::spawn_blocking(move || monitor.sweep()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot sweep the flow table"),
            Err(error) => tracing::error!(%error, "the sweep ended early"),
        }
    }
}
