//! `S2`: the speed-up of short flows over the load.

use anyhow::Result;
use flow_report::{Axis, Estimate, Plot, Series, Table};
use serde_json::json;

use super::{
    FIGURES, Measured,
    cell::Mode,
    grid::{Grid, LOADS, PAIRS},
    list_mean_ms,
};
use crate::{figure::Figure, tr::band::Band};

/// Measures, and builds figure `S2`.
///
/// # Errors
///
/// When the testbed fails.
pub fn figure(measured: &Measured<'_>) -> Result<Figure> {
    let grid = Grid::measure(measured)?;
    let (mut rows, mut plot) = (Vec::new(), plot());
    let mut table = Table::new([
        "load %",
        "splitter",
        "against",
        "speed-up",
        "ms",
        "against, ms",
    ]);
    for pair in PAIRS {
        let names = (pair.0.name(), pair.1.name());
        let mut points = Vec::new();
        for load in LOADS {
            let Some(found) = Estimate::of(speed_ups(&grid, pair, load)) else {
                continue;
            };
            let (Some(own), Some(other)) =
                (mean_ms(&grid, pair.0, load), mean_ms(&grid, pair.1, load))
            else {
                continue;
            };
            points.push((f64::from(load), found.mean));
            table.row([
                load.to_string(),
                names.0.to_owned(),
                names.1.to_owned(),
                found.to_text(2),
                own.to_text(3),
                other.to_text(3),
            ]);
            rows.push(json!({
                "load_percent": load, "splitter": names.0, "baseline": names.1,
                "speed_up": found.mean, "half_width": found.half_width,
                "splitter_ms": own.mean, "baseline_ms": other.mean,
            }));
        }
        plot = plot.with(Series::line(
            format!("{} against {}", names.0, names.1),
            points,
        ));
    }
    let at_40 = |pair| Estimate::of(speed_ups(&grid, pair, 40));
    let [low, high] = [LOADS[0], 40].map(|load| speed_ups(&grid, PAIRS[0], load));
    let rise = high.iter().zip(&low).map(|(high, low)| high / low);
    let (band, paper) = (Band::more(1.3, 2.5), "1.5 to 2 times");
    let checks = vec![
        band.check(
            "at 40 %, dedicated, against per-flow ECMP",
            paper,
            at_40(PAIRS[0]),
        ),
        band.check(
            "at 40 %, dedicated, against per-packet ECMP",
            paper,
            at_40(PAIRS[1]),
        ),
        Band::more(1.0, f64::INFINITY).check(
            "speed-up at 40 % of that at 10 %",
            "rises",
            Estimate::of(rise),
        ),
    ];
    let columns = [
        "load_percent",
        "splitter",
        "baseline",
        "speed_up",
        "half_width",
        "splitter_ms",
        "baseline_ms",
    ];
    Ok(Figure {
        checks,
        rows,
        ..grid.figure(FIGURES[1], &columns, table, vec![plot])
    })
}

/// How many times as long the baseline takes, in each round.
fn speed_ups(grid: &Grid, pair: (Mode, Mode), load: u32) -> Vec<f64> {
    let ratios = grid.ratios(pair, load, |round| 1.0 / list_mean_ms(round));
    ratios.unwrap_or_default()
}

fn mean_ms(grid: &Grid, mode: Mode, load: u32) -> Option<Estimate> {
    Estimate::of(grid.rounds(mode, load)?.iter().map(list_mean_ms))
}

fn plot() -> Plot {
    Plot::new(
        "Speed-up of listings over the load",
        Axis::linear("background, % of both tunnels").range(0.0, 45.0),
        Axis::linear("speed-up of the mean completion time"),
    )
}
