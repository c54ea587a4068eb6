//! The abstract's figures, `T16`: the most that TR gains anywhere.

use flow_report::{Axis, Estimate, Plot, Series};
use serde_json::json;

use super::{
    Effort,
    band::Band,
    large, motivation,
    runs::{Metric, Runs, medium as long, percent, short},
};
use crate::figure::Figure;

/// TR against one other scheme in one place of a figure.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of the comparison, for people.
    pub name: String,
    /// TR's value as a share of the other's, seed by seed.
    pub ratios: Vec<f64>,
}

/// The most that TR gains in any of the cells.
struct HeadlineGains {
    /// The smallest share that one run of every cell shows; over seeds.
    of_a_run: Option<Estimate>,
    /// The values of it.
    shares: Vec<f64>,
    /// Cell in which it is most often.
    place: String,
    /// The smallest of the cells' means over seeds with an interval of the [smallest of so many](Estimate::of_several), and its cell.
    of_means: Option<(Estimate, String)>,
}

impl HeadlineGains {
    fn of(cells: &[Cell]) -> Self {
        let seeds = cells.iter().map(|it| it.ratios.len()).min().unwrap_or(0);
        let mut times = vec![0; cells.len()];
        let mut shares = Vec::new();
        for seed in 0..seeds {
            let by_cell = cells.iter().map(|it| it.ratios[seed]).enumerate();
            if let Some((cell, share)) = by_cell.min_by(|a, b| a.1.total_cmp(&b.1)) {
                times[cell] += 1;
                shares.push(share);
            }
        }
        let most_often = cells.iter().zip(&times).max_by_key(|(_, times)| **times);
        let means = cells.iter().filter_map(|it| {
            let mean = Estimate::of(it.ratios.iter().copied())?;
            Some((mean.of_several(cells.len()), it.name.clone()))
        });
        Self {
            of_a_run: Estimate::of(shares.iter().copied()),
            place: most_often.map_or_else(String::new, |(cell, times)| {
                format!("{} ({times} of {seeds})", cell.name)
            }),
            shares,
            of_means: means.min_by(|a, b| a.0.mean.total_cmp(&b.0.mean)),
        }
    }

    fn note(&self, what: &str) -> String {
        let text = |share| percent(share).map_or_else(String::new, |it| it.to_text(1));
        let means = self.of_means.as_ref();
        format!(
            " {what}: {} %, {}; single runs {} %, most often {}.",
            text(means.map(|it| it.0)),
            means.map_or("nowhere", |it| it.1.as_str()),
            text(self.of_a_run),
            self.place
        )
    }
}

/// Builds `T16`: the abstract's figures.
pub fn figure(motivation: &Runs, large: &[Runs], effort: &Effort) -> Figure {
    let gains = |metric: Metric| {
        let mut cells = motivation::cells(motivation, effort, metric);
        cells.extend(large::cells(large, effort, metric));
        HeadlineGains::of(&cells)
    };
    let mean = gains(|it| short(it).mean_us);
    let tail = gains(|it| short(it).p99_us);
    let slowness: Metric = |it| Some(1.0 / long(it).goodput_mbps?);
    let goodput = HeadlineGains::of(&motivation::cells(motivation, effort, slowness));
    let times = goodput.of_means.as_ref().map(|(slowness, _)| Estimate {
        mean: 1.0 / slowness.mean,
        half_width: slowness.half_width.map(|half| half / slowness.mean.powi(2)),
        ..*slowness
    });
    let drop = |it: &HeadlineGains| percent(it.of_means.as_ref().map(|it| it.0));
    let checks = vec![
        Band::drop(f64::NEG_INFINITY, -45.0).check(
            "short mean, largest drop",
            "up to -60 %",
            drop(&mean),
        ),
        Band::drop(f64::NEG_INFINITY, -60.0).check(
            "short p99, largest drop",
            "up to -80 %",
            drop(&tail),
        ),
        Band::more(2.0, f64::INFINITY).check("goodput of long flows", "up to 3.02 times", times),
    ];
    let value = |it: Option<Estimate>| it.map_or(f64::NAN, |it| it.mean);
    let (lowest_mean, lowest_tail) = (value(drop(&mean)), value(drop(&tail)));
    let plot = Plot::new(
        "Largest gains",
        Axis::linear("short mean · short p99"),
        Axis::linear("change, %"),
    )
    .with(Series::points("paper", vec![(0.0, -60.0), (1.0, -80.0)]))
    .with(Series::points(
        "ours",
        vec![(0.0, lowest_mean), (1.0, lowest_tail)],
    ));
    let row = |what: &str, paper: f64, ours: Option<Estimate>| {
        json!({
            "what": what,
            "paper": paper,
            "ours": ours.map(|it| it.mean),
            "half_width": ours.and_then(|it| it.half_width),
        })
    };
    Figure {
        id: "T16",
        title: "largest gains, abstract",
        note: format!(
            "The largest of T7, T8, T10 and T11, over all schemes, asymmetries, loads and workloads, of means over \
             seeds, with an interval that is as wide as the largest of so many takes. The paper mentions no repetition, so that the largest of single runs is shown, too: \
             mean and interval over {} sets of one run of each.{}{}",
            mean.shares.len().min(tail.shares.len()),
            mean.note("Short mean"),
            tail.note("Short p99"),
        ),
        checks,
        rows: vec![
            row("short mean, %", -60.0, drop(&mean)),
            row("short p99, %", -80.0, drop(&tail)),
            row("goodput, times", 3.02, times),
        ],
        columns: vec!["what", "paper", "ours", "half_width"],
        tables: Vec::new(),
        plots: vec![plot],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gain_is_sought_run_by_run() {
        let cell = |name: &str, ratios: &[f64]| Cell {
            name: name.to_owned(),
            ratios: ratios.to_vec(),
        };
        // The third seed of a is left out: b has none.
        let gains = HeadlineGains::of(&[cell("a", &[0.2, 0.9, 0.1]), cell("b", &[0.5, 0.4])]);
        assert_eq!(gains.shares, [0.2, 0.4]);
        let mean = gains.of_a_run.map(|it| it.mean);
        assert!(mean.is_some_and(|it| (it - 0.3).abs() < 1e-12), "{mean:?}");
        let (means, name) = gains.of_means.expect("there are cells");
        assert!((means.mean - 0.4).abs() < 1e-12, "a's {}", means.mean);
        assert_eq!(name, "a");
        assert!(HeadlineGains::of(&[]).of_a_run.is_none());
    }
}
