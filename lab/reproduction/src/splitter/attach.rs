//! `S5`: what the kernel programs add to the completion time of a query, by how they are attached.

use anyhow::Result;
use flow_report::{Axis, Estimate, Plot, Summary, Table};
use serde_json::json;

use super::{
    FIGURES, Measured,
    cell::{Cell, Mode, Round},
    grid::density,
    note,
};
use crate::{check::Check, figure::Figure, tr::band::Band};

/// Without a program, with it in generic and in native mode, all by the first tunnel.
const MODES: [Mode; 3] = [Mode::OneTunnel, Mode::Generic, Mode::Dedicated];
/// Bounds of what is added, in microseconds: the paper's "order of microseconds".
const BOUNDS_US: [f64; 2] = [10.0, 5.0];
/// Two orders of magnitude below the completion time.
const SHARE_PERCENT: f64 = 1.0;

/// Measures, and builds figure `S5`.
///
/// # Errors
///
/// When the testbed fails.
pub fn figure(measured: &Measured<'_>) -> Result<Figure> {
    let cells = MODES.map(|mode| Cell {
        transfers: false,
        ..Cell::new(mode, 0)
    });
    measured.measure(&cells)?;
    let mut by_mode = Vec::new();
    for cell in cells {
        by_mode.push((cell.mode, measured.rounds(cell)?));
    }
    let (id, title) = FIGURES[4];
    let (mut rows, mut checks) = (Vec::new(), Vec::<Check>::new());
    let mut table = Table::new([
        "programs",
        "completion time, median us",
        "added, us",
        "added, %",
    ]);
    let mut plot = Plot::new(
        "Completion times of listings without other traffic",
        Axis::log("completion time of listings, ms"),
        Axis::linear("share of an interval, ten to a decade"),
    );
    let (_, without) = &by_mode[0];
    for (number, (mode, rounds)) in by_mode.iter().enumerate() {
        let median = Estimate::of(rounds.iter().map(median_us));
        let pairs = || {
            rounds
                .iter()
                .zip(without.iter())
                .map(|(with, without)| (median_us(with), median_us(without)))
        };
        let added_us = Estimate::of(pairs().map(|(with, without)| with - without));
        let added_percent =
            Estimate::of(pairs().map(|(with, without)| (with / without - 1.0) * 100.0));
        let text =
            |it: &Option<Estimate>, digits| it.map_or_else(String::new, |it| it.to_text(digits));
        table.row([
            mode.name().to_owned(),
            text(&median, 1),
            text(&added_us, 1),
            text(&added_percent, 2),
        ]);
        rows.push(json!({
            "programs": mode.name(), "median_us": median.map(|it| it.mean),
            "added_us": added_us.map(|it| it.mean), "half_width": added_us.and_then(|it| it.half_width),
        }));
        let all: Vec<f64> = rounds
            .iter()
            .flat_map(|it| it.list_ms.iter().copied())
            .collect();
        plot = plot.with(density(mode.name(), &all));
        if number > 0 {
            let bound = BOUNDS_US[number - 1];
            let what = format!("added by {}, us", mode.name());
            checks.push(Band::about(f64::NEG_INFINITY, bound).check(
                &what,
                "microseconds",
                added_us,
            ));
            let what = format!("added by {}, of the completion time", mode.name());
            let share = Band::share(f64::NEG_INFINITY, SHARE_PERCENT);
            checks.push(share.check(&what, "two orders of magnitude less", added_percent));
        }
    }
    let rounds = by_mode.iter().flat_map(|(_, rounds)| rounds.iter());
    Ok(Figure {
        id,
        title,
        note: note(rounds),
        checks,
        rows,
        columns: vec!["programs", "median_us", "added_us", "half_width"],
        tables: vec![table],
        plots: vec![plot],
    })
}

fn median_us(round: &Round) -> f64 {
    Summary::new(round.list_ms.iter().copied()).median() * 1e3
}
