//! What each command does. A command prints its result and returns the exit code.

use std::io::{self, Write as _};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;
use splitter_agent::control::{Answer, ControlError, Reason, Request, ask};
use splitter_agent::failover::GuardError;
use splitter_agent::instance::InstanceError;
use splitter_agent::privileges::MissingCapabilities;
use splitter_config::{Config, ConfigError, ConfigFile, Overrides, SetError};
use splitter_netlink::NetlinkError;
use splitter_steering::routes::PlanError;

use crate::cli::{Cli, ExitCode};

pub(crate) mod advise;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod doctor;
mod packet_log;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod tap;
pub(crate) mod top;
mod tunnels;
pub(crate) mod up;
mod watch;

/// Reads the configuration that the command line names.
pub(crate) fn load(cli: &Cli) -> Result<Config, ConfigError> {
    Config::load(cli.config_path())
}

/// The same with what was set in the agent that runs, where one does: what ought to be in force.
pub(crate) fn load_in_force(cli: &Cli) -> anyhow::Result<(Config, Overrides)> {
    let file = ConfigFile::read(cli.config_path())?;
    let overrides = match ask(&file.config.instance_dir(), Request::Show {}) {
        Ok(Answer::Shown(shown)) => shown.overrides,
        // Nobody there, or not for us: then the file is all there is.
        _ => Overrides::new(),
    };
    // A file that was changed since may not bear them; it has the last word.
    match Config::parse_with(&file.text, &overrides) {
        Ok(config) => Ok((config, overrides)),
        Err(_) => Ok((file.config, overrides)),
    }
}

/// Tells an error, on standard error for people and on standard output as JSON.
pub(crate) fn report(error: &anyhow::Error, as_json: bool) -> ExitCode {
    let code = exit_code(error);
    if as_json {
        let told = json!({ "error": in_words(error), "exit_code": code as u8 });
        // There is nowhere left to complain about a failure to complain.
        let _ = print_json(&told);
    } else {
        let _ = writeln!(io::stderr(), "splitter: {}", in_words(error));
    }
    code
}

/// The error and its causes; a cause that an error above has told already is left out.
pub(crate) fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// The exit code that an error stands for, from the first cause that has one.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    error.chain().find_map(code_of).unwrap_or(ExitCode::Failed)
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<ExitCode> {
    let is_key = matches!(cause.downcast_ref(), Some(GuardError::Key(_)));
    if cause.is::<ConfigError>() || cause.is::<SetError>() || is_key {
        return Some(ExitCode::Configuration);
    }
    if let Some(error) = cause.downcast_ref::<ControlError>() {
        return code_of_control(error);
    }
    if cause.is::<MissingCapabilities>() {
        return Some(ExitCode::NotPermitted);
    }
    match cause.downcast_ref::<InstanceError>() {
        Some(error) if error.is_not_permitted() => return Some(ExitCode::NotPermitted),
        Some(error) if error.is_conflict() => return Some(ExitCode::Conflict),
        Some(error) if error.is_configuration() => return Some(ExitCode::Configuration),
        _ => {}
    }
    match cause.downcast_ref::<PlanError>() {
        Some(PlanError::Conflicts(_)) => return Some(ExitCode::Conflict),
        Some(PlanError::NoExactMatch | PlanError::MarksCollide(_)) => {
            return Some(ExitCode::Configuration);
        }
        // Transparent variants hide their source from the chain.
        Some(PlanError::Netlink(error)) if error.is_permission_denied() => {
            return Some(ExitCode::NotPermitted);
        }
        _ => {}
    }
    cause
        .downcast_ref::<NetlinkError>()
        .filter(|error| error.is_permission_denied())
        .map(|_| ExitCode::NotPermitted)
}

fn code_of_control(error: &ControlError) -> Option<ExitCode> {
    match error {
        ControlError::NotPermitted { .. } => Some(ExitCode::NotPermitted),
        ControlError::Refused(refusal) => match refusal.reason {
            Reason::Configuration => Some(ExitCode::Configuration),
            Reason::Frozen | Reason::Conflict => Some(ExitCode::Conflict),
            Reason::NotPermitted => Some(ExitCode::NotPermitted),
            _ => None,
        },
        _ => None,
    }
}

/// Prints a line. A reader that has seen enough, such as `head`, is no error, but
/// the end: nobody is left to print for.
pub(crate) fn print(text: impl std::fmt::Display) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value).context("cannot express the result as JSON")?)
}

/// A number that a person can read: 1,234,567.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let words = [0, 999, 1_000, 1_234_567].map(count);
        assert_eq!(words, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn errors_have_their_exit_codes_through_context() {
        let wrong = Config::parse("", "f").unwrap_err();
        let error = anyhow::Error::from(wrong).context("while starting");
        assert_eq!(exit_code(&error), ExitCode::Configuration);
        let error = anyhow::Error::from(PlanError::Conflicts(Vec::new())).context("while starting");
        assert_eq!(exit_code(&error), ExitCode::Conflict);
        assert_eq!(exit_code(&anyhow::anyhow!("else")), ExitCode::Failed);
    }
}
