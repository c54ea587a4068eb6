//! Page loads in a browser, by scheme: what short flows' times come to for somebody who waits for a page.
//!
//! The paper has no figure of it. Videos, uploads and the background are as in all other rounds; listings do not run.

use std::rc::Rc;

use anyhow::Result;
use flow_report::{Axis, Estimate, Plot, Series, Summary, Table};
use flow_testbed::require::{BROWSER, Requirement::Program};

use super::{
    Measured,
    browser::{file_count, page_bytes},
    cell::{Cell, Mode, Round},
    objections, ratios,
};

/// What is compared, the baseline first.
const MODES: [Mode; 4] = [
    Mode::EcmpFlow,
    Mode::EcmpPacket,
    Mode::Dedicated,
    Mode::Share,
];
/// Points of a distribution's line.
const POINTS: usize = 200;

/// Page loads, or why there are none.
pub(crate) struct PageLoads {
    /// A row for each load and scheme; none where nothing was measured.
    pub(crate) table: Table,
    pub(crate) plots: Vec<Plot>,
    pub(crate) note: String,
}

/// Measures page loads; nothing where packets are simulated.
///
/// # Errors
///
/// When the testbed fails.
pub(crate) fn measure(measured: &Measured<'_>) -> Result<Option<PageLoads>> {
    if measured.is_simulated() {
        return Ok(None);
    }
    if let Err(lacking) = Program(BROWSER).check() {
        return Ok(Some(PageLoads {
            table: table(),
            plots: Vec::new(),
            note: format!("Page loads were not measured: this machine {lacking}."),
        }));
    }
    let loads = &measured.effort().page_loads;
    let cells = |load| {
        MODES.map(|mode| Cell {
            pages: true,
            ..Cell::new(mode, load)
        })
    };
    let all: Vec<Cell> = loads.iter().copied().flat_map(cells).collect();
    // At once, so that they run by turns.
    measured.measure(&all)?;
    let (mut table, mut plots, mut rounds) = (table(), Vec::new(), Vec::new());
    for load in loads.iter().copied() {
        let each = cells(load).map(|cell| measured.rounds(cell));
        let each: Vec<Rc<Vec<Round>>> = each.into_iter().collect::<Result<_>>()?;
        for (mode, own) in MODES.into_iter().zip(&each) {
            table.row(row(load, mode, own, &each[0]));
        }
        plots.push(plot(load, &each));
        rounds.extend(each);
    }
    let note = note(rounds.iter().flat_map(|it| it.iter()));
    Ok(Some(PageLoads { table, plots, note }))
}

fn table() -> Table {
    Table::new([
        "load %",
        "scheme",
        "pages loaded",
        "median, ms",
        "longest, ms",
        "median, of that with per-flow ECMP",
    ])
}

fn row(load: u32, mode: Mode, rounds: &[Round], baseline: &[Round]) -> [String; 6] {
    let all = pooled(rounds);
    let ratio = ratios(rounds, baseline, median_ms).into_iter();
    let ratio = Estimate::of(ratio.filter(|it| it.is_finite()));
    [
        load.to_string(),
        mode.name().to_owned(),
        all.count().to_string(),
        format!("{:.0}", all.median()),
        format!("{:.0}", all.percentile(100.0)),
        match ratio {
            Some(ratio) if mode != MODES[0] => ratio.to_text(2),
            Some(_) => "1".to_owned(),
            None => "none loaded".to_owned(),
        },
    ]
}

fn pooled(rounds: &[Round]) -> Summary {
    Summary::new(rounds.iter().flat_map(|it| it.page_ms.iter().copied()))
}

fn median_ms(round: &Round) -> f64 {
    Summary::new(round.page_ms.iter().copied()).median()
}

fn plot(load: u32, rounds: &[Rc<Vec<Round>>]) -> Plot {
    let plot = Plot::new(
        format!("Load times of a page in a browser at {load} % load"),
        Axis::log("load time of the page, ms"),
        Axis::linear("share of the loads").range(0.0, 1.0),
    );
    MODES
        .into_iter()
        .zip(rounds)
        .fold(plot, |plot, (mode, own)| {
            plot.with(Series::steps(mode.name(), pooled(own).cumulative(POINTS)))
        })
}

fn note<'r>(rounds: impl Iterator<Item = &'r Round> + Clone) -> String {
    let unanswered: usize = rounds.clone().map(|it| it.unanswered).sum();
    let note = format!(
        "Page loads: a document with {} files, {:.1} MB together, by {BROWSER}, one load after the other, each without a cache; \
         beside videos, uploads and the background. {unanswered} loads and transfers did not end in time. {}",
        file_count(),
        page_bytes() as f64 / 1e6,
        objections(rounds),
    );
    note.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitter::cell::Length;

    fn round(seed: u64, page_ms: &[f64]) -> Round {
        Round {
            cell: Cell::new(Mode::Share, 40),
            length: Length {
                whole_s: 1.0,
                warm_up_s: 0.0,
            },
            seed,
            list_ms: Vec::new(),
            jitter_us: Vec::new(),
            long_jitter_us: Vec::new(),
            transfer_mbit: Vec::new(),
            page_ms: page_ms.to_vec(),
            unanswered: 0,
            background_percent: [40.0; 2],
            objection: None,
        }
    }

    #[test]
    fn schemes_are_compared_round_by_round_and_pages_that_never_came_are_no_times() {
        let baseline = [round(1, &[100.0]), round(2, &[400.0]), round(3, &[100.0])];
        let rounds = [
            round(1, &[50.0, 150.0, 90.0]),
            round(2, &[360.0]),
            round(3, &[]),
        ];
        // 90 by 100 and 360 by 400; the third has none.
        assert_eq!(
            row(40, Mode::Share, &rounds, &baseline),
            ["40", "share", "4", "120", "360", "0.90 ± 0.00"]
        );
        let none = [round(1, &[])];
        assert_eq!(row(40, Mode::Share, &none, &baseline)[5], "none loaded");
        assert_eq!(row(40, MODES[0], &baseline, &baseline)[5], "1");
    }
}
