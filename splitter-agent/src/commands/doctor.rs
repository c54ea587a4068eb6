//! `splitter doctor`: what would keep the splitter from working here?

use flow_cli::ExitCode;
use flow_cli::{print, print_json};
use splitter_config::Config;
use splitter_doctor::{Status, examine};
use splitter_netlink::Netlink;

use crate::cli::Cli;

pub(crate) async fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let config = cli.named_config().map(Config::load).transpose()?;
    let checks = examine(&Netlink::connect()?, config.as_ref()).await?;
    if cli.json {
        print_json(&checks)?;
    } else {
        for check in &checks {
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
