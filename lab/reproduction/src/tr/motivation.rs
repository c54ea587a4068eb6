//! Two leaves and ten paths, half of them slow: figures 2 (`T1` and `T2`, with [`short_flows`](super::short_flows) for `T3`),
//! 7 (`T7`) and 8 (`T8`). Figure 3 is [`long_flows`](super::long_flows).

use flow_report::{Axis, Plot, Series};
use netsim::Manifest;

use super::{
    Effort,
    band::Band,
    headline_gains::Cell,
    runs::{COLUMNS, Experiment, Metric, Runs, all, medium as long, percent, short},
};
use crate::{check::Check, figure::Figure};

/// Schemes as the paper orders them.
const SCHEMES: [&str; 6] = ["ecmp", "rps", "drb", "presto", "letflow", "tr"];

const FEW_FLOWS: &str = "100 flows of a heavy-tailed distribution a run: one or two elephants decide what \
    the rest meets, so intervals are wide. Load, marking threshold and least timeout are not in the paper.";

/// Each scheme at each ratio of round-trip times.
pub fn experiment(effort: &Effort) -> Experiment {
    let mut schemes = Vec::new();
    for ratio in &effort.ratios {
        for scheme in SCHEMES {
            let changes =
                format!("balance.policy = \"{scheme}\"\nfabric.slow.rtt_ratio = {ratio:?}");
            schemes.push((name(scheme, *ratio), changes));
        }
    }
    Experiment {
        name: "motivation",
        scenario: "tr-motivation",
        schemes,
        loads: Vec::new(),
        seeds: effort.motivation_seeds,
        messages: None,
    }
}

pub(super) fn name(scheme: &str, ratio: f64) -> String {
    format!("{scheme}-{ratio:?}")
}

/// Builds `T1`: figure 2(a), queueing delay.
pub fn queueing(runs: &Runs, effort: &Effort) -> Figure {
    let metric: Metric = |it| short(it).queued_us;
    let against = |other| over_ratios(runs, effort, "rps", other, metric);
    let checks = vec![
        Band::less(1.0).check("RPS / ECMP", "RPS is lowest", against("ecmp")),
        Band::less(1.0).check("RPS / LetFlow", "RPS is lowest", against("letflow")),
    ];
    let plot = plot(
        runs,
        effort,
        "Queueing delay of short flows",
        "us a packet",
        metric,
    );
    figure(
        "T1",
        "queueing delay of short flows, figure 2(a)",
        checks,
        vec![plot],
        runs,
    )
}

/// Builds `T2`: figure 2(b), retransmissions.
pub fn retransmissions(runs: &Runs, effort: &Effort) -> Figure {
    let metric: Metric = |it| short(it).retransmitted_percent;
    let worst = worst(effort);
    let value = |scheme| runs.value(&name(scheme, worst), None, metric);
    let dropped = |it: &Manifest| Some(it.totals.dropped as f64);
    let drops = effort.ratios.iter().flat_map(|ratio| {
        ["ecmp", "rps", "letflow"].map(|it| runs.largest(&name(it, *ratio), dropped))
    });
    let drops = drops.flatten().fold(0.0, f64::max);
    let miss = (drops > 0.0).then(|| format!("{drops} packets in a run"));
    let checks = vec![
        Band::share(3.0, 15.0).check("RPS at the most asymmetry", "much higher", value("rps")),
        Band::share(f64::NEG_INFINITY, 0.1).check("ECMP", "near 0", value("ecmp")),
        Band::share(f64::NEG_INFINITY, 0.1).check("LetFlow", "near 0", value("letflow")),
        Check::new("packets dropped", "none", "0", drops.to_string(), miss).with_numbers(
            (0.0, 0.0),
            Some(0.0),
            drops,
        ),
    ];
    let plot = plot(
        runs,
        effort,
        "Short flows: segments sent again",
        "%",
        metric,
    );
    figure(
        "T2",
        "retransmissions of short flows, figure 2(b)",
        checks,
        vec![plot],
        runs,
    )
}

/// Builds `T7`: figure 7, short flows under TR.
pub fn tr_short(runs: &Runs, effort: &Effort) -> Figure {
    let (mean, tail): (Metric, Metric) = (|it| short(it).mean_us, |it| short(it).p99_us);
    let (least, worst) = (effort.ratios[0], worst(effort));
    let flat = runs.ratio(&name("tr", worst), &name("tr", least), &[None], mean);
    let against = |other, metric| {
        percent(runs.ratio(&name("tr", worst), &name(other, worst), &[None], metric))
    };
    let again = |it: &Manifest| all(it).retransmitted_percent;
    let again = effort
        .ratios
        .iter()
        .filter_map(|ratio| runs.largest(&name("tr", *ratio), again));
    let again = again.fold(0.0, f64::max);
    let miss = (again > 0.0).then(|| format!("{again:.4} % in a run"));
    let mut checks = vec![
        Band::about(0.95, 1.05).check("TR at 3.5 / at 1.5 times the RTT", "flat", flat),
        Check::new(
            "TR, sent again, worst run",
            "always 0",
            "0",
            format!("{again:.4} %"),
            miss,
        )
        .with_numbers((0.0, 0.0), Some(0.0), again),
        Band::drop(-60.0, -15.0).check(
            "mean, TR against LetFlow at 3.5",
            "best",
            against("letflow", mean),
        ),
        Band::drop(-80.0, -20.0).check("p99, TR against RPS at 3.5", "best", against("rps", tail)),
    ];
    for other in SCHEMES.into_iter().filter(|it| *it != "tr") {
        let ratio = over_ratios(runs, effort, "tr", other, mean);
        let what = format!("mean, TR / {other}, all asymmetries");
        checks.push(Band::less(1.0).check(&what, "best", ratio));
    }
    let plots = vec![
        plot(
            runs,
            effort,
            "Queueing delay of short flows",
            "us a packet",
            |it| short(it).queued_us,
        ),
        plot(
            runs,
            effort,
            "Short flows: segments sent again",
            "%",
            |it| short(it).retransmitted_percent,
        ),
        plot(
            runs,
            effort,
            "Mean completion time of short flows",
            "us",
            mean,
        ),
        plot(
            runs,
            effort,
            "99th percentile of completion times of short flows",
            "us",
            tail,
        ),
    ];
    figure("T7", "TR and short flows, figure 7", checks, plots, runs)
}

/// Builds `T8`: figure 8, long flows under TR.
pub fn tr_long(runs: &Runs, effort: &Effort) -> Figure {
    let goodput: Metric = |it| long(it).goodput_mbps;
    let worst = worst(effort);
    let mut checks = Vec::new();
    for other in SCHEMES.into_iter().filter(|it| *it != "tr") {
        let ratio = runs.ratio(&name("tr", worst), &name(other, worst), &[None], goodput);
        let least = if other == "rps" { 2.0 } else { 1.0 };
        let what = format!("TR / {other} at 3.5 times the RTT");
        let paper = if other == "rps" {
            "up to 3.02 times"
        } else {
            "highest"
        };
        checks.push(Band::more(least, f64::INFINITY).check(&what, paper, ratio));
    }
    let plot = plot(runs, effort, "Goodput of long flows", "Mbit/s", goodput);
    figure(
        "T8",
        "TR and long flows, figure 8",
        checks,
        vec![plot],
        runs,
    )
}

/// TR against each other scheme at each asymmetry.
pub fn cells(runs: &Runs, effort: &Effort, metric: Metric) -> Vec<Cell> {
    let mut cells = Vec::new();
    for ratio in &effort.ratios {
        for other in SCHEMES.into_iter().filter(|it| *it != "tr") {
            cells.push(Cell {
                name: format!("two leaves at {ratio} times the RTT against {other}"),
                ratios: runs.ratios(&name("tr", *ratio), &name(other, *ratio), None, metric),
            });
        }
    }
    cells
}

/// The mean over all asymmetries, seed by seed.
pub(super) fn over_ratios(
    runs: &Runs,
    effort: &Effort,
    one: &str,
    other: &str,
    metric: Metric,
) -> Option<flow_report::Estimate> {
    let by_ratio: Vec<Vec<f64>> = effort
        .ratios
        .iter()
        .map(|ratio| runs.ratios(&name(one, *ratio), &name(other, *ratio), None, metric))
        .collect();
    let seeds = by_ratio.iter().map(Vec::len).min()?;
    let mean =
        |seed: usize| by_ratio.iter().map(|it| it[seed]).sum::<f64>() / by_ratio.len() as f64;
    flow_report::Estimate::of((0..seeds).map(mean))
}

pub(super) fn worst(effort: &Effort) -> f64 {
    effort.ratios.last().copied().unwrap_or(3.5)
}

pub(super) fn plot(runs: &Runs, effort: &Effort, title: &str, unit: &str, metric: Metric) -> Plot {
    let x = Axis::linear("round trip of slow paths / of the others");
    SCHEMES
        .into_iter()
        .fold(Plot::new(title, x, Axis::linear(unit)), |plot, scheme| {
            let point = |ratio: &f64| {
                Some((
                    *ratio,
                    runs.value(&name(scheme, *ratio), None, metric)?.mean,
                ))
            };
            plot.with(Series::line(
                scheme,
                effort.ratios.iter().filter_map(point).collect(),
            ))
        })
}

pub(super) fn figure(
    id: &'static str,
    title: &'static str,
    checks: Vec<Check>,
    plots: Vec<Plot>,
    runs: &Runs,
) -> Figure {
    Figure {
        id,
        title,
        note: FEW_FLOWS.to_owned(),
        checks,
        rows: runs.rows(),
        columns: COLUMNS.to_vec(),
        tables: Vec::new(),
        plots,
    }
}
