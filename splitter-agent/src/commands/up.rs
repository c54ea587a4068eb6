//! `splitter up` and `splitter down`: without a daemon.

use anyhow::Result;
use flow_cli::{ExitCode, print, print_json};
use serde_json::json;
use splitter_config::{Config, ConfigFile, Location};
use splitter_instance::{BroughtUp, Cleared, Instance, Owner, Search, down_all as clear_all};
use splitter_steering::routes::RouteAudit;

use crate::cli::Cli;

/// Brings the instance up and returns.
pub(crate) async fn up(file: ConfigFile, json: bool) -> Result<()> {
    let instance = Instance::new(file.config)?.of_file(&file.path);
    let lock = instance.lock()?;
    let mut up = instance.up(&lock, Owner::Up).await?;
    up.plan.routes.notes.extend(instance.hints().await);
    let audit = instance.audit_routes().await?;
    if json {
        print_json(&json!({
            "changed": !up.plan.is_unchanged(),
            "plan": up.plan,
            "routing": audit,
            "attached": up.attached,
        }))?;
    } else {
        show_up(&up, &audit)?;
    }
    // Packets are split by now.
    Ok(instance.count_egress().await?)
}

fn show_up(up: &BroughtUp, audit: &RouteAudit) -> Result<()> {
    print(up.plan.to_string().trim_end())?;
    if up.plan.is_unchanged() {
        print("Already up; nothing was changed.")?;
    }
    for attached in &up.attached {
        print(format_args!(
            "{}: {}",
            attached.interface,
            attached.mode.description()
        ))?;
    }
    super::plan::show_notes(&up.plan)?;
    super::plan::show_unsplit(audit)
}

/// Takes the instance down.
pub(crate) async fn down(config: Config, json: bool) -> Result<()> {
    let instance = Instance::new(config)?;
    let lock = instance.lock()?;
    let removed = instance.down(&lock).await?;
    if json {
        return print_json(&json!({ "removed": removed }));
    }
    for thing in &removed {
        print(format_args!("- {thing}"))?;
    }
    if removed.is_empty() {
        print("Not up; nothing was changed.")?;
    }
    Ok(())
}

/// Takes down whatever was left by instances that nobody runs.
pub(crate) async fn down_all(cli: &Cli) -> Result<ExitCode> {
    let path = cli.config_path();
    let search = Search::everywhere(&Location::in_file(path));
    let file = Config::load(path).ok();
    let cleared = clear_all(&search, file.as_ref()).await?;
    show_cleared(&cleared, "instance", cli.json)
}

/// Shows what was taken down and what was left, each a `kind`; the exit code says if anything stands in the way.
pub(super) fn show_cleared(cleared: &Cleared, kind: &str, json: bool) -> Result<ExitCode> {
    let code = match cleared.kept.iter().any(|it| it.is_running) {
        true => ExitCode::Conflict,
        false => ExitCode::Ok,
    };
    if json {
        print_json(cleared)?;
        return Ok(code);
    }
    for thing in &cleared.removed {
        print(format_args!("- {thing}"))?;
    }
    for kept in &cleared.kept {
        print(format_args!(
            "left alone: the {kind} {}: {}",
            kept.name, kept.why
        ))?;
    }
    if cleared.removed.is_empty() {
        print(match cleared.kept.is_empty() {
            true => "Nothing was left; nothing was changed.",
            false => "Nothing was changed.",
        })?;
    }
    Ok(code)
}
