//! `splitter run`: the daemon.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use caps::Capability;
use flow_telemetry::otlp::{self, Export, Exporter};
use flow_telemetry::{MetricsEndpoint, Readiness, Server};
use splitter_agent::agent::Agent;
use splitter_agent::egress_auditor::EgressAuditor;
use splitter_agent::metrics::registry;
use splitter_agent::monitor::Monitor;
use splitter_agent::route_auditor::RouteAuditor;
use splitter_agent::route_follower::RouteFollower;
#[cfg(feature = "page")]
use splitter_agent::status_page::StatusSource;
use splitter_config::{Config, ConfigFile};
use splitter_control::{Call, Request, Socket};
use splitter_failover::HealthMonitors;
use splitter_instance::next_hop_watch::{NextHopWatch, RENEWAL};
use splitter_instance::privileges::{drop_unneeded, names};
use splitter_instance::queue_comparison;
use splitter_instance::{AttachedInterface, BroughtUp, Instance, Owner};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{Instrument as _, info_span};

use super::packet_log::{self, Forwarding};
use super::service_manager::ServiceManager;
use super::watch::{self, Reconciler};
use crate::watched_log::Events;

/// How often it is checked that everything is still in place.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);

/// Brings up what can be of the instance, watches and measures it until SIGTERM or Ctrl-C, and restores what it
/// found, unless `splitter up` had brought it up.
pub(crate) async fn run(file: ConfigFile, events: Events) -> Result<()> {
    let mut signals = Signals::listen()?;
    let instance = Instance::new(file.config.clone())?.of_file(&file.path);
    let instance = instance.with_what_is_there();
    // Whatever can refuse without having changed anything comes first. Another
    // agent would also hold the port, but is the better reason to report.
    let lock = instance.lock()?;
    let server =
        Server::bind(instance.config().metrics.address).context("`address` under [metrics]")?;
    let exporter = Exporter::configured(&export_of(instance.config()), &|name| {
        std::env::var(name).ok()
    })?;
    let socket = Socket::bind(&instance.config().instance_dir())?;
    let mut guard = HealthMonitors::new(instance.config()).await?;
    instance.start_with(guard.starting_placements(&instance.placements_left()?));
    let mut up = instance.up(&lock, Owner::Run).await?;
    up.plan.routes.notes.extend(instance.hints().await);
    let owner = up.owner;
    let keys = guard.keys();
    let served = (server, exporter, &events);
    let (watching, export) = match Watching::start(&file, &instance, up, guard, served).await {
        Ok(started) => started,
        Err(error) => {
            if owner == Owner::Run {
                instance.down(&lock).await?;
            }
            return Err(error);
        }
    };
    let agent = Agent::new(instance, lock, Arc::clone(&watching.monitor), file);
    let mut agent = agent.with_keys(keys);
    let served = watching
        .until_signalled(&mut agent, socket, &mut signals)
        .await;
    // Also when serving failed: what this agent brought up goes with it.
    match owner {
        Owner::Run => drop(agent.down().instrument(info_span!("down")).await?),
        Owner::Up => {
            // Nobody would do so later.
            if agent.until_revert().is_some() {
                agent.revert_unconfirmed().await;
            }
            tracing::info!(
                event = "left_up",
                "left in place what `splitter up` had brought up"
            );
            if !agent.placements()?.are_primary() {
                tracing::warn!(
                    event = "left_moved",
                    "a class stays out of its dead tunnel, and nobody brings it back; `splitter run` does once its tunnel is alive"
                );
            }
        }
    }
    export.finish().await;
    served
}

/// What is exported over OTLP, and as whom.
fn export_of(config: &Config) -> otlp::Request {
    otlp::Request {
        endpoint: config.otlp.endpoint.as_ref().map(ToString::to_string),
        service: "splitter",
        version: env!("CARGO_PKG_VERSION"),
        instance: config.name.to_string(),
        sites: config
            .site_names()
            .iter()
            .map(ToString::to_string)
            .collect(),
    }
}

/// Everything that runs next to the agent.
struct Watching {
    monitor: Arc<Monitor>,
    attached: Vec<AttachedInterface>,
    guard: HealthMonitors,
    auditor: RouteAuditor,
    follower: RouteFollower,
    egress: EgressAuditor,
    next_hops: NextHopWatch,
    #[cfg(feature = "page")]
    page: StatusSource,
    readiness: Readiness,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
    _logger: Option<Forwarding>,
}

impl Watching {
    async fn start(
        file: &ConfigFile,
        instance: &Instance,
        up: BroughtUp,
        guard: HealthMonitors,
        (server, exporter, events): (Server, Exporter, &Events),
    ) -> Result<(Self, Export)> {
        let config = &file.config;
        if up.plan.is_unchanged() {
            tracing::info!(event = "adopted", "adopted what an earlier agent had left");
        }
        for note in &up.plan.routes.notes {
            tracing::warn!(event = "note", "{note}");
        }
        let logger = packet_log::forward(config, &up.dataplane)?;
        give_up_rights(file);
        let next_hops = NextHopWatch::begin(up.dataplane.pins().clone(), config, RENEWAL)?;
        let monitor = Arc::new(Monitor::new(up.dataplane)?);
        let readiness = Readiness::new();
        let follower = RouteFollower::new()?;
        let mut auditor = RouteAuditor::new(readiness.clone())?;
        auditor.begin(instance).await;
        let health = guard.report();
        let mut egress =
            EgressAuditor::new(Arc::clone(&monitor), health.clone(), readiness.clone());
        egress.begin(instance).await;
        #[cfg(feature = "page")]
        let page = StatusSource::new(
            config,
            Arc::clone(&monitor),
            health.clone(),
            events.newest.clone(),
        )?;
        let metrics = registry(
            &config.name.to_string(),
            Arc::clone(&monitor),
            health,
            auditor.found(),
            egress.left(),
            follower.followed(),
            &events.recorder,
        )?;
        let endpoint = MetricsEndpoint::new(metrics, readiness.clone());
        #[cfg(feature = "page")]
        let endpoint = endpoint.with_page(page.page());
        let export = exporter.start(&events.recorder, &endpoint)?;
        tracing::info!(
            event = "serving",
            address = %server.local_addr(),
            "serving /metrics, /live, /ready{}",
            if cfg!(feature = "page") { " and the status page" } else { "" }
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(endpoint, async {
            let _ = stopped.await;
        }));
        let watching = Self {
            monitor,
            attached: up.attached,
            guard,
            auditor,
            follower,
            egress,
            next_hops,
            #[cfg(feature = "page")]
            page,
            readiness,
            stop,
            serving,
            _logger: logger,
        };
        Ok((watching, export))
    }

    /// Watches and measures what is up, and does what is asked, until a signal comes. What has
    /// begun is finished before it ends.
    async fn until_signalled(
        self,
        agent: &mut Agent,
        socket: Socket,
        signals: &mut Signals,
    ) -> Result<()> {
        let Self {
            readiness,
            mut serving,
            ..
        } = self;
        agent.report(&self.attached);
        let (asking, calls) = mpsc::channel::<Call>(1);
        let listening = tokio::spawn(socket.serve(asking, Arc::clone(self.monitor.stats())));
        let (in_force, lock) = (agent.in_force(), agent.lock());
        #[cfg(feature = "page")]
        let page = self.page.keep_up(in_force.clone());
        #[cfg(not(feature = "page"))]
        let page = std::future::pending::<&'static str>();
        // Also while the agent is busy: a tunnel does not wait with dying.
        let watching = async {
            tokio::select! {
                never = watch::sweep(&self.monitor, in_force.clone()) => never,
                never = page => never,
                never = self.auditor.run(in_force.clone()) => never,
                never = self.follower.run(in_force.clone(), &lock) => never,
                never = self.egress.run(in_force.clone()) => never,
                never = queue_comparison::compare(in_force.clone()) => never,
                never = self.next_hops.run(in_force.clone()) => never,
                never = self.guard.run(in_force.clone(), &lock, &readiness) => never,
            }
        };
        let mut manager = ServiceManager::new(readiness.clone());
        let reconciler = Reconciler::new(readiness.clone());
        let ended_by = tokio::select! {
            signal = obey(agent, calls, reconciler, signals, &mut manager) => signal,
            ended = &mut serving => {
                ended.context("the metrics endpoint panicked")??;
                bail!("the metrics endpoint ended");
            }
            never = watching => never,
        };
        tracing::info!(event = "ending", signal = ended_by, "ending");
        manager.stopping();
        readiness.fail("agent", "shutting down");
        // The socket's file goes with it.
        listening.abort();
        let _ = listening.await;
        drop(self.stop);
        Ok(serving.await.context("the metrics endpoint panicked")??)
    }
}

/// Does what is asked, and keeps everything in place, until a signal comes: which one, in words.
async fn obey(
    agent: &mut Agent,
    mut calls: mpsc::Receiver<Call>,
    mut reconciler: Reconciler,
    signals: &mut Signals,
    manager: &mut ServiceManager,
) -> &'static str {
    manager.ready();
    let mut ticks = interval(RECONCILE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let until_revert = agent.until_revert();
        tokio::select! {
            _ = signals.terminate.recv() => return "SIGTERM",
            _ = signals.interrupt.recv() => return "Ctrl-C",
            _ = signals.hang_up.recv() => {
                if signals.terminal_has_gone() {
                    return "the end of its terminal";
                }
                tracing::info!(event = "hang_up", "SIGHUP: reading the file again");
                manager.reloading();
                agent.hang_up().instrument(info_span!("hang_up")).await;
                manager.ready();
            }
            Some(call) = calls.recv() => {
                let reloads = matches!(call.request, Request::Reload { dry_run: false, .. });
                if reloads {
                    manager.reloading();
                }
                let request = call.request.name();
                let span = info_span!("control_request", request);
                agent.serve(call).instrument(span).await;
                if reloads {
                    manager.ready();
                }
            }
            () = sleep(until_revert.unwrap_or_default()), if until_revert.is_some() => {
                let span = info_span!("revert_unconfirmed");
                agent.revert_unconfirmed().instrument(span).await;
            }
            _ = ticks.tick() => {
                reconciler.look(agent).await;
                agent.follow().await;
                agent.grow_tables().await;
                manager.goes_round();
            }
        }
    }
}

/// Gives up what the daemon does not need of root's rights. Threads that were there before keep theirs: those that speak with the
/// kernel have [given up](splitter_netlink::keep_rights) all others when they began.
fn give_up_rights(file: &ConfigFile) {
    let config = &file.config;
    // The files, too: they may be taken again.
    let own = [config.pin_dir(), config.instance_dir(), file.path.clone()];
    let own = own.iter().map(PathBuf::as_path);
    let own: Vec<_> = own.chain(config.key_files()).collect();
    // Sockets for probes are made again where a device is.
    let has_peer = config.tunnels().any(|(_, tunnel)| tunnel.peer.is_some());
    let also: &[_] = match has_peer && config.health.port.get() < 1024 {
        true => &[Capability::CAP_NET_BIND_SERVICE],
        false => &[],
    };
    match drop_unneeded(also, &own) {
        Ok(kept) => tracing::info!(
            event = "rights_given_up",
            kept = names(&kept, " "),
            "gave up all other capabilities"
        ),
        Err(error) => {
            tracing::warn!(event = "rights_kept", %error, "could not give up all other capabilities")
        }
    }
}

/// The signals that the daemon knows.
struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
    had_terminal: bool,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            had_terminal: std::io::stdin().is_terminal(),
        })
    }

    /// Whether a SIGHUP says that the user who would have pressed Ctrl-C has gone, and not that the
    /// file has changed.
    fn terminal_has_gone(&self) -> bool {
        self.had_terminal && !std::io::stdin().is_terminal()
    }
}
