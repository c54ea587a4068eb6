//! `S3` and `S4`: distributions of packet jitter and of completion times.

use anyhow::Result;
use flow_report::{Axis, Estimate, Plot, Summary, Table};
use serde_json::{Value, json};

use super::{
    FIGURES, Measured,
    cell::{Mode, Round},
    grid::{Grid, LOADS, PAIRS, density},
};
use crate::{
    check::{Check, Comparison, LEVEL},
    figure::Figure,
    tr::band::Band,
};

/// The paper's solution against its baseline.
const HEADLINE: (Mode, Mode) = PAIRS[0];

/// A statistic of a round's values, by its name.
type Statistic = (&'static str, fn(&[f64]) -> f64);

/// A quantity that has a distribution.
struct Quantity {
    name: &'static str,
    /// Class of the flows that it is of.
    class: &'static str,
    values: fn(&Round) -> &[f64],
    statistics: [Statistic; 2],
}

const JITTER: Quantity = Quantity {
    name: "jitter, us",
    class: "short",
    values: |round| &round.jitter_us,
    statistics: [("mean", mean), ("standard deviation", deviation)],
};
/// Of videos, of which the paper says nothing.
const LONG_JITTER: Quantity = Quantity {
    class: "long",
    values: |round| &round.long_jitter_us,
    ..JITTER
};
const COMPLETION: Quantity = Quantity {
    name: "completion time of listings, ms",
    class: "short",
    values: |round| &round.list_ms,
    statistics: [("mean", mean), ("99th percentile", p99)],
};

/// Measures, and builds figure `S3`.
///
/// # Errors
///
/// When the testbed fails.
pub fn jitter(measured: &Measured<'_>) -> Result<Figure> {
    let grid = Grid::measure(measured)?;
    // The band is stated from 20 % on.
    let loads = LOADS.into_iter().filter(|it| *it >= 20);
    let checks = loads.flat_map(|load| {
        JITTER.statistics.map(|statistic| {
            let ratio = JITTER.ratio(&grid, HEADLINE, load, statistic);
            let what = format!("{} at {load} %, of that of per-flow ECMP", statistic.0);
            Band::less(1.0).check(&what, "lower", ratio)
        })
    });
    let checks = checks.collect();
    let mut figure = JITTER.figure(&grid, FIGURES[2], checks);
    if !measured.is_simulated() {
        let (rows, table) = LONG_JITTER.rows(&grid);
        figure.rows.extend(rows);
        figure.tables.push(table);
        figure.note = format!(
            "Jitter of the long class is that of videos. {}",
            figure.note
        );
    }
    Ok(figure)
}

/// Measures, and builds figure `S4`.
///
/// # Errors
///
/// When the testbed fails.
pub fn completion(measured: &Measured<'_>) -> Result<Figure> {
    let grid = Grid::measure(measured)?;
    let [of_mean, of_tail] = COMPLETION.statistics;
    let means = LOADS.into_iter().map(|load| {
        let ratio = COMPLETION.ratio(&grid, HEADLINE, load, of_mean);
        let what = format!("mean at {load} %, of that of per-flow ECMP");
        Band::less(1.0).check(&what, "lower in all cases", ratio)
    });
    let dedicated = PAIRS.into_iter().filter(|it| it.0 == Mode::Dedicated);
    let cells = dedicated.flat_map(|pair| LOADS.map(|load| (pair, load)));
    let tails: Vec<Estimate> = cells
        .filter_map(|(pair, load)| COMPLETION.ratio(&grid, pair, load, of_tail))
        .collect();
    let checks = means.chain([majority(&tails)]).collect();
    Ok(COMPLETION.figure(&grid, FIGURES[3], checks))
}

/// Three quarters of the ratios are to be below 1. That so many are is shown when the largest p-value of the clearest so many is, by how
/// many may serve as that one, at most the level (Benjamini and Heller, *Biometrics* 64, 2008).
fn majority(ratios: &[Estimate]) -> Check {
    let what = "cells whose 99th percentile is lower than with ECMP";
    let (paper, band) = ("the majority", "at least 75 %");
    let p_values = |is_meant: fn(f64) -> bool| -> Vec<f64> {
        let p_value = |it: &Estimate| it.p_value(1.0).filter(|_| is_meant(it.mean));
        let mut p_values: Vec<f64> = ratios.iter().map(|it| p_value(it).unwrap_or(1.0)).collect();
        p_values.sort_by(f64::total_cmp);
        p_values
    };
    let [lower, higher] = [p_values(|it| it < 1.0), p_values(|it| it > 1.0)];
    // The p-value of less than `least` of them being so.
    let of_at_least = |p_values: &[f64], least: usize| match p_values.get(least.wrapping_sub(1)) {
        Some(p) => (p * (ratios.len() - least + 1) as f64).min(1.0),
        None => 1.0,
    };
    let shown = |p_values: &[f64]| p_values.iter().filter(|it| **it <= LEVEL).count();
    let (are_lower, are_higher) = (shown(&lower), shown(&higher));
    let open = ratios.len() - are_lower - are_higher;
    let comparison = Comparison {
        ours: format!("{are_lower} of {}, {are_higher} higher", ratios.len()),
        is_inside: of_at_least(&lower, (3 * ratios.len()).div_ceil(4)) <= LEVEL,
        p_outside: of_at_least(&higher, ratios.len() / 4 + 1),
        miss: Some(format!("{are_higher} are higher")),
        ..Comparison::unclear(
            "",
            None,
            &match open {
                0 => "so many may be lower by chance".to_owned(),
                _ => format!("the intervals of {open} reach over 1, or exclude it by chance"),
            },
        )
    };
    Check::of_all(what, paper, band, vec![comparison])
}

impl Quantity {
    fn ratio(
        &self,
        grid: &Grid,
        pair: (Mode, Mode),
        load: u32,
        (_, statistic): Statistic,
    ) -> Option<Estimate> {
        let ratios = grid.ratios(pair, load, |round| statistic((self.values)(round)))?;
        Estimate::of(ratios)
    }

    fn figure(
        &self,
        grid: &Grid,
        name: (&'static str, &'static str),
        checks: Vec<Check>,
    ) -> Figure {
        const COLUMNS: [&str; 9] = [
            "load_percent",
            "class",
            "splitter",
            "baseline",
            "statistic",
            "ratio",
            "half_width",
            "splitter_value",
            "baseline_value",
        ];
        let (rows, table) = self.rows(grid);
        let plots = LOADS.map(|load| self.plot(grid, load));
        Figure {
            checks,
            rows,
            ..grid.figure(name, &COLUMNS, table, plots.into())
        }
    }

    fn rows(&self, grid: &Grid) -> (Vec<Value>, Table) {
        let mut rows = Vec::new();
        let mut table = Table::new([
            "load %",
            "class",
            "splitter",
            "against",
            self.name,
            "ratio",
            "splitter's",
            "the other's",
        ]);
        for (load, pair) in LOADS
            .into_iter()
            .flat_map(|load| PAIRS.map(|pair| (load, pair)))
        {
            for statistic in self.statistics {
                let Some(ratio) = self.ratio(grid, pair, load, statistic) else {
                    continue;
                };
                let of = |mode| {
                    let rounds = grid.rounds(mode, load).unwrap_or_default();
                    Summary::new(rounds.iter().map(|it| statistic.1((self.values)(it)))).mean()
                };
                let (own, other) = (of(pair.0), of(pair.1));
                table.row([
                    load.to_string(),
                    self.class.to_owned(),
                    pair.0.name().to_owned(),
                    pair.1.name().to_owned(),
                    statistic.0.to_owned(),
                    ratio.to_text(2),
                    format!("{own:.3}"),
                    format!("{other:.3}"),
                ]);
                rows.push(json!({
                    "load_percent": load, "class": self.class, "splitter": pair.0.name(), "baseline": pair.1.name(),
                    "statistic": statistic.0, "ratio": ratio.mean, "half_width": ratio.half_width,
                    "splitter_value": own, "baseline_value": other,
                }));
            }
        }
        (rows, table)
    }

    fn plot(&self, grid: &Grid, load: u32) -> Plot {
        let plot = Plot::new(
            format!("Distribution at {load} % load"),
            Axis::log(self.name),
            Axis::linear("share of an interval, ten to a decade"),
        );
        let modes = [
            Mode::Dedicated,
            Mode::Share,
            Mode::EcmpFlow,
            Mode::EcmpPacket,
        ];
        let measured = modes
            .into_iter()
            .filter(|it| grid.rounds(*it, load).is_some());
        measured.fold(plot, |plot, mode| {
            plot.with(density(mode.name(), &grid.pooled(mode, load, self.values)))
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    Summary::new(values.iter().copied()).mean()
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

fn p99(values: &[f64]) -> f64 {
    Summary::new(values.iter().copied()).percentile(99.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimates(values: &[(f64, f64)]) -> Vec<Estimate> {
        let estimate = |&(mean, half): &(f64, f64)| Estimate {
            mean,
            half_width: Some(half),
            runs: 5,
        };
        values.iter().map(estimate).collect()
    }

    #[test]
    fn majority_counts_cells_whose_whole_interval_is_on_one_side() {
        let outcome = |values: &[(f64, f64)]| {
            let check = majority(&estimates(values));
            (check.holds, check.undecided)
        };
        let (low, high, open) = ((0.5, 0.2), (1.5, 0.2), (0.9, 0.2));
        assert_eq!(outcome(&[low, low, low, high]), (true, false));
        assert_eq!(outcome(&[low, low, high, high]), (false, false));
        assert_eq!(outcome(&[low, low, open, open]), (false, true));
        assert_eq!(outcome(&[]), (false, true));
        // Each interval just excludes 1: any three of four may be the ones that do by chance.
        let just = (0.8, 0.19);
        assert_eq!(outcome(&[just; 4]), (false, true));
        assert_eq!(outcome(&[(0.8, 0.13); 4]), (true, false));
    }

    #[test]
    fn deviation_is_the_samples() {
        assert_eq!(deviation(&[1.0, 2.0, 3.0]), 1.0);
    }
}
