//! The tasks that measure: they run a benchmark and read criterion's results.

mod caches;
pub(crate) mod codec;
pub(crate) mod datapath;
mod live;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::{command, project::Project};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct DatapathArguments {
    #[command(flatten)]
    common: Arguments,
    /// Measure frames that really travel: packets a second of one core and of two.
    #[arg(long)]
    live: bool,
    /// Measure how long such frames take at 10, 50 and 90 % of what a core carries.
    #[arg(long, requires = "live")]
    latency: bool,
    /// Measure frames of 64 bytes alone, and each row for half the time.
    #[arg(long, requires = "live", conflicts_with = "latency")]
    quick: bool,
    /// Measure these programs alone, by their names.
    #[arg(long, requires = "live", value_delimiter = ',', value_name = "PROGRAM")]
    only: Vec<String>,
}

impl Arguments {
    /// Prints results as they were asked for.
    pub(crate) fn print<R: Serialize>(
        &self,
        results: &R,
        table: impl FnOnce(&R) -> String,
    ) -> Result<()> {
        if self.json {
            let json =
                serde_json::to_string_pretty(results).context("cannot encode the results")?;
            println!("{json}");
        } else {
            print!("{}", table(results));
        }
        Ok(())
    }
}

/// A run of one benchmark.
struct Measurement {
    target: PathBuf,
    started: SystemTime,
}

impl Measurement {
    fn run(project: &Project, bench: &str) -> Result<Self> {
        Self::run_with(project, bench, None)
    }

    /// With a variable in its environment.
    fn run_with(project: &Project, bench: &str, variable: Option<(&str, &str)>) -> Result<Self> {
        let started = SystemTime::now();
        let mut cargo = command::cargo().args(["bench", "--package", "benches", "--bench", bench]);
        if let Some((name, value)) = variable {
            cargo = cargo.env(name, value);
        }
        cargo.current_dir(&project.root).run()?;
        let target = project.target.clone();
        Ok(Self { target, started })
    }

    /// Medians in ns of a group, by benchmark.
    fn medians(&self, group: &str) -> Result<Medians> {
        read_medians(&self.target.join("criterion").join(group), self.started)
    }

    /// What the benchmark has written to `CARGO_TARGET_TMPDIR` in this run.
    fn note(&self, name: &str) -> Result<String> {
        let file = self.target.join("tmp").join(name);
        let written = fs::metadata(&file).and_then(|metadata| metadata.modified());
        ensure!(
            written.is_ok_and(|written| written >= self.started),
            "the benchmark left no {} in this run",
            file.display()
        );
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    }
}

/// Medians in ns by benchmark.
type Medians = BTreeMap<String, f64>;

/// Those that this run has measured: criterion keeps what benchmarks of an
/// older source left.
fn read_medians(group: &Path, started: SystemTime) -> Result<Medians> {
    let benchmarks = fs::read_dir(group)
        .with_context(|| format!("the benchmark left no results in {}", group.display()))?;
    let mut medians = BTreeMap::new();
    for benchmark in benchmarks {
        let directory = benchmark.context("cannot list benchmark results")?.path();
        let file: PathBuf = directory.join("new/estimates.json");
        let measured_now = fs::metadata(&file)
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|modified| modified >= started);
        if let (true, Some(name)) = (measured_now, directory.file_name()) {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let median = median_ns(&text)
                .with_context(|| format!("{} is not criterion's", file.display()))?;
            medians.insert(name.to_string_lossy().into_owned(), median);
        }
    }
    Ok(medians)
}

fn median_ns(estimates: &str) -> Result<f64> {
    let estimates: Estimates = serde_json::from_str(estimates)?;
    Ok(estimates.median.point_estimate)
}

/// `value` with so many decimals.
fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_criterions_files_of_this_run() {
        let group = tempfile::tempdir().unwrap();
        let before = SystemTime::now();
        let directory = group.path().join("bare_pass/new");
        fs::create_dir_all(&directory).unwrap();
        let estimates = r#"{"mean":{"point_estimate":22.0},"median":{"confidence_interval":{},"point_estimate":21.5}}"#;
        fs::write(directory.join("estimates.json"), estimates).unwrap();
        fs::create_dir_all(group.path().join("report")).unwrap();

        let soon = SystemTime::now() + std::time::Duration::from_secs(3600);
        let medians = read_medians(group.path(), before - std::time::Duration::from_secs(1));
        assert_eq!(
            medians.unwrap(),
            BTreeMap::from([("bare_pass".to_owned(), 21.5)])
        );
        assert!(read_medians(group.path(), soon).unwrap().is_empty());
        assert!(median_ns("{}").is_err());
    }

    #[test]
    fn rounds_to_decimals() {
        assert_eq!(rounded(1.23456, 3), 1.235);
    }
}
