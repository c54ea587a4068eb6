//! `splitter plan`: what would `up` change?

use serde_json::json;
use splitter_agent::config::Config;
use splitter_agent::netlink::Netlink;
use splitter_agent::routes;

use super::{print, print_json};
use crate::cli::ExitCode;

pub(crate) async fn run(config: &Config, as_json: bool) -> anyhow::Result<ExitCode> {
    let plan = routes::plan(&Netlink::connect()?, config, None).await?;
    if as_json {
        print_json(&json!({ "in_place": plan.is_in_place(), "routes": plan }))?;
    } else {
        print(&plan)?;
    }
    Ok(ExitCode::Ok)
}
