//! Shards that become one sweep.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{ROWS, Record, SweepError, file_name, has_rows, rows_path, write_whole, writing};
use crate::{
    scenario::{Overrides, ScenarioError, Source},
    summary::Manifest,
};

/// Why shards cannot be merged.
#[derive(Debug, Error)]
pub enum MergeError {
    /// A directory is none of a sweep.
    #[error("cannot read {path}, which `netsim sweep --out` writes")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Message of the operating system, or of the parser.
        source: io::Error,
    },
    /// Two directories are of different sweeps.
    #[error("{first} and {other} are of different sweeps: {what} differs")]
    Different {
        /// The one that was named first.
        first: PathBuf,
        /// The one that does not go with it.
        other: PathBuf,
        /// Part of the record that is not the same.
        what: &'static str,
    },
    /// Another version of the simulator has run them.
    #[error(
        "{directory} was run by netsim {version}, and this is {}; merge it with that version", env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Directory of the sweep.
        directory: PathBuf,
        /// The version that has run it.
        version: String,
    },
    /// Runs are not there.
    #[error("{0}")]
    Missing(Missing),
    /// The scenario that is written down is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] SweepError),
}

/// Runs of a plan of which no directory has a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// File names of their manifests, in the order of the plan.
    pub files: Vec<String>,
    /// How many runs the plan has.
    pub of: usize,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        let (shown, more) = (
            self.files.iter().take(SHOWN),
            self.files.len().saturating_sub(SHOWN),
        );
        let shown: Vec<&str> = shown.map(String::as_str).collect();
        write!(
            f,
            "{} of {} runs are missing: {}",
            self.files.len(),
            self.of,
            shown.join(", ")
        )?;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        f.write_str("; run their shards again, which runs no more than these")
    }
}

impl Record {
    /// Reads the record of the sweep whose shards lie in `directories`.
    ///
    /// # Errors
    /// When one is no directory of a sweep, or of another one, or run by another version.
    pub fn read(directories: &[PathBuf]) -> Result<Self, MergeError> {
        let mut first: Option<(&Path, Self)> = None;
        for directory in directories {
            let record = read(directory)?;
            if record.version != env!("CARGO_PKG_VERSION") {
                return Err(MergeError::Version {
                    directory: directory.clone(),
                    version: record.version,
                });
            }
            match &first {
                None => first = Some((directory, record)),
                Some((path, known)) => {
                    known
                        .compare(&record)
                        .map_err(|what| MergeError::Different {
                            first: (*path).to_owned(),
                            other: directory.clone(),
                            what,
                        })?
                }
            }
        }
        first
            .map(|(_, record)| record)
            .ok_or_else(|| MergeError::Unreadable {
                path: PathBuf::new(),
                source: io::ErrorKind::NotFound.into(),
            })
    }

    /// Collects the runs of the plan from `directories` into `out`, which then holds the same bytes as the
    /// directory of a sweep that one machine has run. Returns all manifests, in the order of the plan.
    ///
    /// # Errors
    /// When a run is missing, or a file cannot be written.
    pub fn merge(
        &self,
        directories: &[PathBuf],
        out: &Path,
    ) -> Result<Vec<(Overrides, Manifest)>, MergeError> {
        let source = Source::from_text(&self.scenario, &self.text);
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for overrides in self.plan.runs() {
            let settings = source.settings(&overrides)?;
            let named = settings.files();
            let files = self
                .files
                .iter()
                .filter(|(it, _)| named.contains(&it.as_str()));
            let files = files
                .map(|(name, print)| (name.clone(), print.clone()))
                .collect();
            let file = file_name(&overrides);
            let known = directories.iter().find_map(|directory| {
                let path = directory.join("runs").join(&file);
                let bytes = fs::read(&path).ok()?;
                let manifest: Manifest = serde_json::from_slice(&bytes).ok()?;
                let is_whole = !self.plan.rows || has_rows(&path);
                (is_whole && manifest.is_of(&settings, &files)).then_some((path, bytes, manifest))
            });
            match known {
                Some((path, bytes, manifest)) => found.push((overrides, path, bytes, manifest)),
                None => missing.push(file),
            }
        }
        if !missing.is_empty() {
            let of = self.plan.len();
            return Err(MergeError::Missing(Missing { files: missing, of }));
        }
        let runs = out.join("runs");
        fs::create_dir_all(&runs).map_err(writing(&runs))?;
        self.write(out)?;
        let mut merged = Vec::new();
        for (overrides, path, bytes, manifest) in found {
            let merged_path = runs.join(file_name(&overrides));
            if self.plan.rows {
                copy_rows(&path, &merged_path)?;
            }
            write_whole(&merged_path, &bytes)?;
            merged.push((overrides, manifest));
        }
        Ok(merged)
    }

    /// Compares what both were asked for; fails with the part that differs.
    fn compare(&self, other: &Self) -> Result<(), &'static str> {
        let parts = [
            (self.scenario == other.scenario, "the scenario's name"),
            (self.text == other.text, "the scenario's text"),
            (self.sizes == other.sizes, "a distribution of sizes"),
            (self.files == other.files, "a file that the scenario names"),
            (
                self.plan == other.plan,
                "the plan (schemes, loads, seeds, messages or rows)",
            ),
        ];
        parts
            .iter()
            .find(|(same, _)| !same)
            .map_or(Ok(()), |(_, what)| Err(what))
    }
}

/// Copies the rows that lie next to a manifest.
fn copy_rows(from: &Path, to: &Path) -> Result<(), SweepError> {
    for name in ROWS {
        let file = rows_path(from, name);
        // Runs without collective operations have no iterations.
        if file.is_file() {
            let rows = fs::read(&file).map_err(writing(&file))?;
            write_whole(&rows_path(to, name), &rows)?;
        }
    }
    Ok(())
}

fn read(directory: &Path) -> Result<Record, MergeError> {
    let path = directory.join(Record::FILE);
    let read = || Ok(serde_json::from_slice(&fs::read(&path)?)?);
    read().map_err(|source| MergeError::Unreadable {
        path: path.clone(),
        source,
    })
}
