//! The commands: they read, call the library, and print.

pub(crate) mod bench;
pub(crate) mod list;
pub(crate) mod merge;
pub(crate) mod run;
pub(crate) mod sweep;
pub(crate) mod trace;

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Prints a line. Who closes the pipe early (`netsim list | head`) has read enough.
fn print(text: &str) -> Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

fn print_json(value: &impl Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(value).context("cannot encode the results")?)
}
