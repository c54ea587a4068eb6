//! `splitter apply` and `splitter confirm`: a new file for the agent that runs, which is taken back by
//! itself where that is asked for.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use flow_cli::{print, print_json};
use serde_json::json;
use splitter_config::{ConfigFile, Replacement};
use splitter_control::{Answer, ControlError, Request, Shown};

use super::change::{asked, change, show};
use crate::cli::{ApplyArgs, Cli, ConfirmArgs};

/// Has the agent put another file in force. Its own file follows at once, or when that is confirmed.
pub(crate) fn apply(cli: &Cli, args: &ApplyArgs) -> Result<()> {
    let new = ConfigFile::read(&args.file)?;
    let own = shown(cli)?.file;
    if args.confirm.is_some() && is_same(&new.path, &own) {
        bail!(
            "{} is the agent's own file, which the next start goes by: put back what it said, write the change to another file, and apply that one",
            own.display()
        );
    }
    // Before anything is changed: what cannot be kept is not worth trying.
    let replacement = match args.dry_run {
        true => None,
        false => Some(Replacement::prepare(&own, &new.text)?),
    };
    let changed = change(
        cli,
        Request::Apply {
            source: new.path,
            text: new.text,
            confirm_within_s: args.confirm,
            dry_run: args.dry_run,
        },
    )?;
    let then = match (args.confirm, replacement) {
        (Some(seconds), _) => format!(
            "It is taken back in {seconds} s. See whether all works, in a session that you open now, \
             and keep it with `splitter confirm`."
        ),
        (None, Some(replacement)) => {
            let replaced = replacement.commit();
            replaced.context("in force, but only until the next start or reload")?;
            format!("{} says so, too, for the next start.", own.display())
        }
        (None, None) => String::new(),
    };
    show(&changed, args.dry_run, cli.json, &then)
}

/// Keeps what was applied, also for the next start, or takes it back at once.
pub(crate) fn confirm(cli: &Cli, args: &ConfirmArgs) -> Result<()> {
    if args.revert {
        let changed = change(cli, Request::Revert {})?;
        return show(&changed, false, cli.json, "");
    }
    let Shown {
        file, unconfirmed, ..
    } = shown(cli)?;
    let change = unconfirmed.as_ref();
    let replacement = change.map(|it| Replacement::prepare(&file, &it.text));
    let replacement = replacement.transpose()?;
    // Where nothing waits, the agent knows why.
    let id = change.map_or(0, |it| it.id);
    match asked(cli, Request::Confirm { id })? {
        Answer::Confirmed {} => {}
        _ => return Err(ControlError::Answer.into()),
    }
    // Now and not before: the file of an agent that dies while it waits must be the old one.
    if let Some(replacement) = replacement {
        let replaced = replacement.commit();
        replaced.context("confirmed, but only until the next start or reload")?;
    }
    if cli.json {
        return print_json(&json!({ "confirmed": true, "file": file }));
    }
    print(format_args!(
        "Confirmed; {} says so, too, for the next start.",
        file.display()
    ))
}

fn shown(cli: &Cli) -> Result<Shown> {
    match asked(cli, Request::Show {})? {
        Answer::Shown(shown) => Ok(shown),
        _ => Err(ControlError::Answer.into()),
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
