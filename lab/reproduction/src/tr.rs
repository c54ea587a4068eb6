//! TR's figures, `T1` to `T16` (Zhang et al., Journal of Cloud Computing 10:37, 2021), simulated
//! with `netsim`.
//!
//! Figures of one experiment share its runs. Each run's manifest lies in `runs/` of the output
//! directory, so that what was interrupted goes on where it was. The paper's set-up leaves much
//! open; scenarios say in comments what is not in it.

pub mod band;
pub mod cost;
pub mod headline_gains;
pub mod large;
pub mod leaf;
pub mod long_flows;
pub mod model;
pub mod motivation;
pub mod runs;
pub mod short_flows;
pub mod thresholds;
mod workloads;

use std::{cell::OnceCell, path::Path};

use anyhow::Result;
use netsim::sweep::Shard;

use self::runs::{Experiment, Runs};
use crate::{changes::Changes, figure::Figure};

/// How much is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Ratios of round-trip times in the motivation's fabric.
    pub ratios: Vec<f64>,
    /// Seeds there, with 100 flows each.
    pub motivation_seeds: u64,
    /// Loads there at which short flows are compared; the paper names none.
    pub motivation_loads: Vec<f64>,
    /// Seeds where the model is held against the simulator.
    pub model_seeds: u64,
    /// Seeds of the threshold experiment.
    pub threshold_seeds: u64,
    /// Flows of each run there.
    pub threshold_flows: u32,
    /// Loads in the large fabric.
    pub loads: Vec<f64>,
    /// Seeds of the large experiment.
    pub large_seeds: u64,
    /// Flows of each run there under Web Search; other workloads have more or fewer.
    pub large_flows: u32,
    /// Settings that all runs have in the place of their own.
    pub changes: Changes,
    /// Runs at the same time.
    pub jobs: usize,
    /// The part of all runs that is made: of another than the whole there are no figures.
    pub shard: Shard,
}

impl Effort {
    /// The paper's parameters, with ten seeds of a tenth of its flows in the large fabric, for
    /// confidence intervals: some three hours of processor time.
    pub fn full(jobs: usize) -> Self {
        Self {
            ratios: vec![1.5, 2.0, 2.5, 3.0, 3.5],
            motivation_seeds: 20,
            motivation_loads: vec![0.1, 0.3, 0.5, 0.7, 0.9],
            model_seeds: 10,
            threshold_seeds: 10,
            threshold_flows: 1_000,
            loads: vec![0.2, 0.4, 0.6, 0.8],
            large_seeds: 10,
            large_flows: 5_000,
            changes: Changes::default(),
            jobs,
            shard: Shard::WHOLE,
        }
    }

    /// Every figure from less: a minute or two on two cores.
    pub fn quick(jobs: usize) -> Self {
        Self {
            ratios: vec![1.5, 2.5, 3.5],
            motivation_seeds: 3,
            motivation_loads: vec![0.1, 0.5, 0.9],
            model_seeds: 2,
            threshold_seeds: 2,
            threshold_flows: 150,
            loads: vec![0.4, 0.8],
            large_seeds: 2,
            large_flows: 150,
            changes: Changes::default(),
            jobs,
            shard: Shard::WHOLE,
        }
    }
}

/// Experiments that have been simulated, or will be when a figure needs them.
pub struct Simulated<'a> {
    effort: Effort,
    directory: &'a Path,
    motivation: OnceCell<Runs>,
    loads: OnceCell<Runs>,
    gaps: OnceCell<Runs>,
    model: OnceCell<Runs>,
    thresholds: OnceCell<Runs>,
    large: OnceCell<Vec<Runs>>,
    causes: OnceCell<Runs>,
}

impl<'a> Simulated<'a> {
    /// Nothing yet. Manifests go to, and come from, `directory`.
    pub fn new(effort: Effort, directory: &'a Path) -> Self {
        Self {
            effort,
            directory,
            motivation: OnceCell::new(),
            loads: OnceCell::new(),
            gaps: OnceCell::new(),
            model: OnceCell::new(),
            thresholds: OnceCell::new(),
            large: OnceCell::new(),
            causes: OnceCell::new(),
        }
    }

    /// A figure; `number` is 1 to 16.
    ///
    /// # Errors
    ///
    /// When a manifest cannot be written.
    pub fn figure(&self, number: usize) -> Result<Figure> {
        let effort = &self.effort;
        Ok(match number {
            1 => motivation::queueing(self.motivation()?, effort),
            2 => motivation::retransmissions(self.motivation()?, effort),
            3 => short_flows::figure(self.motivation()?, self.loads()?, effort),
            4 => long_flows::figure(self.motivation()?, self.gaps()?, effort),
            5 => model::over_sizes(self.model()?),
            6 => model::over_flows(self.model()?),
            7 => motivation::tr_short(self.motivation()?, effort),
            8 => motivation::tr_long(self.motivation()?, effort),
            9 => thresholds::figure(self.thresholds()?),
            10 => large::short_mean(self.large()?, effort),
            11 => large::short_tail(self.large()?, effort),
            12 => large::medium_mean(self.large()?, effort),
            13 => large::large_mean(self.large()?, self.causes()?, effort),
            14 => large::all_mean(self.large()?, effort),
            15 => cost::figure(),
            _ => headline_gains::figure(self.motivation()?, self.large()?, effort),
        })
    }

    /// Runs what a figure takes, or the shard of it, without making it; `number` is 1 to 16.
    ///
    /// # Errors
    ///
    /// When a manifest cannot be written.
    pub fn prepare(&self, number: usize) -> Result<()> {
        if matches!(number, 1..=4 | 7 | 8 | 16) {
            self.motivation()?;
        }
        if number == 3 {
            self.loads()?;
        }
        if number == 4 {
            self.gaps()?;
        }
        if matches!(number, 5 | 6) {
            self.model()?;
        }
        if number == 9 {
            self.thresholds()?;
        }
        if matches!(number, 10..=14 | 16) {
            self.large()?;
        }
        if number == 13 {
            self.causes()?;
        }
        Ok(())
    }

    fn motivation(&self) -> Result<&Runs> {
        filled(&self.motivation, || {
            self.made(&motivation::experiment(&self.effort))
        })
    }

    fn loads(&self) -> Result<&Runs> {
        filled(&self.loads, || {
            self.made(&short_flows::experiment(&self.effort))
        })
    }

    fn gaps(&self) -> Result<&Runs> {
        filled(&self.gaps, || {
            self.made(&long_flows::experiment(&self.effort))
        })
    }

    fn model(&self) -> Result<&Runs> {
        filled(&self.model, || self.made(&model::experiment(&self.effort)))
    }

    fn thresholds(&self) -> Result<&Runs> {
        filled(&self.thresholds, || {
            self.made(&thresholds::experiment(&self.effort))
        })
    }

    fn causes(&self) -> Result<&Runs> {
        filled(&self.causes, || self.made(&large::causes(&self.effort)))
    }

    fn large(&self) -> Result<&Vec<Runs>> {
        filled(&self.large, || {
            let plans = large::experiments(&self.effort).into_iter();
            plans.map(|it| self.made(&it)).collect()
        })
    }

    fn made(&self, plan: &Experiment) -> Result<Runs> {
        let effort = &self.effort;
        plan.run(self.directory, effort.jobs, effort.shard, &effort.changes)
    }
}

/// [`OnceCell::get_or_init`] for what can fail.
pub(crate) fn filled<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(known) = cell.get() {
        return Ok(known);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}
