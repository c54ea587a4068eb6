//! How many instructions the verifier of each kernel looks at until it is convinced of a program,
//! as somebody has accepted it. The kernel gives up at a million, and loading takes as long.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::report::Outcome;
use crate::project::Project;

/// The file, within the tree.
const PATH: &str = "splitter-agent/crates/datapath/bpf/verifier.json";

/// By how much a count may exceed what is recorded: kernels of a series differ a little.
const ALLOWED_PERCENT: u64 = 10;

/// By series of kernels and by object and program.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Record(BTreeMap<String, BTreeMap<String, u32>>);

impl Record {
    pub(super) fn read(project: &Project) -> Result<Self> {
        let path = path(project);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is not a record of vm-test; delete it and run `cargo xtask vm-test --bless`",
                path.display()
            )
        })
    }

    pub(super) fn write(&self, project: &Project) -> Result<()> {
        let path = path(project);
        let mut text = serde_json::to_string_pretty(self).context("cannot encode the record")?;
        text.push('\n');
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Records what was counted, in the place of all that is known of those kernels.
    pub(super) fn accept(&mut self, outcomes: &[Outcome]) {
        let mut counted: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for outcome in outcomes {
            if let Some((program, count)) = count(outcome) {
                let of_series = counted.entry(outcome.series.to_owned()).or_default();
                of_series.insert(program, count);
            }
        }
        self.0.extend(counted);
    }

    /// Says what is recorded, and whether the count has grown beyond that.
    pub(super) fn compare(&self, outcome: &mut Outcome) {
        let Some((program, counted)) = count(outcome) else {
            return;
        };
        let of_series = self.0.get(outcome.series);
        let recorded = of_series
            .and_then(|programs| programs.get(&program))
            .copied();
        let grown = match recorded {
            None => Some(format!(
                "its {counted} instructions are not in {PATH} yet; {ACCEPT}"
            )),
            Some(recorded) if exceeds(counted, recorded) => Some(format!(
                "the verifier looks at {counted} instructions, {} % more than the {recorded} in {PATH}; \
                 {ALLOWED_PERCENT} % are allowed, and the kernel gives up at 1000000. Make the program simpler, or {ACCEPT}",
                percent_more(counted, recorded)
            )),
            Some(_) => None,
        };
        outcome.judge(recorded, grown);
    }
}

const ACCEPT: &str = "accept it: run `cargo xtask vm-test --bless` and commit that file";

fn count(outcome: &Outcome) -> Option<(String, u32)> {
    let object = outcome.row.object.as_deref()?;
    let program = format!("{object}: {}", outcome.row.name);
    Some((program, outcome.row.verified_instructions?))
}

fn exceeds(counted: u32, recorded: u32) -> bool {
    u64::from(counted) * 100 > u64::from(recorded) * (100 + ALLOWED_PERCENT)
}

fn percent_more(counted: u32, recorded: u32) -> u64 {
    u64::from(counted.saturating_sub(recorded)) * 100 / u64::from(recorded.max(1))
}

fn path(project: &Project) -> PathBuf {
    project.root.join(PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(program: &str, count: u32) -> Outcome {
        let row = format!(
            r#"{{"name": "{program}", "object": "splitter.o", "attached": [],
                "verified_instructions": {count}, "passed": true, "problem": null}}"#
        );
        Outcome::new("6.1", "6.1.0-56", serde_json::from_str(&row).unwrap())
    }

    #[test]
    fn growth_beyond_a_tenth_fails_until_it_is_accepted() {
        let mut record = Record::default();
        let judged = |record: &Record, count| {
            let mut outcome = outcome("split", count);
            record.compare(&mut outcome);
            outcome
        };
        assert!(!judged(&record, 1_000).passed(), "nothing is recorded");
        record.accept(&[outcome("split", 1_000)]);
        assert!(judged(&record, 1_000).passed());
        assert!(judged(&record, 1_100).passed());
        assert!(judged(&record, 500).passed());
        let grown = judged(&record, 1_250);
        assert!(!grown.passed());
        let reported = super::super::report::table(&[grown]);
        assert!(reported.contains("25 % more than the 1000"), "{reported}");
        assert!(reported.contains("--bless"), "{reported}");
        record.accept(&[outcome("split", 1_250)]);
        assert!(judged(&record, 1_250).passed());
    }

    #[test]
    fn accepting_forgets_programs_that_are_gone_and_keeps_other_kernels() {
        let mut record = Record::default();
        record.0.entry("6.12".to_owned()).or_default();
        record.accept(&[outcome("old", 1), outcome("split", 2)]);
        record.accept(&[outcome("split", 3)]);
        assert_eq!(record.0["6.1"].len(), 1);
        assert_eq!(record.0["6.1"]["splitter.o: split"], 3);
        assert!(record.0.contains_key("6.12"));
    }

    #[test]
    fn the_record_comes_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let project = Project {
            root: directory.path().to_owned(),
            target: directory.path().join("target"),
        };
        assert_eq!(Record::read(&project).unwrap(), Record::default());
        let mut record = Record::default();
        record.accept(&[outcome("split", 1_000)]);
        fs::create_dir_all(path(&project).parent().unwrap()).unwrap();
        record.write(&project).unwrap();
        assert_eq!(Record::read(&project).unwrap(), record);
    }
}
