//! The abstract's figures, `T16`: the most that TR gains anywhere.

use flow_report::{Axis, Plot, Series};
use netsim::Estimate;
use serde_json::json;

use super::{Effort, band::Band, large, motivation, runs::Runs};
use crate::figure::Figure;

/// `T16`.
pub fn figure(motivation: &Runs, large: &[Runs], effort: &Effort) -> Figure {
    let [mean, tail, goodput] = motivation::summits(motivation, effort);
    let [large_mean, large_tail] = large::summits(large, effort);
    let change = |factor: f64| 100.0 * (factor - 1.0);
    let single = |mean: f64| {
        Some(Estimate {
            mean,
            half_width: None,
        })
    };
    let (mean, tail) = (change(mean.min(large_mean)), change(tail.min(large_tail)));
    let goodput = 1.0 / goodput;
    let checks = vec![
        Band::drop(-100.0, -45.0).check("short mean, largest drop", "up to -60 %", single(mean)),
        Band::drop(-100.0, -60.0).check("short p99, largest drop", "up to -80 %", single(tail)),
        Band::more(2.0, f64::INFINITY).check(
            "goodput of long flows",
            "up to 3.02 times",
            single(goodput),
        ),
    ];
    let plot = Plot::new(
        "Largest gains",
        Axis::linear("short mean · short p99"),
        Axis::linear("change, %"),
    )
    .with(Series::points("paper", vec![(0.0, -60.0), (1.0, -80.0)]))
    .with(Series::points("ours", vec![(0.0, mean), (1.0, tail)]));
    let row =
        |what: &str, paper: f64, ours: f64| json!({"what": what, "paper": paper, "ours": ours});
    Figure {
        id: "T16",
        title: "largest gains, abstract",
        note: "The largest of T7, T8, T10 and T11, over all schemes, asymmetries, loads and workloads: of \
            means over seeds, so chance has a part in it."
            .to_owned(),
        checks,
        rows: vec![
            row("short mean, %", -60.0, mean),
            row("short p99, %", -80.0, tail),
            row("goodput, times", 3.02, goodput),
        ],
        columns: vec!["what", "paper", "ours"],
        tables: Vec::new(),
        plots: vec![plot],
    }
}
