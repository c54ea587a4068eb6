//! The command `netsim run`: one run.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use netsim::{Manifest, Outcome, Source};

use super::{print, print_json};
use crate::arguments::Run;

pub(crate) fn run(arguments: &Run) -> Result<()> {
    match (&arguments.scenario, &arguments.trace.trace) {
        (Some(scenario), _) => run_scenario(scenario, arguments),
        (None, Some(file)) => super::trace::run(file, arguments),
        // The parser asks for one of them.
        (None, None) => anyhow::bail!("name a scenario, or a recording with --trace"),
    }
}

fn run_scenario(scenario: &str, arguments: &Run) -> Result<()> {
    let source = Source::find(scenario)?;
    let experiment = source.experiment(&(&arguments.overrides).into())?;
    let outcome = netsim::run(&experiment);
    let manifest = Manifest::new(&experiment, &outcome);
    if let Some(directory) = &arguments.out {
        write(directory, &outcome, &manifest)
            .with_context(|| format!("cannot write into {}", directory.display()))?;
    }
    if arguments.json {
        return print_json(&manifest);
    }
    print(&manifest.table().to_text())?;
    print(&sentence(&manifest))?;
    // How long it took is no result.
    let seconds = outcome.took.as_secs_f64();
    let rate = outcome.totals.hops as f64 / seconds / 1e6;
    eprintln!("{seconds:.2} s, {rate:.1} million hops a second.");
    Ok(())
}

fn sentence(manifest: &Manifest) -> String {
    let Manifest { paths, totals, .. } = manifest;
    format!(
        "{}, scheme {}, seed {}: {:.1} ms simulated, {} packets, {} of them dropped. Links between \
         switches were busy for {:.1} % of the time (deviation {:.1}, at most {:.1}).",
        manifest.scenario,
        manifest.scheme.as_deref().unwrap_or("as is"),
        manifest.seed,
        totals.end_ns as f64 / 1e6,
        totals.injected,
        totals.dropped,
        100.0 * paths.mean_utilisation,
        100.0 * paths.deviation,
        100.0 * paths.max_utilisation,
    )
}

fn write(directory: &Path, outcome: &Outcome, manifest: &Manifest) -> Result<()> {
    fs::create_dir_all(directory)?;
    // Those of a run before are not of this one, which may have none.
    let iterations = directory.join("iterations.csv");
    if iterations.exists() {
        fs::remove_file(iterations)?;
    }
    for (name, rows) in outcome.to_csv()? {
        fs::write(directory.join(name), rows)?;
    }
    let json = serde_json::to_string_pretty(manifest)?;
    fs::write(directory.join("manifest.json"), json + "\n")?;
    Ok(())
}
