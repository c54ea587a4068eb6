//! The design choices one by one, on the paper's testbed: figures 9 to 11, `C4`.

use flow_report::{Axis, Plot, Series};

use super::{
    Effort,
    experiment::{Experiment, P99, as_they_are, figure, over, percent_text},
};
use crate::{
    figure::Figure,
    tr::{
        band::Band,
        runs::{Metric, Runs, percent},
    },
};

/// Design choices as the paper names them, and ours.
const CHOICES: [(&str, &str); 7] = [
    ("dctcp", "DCTCP"),
    ("fec-one-path", "A"),
    ("fec-all-paths", "B"),
    ("fec-dropping", "C"),
    ("cloudburst", "D"),
    ("cloudburst-halves", "D with halves"),
    ("cloudburst-native", "ours"),
];
/// Design choices one by one, at 2,000 requests a second.
pub fn experiment(effort: &Effort) -> Experiment {
    Experiment {
        name: "choices",
        scenario: "cloudburst-testbed",
        schemes: as_they_are(&CHOICES.map(|it| it.0)),
        seeds: effort.testbed_seeds,
        messages: Some(effort.testbed_messages),
    }
}

/// Builds `C4`: figures 9 to 11.
pub fn tails(runs: &Runs) -> Figure {
    let [a, b, c, d] = [
        "fec-one-path",
        "fec-all-paths",
        "fec-dropping",
        "cloudburst",
    ];
    let factor = |one, other, sizes: &[usize]| {
        let metrics: Vec<Metric> = sizes.iter().map(|it| P99[*it]).collect();
        over(runs, one, other, &metrics)
    };
    let change = |one, other, sizes: &[usize]| percent(factor(one, other, sizes));
    let every = [0, 1, 2, 3, 4];
    let checks = vec![
        Band::more(1.26, 1.76).check(
            "A / DCTCP, all sizes",
            "51 % longer",
            factor(a, "dctcp", &every),
        ),
        Band::drop(-70.0, -20.0).check("B against A, 5 kB", "-44.5 %", change(b, a, &[0])),
        Band::drop(-49.0, 0.0).check("B against A, 93 kB", "-23.9 %", change(b, a, &[4])),
        Band::drop(-41.0, 0.0).check("B against DCTCP, 5 kB", "-16.2 %", change(b, "dctcp", &[0])),
        Band::about(0.81, 1.31).check("B / DCTCP, 93 kB", "5.9 % longer", factor(b, "dctcp", &[4])),
        Band::drop(-76.0, -26.0).check(
            "C against DCTCP, 5 kB",
            "-51.4 %",
            change(c, "dctcp", &[0]),
        ),
        Band::about(0.75, 1.25).check(
            "C / DCTCP, 20 and 93 kB",
            "similar",
            factor(c, "dctcp", &[2, 4]),
        ),
        Band::drop(-85.0, -50.0).check(
            "D against DCTCP, all sizes",
            "-75.3 %",
            change(d, "dctcp", &every),
        ),
        Band::less(1.0).check("D / C, 5 kB", "D before C", factor(d, c, &[0])),
        Band::less(1.0).check(
            "C / DCTCP, 5 kB",
            "C before DCTCP",
            factor(c, "dctcp", &[0]),
        ),
        Band::less(1.0).check("D / B, all sizes", "D before B", factor(d, b, &every)),
        Band::less(1.0).check("B / A, all sizes", "B before A", factor(b, a, &every)),
    ];
    let extra = ["cloudburst-halves", "cloudburst-native"]
        .map(|it| percent_text(change(it, "dctcp", &every)));
    let note = format!(
        "99th percentiles at 2,000 requests a second. With sums of halves of the symbols in place of one to five, D is at {} \
         against DCTCP over all sizes; this project's own mode at {}.",
        extra[0], extra[1],
    );
    let points = CHOICES.map(|(scheme, name)| {
        let point = |(size, metric): (usize, &Metric)| {
            Some((size as f64, runs.value(scheme, None, *metric)?.mean / 1e3))
        };
        Series::line(name, P99.iter().enumerate().filter_map(point).collect())
    });
    let x = Axis::linear("5 · 10 · 20 · 50 · 93 kB");
    let plot = Plot::new(
        "99th percentile at 2,000 requests a second",
        x,
        Axis::linear("ms"),
    );
    let plot = points.into_iter().fold(plot, Plot::with);
    figure(
        "C4",
        "design choices, figures 9 to 11",
        note,
        checks,
        &[runs],
        vec![plot],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_schemes_that_run() {
        let source = netsim::Source::find("cloudburst-testbed").unwrap();
        let known = source.scenario().unwrap().schemes;
        for (scheme, _) in CHOICES {
            assert!(known.contains_key(scheme), "{scheme}");
        }
    }

    #[test]
    fn a_check_without_runs_does_not_hold() {
        let check = Band::less(1.0).check(
            "x",
            "y",
            over(&Runs::new("none", Vec::new()), "a", "b", &P99),
        );
        assert!(!check.holds);
    }
}
