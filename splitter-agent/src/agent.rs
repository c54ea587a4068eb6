//! The agent that runs: it changes its configuration on request, keeps everything in place, and
//! lets a threshold that is `auto` follow advice.
//!
//! One task owns it and does one thing after the other, so that two who ask at once are served in
//! turn, and nothing is put back while it is being changed.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use crate::advise::{Advice, Decision, Follower, Question, advise};
use crate::config::{
    Config, ConfigError, ConfigFile, Overrides, SetError, Threshold, difference, frozen, overrides,
};
use crate::control::{Answer, Call, Changed, Peer, Reason, Refusal, Request, Shown};
use crate::figures::{ChangeResult, ChangeSource};
use crate::health::Placement;
use crate::instance::{AttachedInterface, Instance, InstanceError, Lock, Owner};
use crate::monitor::Monitor;

/// An instance that is up, and what it runs by.
pub struct Agent {
    instance: Arc<Instance>,
    lock: Arc<Lock>,
    monitor: Arc<Monitor>,
    /// As it was last taken.
    file: ConfigFile,
    overrides: Overrides,
    follower: Follower,
    in_force: watch::Sender<Arc<Instance>>,
    last_plan: String,
}

/// A configuration that would take the place of the present one.
struct Next {
    config: Config,
    file: ConfigFile,
    overrides: Overrides,
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
            last_plan: String::new(),
            instance,
            lock: Arc::new(lock),
            monitor,
            file,
        }
    }

    /// The instance by which everything else has to go, now and later.
    #[must_use]
    pub fn in_force(&self) -> watch::Receiver<Arc<Instance>> {
        self.in_force.subscribe()
    }

    /// What keeps others from changing it.
    #[must_use]
    pub fn lock(&self) -> Arc<Lock> {
        Arc::clone(&self.lock)
    }

    /// Where the classes are.
    ///
    /// # Errors
    /// As [`Instance::placement`].
    pub fn placement(&self) -> Result<Placement, InstanceError> {
        self.instance.placement()
    }

    /// Takes the instance down, with whatever configuration it has by now.
    ///
    /// # Errors
    /// As [`Instance::down`].
    pub async fn down(&self) -> Result<Vec<String>, InstanceError> {
        self.instance.down(&self.lock).await
    }

    /// Answers a request.
    pub async fn serve(&mut self, call: Call) {
        let answer = self.answer(call.request, call.peer).await;
        // Whoever asked may have gone; what was done is done.
        let _ = call.reply.send(answer);
    }

    /// Takes the file anew, as SIGHUP asks.
    pub async fn hang_up(&mut self) {
        let next = self.reread();
        let _ = self.change(ChangeSource::Signal, next, false).await;
    }

    /// Puts back what went missing: an interface that was deleted and made anew, a rule that
    /// somebody removed.
    ///
    /// # Errors
    /// When something cannot be put back at present.
    pub async fn repair(&mut self) -> Result<(), InstanceError> {
        let plan = match self.instance.plan().await {
            Ok(plan) => plan,
            Err(error) => {
                self.report_attached().await;
                return Err(error);
            }
        };
        if plan.is_unchanged() {
            self.last_plan.clear();
            self.report_attached().await;
            return Ok(());
        }
        // What was tried before without success is not told again.
        let steps = plan.to_string();
        if steps != self.last_plan {
            tracing::warn!("something was changed behind our back; putting it back:\n{steps}");
            self.last_plan = steps;
        }
        match self.instance.up(&self.lock, Owner::Run).await {
            Ok(up) => {
                self.monitor.replace(up.dataplane)?;
                self.monitor.count_repair();
                self.report(&up.attached);
                self.last_plan.clear();
                Ok(())
            }
            Err(error) => {
                self.report_attached().await;
                Err(error)
            }
        }
    }

    /// Tells how the program is attached, in the log and as a metric.
    pub fn report(&self, attached: &[AttachedInterface]) {
        for AttachedInterface { interface, mode } in attached {
            tracing::info!(%interface, mode = mode.as_str(), "splitting");
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
                    from = current,
                    to = threshold,
                    unit = advice.unit,
                    gain = advice.gain,
                    "the threshold follows the flows"
                );
                ChangeResult::Applied
            }
            Err(error) => {
                tracing::error!(%error, threshold, "the threshold cannot follow the flows");
                ChangeResult::Refused
            }
        };
        self.monitor
            .figures()
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
                tracing::info!(uid = peer.uid, pid = peer.pid, dry_run, "asked to reload");
                let next = self.is_own(file).and_then(|()| self.reread());
                self.change(ChangeSource::Reload, next, dry_run).await
            }
            Request::Set { values, dry_run } => {
                tracing::info!(
                    uid = peer.uid,
                    pid = peer.pid,
                    dry_run,
                    ?values,
                    "asked to set"
                );
                let next = self.with(values);
                self.change(ChangeSource::Set, next, dry_run).await
            }
        };
        match changed {
            Ok(changed) => Answer::Changed(changed),
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    /// Whether somebody means the file that this agent has.
    fn is_own(&self, file: Option<PathBuf>) -> Result<(), Refusal> {
        let same = |other: &PathBuf| {
            let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
            real(other) == real(&self.file.path)
        };
        match file {
            Some(other) if !same(&other) => Err(Refusal::new(
                Reason::Conflict,
                format!(
                    "the agent was started with {} and not with {}; name that one with --config",
                    self.file.path.display(),
                    other.display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The file as it is now; what was set is dropped.
    fn reread(&self) -> Result<Next, Refusal> {
        let file = ConfigFile::read(&self.file.path).map_err(|error| Refusal {
            mistakes: match &error {
                ConfigError::Wrong(mistakes) => mistakes.clone(),
                ConfigError::Unreadable { .. } => Vec::new(),
            },
            ..Refusal::new(Reason::Configuration, error.to_string())
        })?;
        Ok(Next {
            config: file.config.clone(),
            file,
            overrides: Overrides::new(),
        })
    }

    /// The file as it was taken, with what was set before and what is to be set now.
    fn with(&self, values: Overrides) -> Result<Next, Refusal> {
        let wrong = |error: SetError| Refusal::new(Reason::Configuration, error.to_string());
        let mut overrides = self.overrides.clone();
        for (key, value) in values {
            overrides.insert(overrides::settable(&key).map_err(wrong)?.to_owned(), value);
        }
        Ok(Next {
            config: Config::parse_with(&self.file.text, &overrides).map_err(wrong)?,
            file: self.file.clone(),
            overrides,
        })
    }

    /// Puts another configuration in force, all of it or nothing, and counts and logs that.
    async fn change(
        &mut self,
        source: ChangeSource,
        next: Result<Next, Refusal>,
        dry_run: bool,
    ) -> Result<Changed, Refusal> {
        let changed = match next {
            Ok(next) => self.adopt(next, dry_run).await,
            Err(refusal) => Err(refusal),
        };
        if dry_run {
            return changed;
        }
        let result = match &changed {
            Ok(changed) if changed.changes.is_empty() && changed.steps.is_empty() => {
                tracing::info!(source = source.name(), "the configuration is the same");
                ChangeResult::Unchanged
            }
            Ok(changed) => {
                let changes: Vec<_> = changed.changes.iter().map(ToString::to_string).collect();
                tracing::info!(
                    source = source.name(),
                    "configuration changed:\n{}",
                    changes.join("\n")
                );
                ChangeResult::Applied
            }
            Err(refusal) => {
                tracing::error!(
                    source = source.name(),
                    "configuration refused, the present one stays: {refusal}"
                );
                ChangeResult::Refused
            }
        };
        self.monitor.figures().count_change(source, result);
        changed
    }

    async fn adopt(&mut self, next: Next, dry_run: bool) -> Result<Changed, Refusal> {
        let changes = difference(self.instance.config(), &next.config);
        let frozen = frozen(&changes);
        if !frozen.is_empty() {
            return Err(Refusal::new(Reason::Frozen, frozen.join("\n")));
        }
        let instance = self.instance.successor(next.config).map_err(refusal)?;
        let plan = instance.plan().await.map_err(refusal)?;
        let mut steps = plan.steps();
        if !changes.is_empty() {
            steps.extend(plan.routes.notes.iter().map(|note| format!("note: {note}")));
        }
        let changed = Changed {
            applied: !dry_run,
            changes,
            steps,
            file: self.file.path.clone(),
        };
        if dry_run {
            return Ok(changed);
        }
        for note in &plan.routes.notes {
            tracing::warn!("{note}");
        }
        if !plan.is_unchanged() {
            let up = instance.up(&self.lock, Owner::Run).await.map_err(refusal)?;
            self.monitor
                .replace(up.dataplane)
                .map_err(|error| refusal(error.into()))?;
            self.put_in_force(instance);
            self.report(&up.attached);
        } else {
            self.put_in_force(instance);
        }
        let config = self.instance.config();
        if !changed.changes.is_empty() {
            self.follower = Follower::new(config.advise.period, self.monitor.uptime());
        }
        (self.file, self.overrides) = (next.file, next.overrides);
        Ok(changed)
    }

    /// Not a moment after what it says was put in place: who moves classes goes by it.
    fn put_in_force(&mut self, instance: Instance) {
        self.instance = Arc::new(instance);
        self.in_force.send_replace(Arc::clone(&self.instance));
    }

    fn show(&self) -> Result<Shown, InstanceError> {
        Ok(Shown {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            file: self.file.path.clone(),
            overrides: self.overrides.clone(),
            threshold: self.monitor.dataplane().policy()?.threshold,
        })
    }

    /// Advice for the flows that ended lately, and the threshold in force.
    async fn advise(&self) -> Result<(Advice, u32), Refusal> {
        let policy = self.monitor.dataplane().policy();
        let policy = policy.map_err(|error| refusal(error.into()))?;
        let current = u32::try_from(policy.threshold).unwrap_or(u32::MAX);
        let config = self.instance.config();
        let (sample, per_second, missed) = self.monitor.flow_sizes(config.flows.unit);
        let question = Question::of(config, current, per_second);
        // Some tens of milliseconds, during which the endpoint must answer.
        let advice = tokio::task::spawn_blocking(move || advise(&sample, &question, true)).await;
        let mut advice = advice.map_err(|error| {
            Refusal::new(Reason::Failed, format!("the search ended early: {error}"))
        })?;
        if missed > 0.02 {
            advice.notes.push(format!(
                "{:.0} % of the flows ended unseen (started afresh or evicted before a sweep); a shorter flows.sweep_s sees more",
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

fn refused(error: InstanceError) -> Answer {
    Answer::Refused(refusal(error))
}

fn refusal(error: InstanceError) -> Refusal {
    let reason = if error.is_configuration() {
        Reason::Configuration
    } else if error.is_conflict() {
        Reason::Conflict
    } else if error.is_not_permitted() {
        Reason::NotPermitted
    } else {
        Reason::Failed
    };
    Refusal::new(reason, error.to_string())
}
