//! `splitter reload` and `splitter set`: another configuration for the agent that runs.

use anyhow::{Result, anyhow};
use flow_cli::{print, print_json};
use serde_json::json;
use splitter_config::{Config, overrides};
use splitter_control::{Answer, Changed, ControlError, Request, ask};

use super::agent_directory;
use crate::cli::{Cli, ReloadArgs, SetArgs};
use crate::settings;

/// Has the agent read its file again.
pub(crate) fn reload(cli: &Cli, args: &ReloadArgs) -> Result<()> {
    let request = Request::Reload {
        file: Some(std::path::absolute(cli.config_path())?),
        dry_run: args.dry_run,
    };
    let changed = change(cli, request)?;
    show(&changed, args.dry_run, cli.json, "")
}

/// Has the agent replace values until the next reload.
pub(crate) fn set(cli: &Cli, args: &SetArgs) -> Result<()> {
    let pairs = settings::pairs(&args.settings).map_err(|words| anyhow!(words))?;
    let values = overrides::read(pairs)?;
    let request = Request::Set {
        values,
        dry_run: args.dry_run,
    };
    let changed = change(cli, request)?;
    let until = match changed.changes.is_empty() {
        true => String::new(),
        false => format!(
            "This holds until the next reload or start; write it into {} to keep it.",
            changed.file.display()
        ),
    };
    show(&changed, args.dry_run, cli.json, &until)
}

/// Asks the agent for a change.
pub(super) fn change(cli: &Cli, request: Request) -> Result<Changed> {
    match asked(cli, request)? {
        Answer::Changed(changed) => Ok(changed),
        _ => Err(ControlError::Answer.into()),
    }
}

/// Asks the agent of the instance that the file is about.
pub(super) fn asked(cli: &Cli, request: Request) -> Result<Answer> {
    // The agent judges the file; here it only has to tell where the agent is.
    match ask(&agent_directory(cli)?, request) {
        Ok(answer) => Ok(answer),
        Err(error @ ControlError::NotRunning { .. }) => {
            // A file that is wrong may well have led to the wrong place.
            Config::load(cli.config_path())?;
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Shows a change, and for how long it holds.
pub(super) fn show(changed: &Changed, dry_run: bool, as_json: bool, until: &str) -> Result<()> {
    let is_same = changed.changes.is_empty() && changed.steps.is_empty();
    if as_json {
        let mut shown = json!({
            "changed": !is_same,
            "applied": changed.applied && !is_same,
            "dry_run": dry_run,
            "changes": changed.changes,
            "steps": changed.steps,
            "file": changed.file,
        });
        if let Some(seconds) = changed.confirm_within_s {
            shown["confirm_within_s"] = seconds.into();
        }
        return print_json(&shown);
    }
    for change in &changed.changes {
        print(change)?;
    }
    for step in &changed.steps {
        print(step)?;
    }
    match (is_same, dry_run) {
        (true, _) => print("The same as before; nothing is to be changed.")?,
        (false, true) => print("Nothing was changed: this was a dry run.")?,
        (false, false) if changed.changes.is_empty() => {
            print("What was missing is in place again; flows keep what is known of them.")?;
        }
        (false, false) => print("In force; flows keep what is known of them.")?,
    }
    match dry_run || until.is_empty() {
        true => Ok(()),
        false => print(until),
    }
}
