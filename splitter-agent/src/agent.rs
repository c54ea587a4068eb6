//! The agent that runs: it changes its configuration on request, keeps everything in place, and
//! lets a threshold that is `auto` follow advice.
//!
//! One task owns it and does one thing after the other, so that two who ask at once are served in
//! turn, and nothing is restored while it is being changed.

mod apply;
mod change;
mod growth;
mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use splitter_advise::{Advice, Decision, Follower, Question, Traffic, advise};
use splitter_config::{Config, ConfigFile, Overrides, Threshold, Tunnels};
use splitter_control::stats::{ChangeResult, ChangeSource};
use splitter_control::{Answer, Call, ConfirmedCommit, Peer, Reason, Refusal, Request, Shown};
use splitter_health::KeyRings;
use splitter_netlink::InterfaceName;
use splitter_steering::Placements;
use tokio::sync::watch;

use self::change::{Next, refusal};
use crate::monitor::Monitor;
use splitter_instance::{AttachedInterface, Instance, InstanceError, Lock};

/// An instance that is up, and what it runs by.
pub struct Agent {
    instance: Arc<Instance>,
    lock: Arc<Lock>,
    monitor: Arc<Monitor>,
    /// As it was last taken.
    file: ConfigFile,
    overrides: Overrides,
    commit: ConfirmedCommit<Next>,
    /// Those that probes of the tunnels are sealed with, shared with whatever does that.
    keys: KeyRings,
    follower: Follower,
    in_force: watch::Sender<Arc<Instance>>,
    last_plan: String,
    /// The interfaces of the site that were not there lately.
    absent: Vec<InterfaceName>,
    /// The tunnels' devices that were to be shaped and were not there lately.
    unshaped: Vec<InterfaceName>,
    /// When, by the monitor's time, a flow table may grow again.
    next_growth: Duration,
}

impl Agent {
    /// Takes over an instance that `file` describes and that is up.
    #[must_use]
    pub fn new(instance: Instance, lock: Lock, monitor: Arc<Monitor>, file: ConfigFile) -> Self {
        let instance = Arc::new(instance);
        let config = instance.config();
        Self {
            follower: Follower::new(config.advise.period, monitor.uptime()),
            in_force: watch::Sender::new(Arc::clone(&instance)),
            overrides: Overrides::new(),
            commit: ConfirmedCommit::default(),
            keys: KeyRings::default(),
            last_plan: String::new(),
            absent: Vec::new(),
            unshaped: Vec::new(),
            next_growth: Duration::ZERO,
            instance,
            lock: Arc::new(lock),
            monitor,
            file,
        }
    }

    /// Changes these keys, too, when their file is read again.
    #[must_use]
    pub fn with_keys(self, keys: KeyRings) -> Self {
        Self { keys, ..self }
    }

    /// The instance by which everything else has to go, now and later.
    #[must_use]
    pub fn in_force(&self) -> watch::Receiver<Arc<Instance>> {
        self.in_force.subscribe()
    }

    /// Takes the lock that keeps others from changing it.
    #[must_use]
    pub fn lock(&self) -> Arc<Lock> {
        Arc::clone(&self.lock)
    }

    /// Returns where the classes of every site are.
    ///
    /// # Errors
    /// As [`Instance::placements`].
    pub fn placements(&self) -> Result<Placements, InstanceError> {
        self.instance.placements()
    }

    /// Takes the instance down, with whatever configuration it has by now.
    ///
    /// # Errors
    /// As [`Instance::down`].
    pub async fn down(&self) -> Result<Vec<String>, InstanceError> {
        self.instance.down(&self.lock).await
    }

    /// Answers a request of the control socket.
    pub async fn serve(&mut self, call: Call) {
        let answer = self.answer(call.request, call.peer).await;
        // The caller may have gone; what was done is done.
        let _ = call.reply.send(answer);
    }

    /// Takes the file again, as SIGHUP asks.
    pub async fn hang_up(&mut self) {
        let next = self.check_none_waits().and_then(|()| self.reread());
        let _ = self.change(ChangeSource::Signal, next, false).await;
    }

    /// Tells how the program is attached, in the log and as a metric.
    pub fn report(&self, attached: &[AttachedInterface]) {
        for AttachedInterface { interface, mode } in attached {
            tracing::info!(event = "attached", %interface, mode = mode.as_str(), "splitting");
        }
        self.monitor
            .set_attached(attached.iter().map(|it| it.mode).collect());
    }

    /// Lets a threshold that is `auto` follow advice, when its time has come.
    pub async fn follow(&mut self) {
        let now = self.monitor.uptime();
        let config = self.instance.config();
        if config.flows.threshold != Threshold::Auto || now < self.follower.next() {
            return;
        }
        let Ok((advice, current)) = self.advise().await else {
            return;
        };
        let Decision::Change(threshold) = self.follower.consider(now, current, &advice) else {
            return;
        };
        let result = match self.instance.set_threshold(&self.lock, threshold) {
            Ok(()) => {
                tracing::info!(
                    event = "threshold_followed",
                    from = current,
                    to = threshold,
                    unit = advice.unit,
                    gain = advice.gain,
                    "the threshold follows the flows"
                );
                ChangeResult::Applied
            }
            Err(error) => {
                tracing::error!(event = "threshold_not_followed", %error, threshold, "the threshold cannot follow the flows");
                ChangeResult::Refused
            }
        };
        self.monitor
            .stats()
            .count_change(ChangeSource::Auto, result);
    }

    async fn answer(&mut self, request: Request, peer: Peer) -> Answer {
        let changed = match request {
            Request::Show {} => return self.show().map_or_else(refused, Answer::Shown),
            Request::Advise {} => {
                return match self.advise().await {
                    Ok((advice, _)) => Answer::Advised(Box::new(advice)),
                    Err(refusal) => Answer::Refused(refusal),
                };
            }
            Request::Reload { file, dry_run } => {
                tracing::info!(
                    event = "reload_asked",
                    uid = peer.uid,
                    pid = peer.pid,
                    dry_run,
                    "asked to reload"
                );
                let next = self.check_none_waits().and_then(|()| self.is_own(file));
                let next = next.and_then(|()| self.reread());
                self.change(ChangeSource::Reload, next, dry_run).await
            }
            Request::Set { values, dry_run } => {
                tracing::info!(
                    event = "set_asked",
                    uid = peer.uid,
                    pid = peer.pid,
                    dry_run,
                    ?values,
                    "asked to set"
                );
                let next = self.check_none_waits().and_then(|()| self.with(values));
                self.change(ChangeSource::Set, next, dry_run).await
            }
            Request::Apply {
                source,
                text,
                confirm_within_s,
                dry_run,
            } => {
                tracing::info!(
                    event = "apply_asked",
                    uid = peer.uid,
                    pid = peer.pid,
                    dry_run,
                    confirm_within_s,
                    file = %source.display(),
                    "asked to apply"
                );
                self.apply(&source, text, confirm_within_s, dry_run).await
            }
            Request::Confirm { id } => {
                return match self.confirm(id) {
                    Ok(()) => Answer::Confirmed {},
                    Err(refusal) => Answer::Refused(refusal),
                };
            }
            Request::Revert {} => {
                tracing::info!(
                    event = "revert_asked",
                    uid = peer.uid,
                    pid = peer.pid,
                    "asked to revert"
                );
                self.revert().await
            }
        };
        match changed {
            Ok(changed) => Answer::Changed(changed),
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    fn show(&self) -> Result<Shown, InstanceError> {
        Ok(Shown {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            file: self.file.path.clone(),
            overrides: self.overrides.clone(),
            threshold: self.monitor.dataplane().policy()?.thresholds.common(),
            unconfirmed: self.commit.unconfirmed(self.monitor.uptime()),
        })
    }

    /// Advice for the flows that ended lately, and the threshold in force.
    async fn advise(&self) -> Result<(Advice, u32), Refusal> {
        let policy = self.monitor.dataplane().policy();
        let policy = policy.map_err(|error| refusal(error.into()))?;
        let current = u32::try_from(policy.thresholds.common()).unwrap_or(u32::MAX);
        let config = self.instance.config();
        let (sample, per_second, missed) = self.monitor.flow_sizes(config.flows.unit);
        let question = question(config, current, per_second);
        // Some tens of milliseconds, during which the endpoint must answer.
        let advice = tokio::task::spawn_blocking(move || advise(&sample, &question, true)).await;
        let mut advice = advice.map_err(|error| {
            Refusal::new(Reason::Failed, format!("the search ended early: {error}"))
        })?;
        if missed > 0.02 {
            advice.notes.push(format!(
                "{:.0} % of the flows ended unseen (started again or evicted before a sweep); a shorter flows.sweep_interval_s sees more",
                missed * 100.0
            ));
        }
        Ok((advice, current))
    }

    /// Counts the interfaces that packets are split on, also while others are missing.
    async fn report_attached(&self) {
        let attached = match self.monitor.dataplane().program_id() {
            Ok(id) => self.instance.attached(id).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        self.monitor
            .set_attached(attached.iter().map(|it| it.mode).collect());
    }
}

/// The advice that an agent with this configuration looks for, with `current` in force and flows
/// ending at a rate that was measured.
fn question(config: &Config, current: u32, flows_per_second: f64) -> Question {
    // The model is one of a tunnel for each class.
    let rate = |of: &Tunnels| Some(f64::from(of.only()?.rate_mbit?.get()) * 1e6);
    let rates = rate(&config.short).zip(rate(&config.long));
    Question {
        unit: config.flows.unit,
        current,
        bounds: [config.advise.min.get(), config.advise.max.get()],
        rates: rates.map(|(short, long)| [short, long]),
        rtt: config.advise.rtt,
        traffic: Traffic::FlowsPerSecond(flows_per_second),
    }
}

fn refused(error: InstanceError) -> Answer {
    Answer::Refused(refusal(error))
}
