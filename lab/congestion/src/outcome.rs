//! What came out of a cell: as JSON, as a line of a table, and as plots.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use flow_report::{Axis, Plot, Series, Table};
use serde::{Deserialize, Serialize};

use crate::{cell::Cell, scenario::Figures};

/// Rates and queue over time, in s, Mbit/s and kB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    pub(crate) rates: Vec<(String, Vec<(f64, f64)>)>,
    pub(crate) queue: Vec<(f64, f64)>,
}

/// Figures of a cell, ours and the peer's, and whether the bound holds.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) ours: Figures,
    pub(crate) peer: Figures,
    pub(crate) bound: String,
    pub(crate) holds: bool,
    pub(crate) curves: Curves,
}

impl Outcome {
    /// What came out of a cell, judged by the bound of its scenario.
    pub(crate) fn new(cell: &Cell, ours: Figures, peer: Figures, curves: Curves) -> Self {
        Self {
            bound: cell.scenario.bound().into(),
            holds: cell.holds(&ours, &peer),
            ours,
            peer,
            curves,
        }
    }
}

/// An element of the array that is printed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) rate_mbit: f64,
    pub(crate) rtt_ms: f64,
    pub(crate) queue_bdp: f64,
    pub(crate) ours: Figures,
    pub(crate) peer: Figures,
    pub(crate) bound: String,
    pub(crate) holds: bool,
}

impl Row {
    pub(crate) fn new(cell: &Cell, outcome: &Outcome) -> Self {
        let name = cell.to_string();
        Self {
            scenario: name.split('-').next().unwrap_or_default().to_owned(),
            rate_mbit: cell.rate_mbit,
            rtt_ms: cell.rtt_ms,
            queue_bdp: cell.queue_bdp,
            ours: outcome.ours.clone(),
            peer: outcome.peer.clone(),
            bound: outcome.bound.clone(),
            holds: outcome.holds,
        }
    }

    /// Reads the row of a run before, if there is one.
    pub(crate) fn read(directory: &Path, cell: &Cell) -> Option<Self> {
        let text = fs::read_to_string(directory.join(format!("{cell}.json"))).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes the row.
    pub(crate) fn write(&self, directory: &Path, cell: &Cell) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write(directory, format!("{cell}.json"), text)
    }

    /// Writes the row and its plots.
    pub(crate) fn write_all(&self, directory: &Path, cell: &Cell, curves: &Curves) -> Result<()> {
        let write = |name, text| write(directory, name, text);
        let mut rate = Plot::new(
            format!("{cell}: rate through the bottleneck"),
            Axis::linear("s"),
            Axis::linear("Mbit/s"),
        );
        for (name, points) in &curves.rates {
            rate = rate.with(Series::line(name, points.clone()));
        }
        write(format!("{cell}-rate.svg"), rate.to_svg())?;
        let queue = Plot::new(
            format!("{cell}: queue at the bottleneck"),
            Axis::linear("s"),
            Axis::linear("kB"),
        );
        let queue = queue.with(Series::line("queue", curves.queue.clone()));
        write(format!("{cell}-queue.svg"), queue.to_svg())?;
        self.write(directory, cell)
    }
}

fn write(directory: &Path, name: String, text: String) -> Result<()> {
    let file = directory.join(name);
    let part = file.with_extension("part");
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, &file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// A table with a line for each row.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "scenario",
        "Mbit/s",
        "RTT ms",
        "queue BDP",
        "ours",
        "peer",
        "holds",
    ]);
    for row in rows {
        let list = |figures: &Figures| {
            let list = figures
                .iter()
                .map(|(name, value)| format!("{name} {value:.3}"));
            list.collect::<Vec<_>>().join(", ")
        };
        table.row([
            row.scenario.clone(),
            row.rate_mbit.to_string(),
            row.rtt_ms.to_string(),
            row.queue_bdp.to_string(),
            list(&row.ours),
            list(&row.peer),
            (if row.holds { "yes" } else { "NO" }).to_owned(),
        ]);
    }
    table
}
