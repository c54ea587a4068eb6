//! `splitter run`: the daemon.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use flow_telemetry::{Endpoint, Readiness, Server};
use splitter_agent::agent::Agent;
use splitter_agent::config::ConfigFile;
use splitter_agent::control::{Call, Socket};
use splitter_agent::instance::{AttachedInterface, BroughtUp, Instance, Owner};
use splitter_agent::metrics::registry;
use splitter_agent::monitor::Monitor;
use splitter_agent::privileges::{drop_unneeded, names};
use splitter_agent::status_page::StatusPage;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::packet_log::{self, Forwarding};
use super::watch::{self, Repair};

/// How often it is checked that everything is still in place.
const REPAIR_INTERVAL: Duration = Duration::from_secs(1);

/// Brings the instance up, watches and measures it until SIGTERM or Ctrl-C, and restores what it
/// found, unless `splitter up` had brought it up.
pub(crate) async fn run(file: ConfigFile) -> Result<()> {
    let mut signals = Signals::listen()?;
    let instance = Instance::new(file.config.clone())?;
    // Whatever can refuse without having changed anything comes first. Another
    // agent would also hold the port, but is the better reason to tell.
    let lock = instance.lock()?;
    let server =
        Server::bind(instance.config().metrics.address).context("`address` under [metrics]")?;
    let socket = Socket::bind(&instance.config().instance_dir())?;
    let up = instance.up(&lock, Owner::Run).await?;
    let owner = up.owner;
    let watching = match Watching::start(&instance, &file, up, server) {
        Ok(watching) => watching,
        Err(error) => {
            if owner == Owner::Run {
                instance.down(&lock).await?;
            }
            return Err(error);
        }
    };
    let mut agent = Agent::new(instance, lock, Arc::clone(&watching.monitor), file);
    let served = watching.until_told(&mut agent, socket, &mut signals).await;
    // Also when serving failed: what this agent brought up goes with it.
    match owner {
        Owner::Run => drop(agent.down().await?),
        Owner::Up => tracing::info!("left in place what `splitter up` had brought up"),
    }
    served
}

/// Everything that runs beside the agent.
struct Watching {
    monitor: Arc<Monitor>,
    attached: Vec<AttachedInterface>,
    page: StatusPage,
    readiness: Readiness,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
    _logger: Option<Forwarding>,
}

impl Watching {
    fn start(
        instance: &Instance,
        file: &ConfigFile,
        up: BroughtUp,
        server: Server,
    ) -> Result<Self> {
        if up.plan.is_unchanged() {
            tracing::info!("adopted what an earlier agent had left");
        }
        let logger = packet_log::forward(instance.config(), &up.dataplane)?;
        give_up_rights(file);
        let monitor = Arc::new(Monitor::new(up.dataplane)?);
        let readiness = Readiness::new();
        let page = StatusPage::new(instance.config(), Arc::clone(&monitor))?;
        let endpoint = Endpoint::new(registry(Arc::clone(&monitor))?, readiness.clone())
            .with_page(page.page());
        tracing::info!(
            address = %server.local_addr(),
            "serving /metrics, /live, /ready and the status page"
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(endpoint, async {
            let _ = stopped.await;
        }));
        Ok(Self {
            monitor,
            attached: up.attached,
            page,
            readiness,
            stop,
            serving,
            _logger: logger,
        })
    }

    /// Watches and measures what is up, and does what is asked, until a signal comes. What has
    /// begun is finished before it ends.
    async fn until_told(
        mut self,
        agent: &mut Agent,
        socket: Socket,
        signals: &mut Signals,
    ) -> Result<()> {
        agent.report(&self.attached);
        let (asking, mut calls) = mpsc::channel::<Call>(1);
        let figures = Arc::clone(self.monitor.figures());
        let listening = tokio::spawn(socket.serve(asking, figures));
        let mut repair = Repair::new(self.readiness.clone());
        let mut sweeping = pin!(watch::sweep(&self.monitor, agent.in_force()));
        let mut noting = pin!(self.page.keep_up(agent.in_force()));
        let mut ticks = interval(REPAIR_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);

        let ended_by = loop {
            tokio::select! {
                _ = signals.terminate.recv() => break "SIGTERM",
                _ = signals.interrupt.recv() => break "Ctrl-C",
                _ = signals.hang_up.recv() => {
                    if signals.terminal_has_gone() {
                        break "the end of its terminal";
                    }
                    tracing::info!("SIGHUP: taking the file anew");
                    agent.hang_up().await;
                }
                Some(call) = calls.recv() => agent.serve(call).await,
                _ = ticks.tick() => {
                    repair.look(agent).await;
                    agent.follow().await;
                }
                ended = &mut self.serving => {
                    ended.context("the metrics endpoint panicked")??;
                    bail!("the metrics endpoint ended");
                }
                never = &mut sweeping => break never,
                never = &mut noting => break never,
            }
        };
        tracing::info!(signal = ended_by, "ending");
        self.readiness.fail("agent", "shutting down");
        // The socket's file goes with it.
        listening.abort();
        let _ = listening.await;
        drop(self.stop);
        Ok(self
            .serving
            .await
            .context("the metrics endpoint panicked")??)
    }
}

/// Of root's rights the daemon needs few from here on. Threads that were there before would keep
/// theirs; there are none.
fn give_up_rights(file: &ConfigFile) {
    let config = &file.config;
    // The file, too: it may be taken anew.
    let own = [config.pin_dir(), config.instance_dir(), file.path.clone()];
    let own = own.each_ref().map(PathBuf::as_path);
    match drop_unneeded(&[], &own) {
        Ok(kept) => tracing::info!(kept = names(&kept, " "), "gave up all other capabilities"),
        Err(error) => tracing::warn!(%error, "keeping all capabilities"),
    }
}

/// The signals that the daemon knows.
pub(super) struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
    had_terminal: bool,
}

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            had_terminal: std::io::stdin().is_terminal(),
        })
    }

    /// Whether a SIGHUP says that whoever would have pressed Ctrl-C has gone, and not that the
    /// file has changed.
    fn terminal_has_gone(&self) -> bool {
        self.had_terminal && !std::io::stdin().is_terminal()
    }

    /// The next of them, for a command that each of them ends.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
