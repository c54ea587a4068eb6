//! `splitter up` and `splitter down`: without a daemon.

use anyhow::Result;
use flow_cli::{print, print_json};
use serde_json::json;
use splitter_config::Config;
use splitter_instance::{Instance, Owner};

/// Brings the instance up and returns.
pub(crate) async fn up(config: Config, json: bool) -> Result<()> {
    let instance = Instance::new(config)?;
    let lock = instance.lock()?;
    let mut up = instance.up(&lock, Owner::Up).await?;
    up.plan.routes.notes.extend(instance.hints().await);
    let audit = instance.audit_routes().await?;
    if json {
        return print_json(&json!({
            "changed": !up.plan.is_unchanged(),
            "plan": up.plan,
            "routing": audit,
            "attached": up.attached,
        }));
    }
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
    super::plan::show_unsplit(&audit)
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
