//! What each command does. A command prints its result and returns the exit code.

use std::io::{self, Write as _};
use std::path::PathBuf;

use flow_cli::{ExitCode, exit_code};
use flow_telemetry::otlp::OtlpError;
use splitter_config::{Config, ConfigError, ConfigFile, Location, Overrides, SetError};
use splitter_control::{Answer, ControlError, Reason, Request, Unconfirmed, ask};
use splitter_failover::HealthMonitorError;
use splitter_instance::fabric::FabricError;
use splitter_instance::privileges::MissingCapabilities;
use splitter_instance::{InstanceError, recover};
use splitter_netlink::NetlinkError;
use splitter_steering::routes::PlanError;
use splitter_verify::VerifyError;

use crate::cli::Cli;

pub(crate) mod advise;
pub(crate) mod apply;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod doctor;
mod drawn;
mod egress;
pub(crate) mod explain;
pub(crate) mod fabric;
pub(crate) mod flows;
mod packet_log;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod run;
mod service_manager;
pub(crate) mod status;
pub(crate) mod tap;
#[cfg(feature = "top")]
pub(crate) mod top;
mod tunnels;
pub(crate) mod up;
pub(crate) mod verify;
mod watch;

/// Reads the configuration that the command line names, or else takes what the instance noted when it
/// was put in place: who has to look or to take it down may have no time to correct a file.
///
/// # Errors
/// Of the file, where no instance noted anything.
pub(crate) fn load_or_recover(cli: &Cli) -> Result<Config, ConfigError> {
    let path = cli.config_path();
    Config::load(path).or_else(|error| {
        let config = recover(path).ok_or(error)?;
        let _ = writeln!(
            io::stderr(),
            "splitter: {} cannot be used (`splitter check` says why); going by what the instance {} \
             has noted in {}",
            path.display(),
            config.name,
            config.instance_dir().display()
        );
        Ok(config)
    })
}

/// Returns the directory of the instance whose agent is asked: the one that the file tells, right or wrong as it is otherwise,
/// or else that of the instance that was brought up with it.
///
/// # Errors
/// Where a file that was named cannot be read and no instance was brought up with it: a mistyped path never means another
/// instance.
pub(crate) fn agent_directory(cli: &Cli) -> Result<PathBuf, ConfigError> {
    let path = cli.config_path();
    if let Ok(text) = std::fs::read_to_string(path) {
        return Ok(Location::in_text(&text).directory);
    }
    match (recover(path), cli.named_config()) {
        (Some(config), _) => Ok(config.instance_dir()),
        (None, None) => Ok(Location::in_text("").directory),
        (None, Some(path)) => Config::load(path).map(|config| config.instance_dir()),
    }
}

/// The configuration that ought to be in force.
pub(crate) struct InForce {
    pub(crate) config: Config,
    /// The process id of the agent that runs.
    pub(crate) agent: Option<u32>,
    /// What was set in that.
    pub(crate) set: Overrides,
    /// The change that the agent takes back unless it is confirmed.
    pub(crate) unconfirmed: Option<Unconfirmed>,
}

/// Reads the configuration that the command line names, and what the agent that runs, where one does,
/// has besides: what was set, or a file that awaits its confirmation.
pub(crate) fn load_in_force(cli: &Cli) -> anyhow::Result<InForce> {
    Ok(in_force(ConfigFile::read(cli.config_path())?))
}

/// Reads as [`load_in_force`] does, or else takes what [`load_or_recover`] finds, in which all is
/// that was set when it was noted.
pub(crate) fn in_force_or_recover(cli: &Cli) -> anyhow::Result<InForce> {
    match ConfigFile::read(cli.config_path()) {
        Ok(file) => Ok(in_force(file)),
        Err(_) => Ok(InForce {
            config: load_or_recover(cli)?,
            agent: None,
            set: Overrides::new(),
            unconfirmed: None,
        }),
    }
}

fn in_force(file: ConfigFile) -> InForce {
    let (agent, set, unconfirmed) = match ask(&file.config.instance_dir(), Request::Show {}) {
        Ok(Answer::Shown(shown)) => (Some(shown.pid), shown.overrides, shown.unconfirmed),
        // Nobody there, or not for us: then the file is all there is.
        _ => (None, Overrides::new(), None),
    };
    let text = unconfirmed.as_ref().map_or(&file.text, |it| &it.text);
    // A file that was changed since may not bear them; it has the last word.
    let config = Config::parse_with(text, &set).unwrap_or(file.config);
    InForce {
        config,
        agent,
        set,
        unconfirmed,
    }
}

/// Reports an error and returns its exit code.
pub(crate) fn report(error: &anyhow::Error, as_json: bool) -> ExitCode {
    let code = exit_code(error, code_of);
    match drawn::error(error) {
        Some(words) if !as_json => {
            // There is nowhere left to complain about a failure to complain.
            let _ = writeln!(io::stderr(), "splitter: {words}");
            code
        }
        _ => flow_cli::report_error("splitter", error, code, as_json),
    }
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<ExitCode> {
    let is_key = matches!(cause.downcast_ref(), Some(HealthMonitorError::Key(_)));
    let is_export = cause.is::<OtlpError>();
    if cause.is::<ConfigError>() || cause.is::<SetError>() || is_key || is_export {
        return Some(ExitCode::Configuration);
    }
    if let Some(error) = cause.downcast_ref::<ControlError>() {
        return code_of_control(error);
    }
    if cause.is::<MissingCapabilities>() {
        return Some(ExitCode::NotPermitted);
    }
    match cause.downcast_ref::<VerifyError>() {
        Some(error) if error.is_not_permitted() => return Some(ExitCode::NotPermitted),
        Some(error) if error.is_undecided() => return Some(ExitCode::Unknown),
        _ => {}
    }
    match cause.downcast_ref::<InstanceError>() {
        Some(error) if error.is_not_permitted() => return Some(ExitCode::NotPermitted),
        Some(error) if error.is_conflict() => return Some(ExitCode::Conflict),
        Some(error) if error.is_configuration() => return Some(ExitCode::Configuration),
        _ => {}
    }
    match cause.downcast_ref::<FabricError>() {
        Some(error) if error.is_not_permitted() => return Some(ExitCode::NotPermitted),
        Some(error) if error.is_conflict() => return Some(ExitCode::Conflict),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_exit_codes_through_context() {
        let wrong = Config::parse("", "f").unwrap_err();
        let error = anyhow::Error::from(wrong).context("while starting");
        assert_eq!(exit_code(&error, code_of), ExitCode::Configuration);
        let error = anyhow::Error::from(PlanError::Conflicts(Vec::new())).context("while starting");
        assert_eq!(exit_code(&error, code_of), ExitCode::Conflict);
        assert_eq!(
            exit_code(&anyhow::anyhow!("else"), code_of),
            ExitCode::Failed
        );
    }
}
