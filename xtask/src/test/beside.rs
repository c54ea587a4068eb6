//! Steps that run beside another one, and take what it leaves of the processors.
//!
//! Each is a process of its own (`test --only STEP`) that gives way, and what it printed is shown in one piece when it ends. The other step says when they run; those that it has not taken when it
//! ends, because it failed early, run then.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{libtest::Tally, programs, skips};
use crate::project::Project;

/// Names the file that a process of this kind writes what it came to.
pub(super) const OUTCOME_OPTION: &str = "--outcome";

/// Steps that wait to run beside the one that runs now, and those that have.
#[derive(Clone)]
pub(super) struct Beside {
    /// Where logs and outcomes lie.
    directory: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Companion>,
    ended: Vec<Ended>,
}

/// A step that runs beside another one.
pub(super) struct Companion {
    pub(super) id: &'static str,
    pub(super) title: String,
    /// This program, and how it is told to run the step alone.
    pub(super) command: Vec<OsString>,
}

/// What has come of it.
pub(super) struct Ended {
    pub(super) id: &'static str,
    pub(super) title: String,
    pub(super) tally: Tally,
    pub(super) took: Duration,
}

impl Beside {
    pub(super) fn new(project: &Project) -> Self {
        Self {
            directory: project.target.clone(),
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has these run beside the next step.
    pub(super) fn offer(&self, companions: impl IntoIterator<Item = Companion>) {
        self.state().waiting.extend(companions);
    }

    /// Runs those that wait, one after the other, until there are no more.
    pub(super) fn run_waiting(&self) {
        let next = || self.state().waiting.pop_front();
        while let Some(companion) = next() {
            let ended = companion.run(&self.directory);
            self.state().ended.push(ended);
        }
    }

    /// Runs all that wait while this works, and ends when both have.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| self.run_waiting());
            work()
        })
    }

    /// Runs those that nobody has taken; all that have ended since the last call.
    pub(super) fn conclude(&self) -> Vec<Ended> {
        self.run_waiting();
        std::mem::take(&mut self.state().ended)
    }
}

impl Companion {
    fn run(self, directory: &Path) -> Ended {
        let started = Instant::now();
        let tally = self.tally(directory).unwrap_or_else(|error| {
            let reason = format!("{error:#}");
            eprintln!("error: {}: {reason}", self.title);
            Tally::failure_for(&self.title, &reason)
        });
        Ended {
            id: self.id,
            title: self.title,
            tally,
            took: started.elapsed(),
        }
    }

    fn tally(&self, directory: &Path) -> Result<Tally> {
        let file = |kind: &str| directory.join(format!("test-{kind}-{}", self.id));
        let (outcome, log) = (file("outcome"), file("log"));
        skips::clear(&outcome)?;
        eprintln!(
            "{} runs beside, and says in {} how far it is",
            self.title,
            log.display()
        );
        let (program, arguments) = self.command.split_first().context("it has a program")?;
        let output =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let status = programs::with_the_rest_of_the_processors(Path::new(program))
            .args(arguments)
            .arg(OUTCOME_OPTION)
            .arg(&outcome)
            .output_to(output)?
            .status()?;
        let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        eprint!("{}", String::from_utf8_lossy(&text));
        let text = fs::read_to_string(&outcome)
            .with_context(|| format!("it ended without an outcome ({status})"))?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", outcome.display()))
    }
}

/// Writes what came of a process of this kind.
pub(super) fn write(outcome: &Path, tally: &Tally) -> Result<()> {
    let text = serde_json::to_string(tally).context("cannot encode what the steps came to")?;
    fs::write(outcome, text).with_context(|| format!("cannot write {}", outcome.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step that is this script; `$2` is where its outcome belongs.
    fn companion(id: &'static str, script: &str) -> Companion {
        let command = ["sh", "-c", script, "step"];
        Companion {
            id,
            title: format!("title of {id}"),
            command: command.map(OsString::from).into(),
        }
    }

    fn beside(directory: &Path) -> Beside {
        Beside::new(&Project {
            root: directory.to_owned(),
            target: directory.to_owned(),
        })
    }

    /// A script that says this.
    fn saying(directory: &Path, tally: &Tally) -> String {
        let made = directory.join("made");
        write(&made, tally).unwrap();
        format!("cp {} $2", made.display())
    }

    #[test]
    fn steps_run_while_another_one_works_and_their_outcomes_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let beside = beside(directory.path());
        let mut tally = Tally::failure_for("late", "by a second");
        tally.add(Tally::success());
        tally.add(Tally::skip("other", "no root"));
        // It waits for what is only written while it runs.
        let script = format!(
            "while [ ! -e {0}/begun ]; do sleep 0.01; done; {1}",
            directory.path().display(),
            saying(directory.path(), &tally)
        );
        beside.offer([companion("a", &script), companion("b", &script)]);
        let begun = directory.path().join("begun");
        let worked = beside.during(|| fs::write(begun, "").is_ok());
        assert!(worked);
        assert!(beside.state().waiting.is_empty());
        let ended = beside.conclude();
        assert_eq!(ended.iter().map(|it| it.id).collect::<Vec<_>>(), ["a", "b"]);
        assert!(ended.iter().all(|it| it.tally == tally), "all of it");
        assert!(beside.conclude().is_empty(), "each once");
    }

    #[test]
    fn steps_that_nobody_has_taken_run_in_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let beside = beside(directory.path());
        beside.offer([companion("a", &saying(directory.path(), &Tally::success()))]);
        let ended = beside.conclude();
        assert_eq!(ended[0].tally, Tally::success());
        assert_eq!(ended[0].title, "title of a");
    }

    #[test]
    fn step_without_an_outcome_has_failed() {
        let directory = tempfile::tempdir().unwrap();
        let beside = beside(directory.path());
        // What an earlier run has left does not count.
        let left = directory.path().join("test-outcome-a");
        write(&left, &Tally::success()).unwrap();
        beside.offer([companion("a", "kill -9 $$")]);
        let ended = beside.conclude();
        assert_eq!(ended[0].tally.failures, ["title of a"]);
        let words = &ended[0].tally.last_words["title of a"][0];
        assert!(words.contains("without an outcome"), "{words}");
    }
}
