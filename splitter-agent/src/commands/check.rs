//! `splitter check FILE`: is the file right? The system is neither read nor changed.

use flow_cli::ExitCode;
use flow_cli::{print, print_json};
use serde_json::json;
use splitter_config::{Config, ConfigError};

use super::drawn::paint;
use crate::cli::{CheckArgs, Cli};

pub(crate) fn run(cli: &Cli, args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let file = args.file.as_deref().unwrap_or(cli.config_path());
    let result = Config::load(file);
    if let Err(error @ ConfigError::Unreadable { .. }) = result {
        return Err(error.into());
    }
    let code = match &result {
        Ok(_) => ExitCode::Ok,
        Err(_) => ExitCode::Configuration,
    };
    if cli.json {
        let diagnostics = result
            .as_ref()
            .err()
            .map(ConfigError::diagnostics)
            .unwrap_or_default();
        print_json(&json!({
            "file": file,
            "ok": result.is_ok(),
            "diagnostics": diagnostics,
            "config": result.as_ref().ok().map(Config::to_json),
        }))?;
        return Ok(code);
    }
    match result {
        Ok(_) => print(format_args!("{}: ok", file.display()))?,
        Err(error) => print(error.drawn(paint(&std::io::stdout())))?,
    }
    Ok(code)
}
