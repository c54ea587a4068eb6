//! Another configuration for an agent that runs: from where it may come, and how it is put in force.

use std::path::PathBuf;
use std::sync::Arc;

use splitter_advise::Follower;
use splitter_config::{
    Config, ConfigError, ConfigFile, KeyChange, Overrides, SetError, difference, frozen, overrides,
};
use splitter_control::stats::{ChangeResult, ChangeSource};
use splitter_control::{Changed, Reason, Refusal};

use super::Agent;
use splitter_health::KeyRings;
use splitter_instance::{Instance, InstanceError, Owner};

/// A configuration that would take the place of the present one.
#[derive(Clone)]
pub(super) struct Next {
    pub(super) config: Config,
    pub(super) file: ConfigFile,
    pub(super) overrides: Overrides,
    /// What the files of keys hold, where they are read with this one.
    pub(super) keys: Option<KeyRings>,
}

impl Next {
    /// What a file says, and nothing that was set.
    ///
    /// # Errors
    /// Where the keys that it names cannot be used.
    pub(super) fn of_file(file: ConfigFile) -> Result<Self, Refusal> {
        let config = file.config.clone();
        let files = config.health.enabled.then(|| config.key_files());
        let keys = files.map(KeyRings::load).transpose();
        Ok(Self {
            config,
            file,
            overrides: Overrides::new(),
            keys: keys.map_err(|error| Refusal::new(Reason::Configuration, error.to_string()))?,
        })
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
        Next::of_file(ConfigFile::read(&self.file.path).map_err(wrong)?)
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
            keys: None,
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
                tracing::info!(
                    event = "config_unchanged",
                    source = source.name(),
                    "the configuration is the same"
                );
                ChangeResult::Unchanged
            }
            Ok(changed) => {
                let changes: Vec<_> = changed.changes.iter().map(ToString::to_string).collect();
                tracing::info!(
                    event = "config_changed",
                    source = source.name(),
                    "configuration changed:\n{}",
                    changes.join("\n")
                );
                ChangeResult::Applied
            }
            Err(refusal) => {
                tracing::error!(
                    event = "config_refused",
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
        let mut changes = difference(self.instance.config(), &next.config);
        let frozen = frozen(&changes);
        if !frozen.is_empty() {
            return Err(Refusal::new(Reason::Frozen, frozen.join("\n")));
        }
        if let Some(new) = &next.keys {
            changes.extend(other_keys(self.instance.config(), &self.keys, new));
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
            tracing::warn!(event = "note", "{note}");
        }
        let mut attached = None;
        if !plan.is_unchanged() {
            let up = instance.up(&self.lock, Owner::Run).await.map_err(refusal)?;
            self.monitor
                .replace(up.dataplane)
                .map_err(|error| refusal(error.into()))?;
            attached = Some(up.attached);
        }
        // Before those who watch the tunnels go by the configuration, which may name other files.
        if let Some(new) = &next.keys {
            self.keys.replace(new);
        }
        self.put_in_force(instance);
        if let Some(attached) = attached {
            self.report(&attached);
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
        // What was there may go.
        self.instance = Arc::new(instance.with_what_is_there());
        self.in_force.send_replace(Arc::clone(&self.instance));
    }
}

/// What differs between keys, shown by their fingerprints.
fn other_keys(config: &Config, own: &KeyRings, new: &KeyRings) -> Vec<KeyChange> {
    let (mut own, new) = (own.fingerprints(), new.fingerprints());
    let changes = new.into_iter().filter_map(|(file, to)| {
        let from = own.remove(&file).filter(|from| *from != to)?;
        let key = match config.health.key_file == Some(file.clone()) {
            true => "health.key_file holds".to_owned(),
            false => format!("{} holds", file.display()),
        };
        Some(KeyChange {
            key,
            from: from.into(),
            to: to.into(),
        })
    });
    changes.collect()
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
