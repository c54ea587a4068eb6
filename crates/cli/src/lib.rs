//! Holds what the commands `splitter`, `cloudburst` and `splitter-demo` share, so that scripts can treat
//! them alike: [exit codes](ExitCode), results and errors as text or JSON, logging on standard
//! error, manual pages and completions made from the parser, and the signals that end a command.

mod exit;
mod output;
pub mod pages;
mod signals;

use std::io::IsTerminal as _;

pub use exit::{ExitCode, exit_code};
pub use output::{
    describe, error_object, group_thousands, print, print_json, print_json_line, report_error,
};
pub use signals::Signals;
use tracing_subscriber::EnvFilter;

/// Starts logging to standard error; the variable `RUST_LOG` sets the level, `info` by default.
pub fn start_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
