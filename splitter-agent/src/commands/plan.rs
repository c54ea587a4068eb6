//! `splitter plan`: what `up` would change.

use anyhow::Result;
use serde_json::json;
use splitter_agent::config::{Config, Tunnel};
use splitter_agent::instance::Instance;

use super::{print, print_json};

/// Shows the plan; changes nothing.
pub(crate) async fn run(config: Config, json: bool) -> Result<()> {
    let tunnels = [
        ("short", config.short.clone()),
        ("long", config.long.clone()),
    ];
    let is_watched = config.health.enabled;
    let plan = Instance::new(config)?.plan().await?;
    if json {
        let [(_, short), (_, long)] = &tunnels;
        let watched_by = |tunnel: &Tunnel| is_watched.then(|| tunnel.watched_by());
        return print_json(&json!({
            "changed": !plan.is_unchanged(),
            "plan": plan,
            "watched_by": { "short": watched_by(short), "long": watched_by(long) },
        }));
    }
    print(plan.to_string().trim_end())?;
    if plan.is_unchanged() {
        print("Everything is in place.")?;
    }
    for (name, tunnel) in tunnels {
        match is_watched {
            true => print(format_args!(
                "The {name} tunnel would be watched by {}.",
                tunnel.watched_by()
            ))?,
            false => print(format_args!("The {name} tunnel would not be watched."))?,
        }
    }
    Ok(())
}
