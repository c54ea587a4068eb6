//! The command `netsim merge`: one sweep of its shards.

use anyhow::Result;
use netsim::sweep::Record;

use super::sweep::{default_directory, report};
use crate::arguments::Merge;

pub(crate) fn run(arguments: &Merge) -> Result<()> {
    let record = Record::read(&arguments.directories)?;
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| default_directory(&record.scenario));
    let runs = record.merge(&arguments.directories, &out)?;
    report(&record, &runs, &out, arguments.json)
}
