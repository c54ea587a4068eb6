//! The workspace's tests: cargo builds them, and their programs run side by side.
//!
//! What is tested in networks mostly waits, and what is not mostly computes. So three programs run at
//! a time: the splitter's, which take longest, another one that waits, and one that computes, with what the two
//! leave of the processors. Then come those that measure networks, with none but the last beside them. Claims
//! about real time, and tests that take processors away, defer themselves (`flow_testbed::timed`) and run in the
//! end, one program after the other and nothing else.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context, Result};

use super::{
    claims::{self, CLAIMS_VARIABLE, Verdicts},
    libtest::{Reader, Tally},
    programs::{self, Ended, Manner, Program, THREADS_VARIABLE},
    skips::{self, SKIPS_VARIABLE},
};
use crate::{
    command,
    project::{Project, is_root},
};

/// Programs: a package, and one of its targets or all.
type Selection = (&'static str, Option<&'static str>);

/// The tests in networks that take as long as all others.
const LONGEST: Selection = ("splitter-agent", Some("it"));

/// Programs that measure what networks carry, and take it amiss when too little is left for that.
const MEASURING: [Selection; 8] = [
    ("lab/bond", None),
    ("lab/demo", None),
    ("lab/fabric", None),
    ("lab/live", None),
    ("lab/msgbench", None),
    ("lab/reproduction", Some("splitter")),
    ("lab/testbed", None),
    ("lab/twin", None),
];

/// Programs that compute for seconds and wait for nothing. One that is missing here runs among those in
/// networks, and takes processors from them. None touches a network: one that waits for a processor would keep
/// others waiting for the kernel's lock.
const COMPUTING: [Selection; 10] = [
    ("cloudburst/crates/code", None),
    ("cloudburst/crates/congestion", None),
    ("cloudburst/crates/proto", None),
    ("crates/splitter-policy", None),
    ("lab/congestion", None),
    ("lab/hostile", None),
    ("lab/reproduction", Some("binary")),
    ("lab/reproduction", Some("reproduction")),
    ("lab/rules", None),
    ("netsim", None),
];

/// The tests of examples in the documentation, which cargo compiles and runs.
const EXAMPLES: &str = "examples of the documentation";

/// Builds and runs all of them.
pub(super) fn check(project: &Project) -> Result<Tally> {
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
    let programs = programs::build(project)?;
    let mut tally = run_all(project, programs, &environment)?;
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

/// Programs that run one after the other, beside other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Longest,
    Waiting,
    Computing,
    Measuring,
}

impl Lane {
    fn of(program: &Program) -> Self {
        let is_in = |selections: &[Selection]| {
            selections.iter().any(|(package, target)| {
                *package == program.package && target.is_none_or(|it| it == program.target)
            })
        };
        if is_in(&[LONGEST]) {
            Self::Longest
        } else if is_in(&COMPUTING) {
            Self::Computing
        } else if is_in(&MEASURING) {
            Self::Measuring
        } else {
            Self::Waiting
        }
    }

    /// Tests at a time.
    fn threads(self) -> usize {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        match self {
            // No time is claimed of these, and they wait for the more part.
            Self::Longest => 2 * processors,
            Self::Measuring => most_threads(),
            Self::Waiting | Self::Computing => processors.max(2),
        }
    }
}

/// Half as many tests again as processors.
fn most_threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    processors.saturating_mul(3).div_ceil(2)
}

/// What has come of all lanes so far.
#[derive(Default)]
struct Outcome {
    tally: Tally,
    /// What is still to run, alone.
    deferred: Vec<(Program, Vec<String>)>,
}

/// What lanes share.
struct Run<'a> {
    project: &'a Project,
    programs: Vec<Program>,
    environment: &'a [(&'static str, PathBuf)],
    outcome: Mutex<Outcome>,
}

fn run_all(
    project: &Project,
    programs: Vec<Program>,
    environment: &[(&'static str, PathBuf)],
) -> Result<Tally> {
    let run = Run {
        project,
        programs,
        environment,
        outcome: Mutex::default(),
    };
    thread::scope(|scope| {
        let computing = scope.spawn(|| {
            run.lane(Lane::Computing)?;
            let examples = run_examples(project, environment)?;
            run.outcome().tally.add(examples);
            Ok(())
        });
        let waiting = scope.spawn(|| run.lane(Lane::Waiting));
        run.lane(Lane::Longest)?;
        join(waiting)?;
        run.lane(Lane::Measuring)?;
        join(computing)
    })?;
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

    /// Runs all of a lane, but for what is to run alone.
    fn lane(&self, lane: Lane) -> Result<()> {
        let name = format!("test-deferred-{lane:?}").to_lowercase();
        let deferred = self.project.target.join(name);
        let manner = Manner {
            threads: lane.threads(),
            gives_way: lane == Lane::Computing,
            deferred: Some(&deferred),
            environment: self.environment,
        };
        for program in self.programs.iter().filter(|it| Lane::of(it) == lane) {
            let begun = Instant::now();
            let ended = program.run(self.project, &[], manner)?;
            let mut outcome = self.outcome();
            show(program, &ended, begun);
            outcome.tally.add(ended.tally);
            if !ended.deferred.is_empty() {
                outcome.deferred.push((program.clone(), ended.deferred));
            }
        }
        skips::clear(&deferred)
    }

    /// Runs what has been deferred; all that has come of the run.
    fn alone(self) -> Result<Tally> {
        let outcome = std::mem::take(&mut *self.outcome());
        let mut tally = outcome.tally;
        for (program, names) in outcome.deferred {
            let manner = Manner {
                threads: most_threads(),
                gives_way: false,
                deferred: None,
                environment: self.environment,
            };
            let begun = Instant::now();
            let ended = program.run(self.project, &names, manner)?;
            show(&program, &ended, begun);
            tally.add(ended.tally);
        }
        Ok(tally)
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
    fn programs_are_known_by_package_and_target() {
        let lane = |package: &str, target: &str| Lane::of(&Program::named(package, target));
        assert_eq!(lane("splitter-agent", "it"), Lane::Longest);
        assert_eq!(lane("splitter-agent", "splitter"), Lane::Waiting);
        assert_eq!(lane("netsim", "it"), Lane::Computing);
        assert_eq!(lane("lab/reproduction", "binary"), Lane::Computing);
        assert_eq!(lane("lab/reproduction", "splitter"), Lane::Measuring);
    }

    #[test]
    fn packages_that_are_named_exist() {
        let root = crate::project::root().unwrap();
        let packages = COMPUTING.iter().chain(&MEASURING).chain([&LONGEST]);
        for (package, _) in packages {
            assert!(root.join(package).join("Cargo.toml").exists(), "{package}");
        }
    }
}
