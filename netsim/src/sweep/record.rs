//! Records of plans, from which shards are merged.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::{Plan, SweepError, write_whole, writing};
use crate::scenario::{ScenarioError, Source};

/// A sweep as it was asked for, with all that its runs depend on: the same for each of its shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the simulator.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The runs.
    pub plan: Plan,
    /// The scenario's text.
    pub text: String,
    /// Distributions of sizes that are not built in, by name: points of size in bytes and probability.
    pub sizes: BTreeMap<String, Vec<(f64, f64)>>,
    /// Fingerprints of the files that the scenario and its schemes name, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

impl Record {
    /// Name of its file in the directory of a sweep.
    pub const FILE: &str = "plan.json";

    /// The record of a plan for a scenario.
    ///
    /// # Errors
    /// When the scenario is wrong.
    pub fn new(plan: &Plan, source: &Source) -> Result<Self, ScenarioError> {
        let (mut sizes, mut files) = (BTreeMap::new(), BTreeMap::new());
        // Files and distributions are the same for every seed.
        for overrides in plan.of_first_seed() {
            let experiment = source.experiment(&overrides)?;
            experiment.add_sizes(&mut sizes);
            files.extend(experiment.files);
        }
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: source.name().to_owned(),
            plan: plan.clone(),
            text: source.text().to_owned(),
            sizes,
            files,
        })
    }

    /// Writes it into the directory of the sweep.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), SweepError> {
        let path = directory.join(Self::FILE);
        let json = serde_json::to_vec_pretty(self).map_err(|it| writing(&path)(it.into()))?;
        write_whole(&path, &json)
    }
}
