//! `bench-datapath`: what the splitter costs a packet.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{command, project::Project};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let started = SystemTime::now();
    command::cargo()
        .args(["bench", "--package", "benches", "--bench", "datapath"])
        .current_dir(&project.root)
        .run()?;
    let medians = read_medians(&project.target.join("criterion").join(GROUP), started)?;
    let costs = costs(&medians)?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&costs).context("cannot encode the medians")?;
        println!("{json}");
    } else {
        print!("{}", table(&costs));
    }
    Ok(ExitCode::SUCCESS)
}

/// Medians in ns by benchmark, of those that this run has measured: criterion
/// keeps what benchmarks of an older source left.
fn read_medians(group: &Path, started: SystemTime) -> Result<BTreeMap<String, f64>> {
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

/// The bare pass as it is and everything else as what it costs above it, in ns
/// with two decimals.
fn costs(medians: &BTreeMap<String, f64>) -> Result<BTreeMap<String, f64>> {
    let missing: Vec<_> = REQUIRED
        .iter()
        .filter(|name| !medians.contains_key(**name))
        .copied()
        .collect();
    let bare_pass = match medians.get(BARE_PASS) {
        Some(median) if missing.is_empty() => *median,
        _ => bail!(
            "the benchmark measured no {}: was it skipped for lack of root or of kernel features?",
            missing.join(", ")
        ),
    };
    let rounded = |ns: f64| (ns * 100.0).round() / 100.0;
    let cost = |(name, median): (&String, &f64)| {
        let above = if name == BARE_PASS { 0.0 } else { bare_pass };
        (format!("{name}_ns"), rounded(median - above))
    };
    Ok(medians.iter().map(cost).collect())
}

fn table(costs: &BTreeMap<String, f64>) -> String {
    let width = costs.keys().map(String::len).max().unwrap_or_default();
    let line =
        |name: &str, ns: f64| format!("{:width$}  {ns:>8.2}\n", name.trim_end_matches("_ns"));
    let bare_pass = format!("{BARE_PASS}_ns");
    let (bare, above): (Vec<_>, Vec<_>) = costs.iter().partition(|(name, _)| **name == bare_pass);
    let lines = |of: Vec<(&String, &f64)>| of.into_iter().map(|(n, ns)| line(n, *ns)).collect();
    let [bare, above]: [String; 2] = [lines(bare), lines(above)];
    format!("ns a packet\n{bare}\nns a packet above the bare pass\n{above}")
}

fn median_ns(estimates: &str) -> Result<f64> {
    let estimates: Estimates = serde_json::from_str(estimates)?;
    Ok(estimates.median.point_estimate)
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

/// Criterion's group, whose benchmarks are the keys of the result without `_ns`.
const GROUP: &str = "datapath";

const BARE_PASS: &str = "bare_pass";

const REQUIRED: &[&str] = &[
    BARE_PASS,
    "known_flow",
    "new_flow",
    "non_tcp",
    "ipv6_known",
    "lru_hash_known",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_above_the_bare_pass() {
        let mut medians: BTreeMap<_, _> =
            REQUIRED.iter().map(|n| ((*n).to_owned(), 30.0)).collect();
        medians.insert(BARE_PASS.to_owned(), 21.004);
        medians.insert("known_dscp_flow".to_owned(), 33.5);
        let costs = costs(&medians).unwrap();
        assert_eq!(costs["bare_pass_ns"], 21.0);
        assert_eq!(costs["known_flow_ns"], 9.0);
        assert_eq!(costs["known_dscp_flow_ns"], 12.5);
        assert!(table(&costs).starts_with("ns a packet\nbare_pass "));
    }

    #[test]
    fn names_what_was_not_measured() {
        let medians = BTreeMap::from([(BARE_PASS.to_owned(), 21.0)]);
        let message = costs(&medians).unwrap_err().to_string();
        assert!(message.contains("known_flow, new_flow"), "{message}");
    }

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
}
