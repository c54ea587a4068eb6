//! What each path took when somebody last accepted that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::objects::Objects;
use crate::paths;

/// Counts by the path's name: the file beside the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Record(pub BTreeMap<String, Counts>);

/// By how much a path may exceed what is recorded: compilers differ a little.
pub const ALLOWED_PERCENT: u64 = 2;

/// How to accept what is counted now.
pub const ACCEPT: &str = "cargo xtask count-instructions --bless";

/// How counts stand beside a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What is wrong, a line for each path; nothing where all is well.
    pub problems: Vec<String>,
    /// What became less, a line for each path.
    pub gains: Vec<String>,
}

impl Record {
    /// Counts all paths of the objects.
    ///
    /// # Errors
    /// When packets do not take the paths that they are to take: all of these.
    pub fn count(objects: &Objects) -> Result<Self> {
        let mut counted = Self::default();
        let mut wrong = Vec::new();
        for path in paths::all() {
            match path.count(objects) {
                Ok(counts) => {
                    counted.0.insert(path.name, counts);
                }
                Err(error) => wrong.push(format!("{}: {error:#}", path.name)),
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(counted)
    }

    /// Reads the record; an empty one where there is none yet.
    ///
    /// # Errors
    /// When the file cannot be read, or is no record.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is no record of instructions; delete it and run `{ACCEPT}`",
                path.display()
            )
        })
    }

    /// Writes the record to a file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        // A line for each path, so that a difference shows which one it is.
        let lines = self.0.iter().map(|(name, counts)| {
            let counts = serde_json::to_string(counts)?;
            Ok(format!("  {name:?}: {counts}"))
        });
        let lines = lines.collect::<Result<Vec<_>>>()?.join(",\n");
        let text = format!("{{\n{lines}\n}}\n");
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Holds counts against what is recorded.
    #[must_use]
    pub fn judge(&self, counted: &Self) -> Judgement {
        let mut judgement = Judgement::default();
        for (name, now) in &counted.0 {
            match self.0.get(name) {
                None => judgement.problems.push(format!("{name}: is not recorded")),
                Some(recorded) => judgement.compare(name, recorded, now),
            }
        }
        for name in self.0.keys().filter(|it| !counted.0.contains_key(*it)) {
            judgement.problems.push(format!(
                "{name}: is recorded, and no path of that name is counted"
            ));
        }
        judgement
    }
}

impl Judgement {
    /// Instructions may exceed what is recorded by a little; calls of helpers, of which each takes as
    /// long as twenty of them and a clock more than a hundred, by none, and cache lines that go from core
    /// to core neither.
    fn compare(&mut self, name: &str, recorded: &Counts, now: &Counts) {
        let figures = [
            (
                "instructions",
                recorded.instructions,
                now.instructions,
                ALLOWED_PERCENT,
            ),
            ("helper calls", recorded.helper_calls, now.helper_calls, 0),
            ("shared lines", recorded.shared_lines, now.shared_lines, 0),
        ];
        for (what, before, after, allowed) in figures {
            let line = || format!("{name}: {after} {what}, recorded are {before}");
            if after * 100 > before * (100 + allowed) {
                self.problems.push(line());
            } else if after < before {
                self.gains.push(line());
            }
        }
    }

    /// Tells whoever has changed the object what is wrong; `None` where nothing is.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        if self.problems.is_empty() {
            return None;
        }
        let mut text = format!(
            "the kernel programs execute more than is recorded (instructions may exceed that by {ALLOWED_PERCENT} %, helper calls and lines that cores share not at all):\n"
        );
        for problem in &self.problems {
            let _ = writeln!(text, "  {problem}");
        }
        let _ = write!(
            text,
            "Make the path shorter; or, if the growth is meant, accept it: run `{ACCEPT}` and commit the file."
        );
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(instructions: u64, helper_calls: u64) -> Record {
        let counts = Counts {
            instructions,
            helper_calls,
            ..Counts::default()
        };
        Record(BTreeMap::from([("known".to_owned(), counts)]))
    }

    #[test]
    fn growth_beyond_two_in_a_hundred_is_a_problem_until_it_is_accepted() {
        let recorded = record(200, 1);
        for fine in [record(200, 1), record(204, 1)] {
            assert_eq!(recorded.judge(&fine), Judgement::default());
        }
        let grown = recorded.judge(&record(205, 1));
        assert_eq!(
            grown.problems,
            ["known: 205 instructions, recorded are 200"]
        );
        assert!(grown.complaint().unwrap().contains("--bless"));
        assert_eq!(record(205, 1).judge(&record(205, 1)).complaint(), None);
    }

    #[test]
    fn one_more_helper_call_is_a_problem_and_fewer_instructions_are_not() {
        let recorded = record(200, 1);
        let called = recorded.judge(&record(150, 2));
        assert_eq!(called.problems, ["known: 2 helper calls, recorded are 1"]);
        assert_eq!(called.gains, ["known: 150 instructions, recorded are 200"]);
        assert_eq!(recorded.judge(&record(150, 0)).complaint(), None);
    }

    #[test]
    fn one_more_line_that_cores_share_is_a_problem() {
        let with = |shared_lines| {
            let mut with = record(200, 1);
            with.0.get_mut("known").unwrap().shared_lines = shared_lines;
            with
        };
        assert_eq!(
            with(0).judge(&with(1)).problems,
            ["known: 1 shared lines, recorded are 0"]
        );
        assert_eq!(with(1).judge(&with(0)).complaint(), None);
    }

    #[test]
    fn paths_that_only_one_side_knows_are_problems() {
        let (none, one) = (Record::default(), record(1, 0));
        assert_eq!(none.judge(&one).problems, ["known: is not recorded"]);
        assert_eq!(one.judge(&none).problems.len(), 1);
    }
}
