//! What an instance leaves on disk for the process that takes it down.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use splitter_config::Config;
use splitter_datapath::{InheritedFlows, Object};
use splitter_steering::shaping::SavedQdisc;
use splitter_steering::{Placements, routes::Footprint};

use crate::InstanceError;
use crate::files::{FileError, remove_if_there, write_private};

/// Who brought an instance up, and so takes it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// `splitter up`: it stays until `splitter down`.
    Up,
    /// `splitter run`: it ends with the agent, unless that is killed.
    Run,
}

/// The state file of an instance that is up, or was when its agent died.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Who brought it up.
    pub owner: Owner,
    /// Version of the agent that did.
    pub version: String,
    /// Digest of the kernel object that was loaded.
    pub object: String,
    /// Where its rules and routes are.
    pub footprint: Footprint,
    /// Where more of them may be, while they are on their way from one configuration to another: an
    /// agent may be killed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Footprint>,
    /// What the tunnels' devices had before they were shaped.
    #[serde(default)]
    pub original_qdiscs: Vec<SavedQdisc>,
    /// The network namespace that they are in, by its number.
    #[serde(default)]
    pub network: Option<u64>,
    /// Where the agent that watches the tunnels has put the classes, for every remote site.
    #[serde(default, rename = "placement")]
    pub placements: Placements,
    /// The file that it was configured by.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// What became of the flows when the programs were last replaced by those of another build, since it
    /// was brought up.
    #[serde(default)]
    pub inherited: Option<InheritedFlows>,
    /// The configuration that was put in place, as the text of a file.
    #[serde(default)]
    pub config: String,
}

impl State {
    pub(crate) fn new(
        owner: Owner,
        config: &Config,
        object: &Object,
        placements: Placements,
        original_qdiscs: Vec<SavedQdisc>,
    ) -> Self {
        Self {
            owner,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            object: object.digest(),
            footprint: Footprint::of(config),
            earlier: Vec::new(),
            original_qdiscs,
            network: current_network(),
            placements,
            file: None,
            inherited: None,
            config: config.to_toml(),
        }
    }

    /// Notes which file the configuration is from.
    pub(crate) fn of_file(self, file: Option<PathBuf>) -> Self {
        Self { file, ..self }
    }

    /// Returns the configuration that was put in place; none of a state that an earlier version has
    /// written, or of one that this version does not understand.
    #[must_use]
    pub fn config_in_force(&self) -> Option<Config> {
        Config::parse(&self.config, "the state").ok()
    }

    /// Returns this state, while what `previous` lists may still be there.
    pub(crate) fn coming_from(&self, previous: Option<&Self>) -> Self {
        let others = previous.map(Self::footprints).unwrap_or_default();
        let others = others.into_iter().filter(|it| **it != self.footprint);
        Self {
            earlier: others.cloned().collect(),
            ..self.clone()
        }
    }

    /// Wherever its rules and routes may be.
    pub(crate) fn footprints(&self) -> Vec<&Footprint> {
        std::iter::once(&self.footprint)
            .chain(&self.earlier)
            .collect()
    }

    /// The state of the instance whose directory this is; `None` when it is down.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn read(directory: &Path) -> Result<Option<Self>, InstanceError> {
        let path = file(directory);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FileError::new("read", path, source).into()),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| InstanceError::State { path, source })
    }

    /// Replaces the file in one step: a crash leaves the old or the new. What it says already is not
    /// written again, so that a full disk does not hinder reconciling.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), InstanceError> {
        Ok(write_private(&file(directory), self)?)
    }

    pub(crate) fn remove(directory: &Path) -> Result<(), InstanceError> {
        Ok(remove_if_there(&file(directory))?)
    }
}

/// The number of the network namespace that this thread is in.
pub(crate) fn current_network() -> Option<u64> {
    let metadata = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
    Some(metadata.ino())
}

fn file(directory: &Path) -> PathBuf {
    directory.join("state.json")
}

/// The path of the health report of the instance whose directory this is.
#[must_use]
pub fn health_report(directory: &Path) -> PathBuf {
    directory.join("health.json")
}
