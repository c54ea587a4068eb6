//! How far a run with a goal has come, so that one that was interrupted goes on where it was.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// How a target's own count begins, in lines that it prints now and then.
pub(super) const COUNT: &str = "counted: ";

/// Where it is kept, next to what the target has found.
const FILE: &str = "progress.json";

/// What earlier runs of a program came to, before the one whose log lies next to it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Digest of the program: what another one has counted says nothing of this one.
    program: String,
    pub(super) counted: u64,
}

impl Progress {
    /// Takes up what was interrupted, as far as its log tells; nothing of another program.
    pub(super) fn take_up(findings: &Path, program: &Path, log: &Path) -> Result<Self> {
        let content =
            fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let program = blake3::hash(&content).to_string();
        let earlier = fs::read(findings.join(FILE)).ok();
        let earlier = earlier.and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let counted = earlier.filter(|it| it.program == program).map_or(0, |it| {
            let log = fs::read(log).unwrap_or_default();
            it.counted + count_in(&String::from_utf8_lossy(&log))
        });
        Ok(Self { program, counted })
    }

    /// Keeps it while the target runs. The log has to be empty by then, or it would count twice.
    pub(super) fn keep(&self, findings: &Path) -> Result<()> {
        let file = findings.join(FILE);
        let text = serde_json::to_string(self).context("cannot encode how far it has come")?;
        fs::write(&file, text).with_context(|| cannot_write(&file))
    }

    /// Has the next run begin from nothing.
    pub(super) fn forget(findings: &Path) -> Result<()> {
        let file = findings.join(FILE);
        if file.exists() {
            fs::remove_file(&file).with_context(|| cannot_write(&file))?;
        }
        Ok(())
    }
}

/// The last count that a target has printed.
pub(super) fn count_in(log: &str) -> u64 {
    let counts = log
        .lines()
        .rev()
        .filter_map(|line| line.strip_prefix(COUNT));
    counts.flat_map(str::parse).next().unwrap_or(0)
}

fn cannot_write(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_from_the_count_in_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let [program, log] = ["program", "log"].map(|name| directory.path().join(name));
        fs::write(&program, "one").unwrap();
        let take_up = || Progress::take_up(directory.path(), &program, &log).unwrap();
        assert_eq!(take_up().counted, 0);
        take_up().keep(directory.path()).unwrap();
        // Killed while it printed.
        fs::write(
            &log,
            "#12 pulse\ncounted: 300000\n#14 pulse\ncounted: 400000\ncounted: ",
        )
        .unwrap();
        assert_eq!(take_up().counted, 400_000);

        let second = take_up();
        fs::write(&log, "").unwrap();
        second.keep(directory.path()).unwrap();
        assert_eq!(take_up().counted, 400_000, "once");
        fs::write(&log, "counted: 100000\n").unwrap();
        assert_eq!(take_up().counted, 500_000);

        fs::write(&program, "another").unwrap();
        assert_eq!(take_up().counted, 0, "it has counted nothing yet");
        fs::write(&program, "one").unwrap();
        Progress::forget(directory.path()).unwrap();
        assert_eq!(take_up().counted, 0);
    }
}
