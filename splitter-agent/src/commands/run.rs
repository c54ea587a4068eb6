//! `splitter run`: the daemon.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use flow_telemetry::{Endpoint, Readiness, Server};
use splitter_agent::config::Config;
use splitter_agent::instance::{BroughtUp, Instance, Lock, Owner};
use splitter_agent::metrics::registry;
use splitter_agent::monitor::Monitor;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::watch;

/// Brings the instance up, watches and measures it until SIGTERM, SIGHUP or
/// Ctrl-C, and restores what it found, unless `splitter up` had brought it up.
pub(crate) async fn run(config: Config) -> Result<()> {
    let mut signals = Signals::listen()?;
    let instance = Instance::new(config)?;
    // Whatever can refuse without having changed anything comes first. Another
    // agent would also hold the port, but is the better reason to tell.
    let lock = instance.lock()?;
    let server =
        Server::bind(instance.config().metrics.address).context("`address` under [metrics]")?;
    let up = instance.up(&lock, Owner::Run).await?;
    let owner = up.owner;
    let served = serve(&instance, &lock, up, server, &mut signals).await;
    // Also when serving failed: what this agent brought up goes with it.
    match owner {
        Owner::Run => drop(instance.down(&lock).await?),
        Owner::Up => tracing::info!("left in place what `splitter up` had brought up"),
    }
    served
}

/// Watches and measures what is up until a signal comes.
async fn serve(
    instance: &Instance,
    lock: &Lock,
    up: BroughtUp,
    server: Server,
    signals: &mut Signals,
) -> Result<()> {
    if up.plan.is_unchanged() {
        tracing::info!("adopted what an earlier agent had left");
    }
    let _logger = super::packet_log::forward(instance.config(), &up.dataplane)?;
    let monitor = Arc::new(Monitor::new(up.dataplane)?);
    watch::report(&monitor, &up.attached);
    let readiness = Readiness::new();
    let endpoint = Endpoint::new(registry(Arc::clone(&monitor))?, readiness.clone());
    tracing::info!(address = %server.local_addr(), "serving /metrics, /live and /ready");
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(server.serve(endpoint, async {
        let _ = stopped.await;
    }));

    let ended_by = tokio::select! {
        signal = signals.next() => signal,
        ended = &mut serving => {
            ended.context("the metrics endpoint panicked")??;
            bail!("the metrics endpoint ended");
        }
        never = watch::repair(instance, lock, &monitor, &readiness) => never,
        never = watch::sweep(&monitor) => never,
    };
    tracing::info!(signal = ended_by, "ending");
    readiness.fail("agent", "shutting down");
    drop(stop);
    Ok(serving.await.context("the metrics endpoint panicked")??)
}

/// The signals that end the daemon properly.
struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "Ctrl-C",
            // The terminal is gone, and with it whoever would have pressed Ctrl-C.
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}
