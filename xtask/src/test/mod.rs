//! `test`: everything that continuous integration checks, in two tiers.
//!
//! The default tier is for every change. `--full` adds what takes longer by nature; it goes on
//! where an earlier run of the same commit was interrupted, and ends with a record that is
//! committed.

mod beside;
mod claims;
mod dependencies;
mod emulated;
mod fuzz;
mod lanes;
mod libtest;
mod newcomer;
mod packages;
mod programs;
mod receivers;
mod record;
mod second;
mod semver;
mod session;
mod skips;
mod steps;
mod vectors;
mod workspace;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Result, bail};

use self::{
    beside::{Beside, Companion},
    record::Record,
    session::Session,
    steps::Step,
};
use crate::project::Project;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also run the steps of the full tier, and record what they came to.
    #[arg(long)]
    full: bool,
    /// Run these steps alone, of whichever tier; `--list` names them.
    #[arg(
        long,
        value_name = "STEP",
        value_delimiter = ',',
        conflicts_with = "full"
    )]
    only: Vec<String>,
    /// List the steps with their tier and run nothing.
    #[arg(long)]
    list: bool,
    /// Repeat the steps that a full run of this commit has passed already.
    #[arg(long, requires = "full")]
    restart: bool,
    /// How long to run the fuzzer on each target in the default tier, in time of a processor; ten times that in the
    /// full one.
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    fuzz_seconds: u32,
    /// Write what the steps came to there and print no summary: for steps that another run has beside its own.
    #[arg(long, value_name = "FILE", hide = true, requires = "only")]
    outcome: Option<PathBuf>,
}

/// The steps that belong to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// Every change, and every run.
    Default,
    /// With `--full` alone.
    Full,
}

pub(crate) fn task(project: &Project, arguments: &Arguments) -> Result<ExitCode> {
    let beside = Beside::new(project);
    let steps = steps::all(project, arguments.fuzz_seconds, &beside);
    if arguments.list {
        list(&steps);
        return Ok(ExitCode::SUCCESS);
    }
    let mut record = match arguments.full {
        true => Some(Record::open(project, arguments.restart)?),
        false => None,
    };
    let mut session = Session::default();
    let mut open = Vec::new();
    for step in choose(steps, arguments)? {
        match record.as_ref().and_then(|record| record.passed(step.id)) {
            None => open.push(step),
            Some(earlier) => {
                let (title, seconds) = (&step.title, earlier.seconds);
                eprintln!("\n== {title}: passed before, in {seconds:.1} s");
                session.take_over(title, earlier);
            }
        }
    }
    for (step, companions) in with_companions(open) {
        let companions = companions.into_iter();
        beside.offer(companions.map(|step| companion(step, arguments)));
        let id = step.id;
        let mut results = vec![(id, session.run(step))];
        let ended = beside.conclude().into_iter();
        results.extend(ended.map(|ended| (ended.id, session.take_in(ended))));
        if let Some(record) = &mut record {
            for (id, result) in results {
                record.add(id, result)?;
            }
        }
    }
    if let Some(record) = record {
        record.conclude()?;
    }
    match &arguments.outcome {
        Some(outcome) => session.hand_over(outcome),
        None => Ok(session.conclude()),
    }
}

/// Steps in their order, each with those that run beside it. Without the other one, a step runs by itself.
fn with_companions(steps: Vec<Step>) -> Vec<(Step, Vec<Step>)> {
    let ids: Vec<_> = steps.iter().map(|step| step.id).collect();
    let has_host = |step: &Step| step.beside.is_some_and(|host| ids.contains(&host));
    let (companions, hosts): (Vec<_>, Vec<_>) = steps.into_iter().partition(has_host);
    let mut pairs: Vec<_> = hosts.into_iter().map(|host| (host, Vec::new())).collect();
    for companion in companions {
        let mut pairs = pairs.iter_mut();
        if let Some((_, of_host)) = pairs.find(|(host, _)| companion.beside == Some(host.id)) {
            of_host.push(companion);
        }
    }
    pairs
}

/// A step as a process of its own.
fn companion(step: Step, arguments: &Arguments) -> Companion {
    // Whatever cargo puts in the place of the file that this process was started from.
    let program = Path::new("/proc")
        .join(std::process::id().to_string())
        .join("exe");
    let seconds = arguments.fuzz_seconds.to_string();
    let told = ["test", "--only", step.id, "--fuzz-seconds", &seconds];
    Companion {
        id: step.id,
        title: step.title,
        command: [program.into_os_string()]
            .into_iter()
            .chain(told.map(OsString::from))
            .collect(),
    }
}

/// The steps that these arguments ask for, in their own order.
fn choose(steps: Vec<Step>, arguments: &Arguments) -> Result<Vec<Step>> {
    if let Some(unknown) = arguments
        .only
        .iter()
        .find(|id| !steps.iter().any(|step| step.id == *id))
    {
        let known: Vec<_> = steps.iter().map(|step| step.id).collect();
        bail!(
            "there is no step `{unknown}`; the steps are {}",
            known.join(", ")
        );
    }
    let is_wanted = |step: &Step| match arguments.only.as_slice() {
        [] => arguments.full || step.tier == Tier::Default,
        only => only.iter().any(|id| id == step.id),
    };
    Ok(steps.into_iter().filter(is_wanted).collect())
}

fn list(steps: &[Step]) {
    for step in steps {
        let tier = match step.tier {
            Tier::Default => "default",
            Tier::Full => "full",
        };
        println!("{:<10} {tier:<8} {}", step.id, step.title);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn steps_of(arguments: &[&str]) -> Result<Vec<Step>> {
        let command = Command::parse_from([&["test"], arguments].concat());
        let project = Project {
            root: "/tree".into(),
            target: "/target".into(),
        };
        let steps = steps::all(&project, 1, &Beside::new(&project));
        choose(steps, &command.arguments)
    }

    fn chosen(arguments: &[&str]) -> Result<Vec<&'static str>> {
        let steps = steps_of(arguments)?;
        Ok(steps.into_iter().map(|step| step.id).collect())
    }

    /// Which steps run beside which.
    fn arranged(arguments: &[&str]) -> Vec<(&'static str, Vec<&'static str>)> {
        let pairs = with_companions(steps_of(arguments).unwrap()).into_iter();
        pairs
            .map(|(step, beside)| (step.id, beside.iter().map(|it| it.id).collect()))
            .collect()
    }

    #[test]
    fn the_full_tier_contains_the_default_tier() {
        let default = chosen(&[]).unwrap();
        let full = chosen(&["--full"]).unwrap();
        assert!(default.iter().all(|id| full.contains(id)));
        assert!(full.len() > default.len());
    }

    #[test]
    fn every_step_runs_once_beside_another_or_by_itself() {
        for tier in [&[][..], &["--full"]] {
            let mut run: Vec<_> = arranged(tier)
                .into_iter()
                .flat_map(|(step, beside)| [vec![step], beside].concat())
                .collect();
            let mut expected = chosen(tier).unwrap();
            run.sort_unstable();
            expected.sort_unstable();
            assert_eq!(run, expected, "{tier:?}");
        }
    }

    #[test]
    fn what_only_computes_runs_beside_the_tests_and_without_them_by_itself() {
        let default = arranged(&[]);
        let (_, beside) = default.iter().find(|(step, _)| *step == "tests").unwrap();
        // Fuzzing comes last, when the others have most probably ended and leave it all processors.
        assert_eq!(beside.last(), Some(&"fuzz"));
        assert_eq!(arranged(&["--only", "fuzz"]), [("fuzz", vec![])]);
        assert_eq!(
            arranged(&["--only", "fuzz,tests"]),
            [("tests", vec!["fuzz"])]
        );
    }

    #[test]
    fn step_beside_another_is_told_to_run_alone_with_what_this_run_was_told() {
        let command = Command::parse_from(["test", "--fuzz-seconds", "7"]);
        let steps = steps_of(&["--only", "fuzz"]).unwrap();
        let step = steps.into_iter().next().unwrap();
        let companion = companion(step, &command.arguments);
        let [program, task, arguments @ ..] = companion.command.as_slice() else {
            panic!("it has no arguments");
        };
        assert!(Path::new(program).exists() && task == "test");
        let (option, outcome) = (OsString::from(beside::OUTCOME_OPTION), "/outcome".into());
        let told =
            Command::parse_from([&["test".into()][..], arguments, &[option, outcome]].concat());
        assert_eq!(told.arguments.only, ["fuzz"]);
        assert_eq!(told.arguments.fuzz_seconds, 7);
        assert_eq!(
            told.arguments.outcome.as_deref(),
            Some(Path::new("/outcome"))
        );
    }

    #[test]
    fn identifiers_of_steps_are_unique() {
        let mut ids = chosen(&["--full"]).unwrap();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn steps_are_chosen_by_name_from_either_tier() {
        assert_eq!(
            chosen(&["--only", "lints,setup"]).unwrap(),
            ["setup", "lints"]
        );
        let full = chosen(&["--full"]).unwrap();
        let default = chosen(&[]).unwrap();
        let of_full = *full.iter().find(|id| !default.contains(id)).unwrap();
        assert_eq!(chosen(&["--only", of_full]).unwrap(), [of_full]);
        let error = chosen(&["--only", "nonsense"]).unwrap_err().to_string();
        assert!(
            error.contains("`nonsense`") && error.contains("lints"),
            "{error}"
        );
    }
}
