//! The workspace's tests: cargo builds them, and their programs run side by side.
//!
//! What is tested in networks mostly waits, and what is not mostly computes. So three programs run at
//! a time: the splitter's, which take longest, another one that waits, and one that computes, with what the others
//! leave of the processors. Then come those that measure networks, with none but the last beside them, and then steps
//! that only compute (`beside`), as soon as nothing is left of one or the other. Claims about real time, and tests that
//! take processors away, defer themselves (`flow_testbed::timed`) and run in the end, when all of that has ended, one
//! program after the other and nothing else; and after these, once more, what failed in networks (`second`).

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context, Result};

use super::{
    beside::Beside,
    claims::{self, CLAIMS_VARIABLE, Verdicts},
    lanes::{
        COMPUTING_AT_A_TIME, COMPUTING_LONG, IN_NETWORKS, Lane, MEASURING, RULES, is_in,
        most_threads,
    },
    libtest::{Reader, Tally},
    programs::{self, Ended, Manner, Program, THREADS_VARIABLE},
    second::Failed,
    skips::{self, SKIPS_VARIABLE},
};
use crate::{
    command,
    project::{Project, is_root},
};

/// The tests of examples in the documentation, which cargo compiles and runs.
const EXAMPLES: &str = "examples of the documentation";

/// Builds and runs the rules of the workspace.
pub(super) fn check_rules(project: &Project) -> Result<Tally> {
    let skips = project.target.join("test-skips");
    skips::clear(&skips)?;
    let manner = Manner {
        threads: most_threads(),
        gives_way: false,
        deferred: None,
        environment: &[(SKIPS_VARIABLE, skips.clone())],
    };
    let mut tally = Tally::default();
    for program in programs::build(project, RULES.1)? {
        let begun = Instant::now();
        let ended = program.run(project, &[], manner)?;
        show(&program, &ended, begun);
        tally.add(ended.tally);
    }
    tally.mark_skipped(skips::read(&skips).context("cannot read which rules were skipped")?);
    Ok(tally)
}

/// Builds and runs all others, and beside them steps that only compute.
pub(super) fn check(project: &Project, companions: &Beside) -> Result<Tally> {
    if !is_root() {
        eprintln!(
            "warning: this is not root. Tests that load programs into the kernel or make\n\
             network namespaces will be SKIPPED; run `sudo -E cargo xtask test` for all of them."
        );
    }
    let (skips, claims) = (
        project.target.join("test-skips"),
        project.target.join("test-claims"),
    );
    skips::clear(&skips)?;
    skips::clear(&claims)?;
    let environment = [
        (SKIPS_VARIABLE, skips.clone()),
        (CLAIMS_VARIABLE, claims.clone()),
    ];
    let mut programs = programs::build(project, None)?;
    programs.retain(|program| !is_in(&[RULES], program));
    let mut tally = run_all(project, programs, &environment, &claims, companions)?;
    let skipped = skips::read(&skips).context("cannot read which tests were skipped")?;
    tally.mark_skipped(skipped);
    let streaks = project.target.join("test-undecided.json");
    let verdicts = judge_claims(&claims, &streaks, &tally)
        .context("cannot tell which timed claims were decided")?;
    tally.mark_timed(verdicts);
    Ok(tally)
}

fn judge_claims(claims: &Path, streaks_file: &Path, tally: &Tally) -> Result<Verdicts> {
    let claims = claims::read(claims)?;
    let mut streaks = claims::read_streaks(streaks_file)?;
    let verdicts = claims::judge(&claims, &tally.passed_tests, &mut streaks);
    claims::write_streaks(streaks_file, &streaks)?;
    Ok(verdicts)
}

/// One of those that compute.
enum Job<'a> {
    Program(&'a Program),
    Examples,
}

/// What has come of all lanes so far.
#[derive(Default)]
struct Outcome {
    tally: Tally,
    /// What is still to run, alone.
    deferred: Vec<(Program, Vec<String>)>,
    /// What may run once more.
    failed: Failed,
}

/// What lanes share.
struct Run<'a> {
    project: &'a Project,
    programs: Vec<Program>,
    environment: &'a [(&'static str, PathBuf)],
    /// Where tests write what they claimed about real time.
    claims: &'a Path,
    /// Steps that run after all in networks, or all that computes.
    companions: &'a Beside,
    outcome: Mutex<Outcome>,
}

fn run_all(
    project: &Project,
    programs: Vec<Program>,
    environment: &[(&'static str, PathBuf)],
    claims: &Path,
    companions: &Beside,
) -> Result<Tally> {
    let run = Run {
        project,
        programs,
        environment,
        claims,
        companions,
        outcome: Mutex::default(),
    };
    run.side_by_side()?;
    run.alone()
}

fn join(lane: thread::ScopedJoinHandle<Result<()>>) -> Result<()> {
    lane.join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Run<'_> {
    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs all lanes.
    fn side_by_side(&self) -> Result<()> {
        let jobs = &Mutex::new(self.computing().into_iter());
        thread::scope(|scope| {
            let worker = |number| scope.spawn(move || self.compute(number, jobs));
            let computing: Vec<_> = (0..COMPUTING_AT_A_TIME).map(worker).collect();
            let waiting = scope.spawn(|| self.lane(Lane::Waiting));
            self.lane(Lane::Longest)?;
            join(waiting)?;
            self.lane(Lane::Measuring)?;
            // No network is in use any more, and what still computes ends with tests that have a thread each.
            self.companions.run_waiting();
            computing.into_iter().try_for_each(join)
        })
    }

    fn of(&self, lane: Lane) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(move |it| Lane::of(it) == lane)
    }

    /// All that computes, what takes long in front and the examples in the end.
    fn computing(&self) -> Vec<Job<'_>> {
        let mut programs: Vec<_> = self.of(Lane::Computing).collect();
        programs.sort_by_key(|program| !is_in(&COMPUTING_LONG, program));
        let programs = programs.into_iter().map(Job::Program);
        programs.chain([Job::Examples]).collect()
    }

    /// Runs what computes, one after the other, as long as there is more of it, and then the steps that do.
    fn compute<'a>(
        &self,
        worker: usize,
        jobs: &Mutex<impl Iterator<Item = Job<'a>>>,
    ) -> Result<()> {
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(job) = next() {
            match job {
                Job::Program(program) => self.one(program, Lane::Computing, worker)?,
                Job::Examples => {
                    let examples = run_examples(self.project, self.environment)?;
                    self.outcome().tally.add(examples);
                }
            }
        }
        self.companions.run_waiting();
        Ok(())
    }

    /// Runs all of a lane, one after the other.
    fn lane(&self, lane: Lane) -> Result<()> {
        self.of(lane)
            .try_for_each(|program| self.one(program, lane, 0))
    }

    /// Runs a program as its lane has it, but for what is to run alone.
    fn one(&self, program: &Program, lane: Lane, worker: usize) -> Result<()> {
        let name = format!("test-deferred-{lane:?}-{worker}").to_lowercase();
        let deferred = self.project.target.join(name);
        let manner = Manner {
            threads: lane.threads(),
            gives_way: lane == Lane::Computing,
            deferred: Some(&deferred),
            environment: self.environment,
        };
        let begun = Instant::now();
        let ended = program.run(self.project, &[], manner)?;
        let mut outcome = self.outcome();
        show(program, &ended, begun);
        if is_in(&IN_NETWORKS, program) || is_in(&MEASURING, program) {
            outcome.failed.note(program, &ended);
        }
        outcome.tally.add(ended.tally);
        if !ended.deferred.is_empty() {
            outcome.deferred.push((program.clone(), ended.deferred));
        }
        skips::clear(&deferred)
    }

    /// Runs what has been deferred, and again what has failed; all that has come of the run.
    fn alone(self) -> Result<Tally> {
        let outcome = std::mem::take(&mut *self.outcome());
        let (mut tally, mut failed) = (outcome.tally, outcome.failed);
        for (program, names) in outcome.deferred {
            let ended = self.some(&program, &names, most_threads(), self.environment)?;
            failed.note(&program, &ended);
            tally.add(ended.tally);
        }
        let kept = self.project.target.join("test-flaky.json");
        let failed = failed.without(&claims::read(self.claims)?);
        failed.run_again(&mut tally, &kept, |program, names| {
            self.again(program, names)
        })?;
        Ok(tally)
    }

    /// Runs tests of a program once more, and has it say which of them skip themselves now.
    fn again(&self, program: &Program, names: &[String]) -> Result<Ended> {
        let file = self.project.target.join("test-skips-again");
        skips::clear(&file)?;
        let environment = [(SKIPS_VARIABLE, file.clone())];
        let mut ended = self.some(program, names, 1, &environment)?;
        ended.tally.mark_skipped(skips::read(&file)?);
        Ok(ended)
    }

    /// Runs these tests of a program, with no other program beside it.
    fn some(
        &self,
        program: &Program,
        names: &[String],
        threads: usize,
        environment: &[(&'static str, PathBuf)],
    ) -> Result<Ended> {
        let manner = Manner {
            threads,
            gives_way: false,
            deferred: None,
            environment,
        };
        let begun = Instant::now();
        let ended = program.run(self.project, names, manner)?;
        show(program, &ended, begun);
        Ok(ended)
    }
}

/// All at once, so that lines of programs that run side by side do not mix.
fn show(program: &Program, ended: &Ended, begun: Instant) {
    let mut text = ended.lines.join("\n");
    let (label, took) = (program.label(), begun.elapsed().as_secs_f64());
    text = format!("\n     Ran {label} in {took:.1} s\n{text}");
    if !ended.deferred.is_empty() {
        let count = ended.deferred.len();
        text += &format!("\n{count} of these are to run alone, and have not run yet");
    }
    println!("{text}");
}

/// Cargo runs these as it builds them.
fn run_examples(project: &Project, environment: &[(&'static str, PathBuf)]) -> Result<Tally> {
    let cargo = programs::with_the_rest_of_the_processors(Path::new(&command::cargo_program()));
    let mut cargo = command::without_own_package(cargo)
        .args(["test", "--workspace", "--doc", "--locked", "--no-fail-fast"])
        .current_dir(&project.root);
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        cargo = cargo.env(THREADS_VARIABLE, Lane::Computing.threads().to_string());
    }
    for (name, value) in environment {
        cargo = cargo.env(name, value);
    }
    let (mut tally, mut reader) = (Tally::default(), Reader::default());
    let mut lines = Vec::new();
    let status = cargo.stream(|line| {
        reader.read(line, &mut tally);
        lines.push(line.to_owned());
    })?;
    println!("{}", lines.join("\n"));
    if !status.success() && tally.failed() == 0 {
        // Did not compile, or died without a result.
        tally.add(Tally::failure_for(EXAMPLES, &status.to_string()));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_computes_for_minutes_comes_first_and_nothing_twice() {
        let named = [
            ("cloudburst/crates/code", "it"),
            ("cloudburst/crates/proto", "it"),
            ("netsim", "it"),
            ("splitter-agent", "it"),
        ];
        let project = Project {
            root: "/tree".into(),
            target: "/target".into(),
        };
        let run = Run {
            project: &project,
            programs: named
                .map(|(package, target)| Program::named(package, target))
                .into(),
            environment: &[],
            claims: Path::new(""),
            companions: &Beside::new(&project),
            outcome: Mutex::default(),
        };
        let jobs = run.computing();
        let labels: Vec<_> = jobs
            .iter()
            .map(|job| match job {
                Job::Program(program) => program.label(),
                Job::Examples => EXAMPLES.to_owned(),
            })
            .collect();
        let expected = [
            "cloudburst/crates/proto",
            "cloudburst/crates/code",
            "netsim",
        ];
        let mut expected: Vec<_> = expected.map(|package| format!("it of {package}")).into();
        expected.push(EXAMPLES.to_owned());
        assert_eq!(labels, expected);
    }
}
