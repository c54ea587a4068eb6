//! All runs: of each seed the flows are recorded once, then predicted and run under each policy.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio_util::sync::CancellationToken;

use crate::{measurement, network, policy::Policy, prediction::Prediction, row::Run};

/// Building the testbed, applying a policy and taking both away takes this long, with the last flows.
const OVERHEAD: Duration = Duration::from_secs(4);

/// Describes what is measured.
#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    /// How much of the uplinks long flows fill, in percent.
    pub(crate) loads: Vec<u32>,
    pub(crate) seeds: u64,
    /// How long flows arrive in each run.
    pub(crate) length: Duration,
    /// The programs.
    pub(crate) splitter: PathBuf,
    pub(crate) netsim: PathBuf,
    /// Directory for the recordings.
    pub(crate) out: PathBuf,
}

impl Campaign {
    /// How long all of it takes.
    pub(crate) fn duration(&self) -> Duration {
        let runs = self.loads.len() as u64 * self.seeds * Policy::ALL.len() as u64;
        (self.length + OVERHEAD) * runs as u32
    }

    /// Measures everything; says on standard error how far it is.
    pub(crate) fn run(&self, cancel: &CancellationToken) -> Result<Vec<Run>> {
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make the directory {}", self.out.display()))?;
        let mut runs = Vec::new();
        for seed in 1..=self.seeds {
            for &load_percent in &self.loads {
                let of_seed = self.run_seed(load_percent, seed, cancel);
                runs.extend(
                    of_seed.with_context(|| format!("load {load_percent} %, seed {seed}"))?,
                );
            }
        }
        Ok(runs)
    }

    /// Predicts what was measured before again, from the recordings in the directory.
    pub(crate) fn predict_again(&self, mut runs: Vec<Run>) -> Result<Vec<Run>> {
        let mut predictions: BTreeMap<(u32, u64), Prediction> = BTreeMap::new();
        for run in &mut runs {
            let of = (run.load_percent, run.seed);
            let prediction = match predictions.entry(of) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let file = self.recording(run.load_percent, run.seed);
                    place.insert(Prediction::of(&file, run.seed, &self.netsim)?)
                }
            };
            run.predict(prediction.under(&run.policy)?);
        }
        Ok(runs)
    }

    fn recording(&self, load_percent: u32, seed: u64) -> PathBuf {
        let name = format!("load{load_percent}-seed{seed}.flows");
        self.out.join(name)
    }

    fn run_seed(
        &self,
        load_percent: u32,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Vec<Run>> {
        let file = self.recording(load_percent, seed);
        let mut prediction = None;
        let mut runs = Vec::new();
        for policy in turns(seed) {
            if cancel.is_cancelled() {
                bail!("cancelled");
            }
            let began = Instant::now();
            let schedule = network::schedule(load_percent, seed, self.length);
            let recording = (policy == Policy::RECORDED).then_some(file.as_path());
            let measured = measurement::run(policy, schedule, recording, &self.splitter, cancel);
            let measured = measured.with_context(|| policy.name())?;
            let prediction = match &mut prediction {
                Some(prediction) => prediction,
                none => none.insert(Prediction::of(&file, seed, &self.netsim)?),
            };
            let predicted = prediction.under(policy.name())?;
            let run = Run::new((load_percent, policy, seed), predicted, &measured);
            eprintln!(
                "load {load_percent} %, seed {seed} of {}: {}: short flows take {:.1} ms in the mean, {:.1} predicted ({:.1} s)",
                self.seeds,
                policy.name(),
                run.short_mean_ms.measured.unwrap_or(f64::NAN),
                run.short_mean_ms.predicted.unwrap_or(f64::NAN),
                began.elapsed().as_secs_f64()
            );
            runs.push(run);
        }
        Ok(runs)
    }
}

/// The policies in the order in which they run: what is recorded comes first, and the others take turns.
fn turns(seed: u64) -> Vec<Policy> {
    let mut others: Vec<_> = Policy::ALL.to_vec();
    others.retain(|it| *it != Policy::RECORDED);
    let first = seed as usize % others.len();
    others.rotate_left(first);
    others.insert(0, Policy::RECORDED);
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_runs_once_and_the_recorded_one_first() {
        for seed in 1..5 {
            let turns = turns(seed);
            assert_eq!((turns[0], turns.len()), (Policy::RECORDED, 3));
            assert!(Policy::ALL.iter().all(|it| turns.contains(it)), "{turns:?}");
        }
        assert_ne!(turns(1), turns(2));
    }

    #[test]
    fn quick_run_takes_ten_minutes_at_the_most() {
        let quick = crate::campaign(&clap::Parser::parse_from(["twin", "--quick"]));
        let duration = quick.expect("programs lie beside").duration();
        assert!(duration <= Duration::from_secs(600), "{duration:?}");
    }
}
