//! `S1`: the speed-up of short flows over the threshold.

use std::collections::BTreeSet;

use anyhow::Result;
use flow_report::{Axis, Estimate, Plot, Series, Summary, Table};
use serde_json::json;

use super::{
    FIGURES, Measured,
    cell::{Cell, Mode, THRESHOLD},
    grid::LOADS,
    list_mean_ms, note, ratios,
};
use crate::{figure::Figure, tr::band::Band};

/// The end of the paper's critical range.
const CRITICAL: u32 = 40;
/// What the server sends for a listing, its SYN, acknowledgements and FIN among them, is no more: with
/// a lower threshold the listing itself turns long.
const LISTING: u32 = 10;

/// Measures, and builds figure `S1`.
///
/// # Errors
///
/// When the testbed fails.
pub fn figure(measured: &Measured<'_>) -> Result<Figure> {
    let effort = measured.effort();
    let thresholds: BTreeSet<u32> = effort
        .thresholds
        .iter()
        .copied()
        .chain([THRESHOLD])
        .collect();
    let split = |load, threshold| Cell {
        threshold,
        ..Cell::new(Mode::Dedicated, load)
    };
    let low = LOADS[0];
    let baseline = |load| Cell::new(Mode::EcmpFlow, load);
    let loads = &effort.threshold_loads;
    let mut cells: Vec<Cell> = loads.iter().map(|load| baseline(*load)).collect();
    for load in loads {
        cells.extend(thresholds.iter().map(|threshold| split(*load, *threshold)));
    }
    cells.extend([baseline(low), split(low, THRESHOLD)]);
    let cells: Vec<Cell> = dedup(cells);
    measured.measure(&cells)?;
    let speed_ups = |load, threshold| -> Result<Vec<f64>> {
        let (own, other) = (
            measured.rounds(split(load, threshold))?,
            measured.rounds(baseline(load))?,
        );
        Ok(ratios(&other, &own, list_mean_ms))
    };

    let (id, title) = FIGURES[0];
    let mut rows = Vec::new();
    let mut table = Table::new(["load %", "threshold", "speed-up"]);
    let mut plot = plot();
    // Of each round, at each load.
    let mut orders: Vec<Vec<f64>> = Vec::new();
    // With all thresholds of the critical range, and with those that keep a listing short.
    let (mut critical, mut critical_whole) = (Vec::new(), Vec::new());
    for load in loads {
        let mut points = Vec::new();
        let mut by_round: Vec<Vec<f64>> = Vec::new();
        for threshold in &thresholds {
            let values = speed_ups(*load, *threshold)?;
            let Some(found) = Estimate::of(values.iter().copied()) else {
                continue;
            };
            by_round.push(values);
            points.push((f64::from(*threshold), found.mean));
            table.row([load.to_string(), threshold.to_string(), found.to_text(2)]);
            rows.push(json!({
                "load_percent": load, "threshold": threshold,
                "speed_up": found.mean, "half_width": found.half_width,
            }));
            let is_critical = *load == 40 && *threshold <= CRITICAL;
            for (of, from) in [(&mut critical, 0), (&mut critical_whole, LISTING)] {
                if is_critical && *threshold >= from {
                    of.push((threshold.to_string(), found));
                }
            }
        }
        plot = plot.with(Series::line(format!("{load} % load"), points));
        let rounds = by_round.first().map_or(0, Vec::len);
        orders.resize(orders.len().max(rounds), Vec::new());
        for (round, orders) in orders.iter_mut().enumerate().take(rounds) {
            let in_round = by_round.iter().filter_map(|it| it.get(round).copied());
            orders.push(spearman(&in_round.collect::<Vec<f64>>()));
        }
    }
    let at_low = Estimate::of(speed_ups(low, THRESHOLD)?);
    let checks = vec![
        Band::about(f64::NEG_INFINITY, -0.8).check(
            "rank correlation of threshold and speed-up",
            "lower thresholds, more speed",
            // Loads of a round have its seed in common.
            Estimate::of(
                orders
                    .iter()
                    .map(|it| Summary::new(it.iter().copied()).mean()),
            ),
        ),
        Band::more(1.3, f64::INFINITY).check_all(
            "least speed-up with thresholds up to 40, at 40 % load",
            "1.3 to 2 times and more",
            named(&critical),
        ),
        Band::more(1.3, f64::INFINITY).check_all(
            "the same, with thresholds that a listing does not exceed (10 to 40)",
            "1.3 to 2 times and more",
            named(&critical_whole),
        ),
        Band::more(1.0, f64::INFINITY).check("at 10 % load", "faster", at_low),
    ];
    let all: Vec<_> = cells
        .iter()
        .map(|it| measured.rounds(*it))
        .collect::<Result<_>>()?;
    Ok(Figure {
        id,
        title,
        note: note(all.iter().flat_map(|it| it.iter())),
        checks,
        rows,
        columns: vec!["load_percent", "threshold", "speed_up", "half_width"],
        tables: vec![table],
        plots: vec![plot],
    })
}

fn named(estimates: &[(String, Estimate)]) -> impl Iterator<Item = (&str, Estimate)> {
    estimates.iter().map(|(name, it)| (&**name, *it))
}

fn dedup(cells: Vec<Cell>) -> Vec<Cell> {
    let mut unique: Vec<Cell> = Vec::new();
    for cell in cells {
        if !unique.contains(&cell) {
            unique.push(cell);
        }
    }
    unique
}

/// Spearman's rank correlation of values, which are all different, with their places.
fn spearman(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let rank = |value: f64| values.iter().filter(|it| **it < value).count() as f64;
    let squares: f64 = values
        .iter()
        .enumerate()
        .map(|(place, value)| (place as f64 - rank(*value)).powi(2))
        .sum();
    1.0 - 6.0 * squares / (count * (count * count - 1.0))
}

fn plot() -> Plot {
    Plot::new(
        "Speed-up of listings over the threshold, against per-flow ECMP",
        Axis::log("threshold in packets"),
        Axis::linear("speed-up of the mean completion time"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_is_spearmans() {
        assert_eq!(spearman(&[1.0, 2.0, 5.0, 9.0]), 1.0);
        assert_eq!(spearman(&[9.0, 5.0, 2.0, 1.0]), -1.0);
        // Ranks 2, 1, 3: 1 - 6 * 2 / (3 * 8).
        assert_eq!(spearman(&[2.0, 1.0, 3.0]), 0.5);
    }
}
