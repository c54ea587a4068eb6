//! Many runs: every scheme with every load and every seed, over the cores of one machine or of many.
//!
//! Each run's manifest goes into a file of its own, so that what was interrupted goes on where it was,
//! and so that [shards](Shard) of a plan, run anywhere without knowing of each other, can be
//! [merged](Record::merge).

mod merge;
mod record;
mod report;
mod shard;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    merge::{MergeError, Missing},
    record::Record,
    report::{SweepRow, page, rows, table},
    shard::{Shard, ShardError},
};
use crate::{
    scenario::{Experiment, Overrides, ScenarioError, Source},
    simulation::run,
    summary::Manifest,
};

/// A plan of runs: schemes, loads and seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Schemes; nothing stands for the file as it is.
    pub schemes: Vec<Option<String>>,
    /// Loads; nothing stands for those of the file.
    pub loads: Vec<Option<f64>>,
    /// Seeds of the runs.
    pub seeds: Vec<u64>,
    /// Another number of messages.
    pub messages: Option<u32>,
    /// The rows of each run are kept too, as CSV files next to its manifest.
    #[serde(default)]
    pub rows: bool,
}

/// Why a sweep ended early.
#[derive(Debug, Error)]
pub enum SweepError {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Message of the operating system.
        source: io::Error,
    },
}

impl Plan {
    /// Every run there is, in the order of results.
    fn runs(&self) -> Vec<Overrides> {
        let mut runs = Vec::new();
        // Seeds outermost: an interrupted sweep has compared all schemes with what it has.
        for seed in &self.seeds {
            for load in &self.loads {
                for scheme in &self.schemes {
                    runs.push(Overrides {
                        scheme: scheme.clone(),
                        seed: Some(*seed),
                        load: *load,
                        messages: self.messages,
                    });
                }
            }
        }
        runs
    }

    /// The runs of the first seed: every scheme at every load.
    fn of_first_seed(&self) -> impl Iterator<Item = Overrides> {
        let count = self.schemes.len() * self.loads.len();
        self.runs().into_iter().take(count)
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.schemes.len() * self.loads.len() * self.seeds.len()
    }

    /// Returns whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs everything on `jobs` threads, but for what `directory` already has, and calls `done`
    /// after each run with whether that was so. Returns all manifests, in an order that does not
    /// depend on threads.
    ///
    /// # Errors
    /// When the scenario is wrong, which is found out before anything runs, or when a manifest
    /// cannot be written.
    pub fn run(
        &self,
        source: &Source,
        directory: &Path,
        jobs: usize,
        done: impl Fn(bool) + Sync,
    ) -> Result<Vec<(Overrides, Manifest)>, SweepError> {
        self.run_shard(Shard::WHOLE, source, directory, jobs, done)
    }

    /// Does the same with the runs of a shard alone.
    ///
    /// Below `directory` shards write different files, so they may share one, and need no lock.
    ///
    /// # Errors
    /// As for [`run`](Self::run). Of other shards' runs those of the first seed are checked: of a plan of thousands
    /// each shard would otherwise spend its time on the runs of all others.
    pub fn run_shard(
        &self,
        shard: Shard,
        source: &Source,
        directory: &Path,
        jobs: usize,
        done: impl Fn(bool) + Sync,
    ) -> Result<Vec<(Overrides, Manifest)>, SweepError> {
        fs::create_dir_all(directory).map_err(writing(directory))?;
        let runs = shard.of(self.runs());
        for overrides in self.of_first_seed().chain(runs.iter().cloned()) {
            source.experiment(&overrides)?;
        }
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let results = Mutex::new(Vec::new());
        let work = || {
            while !failed.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(overrides) = runs.get(index) else {
                    return;
                };
                let result = source
                    .experiment(overrides)
                    .map_err(SweepError::from)
                    .and_then(|experiment| {
                        let path = directory.join(file_name(overrides));
                        let (manifest, known) = run_or_read(&experiment, &path, self.rows)?;
                        done(known);
                        Ok(manifest)
                    });
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                if let Ok(mut results) = results.lock() {
                    results.push((index, result));
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, runs.len().max(1)) {
                scope.spawn(work);
            }
        });
        let mut results = results.into_inner().unwrap_or_default();
        results.sort_by_key(|(index, _)| *index);
        results
            .into_iter()
            .map(|(index, result)| Ok((runs[index].clone(), result?)))
            .collect()
    }
}

/// Takes the manifest that is there if it is of the very same settings and version, and if its rows are there where
/// they are asked for.
fn run_or_read(
    experiment: &Experiment,
    path: &Path,
    keeps_rows: bool,
) -> Result<(Manifest, bool), SweepError> {
    let known = fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Manifest>(&bytes).ok())
        .filter(|it| it.is_of(&experiment.settings(), &experiment.files))
        .filter(|_| !keeps_rows || has_rows(path));
    if let Some(known) = known {
        return Ok((known, true));
    }
    // Neither rows of another run may come to lie beside its manifest, nor a manifest beside half of its rows.
    for left in [path.to_owned()]
        .into_iter()
        .chain(ROWS.map(|it| rows_path(path, it)))
    {
        match fs::remove_file(&left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(writing(&left)(error));
            }
            _ => {}
        }
    }
    let outcome = run(experiment);
    if keeps_rows {
        // Before the manifest, which says that the run is there.
        for (name, rows) in outcome.to_csv().map_err(writing(path))? {
            write_whole(&rows_path(path, name), &rows)?;
        }
    }
    let manifest = Manifest::new(experiment, &outcome);
    let json = serde_json::to_vec_pretty(&manifest).map_err(|it| writing(path)(it.into()))?;
    write_whole(path, &json)?;
    Ok((manifest, false))
}

/// The files of a run's rows, of which the last is not there without collective operations.
const ROWS: [&str; 3] = ["flows.csv", "paths.csv", "iterations.csv"];

/// The path of a file of rows next to a manifest: of `ecmp-seed1.json`, `ecmp-seed1.flows.csv`.
fn rows_path(manifest: &Path, name: &str) -> PathBuf {
    manifest.with_extension(name)
}

fn has_rows(manifest: &Path) -> bool {
    ROWS[..2].iter().all(|it| rows_path(manifest, it).is_file())
}

/// Writes a file whole or not at all, whoever else writes it at the same time: half a manifest would be
/// run again, but never read.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let mut partial = tempfile::Builder::new();
        // As any other file: results are for everybody.
        #[cfg(unix)]
        partial.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut partial = partial.suffix(".partial").tempfile_in(directory)?;
        io::Write::write_all(&mut partial, bytes)?;
        partial.persist(path)?;
        Ok(())
    };
    write().map_err(writing(path))
}

fn writing(path: &Path) -> impl Fn(io::Error) -> SweepError + use<> {
    let path = path.to_owned();
    move |source| SweepError::Write {
        path: path.clone(),
        source,
    }
}

fn file_name(overrides: &Overrides) -> String {
    let scheme = overrides.scheme.as_deref().unwrap_or("as-is");
    let load = overrides
        .load
        .map_or_else(String::new, |it| format!("-load{it}"));
    format!(
        "{scheme}{load}-seed{}.json",
        overrides.seed.unwrap_or_default()
    )
}
