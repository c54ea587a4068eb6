//! `splitter plan`: what `up` would change.

use anyhow::Result;
use serde_json::json;
use splitter_agent::config::Config;
use splitter_agent::instance::Instance;

use super::{print, print_json};

/// Shows the plan; changes nothing.
pub(crate) async fn run(config: Config, json: bool) -> Result<()> {
    let plan = Instance::new(config)?.plan().await?;
    if json {
        return print_json(&json!({ "changed": !plan.is_unchanged(), "plan": plan }));
    }
    print(plan.to_string().trim_end())?;
    if plan.is_unchanged() {
        print("Everything is in place.")?;
    }
    Ok(())
}
