//! Runs steps one after the other and sums up what they came to.

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    beside::{self, Ended},
    libtest::Tally,
    record::StepResult,
    steps::Step,
};

/// What all steps so far came to.
#[derive(Default)]
pub(super) struct Session {
    total: Tally,
    took: Vec<(String, Duration)>,
    /// Beside one of those, in the same time.
    took_beside: Vec<(String, Duration)>,
}

impl Session {
    /// Runs a step, and keeps its outcome for the summary.
    pub(super) fn run(&mut self, step: Step) -> StepResult {
        eprintln!("\n== {}", step.title);
        let started = Instant::now();
        let tally = (step.check)().unwrap_or_else(|error| {
            let reason = format!("{error:#}");
            eprintln!("error: {reason}");
            Tally::failure_for(&step.title, &reason)
        });
        let took = started.elapsed();
        let outcome = if tally.failed() > 0 { "FAILED" } else { "ok" };
        eprintln!("== {}: {outcome} in {}", step.title, seconds(took));
        let result = StepResult::new(&tally, took);
        self.took.push((step.title, took));
        self.total.add(tally);
        result
    }

    /// Counts a step that has run beside another one.
    pub(super) fn take_in(&mut self, ended: Ended) -> StepResult {
        let result = StepResult::new(&ended.tally, ended.took);
        self.took_beside.push((ended.title, ended.took));
        self.total.add(ended.tally);
        result
    }

    /// Counts a step that an earlier run of the same commit has passed.
    pub(super) fn take_over(&mut self, title: &str, earlier: &StepResult) {
        let took = Duration::from_secs_f64(earlier.seconds.max(0.0));
        self.took.push((format!("{title} (earlier)"), took));
        self.total.add(earlier.tally());
    }

    /// Prints the summary, its last line for machines to read.
    pub(super) fn conclude(self) -> ExitCode {
        println!("\nTime taken:");
        for (title, took) in &self.took {
            println!("  {:>8}  {title}", seconds(*took));
        }
        for (title, took) in &self.took_beside {
            println!("  {:>8}  {title} (beside others)", seconds(*took));
        }
        let all: Duration = self.took.iter().map(|(_, took)| *took).sum();
        println!("  {:>8}  all", seconds(all));
        if !self.total.skips.is_empty() {
            println!("\nSkipped:");
            for skip in &self.total.skips {
                println!("  {}: {}", skip.test, skip.reason);
            }
        }
        self.print_flaky();
        self.print_failures();
        self.print_undecided();
        println!("\n{} tests and checks were run.", self.total.run());
        println!(
            "{} timed claims, {} not decided",
            self.total.timed,
            self.total.undecided.len()
        );
        println!("{} flaky", self.total.flaky.len());
        println!("{}", self.total);
        self.code()
    }

    /// Writes what the steps came to for the process that has started this one, which prints the summary.
    pub(super) fn hand_over(self, outcome: &Path) -> Result<ExitCode> {
        beside::write(outcome, &self.total)?;
        Ok(self.code())
    }

    fn code(&self) -> ExitCode {
        match self.total.failed() {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

impl Session {
    fn print_failures(&self) {
        if !self.total.failures.is_empty() {
            println!("\nFailed:");
            for failure in &self.total.failures {
                let words = self.total.last_words.get(failure);
                print_test(failure, words.map_or(&[], Vec::as_slice));
            }
        }
    }

    fn print_flaky(&self) {
        if !self.total.flaky.is_empty() {
            println!("\nFlaky, failed beside others and passed alone:");
            for (test, words) in &self.total.flaky {
                print_test(test, words);
            }
        }
    }

    fn print_undecided(&self) {
        if !self.total.undecided.is_empty() {
            println!("\nNot decided, for the machine was not there all the time:");
            for (test, reason) in &self.total.undecided {
                println!("  {test}: {reason}");
            }
        }
    }
}

/// A test, and what it said last.
fn print_test(name: &str, words: &[String]) {
    println!("  {name}");
    for line in words {
        println!("      {line}");
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::{super::Tier, *};

    #[test]
    fn summary_keeps_why_a_step_failed() {
        let mut session = Session::default();
        session.run(Step {
            id: "objects",
            tier: Tier::Default,
            title: "objects are fresh".to_owned(),
            beside: None,
            check: Box::new(|| anyhow::bail!("two sections differ:\n  one.o: .text")),
        });
        assert_eq!(session.total.failures, ["objects are fresh"]);
        assert_eq!(
            session.total.last_words["objects are fresh"],
            ["two sections differ:", "  one.o: .text"]
        );
    }
}
