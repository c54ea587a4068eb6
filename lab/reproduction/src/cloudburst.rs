//! Cloudburst's figures `C4` to `C11` (its §V), simulated with `netsim`, whose hosts run the
//! state machine that the library drives sockets with.
//!
//! What the paper leaves open is in comments of the scenarios. Runs are kept as those of
//! [`tr`](crate::tr) are.

pub mod choices;
pub mod coding_rates;
pub mod deep_dive;
pub mod experiment;
pub mod grid;
pub mod large;
pub mod shares_by_load;
pub mod testbed;

use std::{cell::OnceCell, path::Path};

use anyhow::Result;
use netsim::sweep::Shard;

use crate::{
    changes::Changes,
    figure::Figure,
    tr::{filled, runs::Runs},
};

/// How much is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Seeds of the testbed's runs.
    pub testbed_seeds: u64,
    /// Messages in each run.
    pub testbed_messages: u32,
    /// Buffers of the testbed's switches, in kB.
    pub buffers: Vec<u32>,
    /// Numbers of concurrent flows in the incast.
    pub incasts: Vec<u32>,
    /// Seeds of its runs, each of which has one of them.
    pub incast_seeds: u64,
    /// Seeds of the large fabric's runs.
    pub large_seeds: u64,
    /// Messages in each run.
    pub large_messages: u32,
    /// Milliseconds of traffic before those.
    pub large_warm_up_ms: u32,
    /// Seeds of the grid's runs.
    pub grid_seeds: u64,
    /// Messages in each of them.
    pub grid_messages: u32,
    /// Shares of the link in an oversubscribed fabric, in tenths.
    pub shares: Vec<u32>,
    /// Those of them at which more messages are sent.
    pub shares_by_load: Vec<u32>,
    /// Settings that all runs have in the place of their own.
    pub changes: Changes,
    /// Runs at the same time.
    pub jobs: usize,
    /// The part of all runs that is made: of another than the whole there are no figures.
    pub shard: Shard,
}

impl Effort {
    /// Five seeds for confidence intervals; of the paper's ten minutes a point, ten seconds.
    pub fn full(jobs: usize) -> Self {
        Self {
            testbed_seeds: 5,
            testbed_messages: 4_000,
            buffers: vec![100, 140, 160, 200, 250, 400],
            incasts: vec![4, 8, 12, 16, 24, 32, 48, 96, 144, 200],
            incast_seeds: 10,
            large_seeds: 5,
            large_messages: 4_000,
            large_warm_up_ms: 50,
            grid_seeds: 5,
            grid_messages: 4_000,
            shares: (1..=10).collect(),
            shares_by_load: vec![3, 4, 5, 6, 8, 10],
            changes: Changes::default(),
            jobs,
            shard: Shard::WHOLE,
        }
    }

    /// Every figure from less: some seconds on two cores.
    pub fn quick(jobs: usize) -> Self {
        Self {
            testbed_seeds: 2,
            testbed_messages: 300,
            buffers: vec![140, 400],
            incasts: vec![4, 12, 24],
            incast_seeds: 2,
            large_seeds: 2,
            large_messages: 300,
            large_warm_up_ms: 2,
            grid_seeds: 1,
            grid_messages: 200,
            shares: vec![2, 5, 10],
            shares_by_load: vec![5, 10],
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
    choices: OnceCell<Runs>,
    rates: OnceCell<Vec<Runs>>,
    buffers: OnceCell<Runs>,
    incast: OnceCell<Runs>,
    failures: OnceCell<Runs>,
    large: OnceCell<Runs>,
    shares: OnceCell<Runs>,
    shares_by_load: OnceCell<Runs>,
    grid: OnceCell<Runs>,
}

impl<'a> Simulated<'a> {
    /// Nothing yet. Manifests go to, and come from, `directory`.
    pub fn new(effort: Effort, directory: &'a Path) -> Self {
        Self {
            effort,
            directory,
            choices: OnceCell::new(),
            rates: OnceCell::new(),
            buffers: OnceCell::new(),
            incast: OnceCell::new(),
            failures: OnceCell::new(),
            large: OnceCell::new(),
            shares: OnceCell::new(),
            shares_by_load: OnceCell::new(),
            grid: OnceCell::new(),
        }
    }

    /// A figure; `number` is 4 to 11.
    ///
    /// # Errors
    ///
    /// When a manifest cannot be written.
    pub fn figure(&self, number: usize) -> Result<Figure> {
        Ok(match number {
            4 => choices::tails(self.choices()?),
            5 => testbed::means(self.rates()?),
            6 => testbed::tails(self.rates()?, self.buffers()?, &self.effort),
            7 => coding_rates::table(self.rates()?),
            8 => deep_dive::incast(self.incast()?, &self.effort),
            9 => deep_dive::failures(self.failures()?),
            10 => large::tails(self.large()?),
            _ => large::shares(self.shares()?, self.shares_by_load()?, &self.effort),
        })
    }

    /// The grid of what the paper leaves open of its testbed.
    ///
    /// # Errors
    ///
    /// When a manifest cannot be written.
    pub fn grid(&self) -> Result<Figure> {
        Ok(grid::score::figure(self.prepare_grid()?, &self.effort))
    }

    /// Runs what the grid takes, or the shard of it.
    ///
    /// # Errors
    ///
    /// When a manifest cannot be written.
    pub fn prepare_grid(&self) -> Result<&Runs> {
        filled(&self.grid, || {
            let mut all = Vec::new();
            for it in grid::experiments(&self.effort) {
                all.extend(self.made(&it)?.into_inner());
            }
            Ok(Runs::new("grid", all))
        })
    }

    /// Runs what a figure takes, or the shard of it, without making it; `number` is 4 to 11, and others take no runs.
    ///
    /// # Errors
    ///
    /// When a manifest cannot be written.
    pub fn prepare(&self, number: usize) -> Result<()> {
        if number == 4 {
            self.choices()?;
        }
        if matches!(number, 5..=7) {
            self.rates()?;
        }
        match number {
            6 => self.buffers().map(drop),
            8 => self.incast().map(drop),
            9 => self.failures().map(drop),
            10 => self.large().map(drop),
            11 => self.shares().and(self.shares_by_load()).map(drop),
            _ => Ok(()),
        }
    }

    fn choices(&self) -> Result<&Runs> {
        self.run(&self.choices, choices::experiment)
    }

    fn rates(&self) -> Result<&Vec<Runs>> {
        filled(&self.rates, || {
            let plans = testbed::rate_experiments(&self.effort).into_iter();
            plans.map(|it| self.made(&it)).collect()
        })
    }

    fn buffers(&self) -> Result<&Runs> {
        self.run(&self.buffers, testbed::buffers_experiment)
    }

    fn incast(&self) -> Result<&Runs> {
        self.run(&self.incast, deep_dive::incast_experiment)
    }

    fn failures(&self) -> Result<&Runs> {
        self.run(&self.failures, deep_dive::failures_experiment)
    }

    fn large(&self) -> Result<&Runs> {
        self.run(&self.large, large::experiment)
    }

    fn shares_by_load(&self) -> Result<&Runs> {
        self.run(&self.shares_by_load, shares_by_load::experiment)
    }

    fn shares(&self) -> Result<&Runs> {
        self.run(&self.shares, large::shares_experiment)
    }

    fn run<'s>(
        &'s self,
        cell: &'s OnceCell<Runs>,
        plan: fn(&Effort) -> experiment::Experiment,
    ) -> Result<&'s Runs> {
        filled(cell, || self.made(&plan(&self.effort)))
    }

    fn made(&self, plan: &experiment::Experiment) -> Result<Runs> {
        let effort = &self.effort;
        plan.run(self.directory, effort.jobs, effort.shard, &effort.changes)
    }
}
