//! Schemes of a scenario that is built in, with changes to each.

use std::path::Path;

use anyhow::{Context, Result};
use flow_report::Estimate;
use netsim::{
    Manifest, Source,
    sweep::{Plan, Shard},
};

use crate::{
    changes::{Changes, lay_over},
    check::Check,
    figure::Figure,
    tr::runs::{COLUMNS, Metric, Runs},
};

/// An experiment: the schemes to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names it, and its directory.
    pub name: &'static str,
    /// Name of the scenario.
    pub scenario: &'static str,
    /// A name, the scheme of the scenario that it begins with, and a table laid over that.
    pub schemes: Vec<(String, &'static str, String)>,
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
        let source = Source::from_text(self.name, &changes.over(self.text()?)?)
            .with_paper_machine(paper_machine::simulated);
        let plan = Plan {
            schemes: self.schemes.iter().map(|it| Some(it.0.clone())).collect(),
            loads: vec![None],
            seeds: (1..=self.seeds).collect(),
            messages: self.messages,
            rows: false,
        };
        let progress = crate::progress(shard.count(plan.len()), self.name);
        let runs = directory.join("runs").join(self.name);
        let runs = plan.run_shard(shard, &source, &runs, jobs, |_| progress.inc(1))?;
        progress.finish_and_clear();
        Ok(Runs::new(self.name, runs))
    }

    /// The scenario with these schemes alone.
    pub(super) fn text(&self) -> Result<String> {
        let built_in = Source::find(self.scenario)?;
        let mut scenario: toml::Table = toml::from_str(built_in.text())?;
        let known = scenario.remove("schemes");
        let known = known.and_then(|it| it.try_into::<toml::Table>().ok());
        let known = known.unwrap_or_default();
        let mut schemes = toml::Table::new();
        for (name, base, changes) in &self.schemes {
            let mut scheme: toml::Table = known
                .get(*base)
                .and_then(|it| it.as_table().cloned())
                .with_context(|| format!("{} has no scheme {base}", self.scenario))?;
            lay_over(&mut scheme, &toml::from_str(changes)?);
            schemes.insert(name.clone(), scheme.into());
        }
        scenario.insert("schemes".to_owned(), schemes.into());
        Ok(toml::to_string(&scenario)?)
    }
}

/// Schemes as they are in the scenario.
pub fn as_they_are(schemes: &[&'static str]) -> Vec<(String, &'static str, String)> {
    let same = |it: &&'static str| ((*it).to_owned(), *it, String::new());
    schemes.iter().map(same).collect()
}

/// Sizes of messages, for people.
pub const SIZES: [&str; 5] = ["5 kB", "10 kB", "20 kB", "50 kB", "93 kB"];

/// The 99th percentile for each size.
pub const P99: [Metric; 5] = [p99::<0>, p99::<1>, p99::<2>, p99::<3>, p99::<4>];

fn p99<const CLASS: usize>(manifest: &Manifest) -> Option<f64> {
    manifest.classes.get(CLASS)?.p99_us
}

/// How many times as large as with `other`, mean over metrics, seed by seed.
pub fn over(runs: &Runs, one: &str, other: &str, metrics: &[Metric]) -> Option<Estimate> {
    let each: Vec<Vec<f64>> = metrics
        .iter()
        .map(|metric| runs.ratios(one, other, None, *metric))
        .collect();
    let seeds = each.iter().map(Vec::len).min()?;
    let mean = |seed: usize| each.iter().map(|it| it[seed]).sum::<f64>() / each.len() as f64;
    Estimate::of((0..seeds).map(mean))
}

/// How many times as large as with each of the `others`, over seeds.
pub fn against_each<'a>(
    runs: &Runs,
    one: &str,
    others: &[&'a str],
    metric: Metric,
) -> Vec<(&'a str, Estimate)> {
    let ratio = |other: &&'a str| Some((*other, runs.ratio(one, other, &[None], metric)?));
    others.iter().filter_map(ratio).collect()
}

/// A figure out of several experiments.
pub fn figure(
    id: &'static str,
    title: &'static str,
    note: String,
    checks: Vec<Check>,
    runs: &[&Runs],
    plots: Vec<flow_report::Plot>,
) -> Figure {
    Figure {
        id,
        title,
        note,
        checks,
        rows: runs.iter().flat_map(|it| it.rows()).collect(),
        columns: COLUMNS.to_vec(),
        tables: Vec::new(),
        plots,
    }
}

/// A change, for a note.
pub(super) fn percent_text(change: Option<Estimate>) -> String {
    change.map_or_else(|| "nothing".to_owned(), |it| format!("{} %", it.to_text(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_begin_with_those_of_the_scenario() {
        let experiment = Experiment {
            name: "test",
            scenario: "cloudburst-testbed",
            schemes: vec![(
                "slow".to_owned(),
                "pias",
                "traffic.0.per_second = 800".to_owned(),
            )],
            seeds: 1,
            messages: None,
        };
        let source = Source::from_text("test", &experiment.text().unwrap())
            .with_paper_machine(paper_machine::simulated);
        let overrides = netsim::Overrides {
            scheme: Some("slow".to_owned()),
            ..Default::default()
        };
        let settings = source.experiment(&overrides).unwrap().settings();
        assert_eq!(settings.transport.pias_bytes, [95_000]);
        let netsim::Traffic::Poisson { per_second, .. } = &settings.traffic[0] else {
            panic!("{:?}", settings.traffic);
        };
        assert_eq!(*per_second, Some(800.0));
        let unknown = Experiment {
            schemes: as_they_are(&["no-such"]),
            ..experiment
        };
        let error = unknown.text().unwrap_err().to_string();
        assert!(error.contains("no scheme no-such"), "{error}");
    }
}
