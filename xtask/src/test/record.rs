//! What the full tier came to: kept while it runs, so that it can go on after an interruption, and
//! committed when it has passed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{libtest::Tally, skips::Skip};
use crate::{command::Run, project::Project};

/// The committed record, by its path in the tree.
const COMMITTED: &str = "docs/full-tier.json";

/// A run of the full tier.
pub(super) struct Record {
    /// Where it is kept between interruptions: outside the tree.
    file: PathBuf,
    committed: PathBuf,
    run: FullRun,
}

/// The contents of both files.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct FullRun {
    /// The commit that was tested; with `+` where the tree had uncommitted changes.
    commit: String,
    /// Seconds since 1970.
    started: u64,
    processors: usize,
    steps: BTreeMap<String, StepResult>,
}

/// What one step came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepResult {
    pub(super) seconds: f64,
    passed: usize,
    failed: usize,
    /// Tests that were skipped, with their reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    skipped: BTreeMap<String, String>,
    /// How many claims about real time were run.
    #[serde(default)]
    timed: usize,
    /// Tests whose claims were not decided, with their reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    undecided: Vec<(String, String)>,
    /// Tests that failed beside others and passed alone, with what they had said last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    flaky: Vec<(String, Vec<String>)>,
}

impl StepResult {
    pub(super) fn new(tally: &Tally, took: Duration) -> Self {
        let skips = tally.skips.iter();
        Self {
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
            passed: tally.passed(),
            failed: tally.failed(),
            skipped: skips
                .map(|skip| (skip.test.clone(), skip.reason.clone()))
                .collect(),
            timed: tally.timed,
            undecided: tally.undecided.clone(),
            flaky: tally.flaky.clone(),
        }
    }

    /// The counts again, for the summary of a run that goes on.
    pub(super) fn tally(&self) -> Tally {
        let skips = self.skipped.iter();
        let skips = skips.map(|(test, reason)| Skip::new(test, reason));
        let mut tally = Tally::earlier(self.passed, skips.collect());
        tally.timed = self.timed;
        tally.undecided.clone_from(&self.undecided);
        tally.flaky.clone_from(&self.flaky);
        tally
    }
}

impl Record {
    /// Opens the record of this commit; empty where there is none, with `restart`, and where the
    /// tree has changes that no commit names.
    pub(super) fn open(project: &Project, restart: bool) -> Result<Self> {
        let git = |arguments: &[&str]| {
            Run::new("git")
                .args(arguments)
                .current_dir(&project.root)
                .read()
        };
        let mut commit = git(&["rev-parse", "HEAD"])?.trim().to_owned();
        let has_changes = !git(&["status", "--porcelain"])?.trim().is_empty();
        if has_changes {
            commit.push('+');
        }
        let file = project.target.join("full-tier.json");
        let earlier = match restart || has_changes {
            true => None,
            false => read(&file).filter(|earlier| earlier.commit == commit),
        };
        let run = earlier.unwrap_or_else(|| FullRun {
            commit,
            started: now(),
            processors: thread::available_parallelism().map_or(1, usize::from),
            steps: BTreeMap::new(),
        });
        Ok(Self {
            file,
            committed: project.root.join(COMMITTED),
            run,
        })
    }

    /// The result of a step that has passed before.
    pub(super) fn passed(&self, id: &str) -> Option<&StepResult> {
        self.run.steps.get(id).filter(|result| result.failed == 0)
    }

    /// Keeps the result of a step at once: the run may be interrupted in the next one.
    pub(super) fn add(&mut self, id: &str, result: StepResult) -> Result<()> {
        self.run.steps.insert(id.to_owned(), result);
        write(&self.file, &self.run)
    }

    /// Writes the committed record if everything passed.
    pub(super) fn conclude(self) -> Result<()> {
        if self.run.steps.values().any(|result| result.failed > 0) {
            return Ok(());
        }
        write(&self.committed, &self.run)?;
        eprintln!("\nWrote {COMMITTED}; commit it.");
        Ok(())
    }
}

/// What an earlier run left, if it can be read.
fn read(file: &Path) -> Option<FullRun> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

fn write(file: &Path, run: &FullRun) -> Result<()> {
    let mut text =
        serde_json::to_string_pretty(run).context("cannot encode the full tier's record")?;
    text.push('\n');
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one commit, and a target directory outside it.
    fn project(directory: &Path) -> Project {
        let project = Project {
            root: directory.join("tree"),
            target: directory.join("target"),
        };
        for path in [&project.root.join("docs"), &project.target] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(project.root.join("file"), "").unwrap();
        let git = |arguments: &[&str]| {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
            let git = Run::new("git").args(identity).args(arguments);
            assert!(
                git.current_dir(&project.root).succeeds(),
                "git {arguments:?}"
            );
        };
        git(&["init", "-q"]);
        git(&["add", "file"]);
        git(&["commit", "-qm", "one"]);
        project
    }

    fn result(failed: usize) -> StepResult {
        StepResult {
            seconds: 1.5,
            passed: 3,
            failed,
            skipped: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            timed: 0,
            undecided: Vec::new(),
            flaky: Vec::new(),
        }
    }

    #[test]
    fn a_run_goes_on_where_it_was_interrupted() {
        let directory = tempfile::tempdir().unwrap();
        let project = project(directory.path());
        let mut record = Record::open(&project, false).unwrap();
        assert_eq!(record.passed("lints"), None);
        record.add("lints", result(0)).unwrap();
        record.add("tests", result(1)).unwrap();
        drop(record);

        let record = Record::open(&project, false).unwrap();
        let earlier = record.passed("lints").unwrap();
        assert_eq!(earlier.tally().to_string(), "3 passed, 0 failed, 1 skipped");
        assert_eq!(record.passed("tests"), None, "what failed is run again");
        assert_eq!(Record::open(&project, true).unwrap().passed("lints"), None);
    }

    #[test]
    fn results_of_another_tree_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let project = project(directory.path());
        let mut record = Record::open(&project, false).unwrap();
        record.add("lints", result(0)).unwrap();
        fs::write(project.root.join("file"), "changed").unwrap();
        assert_eq!(Record::open(&project, false).unwrap().passed("lints"), None);
    }

    #[test]
    fn only_what_passed_is_recorded_in_the_tree() {
        let directory = tempfile::tempdir().unwrap();
        let project = project(directory.path());
        let mut record = Record::open(&project, false).unwrap();
        record.add("tests", result(1)).unwrap();
        record.conclude().unwrap();
        assert!(!project.root.join(COMMITTED).exists());

        let mut record = Record::open(&project, false).unwrap();
        record.add("tests", result(0)).unwrap();
        record.conclude().unwrap();
        let committed = read(&project.root.join(COMMITTED)).unwrap();
        assert_eq!(committed.steps["tests"], result(0));
    }
}
