//! What came out of a cell: as JSON, as a line of a table, and as plots.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use flow_report::{Axis, Page, Plot, Series, Table};
use serde::{Deserialize, Serialize};

use crate::{cell::Cell, scenario::Figures};

/// The file with all plots.
const PAGE: &str = "index.html";

/// Rates and queue over time, in s, Mbit/s and kB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Curves {
    pub(crate) rates: Vec<(String, Vec<(f64, f64)>)>,
    pub(crate) queue: Vec<(f64, f64)>,
}

impl Curves {
    /// Plots of both, with the ends of their files' names.
    fn plots(&self, cell: &str) -> [(&'static str, Plot); 2] {
        let mut rate = Plot::new(
            format!("{cell}: rate through the bottleneck"),
            Axis::linear("s"),
            Axis::linear("Mbit/s"),
        );
        for (name, points) in &self.rates {
            rate = rate.with(Series::line(name, points.clone()));
        }
        let queue = Plot::new(
            format!("{cell}: queue at the bottleneck"),
            Axis::linear("s"),
            Axis::linear("kB"),
        );
        let queue = queue.with(Series::line("queue", self.queue.clone()));
        [("rate", rate), ("queue", queue)]
    }
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
    pub(crate) fn new(scenario: String, cell: &Cell, outcome: &Outcome) -> Self {
        Self {
            scenario,
            rate_mbit: cell.rate_mbit,
            rtt_ms: cell.rtt_ms,
            queue_bdp: cell.queue_bdp,
            ours: outcome.ours.clone(),
            peer: outcome.peer.clone(),
            bound: outcome.bound.clone(),
            holds: outcome.holds,
        }
    }
}

/// All that is kept of a cell: its row, and its curves for the page of a later run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) row: Row,
    #[serde(default)]
    curves: Curves,
}

impl Record {
    pub(crate) fn new(row: Row, curves: Curves) -> Self {
        Self { row, curves }
    }

    /// Reads the record of a run before, if there is one.
    pub(crate) fn read(directory: &Path, cell: &Cell) -> Option<Self> {
        let text = fs::read_to_string(directory.join(format!("{cell}.json"))).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes the record, and its plots next to it.
    pub(crate) fn write(&self, directory: &Path, cell: &Cell) -> Result<()> {
        for (what, plot) in self.curves.plots(&cell.to_string()) {
            write(directory, &format!("{cell}-{what}.svg"), &plot.to_svg())?;
        }
        let text = serde_json::to_string(self)?;
        write(directory, &format!("{cell}.json"), &text)
    }
}

/// Writes one page with the table and the plots of all cells. Returns its path.
pub(crate) fn write_page(directory: &Path, records: &[(Cell, Record)]) -> Result<PathBuf> {
    let rows: Vec<_> = records
        .iter()
        .map(|(_, record)| record.row.clone())
        .collect();
    let mut page = Page::new("Congestion control of messages")
        .text("Shares are of 1, times in ms. A cell is called by its scenario, Mbit/s, round trip in ms, and length of the queue in products of both.")
        .table(&table(&rows));
    for (cell, record) in records {
        page = page
            .heading(&cell.to_string())
            .note(&format!("Bound: {}.", record.row.bound));
        for (_, plot) in record.curves.plots(&cell.to_string()) {
            page = page.plot(&plot);
        }
    }
    write(directory, PAGE, &page.to_html())?;
    Ok(directory.join(PAGE))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::cell::Scenario;

    const CELL: Cell = Cell {
        scenario: Scenario::Incast,
        rate_mbit: 10.0,
        rtt_ms: 50.0,
        queue_bdp: 1.6,
        seed: crate::cell::SEED,
        paths: 1,
    };

    fn record() -> Record {
        let row = Row {
            scenario: "incast".to_owned(),
            rate_mbit: CELL.rate_mbit,
            rtt_ms: CELL.rtt_ms,
            queue_bdp: CELL.queue_bdp,
            ours: Figures::from([("p99_ms_5kB".to_owned(), 7.5)]),
            peer: Figures::from([("tcp_p99_ms_5kB".to_owned(), 8.0)]),
            bound: "less than the peer's".to_owned(),
            holds: true,
        };
        let curves = Curves {
            rates: vec![("ours".to_owned(), vec![(0.0, 1.0), (0.2, 9.0)])],
            queue: vec![(0.0, 0.0), (0.2, 30.0)],
        };
        Record::new(row, curves)
    }

    #[test]
    fn a_row_has_the_keys_that_are_promised() {
        let Value::Object(row) = serde_json::to_value(record().row).unwrap() else {
            panic!("a row is no object");
        };
        let mut keys: Vec<_> = row.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let promised = [
            "bound",
            "holds",
            "ours",
            "peer",
            "queue_bdp",
            "rate_mbit",
            "rtt_ms",
            "scenario",
        ];
        assert_eq!(keys, promised);
        assert_eq!(row["ours"]["p99_ms_5kB"], 7.5);
    }

    #[test]
    fn a_record_that_is_read_again_has_its_curves() {
        let directory = tempfile::tempdir().unwrap();
        let (path, record) = (directory.path(), record());
        record.write(path, &CELL).unwrap();
        let again = Record::read(path, &CELL).unwrap();
        assert_eq!(again.curves, record.curves);
        for name in ["incast-10-50-1.6-rate.svg", "incast-10-50-1.6-queue.svg"] {
            let plot = fs::read_to_string(path.join(name)).unwrap();
            assert!(plot.starts_with("<svg"), "{name}");
        }
        let page = write_page(path, &[(CELL, again)]).unwrap();
        let page = fs::read_to_string(page).unwrap();
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("incast-10-50-1.6: queue at the bottleneck"));
    }

    #[test]
    fn a_record_of_a_run_without_curves_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let text = serde_json::to_string(&record().row).unwrap();
        fs::write(directory.path().join(format!("{CELL}.json")), text).unwrap();
        let read = Record::read(directory.path(), &CELL).unwrap();
        assert_eq!(read.row.bound, "less than the peer's");
        assert_eq!(read.curves, Curves::default());
    }
}
