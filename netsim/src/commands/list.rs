//! The command `netsim list`: built-in scenarios.

use anyhow::Result;
use flow_report::Table;
use netsim::Source;
use serde::Serialize;

use super::{print, print_json};
use crate::arguments::List;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    about: String,
    schemes: Vec<String>,
}

pub(crate) fn run(arguments: &List) -> Result<()> {
    let mut rows = Vec::new();
    for embedded in netsim::embedded() {
        let scenario = Source::find(embedded.name)?.scenario()?;
        rows.push(Row {
            name: embedded.name,
            about: scenario.about,
            schemes: scenario.schemes.into_keys().collect(),
        });
    }
    if arguments.json {
        return print_json(&rows);
    }
    let mut table = Table::new(["scenario", "schemes", "about"]);
    for row in &rows {
        table.row([row.name, &row.schemes.join(" "), &row.about]);
    }
    print(&table.to_text())?;
    print(&format!(
        "Distributions of sizes: {}.",
        netsim::distribution_names().join(", ")
    ))
}
