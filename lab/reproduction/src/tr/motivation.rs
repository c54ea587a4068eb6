//! Two leaves and ten paths, half of them slow: figures 2 and 3 (`T1` to `T4`), 7 (`T7`) and
//! 8 (`T8`).

use flow_report::{Axis, Plot, Series};
use netsim::Manifest;

use super::{
    Effort,
    band::Band,
    headline_gains::Cell,
    runs::{COLUMNS, Experiment, Metric, Runs, all, medium as long, percent, short},
};
use crate::figure::{Check, Figure};

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

fn name(scheme: &str, ratio: f64) -> String {
    format!("{scheme}-{ratio:?}")
}

/// Builds `T1`: figure 2(a), queueing delay.
pub fn queueing(runs: &Runs, effort: &Effort) -> Figure {
    let metric: Metric = |it| short(it).queued_us;
    let against = |other| over_ratios(runs, effort, "rps", other, metric);
    let checks = vec![
        Band::less(0.0, 1.0).check("RPS / ECMP", "RPS is lowest", against("ecmp")),
        Band::less(0.0, 1.0).check("RPS / LetFlow", "RPS is lowest", against("letflow")),
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
        Band::share(0.0, 0.1).check("ECMP", "near 0", value("ecmp")),
        Band::share(0.0, 0.1).check("LetFlow", "near 0", value("letflow")),
        Check::new("packets dropped", "none", "0", drops.to_string(), miss),
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

/// Builds `T3`: figure 2(c), short flows.
pub fn short_flows(runs: &Runs, effort: &Effort) -> Figure {
    let metric: Metric = |it| short(it).mean_us;
    let at = |ratio, other| runs.ratio(&name("rps", ratio), &name(other, ratio), &[None], metric);
    let (least, worst) = (effort.ratios[0], worst(effort));
    let growth = |scheme| runs.ratio(&name(scheme, worst), &name(scheme, least), &[None], metric);
    let steeper = growth("rps")
        .zip(growth("ecmp"))
        .map(|(rps, ecmp)| flow_report::Estimate {
            mean: rps.mean / ecmp.mean,
            half_width: None,
        });
    let above = || Band::more(1.0, f64::INFINITY);
    let checks = vec![
        above().check(
            "RPS / ECMP at 2.5 times the RTT",
            "RPS is worst",
            at(2.5, "ecmp"),
        ),
        above().check("RPS / ECMP at 3.5", "RPS is worst", at(worst, "ecmp")),
        above().check("RPS / LetFlow at 3.5", "RPS is worst", at(worst, "letflow")),
        above().check("RPS / ECMP at 1.5", "RPS is worst", at(least, "ecmp")),
        above().check("growth from 1.5 to 3.5, RPS / ECMP", "gaps widen", steeper),
    ];
    let plot = plot(
        runs,
        effort,
        "Mean completion time of short flows",
        "us",
        metric,
    );
    figure(
        "T3",
        "completion times of short flows, figure 2(c)",
        checks,
        vec![plot],
        runs,
    )
}

/// Builds `T4`: figure 3, long flows.
pub fn long_flows(runs: &Runs, effort: &Effort) -> Figure {
    let deviation: Metric = |it| Some(it.paths.deviation / it.paths.mean_utilisation);
    let goodput: Metric = |it| long(it).goodput_mbps;
    let retransmitted: Metric = |it| long(it).retransmitted_percent;
    let less = |one, other| over_ratios(runs, effort, one, other, deviation);
    let worst = worst(effort);
    let at_worst =
        |one, other| runs.ratio(&name(one, worst), &name(other, worst), &[None], goodput);
    let again = |scheme| runs.value(&name(scheme, worst), None, retransmitted);
    let checks = vec![
        Band::less(0.0, 1.0).check(
            "deviation over paths, RPS / LetFlow",
            "less",
            less("rps", "letflow"),
        ),
        Band::less(0.0, 1.0).check("deviation, LetFlow / ECMP", "less", less("letflow", "ecmp")),
        Band::share(1.0, 100.0).check(
            "sent again, RPS at 3.5",
            "pronouncedly higher",
            again("rps"),
        ),
        Band::share(0.0, 0.1).check("sent again, LetFlow at 3.5", "low", again("letflow")),
        Band::more(1.0, f64::INFINITY).check(
            "goodput, LetFlow / ECMP at 3.5",
            "higher",
            at_worst("letflow", "ecmp"),
        ),
        Band::less(0.0, 0.5).check(
            "goodput, RPS / LetFlow at 3.5",
            "falls precipitously",
            at_worst("rps", "letflow"),
        ),
    ];
    let plots = vec![
        plot(
            runs,
            effort,
            "Deviation of utilisation over paths",
            "of the mean",
            deviation,
        ),
        plot(
            runs,
            effort,
            "Long flows: segments sent again",
            "%",
            retransmitted,
        ),
        plot(runs, effort, "Goodput of long flows", "Mbit/s", goodput),
    ];
    figure("T4", "long flows, figure 3", checks, plots, runs)
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
        ),
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
        checks.push(Band::less(0.0, 1.0).check(&what, "best", ratio));
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
fn over_ratios(
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

fn worst(effort: &Effort) -> f64 {
    effort.ratios.last().copied().unwrap_or(3.5)
}

fn plot(runs: &Runs, effort: &Effort, title: &str, unit: &str, metric: Metric) -> Plot {
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

fn figure(
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
