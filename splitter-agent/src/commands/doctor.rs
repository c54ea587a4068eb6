//! `splitter doctor`: what would keep the splitter from working here?

use flow_cli::ExitCode;
use flow_cli::{print, print_json};
use splitter_doctor::{Check, Status, examine};
use splitter_instance::recover;
use splitter_netlink::Netlink;

use crate::cli::Cli;

pub(crate) async fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let config = match cli.named_config() {
        // Before anything is configured the machine alone is worth a look.
        None if !cli.config_path().exists() => recover(cli.config_path()),
        _ => Some(super::load_or_recover(cli)?),
    };
    let checks = examine(&Netlink::connect()?, config.as_ref()).await?;
    report(&checks, cli.json)
}

/// Prints what was looked at, and says by the exit code if it will work.
pub(super) fn report(checks: &[Check], as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        print_json(&checks)?;
    } else {
        for check in checks {
            print(check)?;
        }
    }
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    Ok(if failed {
        ExitCode::Failed
    } else {
        ExitCode::Ok
    })
}
