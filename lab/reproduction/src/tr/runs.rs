//! Runs of a scenario, and figures out of their manifests.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, Result};
use flow_report::{Estimate, Series};
use netsim::{
    ClassSummary, Manifest, Overrides, Source,
    sweep::{Plan, Shard},
};
use serde_json::{Value, json};

use crate::changes::Changes;

/// A scenario that is built in, with schemes of our own.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names it, and its directory.
    pub name: &'static str,
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Names, and the tables that are laid over the scenario.
    pub schemes: Vec<(String, String)>,
    /// Loads; none stands for that of the scenario.
    pub loads: Vec<f64>,
    /// Number of the seeds.
    pub seeds: u64,
    /// Another number of messages.
    pub messages: Option<u32>,
}

impl Experiment {
    /// Runs what is not in `directory` yet, of a shard its part alone.
    ///
    /// # Errors
    ///
    /// When the scenario is wrong or a manifest cannot be written.
    pub fn run(
        &self,
        directory: &Path,
        jobs: usize,
        shard: Shard,
        changes: &Changes,
    ) -> Result<Runs> {
        let built_in = Source::find(self.scenario)?;
        let (base, _) = built_in
            .text()
            .split_once("[schemes.")
            .context("a scenario that is built in has schemes")?;
        let mut text = base.to_owned();
        for (name, changes) in &self.schemes {
            write!(text, "[schemes.\"{name}\"]\n{changes}\n")?;
        }
        let source = Source::from_text(self.name, &changes.over(text)?);
        let plan = Plan {
            schemes: self.schemes.iter().map(|it| Some(it.0.clone())).collect(),
            loads: if self.loads.is_empty() {
                vec![None]
            } else {
                self.loads.iter().copied().map(Some).collect()
            },
            seeds: (1..=self.seeds).collect(),
            messages: self.messages,
            rows: false,
        };
        let progress = crate::progress(shard.count(plan.len()), self.name);
        let runs = directory.join("runs").join(self.name);
        let runs = plan.run_shard(shard, &source, &runs, jobs, |_| progress.inc(1))?;
        progress.finish_and_clear();
        Ok(Runs {
            name: self.name,
            runs,
        })
    }
}

/// A value that is read off a run.
pub type Metric = fn(&Manifest) -> Option<f64>;

/// The runs of an experiment.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Name of the experiment.
    pub name: &'static str,
    runs: Vec<(Overrides, Manifest)>,
}

impl Runs {
    /// Runs of an experiment that is put together elsewhere.
    pub(crate) fn new(name: &'static str, runs: Vec<(Overrides, Manifest)>) -> Self {
        Self { name, runs }
    }

    /// The runs themselves.
    pub(crate) fn into_inner(self) -> Vec<(Overrides, Manifest)> {
        self.runs
    }

    /// A figure of a scheme at a load, over seeds.
    pub fn value(&self, scheme: &str, load: Option<f64>, metric: Metric) -> Option<Estimate> {
        Estimate::of(self.of(scheme, load).filter_map(metric))
    }

    /// The largest value of a figure over all runs of a scheme.
    pub fn largest(&self, scheme: &str, metric: Metric) -> Option<f64> {
        let runs = self
            .runs
            .iter()
            .filter(|it| it.0.scheme.as_deref() == Some(scheme));
        runs.filter_map(|it| metric(&it.1)).reduce(f64::max)
    }

    /// How many times as large it is with one scheme as with another, seed by seed: they meet the
    /// same messages.
    pub fn ratios(&self, scheme: &str, other: &str, load: Option<f64>, metric: Metric) -> Vec<f64> {
        let pairs = self.of(scheme, load).zip(self.of(other, load));
        let ratio = |(one, other): (&Manifest, &Manifest)| Some(metric(one)? / metric(other)?);
        let ratios = pairs.filter_map(ratio);
        ratios.filter(|it| it.is_finite()).collect()
    }

    /// Over several loads: seed by seed the mean of the ratios at all of them, as what happens at
    /// two loads with one seed is not independent.
    pub fn ratio(
        &self,
        scheme: &str,
        other: &str,
        loads: &[Option<f64>],
        metric: Metric,
    ) -> Option<Estimate> {
        let by_load: Vec<Vec<f64>> = loads
            .iter()
            .map(|load| self.ratios(scheme, other, *load, metric))
            .collect();
        let seeds = by_load.iter().map(Vec::len).min()?;
        let mean =
            |seed: usize| by_load.iter().map(|it| it[seed]).sum::<f64>() / by_load.len() as f64;
        Estimate::of((0..seeds).map(mean))
    }

    /// Rows for the CSV file: each scheme at each load, over seeds.
    pub fn rows(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for row in netsim::sweep::rows(&self.runs) {
            let mean = |it: Option<Estimate>| it.map(|it| it.mean);
            rows.push(json!({
                "experiment": self.name,
                "scheme": row.scheme,
                "load": row.load,
                "class": row.class,
                "seeds": row.seeds,
                "flows": row.flows,
                "mean_us": mean(row.mean_us),
                "mean_us_half_width": row.mean_us.and_then(|it| it.half_width),
                "p99_us": mean(row.p99_us),
                "p99_us_half_width": row.p99_us.and_then(|it| it.half_width),
                "goodput_mbps": mean(row.goodput_mbps),
                "retransmitted_percent": mean(row.retransmitted_percent),
                "out_of_order_percent": mean(row.out_of_order_percent),
                "queued_us": mean(row.queued_us),
                "sent_ratio": mean(row.sent_ratio),
                "needed_ratio": mean(row.needed_ratio),
                "sent_by_end_ratio": mean(row.sent_by_end_ratio),
                "utilisation_deviation": mean(row.utilisation_deviation),
            }));
        }
        rows
    }

    /// A line of means over loads, divided by those of `other` if there is one.
    pub fn line(&self, scheme: &str, other: Option<&str>, loads: &[f64], metric: Metric) -> Series {
        let point = |load: &f64| {
            let value = match other {
                Some(other) => self.ratio(scheme, other, &[Some(*load)], metric),
                None => self.value(scheme, Some(*load), metric),
            };
            Some((*load, value?.mean))
        };
        Series::line(scheme, loads.iter().filter_map(point).collect())
    }

    fn of(&self, scheme: &str, load: Option<f64>) -> impl Iterator<Item = &Manifest> {
        let mine = move |it: &&(Overrides, Manifest)| {
            it.0.scheme.as_deref() == Some(scheme) && it.0.load == load
        };
        self.runs.iter().filter(mine).map(|it| &it.1)
    }
}

/// The columns of [`Runs::rows`].
pub const COLUMNS: [&str; 18] = [
    "experiment",
    "scheme",
    "load",
    "class",
    "seeds",
    "flows",
    "mean_us",
    "mean_us_half_width",
    "p99_us",
    "p99_us_half_width",
    "goodput_mbps",
    "retransmitted_percent",
    "out_of_order_percent",
    "queued_us",
    "sent_ratio",
    "needed_ratio",
    "sent_by_end_ratio",
    "utilisation_deviation",
];

/// The class of the shortest flows.
pub fn short(manifest: &Manifest) -> &ClassSummary {
    &manifest.classes[0]
}

/// Returns the class of medium flows.
pub fn medium(manifest: &Manifest) -> &ClassSummary {
    &manifest.classes[1]
}

/// Returns the class of all flows.
pub fn all(manifest: &Manifest) -> &ClassSummary {
    &manifest.classes[manifest.classes.len() - 1]
}

/// A change in percent instead of a factor.
pub fn percent(ratio: Option<Estimate>) -> Option<Estimate> {
    ratio.map(|it| Estimate {
        mean: 100.0 * (it.mean - 1.0),
        half_width: it.half_width.map(|half| 100.0 * half),
        ..it
    })
}
