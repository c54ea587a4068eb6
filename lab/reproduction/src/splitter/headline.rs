//! `S6`: the abstract's headline, what it costs long flows, and what a browser's pages make of it.

use anyhow::Result;
use flow_report::{Axis, Estimate, Plot, Series, Summary, Table};
use serde_json::json;

use super::{
    FIGURES, Measured,
    cell::Round,
    grid::{Grid, LOADS, PAIRS},
    list_mean_ms, note, page_loads,
};
use crate::{figure::Figure, tr::band::Band};

/// Loads at which the headline is taken.
const HEADLINE_LOADS: [u32; 2] = [30, 40];
/// Up to this load the long tunnel, which has the background of both, is offered less than 85 %.
const UNSATURATED: u32 = 30;

/// Measures, and builds figure `S6`.
///
/// # Errors
///
/// When the testbed fails.
pub fn figure(measured: &Measured<'_>) -> Result<Figure> {
    let grid = Grid::measure(measured)?;
    let gains = HEADLINE_LOADS.map(|load| {
        let ratios = grid.ratios(PAIRS[0], load, list_mean_ms);
        ratios.unwrap_or_default()
    });
    let [at_30, at_40] = &gains;
    // One value a round: the geometric mean over both loads of what ECMP takes longer.
    let gain = at_30
        .iter()
        .zip(at_40)
        .map(|(one, other)| 1.0 / (one * other).sqrt());
    let mut checks = vec![Band::more(1.2, 1.8).check(
        "speed-up of short flows at 30 and 40 %, against per-flow ECMP",
        "1.5 times",
        Estimate::of(gain),
    )];
    for load in LOADS.into_iter().filter(|it| *it <= UNSATURATED) {
        let goodput = grid.ratios(PAIRS[0], load, goodput_mbit);
        checks.push(Band::more(0.9, f64::INFINITY).check(
            &format!("goodput of long flows at {load} %, of that with per-flow ECMP"),
            "no significant impact",
            goodput.and_then(Estimate::of),
        ));
    }
    let (id, title) = FIGURES[5];
    let (mut rows, mut table) = (
        Vec::new(),
        Table::new([
            "load %",
            "splitter",
            "against",
            "short: times as fast",
            "long: goodput ratio",
            "Mbit/s",
            "against, Mbit/s",
        ]),
    );
    let mut plot = Plot::new(
        "Goodput of long flows, of that with ECMP",
        Axis::linear("background, % of both tunnels").range(0.0, 45.0),
        Axis::linear("ratio"),
    );
    for pair in PAIRS {
        let mut points = Vec::new();
        for load in LOADS {
            let estimate =
                |value: fn(&Round) -> f64| grid.ratios(pair, load, value).and_then(Estimate::of);
            let gain = |round: &Round| 1.0 / list_mean_ms(round);
            let (Some(short), Some(long)) = (estimate(gain), estimate(goodput_mbit)) else {
                continue;
            };
            let mbit = |mode| {
                let rounds = grid.rounds(mode, load).unwrap_or_default();
                Summary::new(rounds.iter().map(goodput_mbit)).mean()
            };
            let (own, other) = (mbit(pair.0), mbit(pair.1));
            points.push((f64::from(load), long.mean));
            table.row([
                load.to_string(),
                pair.0.name().to_owned(),
                pair.1.name().to_owned(),
                short.to_text(2),
                long.to_text(2),
                format!("{own:.1}"),
                format!("{other:.1}"),
            ]);
            rows.push(json!({
                "load_percent": load, "splitter": pair.0.name(), "baseline": pair.1.name(),
                "speed_up": short.mean, "speed_up_half_width": short.half_width,
                "goodput_ratio": long.mean, "goodput_half_width": long.half_width,
                "splitter_mbit": own, "baseline_mbit": other,
            }));
        }
        plot = plot.with(Series::line(
            format!("{} against {}", pair.0.name(), pair.1.name()),
            points,
        ));
    }
    let (mut tables, mut plots, mut note) = (vec![table], vec![plot], note(grid.all()));
    if let Some(pages) = page_loads::measure(measured)? {
        tables.push(pages.table);
        plots.extend(pages.plots);
        note = format!("{note} {}", pages.note);
    }
    Ok(Figure {
        id,
        title,
        note,
        checks,
        rows,
        columns: vec![
            "load_percent",
            "splitter",
            "baseline",
            "speed_up",
            "speed_up_half_width",
            "goodput_ratio",
            "goodput_half_width",
            "splitter_mbit",
            "baseline_mbit",
        ],
        tables,
        plots,
    })
}

/// The mean rate of the videos and uploads that ended in time; those that did not are left out.
fn goodput_mbit(round: &Round) -> f64 {
    Summary::new(round.transfer_mbit.iter().copied()).mean()
}
