//! Second runs: a test in networks that failed beside others is asked once more, alone.
//!
//! Tests in networks share processors with whatever runs beside them. One that fails there and passes
//! alone is flaky: it is listed as such with what it said, counts as passed, and has failed all the
//! same where it was flaky in the last run too. What merely computes has no such excuse, nor has a
//! claim about real time, which says itself when it is not decided (`claims`).

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result};

use super::{
    claims::Claim,
    libtest::Tally,
    programs::{Ended, Program},
};

/// So many failed tests are asked again. Where more have failed, something is wrong with all of them.
const MOST_TESTS: usize = 3;

/// What failed in its first run, by the programs that it is in.
#[derive(Default)]
pub(super) struct Failed(Vec<(Program, Vec<String>)>);

impl Failed {
    /// Keeps which tests of a program have failed; of one that died nothing, as nobody knows what it left out.
    pub(super) fn note(&mut self, program: &Program, ended: &Ended) {
        let names = &ended.tally.failures;
        let died = names.len() != ended.tally.failed() || names.contains(&program.label());
        if !died && !names.is_empty() {
            self.0.push((program.clone(), names.clone()));
        }
    }

    /// Leaves out tests that claimed something about real time.
    pub(super) fn without(mut self, claims: &[Claim]) -> Self {
        // A claim's test is named with its crate in front.
        let claimed = |name: &String| {
            let mut tests = claims.iter().map(|it| it.test.as_str());
            tests.any(|test| test.ends_with(name.as_str()))
        };
        for (_, names) in &mut self.0 {
            names.retain(|name| !claimed(name));
        }
        self.0.retain(|(_, names)| !names.is_empty());
        self
    }

    /// Runs these tests again, unless they are too many, and counts as passed which pass now.
    ///
    /// `kept` is the file with the tests that were flaky in the last run of all.
    pub(super) fn run_again(
        self,
        tally: &mut Tally,
        kept: &Path,
        mut run: impl FnMut(&Program, &[String]) -> Result<Ended>,
    ) -> Result<()> {
        let before = read(kept)?;
        let count: usize = self.0.iter().map(|(_, names)| names.len()).sum();
        let asked = match count <= MOST_TESTS {
            true => self.0,
            false => Vec::new(),
        };
        let mut flaky = BTreeSet::new();
        for (program, names) in asked {
            println!(
                "\nFailed beside others, and run once more alone: {}",
                names.join(", ")
            );
            for name in names {
                let ended = run(&program, std::slice::from_ref(&name))?;
                let passes = ended.tally.failed() == 0 && ended.tally.passed_tests.contains(&name);
                if passes && ended.tally.skips.is_empty() {
                    if !before.contains(&name) {
                        tally.excuse(&name);
                    }
                    flaky.insert(name);
                }
            }
        }
        write(kept, &flaky)
    }
}

fn read(file: &Path) -> Result<BTreeSet<String>> {
    if !file.exists() {
        return Ok(BTreeSet::new());
    }
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is damaged: remove it", file.display()))
}

fn write(file: &Path, flaky: &BTreeSet<String>) -> Result<()> {
    let text = serde_json::to_string_pretty(flaky)?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{claims::Outcome, libtest::Reader, skips::Skip},
        *,
    };

    /// A program that printed this, and said how it ended.
    fn ended(output: &str) -> Ended {
        let (mut tally, mut reader) = (Tally::default(), Reader::default());
        output
            .lines()
            .for_each(|line| reader.read(line, &mut tally));
        if !output.contains("test result: ") {
            tally.add(Tally::failure_for(
                &program().label(),
                "it ended without a result",
            ));
        }
        Ended {
            lines: Vec::new(),
            tally,
            deferred: Vec::new(),
        }
    }

    fn program() -> Program {
        Program::named("a", "it")
    }

    const ONE_OF_TWO: &str = "test a::b ... FAILED\ntest a::c ... ok\n\
        ---- a::b stdout ----\nthread 'a::b' (7) panicked at a.rs:1:1:\nlate\nfailures:\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured\n";
    const PASSES: &str = "test a::b ... ok\n\
        test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n";
    const FAILS: &str = "test a::b ... FAILED\n\
        test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n";

    /// A run in which this comes first, and of what is asked again that.
    fn after_of(first: &str, second: impl Fn() -> Ended, kept: &Path, claims: &[Claim]) -> Tally {
        let (mut failed, first) = (Failed::default(), ended(first));
        failed.note(&program(), &first);
        let mut tally = Tally::default();
        tally.add(first.tally);
        let failed = failed.without(claims);
        let again = |_: &Program, _: &[String]| Ok(second());
        failed.run_again(&mut tally, kept, again).unwrap();
        tally
    }

    fn after(first: &str, second: &str, kept: &Path) -> Tally {
        after_of(first, || ended(second), kept, &[])
    }

    #[test]
    fn test_that_passes_alone_is_flaky_and_has_passed_but_not_twice_running() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("flaky");
        let tally = after(ONE_OF_TWO, PASSES, &kept);
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 0 skipped");
        let (name, words) = &tally.flaky[0];
        assert_eq!((name.as_str(), words[1].as_str()), ("a::b", "late"));
        assert!(tally.failures.is_empty() && tally.passed_tests.contains("a::b"));

        let tally = after(ONE_OF_TWO, PASSES, &kept);
        assert_eq!((tally.failed(), tally.flaky.len()), (1, 0));
        after(PASSES, PASSES, &kept);
        assert_eq!(
            after(ONE_OF_TWO, PASSES, &kept).failed(),
            0,
            "it starts again"
        );
    }

    #[test]
    fn test_that_fails_dies_or_skips_itself_alone_has_failed() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("flaky");
        let tally = after(ONE_OF_TWO, FAILS, &kept);
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 0 skipped");
        assert_eq!(tally.last_words["a::b"][1], "late");
        assert_eq!(after(ONE_OF_TWO, "test a::b ... ok\n", &kept).failed(), 1);
        let skips = || {
            let mut ended = ended(PASSES);
            ended.tally.skips.push(Skip::new("it::a::b", "no root"));
            ended
        };
        assert_eq!(after_of(ONE_OF_TWO, skips, &kept, &[]).failed(), 1);
    }

    #[test]
    fn program_that_dies_and_many_failures_are_no_accident() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("flaky");
        let nothing = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(after("running 2 tests\n", nothing, &kept).failed(), 1);
        let tally = after("test a::b ... FAILED\n", PASSES, &kept);
        assert_eq!((tally.failed(), tally.flaky.len()), (1, 0));

        let line = |number| format!("test a::{number} ... FAILED\n");
        let many: String = (0..=MOST_TESTS).map(line).collect();
        let result = "test result: FAILED. 0 passed; 4 failed; 0 ignored; 0 measured\n";
        let all_pass = format!(
            "{}test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured\n",
            many.replace("FAILED", "ok")
        );
        let tally = after(&(many + result), &all_pass, &kept);
        assert_eq!((tally.failed(), tally.flaky.len()), (4, 0));
    }

    #[test]
    fn claim_about_real_time_is_not_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("flaky");
        let claim = Claim {
            test: "it::a::b".to_owned(),
            twin: "twin".to_owned(),
            outcome: Outcome::Failed("late".to_owned()),
        };
        let tally = after_of(ONE_OF_TWO, || ended(PASSES), &kept, &[claim]);
        assert_eq!((tally.failed(), tally.flaky.len()), (1, 0));
    }
}
