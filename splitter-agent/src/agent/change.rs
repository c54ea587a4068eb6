//! Another configuration for an agent that runs: from where it may come, and how it is put in force.

use std::path::PathBuf;
use std::sync::Arc;

use splitter_advise::Follower;
use splitter_config::{
    Config, ConfigError, ConfigFile, Overrides, SetError, difference, frozen, overrides,
};
use splitter_control::stats::{ChangeResult, ChangeSource};
use splitter_control::{Changed, Reason, Refusal};

use super::Agent;
use splitter_instance::{Instance, InstanceError, Owner};

/// A configuration that would take the place of the present one.
#[derive(Clone)]
pub(super) struct Next {
    pub(super) config: Config,
    pub(super) file: ConfigFile,
    pub(super) overrides: Overrides,
}

impl Next {
    /// What a file says, and nothing that was set.
    pub(super) fn of_file(file: ConfigFile) -> Self {
        Self {
            config: file.config.clone(),
            file,
            overrides: Overrides::new(),
        }
    }
}

impl Agent {
    /// Whether somebody means the file that this agent has.
    pub(super) fn is_own(&self, file: Option<PathBuf>) -> Result<(), Refusal> {
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
    pub(super) fn reread(&self) -> Result<Next, Refusal> {
        Ok(Next::of_file(
            ConfigFile::read(&self.file.path).map_err(wrong)?,
        ))
    }

    /// The file as it was taken, with what was set before and what is to be set now.
    pub(super) fn with(&self, values: Overrides) -> Result<Next, Refusal> {
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
    pub(super) async fn change(
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
        self.monitor.stats().count_change(source, result);
        changed
    }

    pub(super) async fn adopt(&mut self, next: Next, dry_run: bool) -> Result<Changed, Refusal> {
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
            confirm_within_s: None,
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

    /// At once after what it says was put in place: failover goes by it.
    fn put_in_force(&mut self, instance: Instance) {
        self.instance = Arc::new(instance);
        self.in_force.send_replace(Arc::clone(&self.instance));
    }
}

/// Returns what is answered to the caller whose file cannot be used.
pub(super) fn wrong(error: ConfigError) -> Refusal {
    Refusal {
        diagnostics: match &error {
            ConfigError::Wrong(diagnostics) => diagnostics.clone(),
            ConfigError::Unreadable { .. } => Vec::new(),
        },
        ..Refusal::new(Reason::Configuration, error.to_string())
    }
}

/// Returns what is answered to the caller that asked for the change.
pub(super) fn refusal(error: InstanceError) -> Refusal {
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
