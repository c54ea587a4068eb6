//! `splitter doctor`: what would keep the splitter from working here?

use flow_cli::ExitCode;
use flow_cli::{print, print_json};
use splitter_doctor::{Check, Status, examine, examine_role};
use splitter_instance::fabric::PinnedRole;
use splitter_instance::recover;
use splitter_netlink::Netlink;

use crate::cli::Cli;

pub(crate) async fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let config = match cli.named_config() {
        // Before anything is configured the machine alone is worth a look.
        None if !cli.config_path().exists() => recover(cli.config_path()),
        _ => Some(super::load_or_recover(cli)?),
    };
    let mut checks = examine(&Netlink::connect()?, config.as_ref()).await?;
    checks.extend(roles().into_iter().filter(|it| it.status != Status::Ok));
    report(&checks, cli.json)
}

/// What is in place of roles in a fabric, and of which files: nothing where nobody may look.
pub(super) fn roles() -> Vec<Check> {
    let all = PinnedRole::all().unwrap_or_default();
    let here = all.iter().filter(|it| it.is_here());
    here.map(|it| examine_role(&it.name(), it.pins(), it.file().as_deref()))
        .collect()
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
