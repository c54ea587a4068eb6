//! `test`: everything that continuous integration checks, in two tiers.
//!
//! The default tier is for every change. `--full` adds what takes longer by nature; it goes on
//! where an earlier run of the same commit was interrupted, and ends with a record that is
//! committed.

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

use std::process::ExitCode;

use anyhow::{Result, bail};

use self::{record::Record, session::Session, steps::Step};
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
    /// How long to run the fuzzer on each target in the default tier; ten times that in the full one.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    fuzz_seconds: u32,
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
    let steps = steps::all(project, arguments.fuzz_seconds);
    if arguments.list {
        list(&steps);
        return Ok(ExitCode::SUCCESS);
    }
    let mut record = match arguments.full {
        true => Some(Record::open(project, arguments.restart)?),
        false => None,
    };
    let mut session = Session::default();
    for step in choose(steps, arguments)? {
        let id = step.id;
        if let Some(earlier) = record.as_ref().and_then(|record| record.passed(id)) {
            eprintln!(
                "\n== {}: passed before, in {:.1} s",
                step.title, earlier.seconds
            );
            session.take_over(&step.title, earlier);
            continue;
        }
        let result = session.run(step);
        if let Some(record) = &mut record {
            record.add(id, result)?;
        }
    }
    if let Some(record) = record {
        record.conclude()?;
    }
    Ok(session.conclude())
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

    fn chosen(arguments: &[&str]) -> Result<Vec<&'static str>> {
        let command = Command::parse_from([&["test"], arguments].concat());
        let project = Project {
            root: "/tree".into(),
            target: "/target".into(),
        };
        let steps = choose(steps::all(&project, 1), &command.arguments)?;
        Ok(steps.into_iter().map(|step| step.id).collect())
    }

    #[test]
    fn the_full_tier_contains_the_default_tier() {
        let default = chosen(&[]).unwrap();
        let full = chosen(&["--full"]).unwrap();
        assert!(default.iter().all(|id| full.contains(id)));
        assert!(full.len() > default.len());
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
