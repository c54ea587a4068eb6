//! Short flows under RPS: figure 2(c), `T3`.
//!
//! The paper does not tell the load of its motivation, and the claim hangs on it: so it is held against several.

use flow_report::{Axis, Estimate, Plot, Series, Table};

use super::{
    Effort,
    band::Band,
    motivation::{figure as of_motivation, name, plot, worst},
    runs::{Experiment, Metric, Runs, short},
};
use crate::{check::Check, figure::Figure};

const MEAN: Metric = |it| short(it).mean_us;
const OTHERS: [&str; 2] = ["ecmp", "letflow"];

/// RPS, ECMP and LetFlow at the least and the most asymmetry, at each load.
pub fn experiment(effort: &Effort) -> Experiment {
    let mut schemes = Vec::new();
    for ratio in ends(effort) {
        for scheme in ["rps"].into_iter().chain(OTHERS) {
            let changes =
                format!("balance.policy = \"{scheme}\"\nfabric.slow.rtt_ratio = {ratio:?}");
            schemes.push((name(scheme, ratio), changes));
        }
    }
    Experiment {
        name: "motivation-loads",
        scenario: "tr-motivation",
        schemes,
        loads: effort.motivation_loads.clone(),
        seeds: effort.motivation_seeds,
        messages: None,
    }
}

/// The least and the most asymmetry.
fn ends(effort: &Effort) -> [f64; 2] {
    [effort.ratios[0], worst(effort)]
}

/// Builds `T3`: figure 2(c), short flows.
pub fn figure(runs: &Runs, loads: &Runs, effort: &Effort) -> Figure {
    let [least, worst] = ends(effort);
    let above = || Band::more(1.0, f64::INFINITY);
    let mut checks = vec![above().check(
        "RPS / ECMP at 2.5 times the RTT, load 0.5",
        "RPS is worst",
        runs.ratio(&name("rps", 2.5), &name("ecmp", 2.5), &[None], MEAN),
    )];
    for ratio in [worst, least] {
        for (other, title) in OTHERS.into_iter().zip(["ECMP", "LetFlow"]) {
            let each = effort.motivation_loads.iter();
            let each = each.map(|load| (*load, at_load(loads, ratio, other, *load)));
            let what = format!("RPS / {title} at {ratio} times, by load");
            checks.push(above().over_loads(&what, "RPS is worst", each));
        }
    }
    checks.push(widens(runs, least, worst));
    let by_ratio = "Mean completion time of short flows";
    let mut plots = vec![plot(runs, effort, by_ratio, "us", MEAN)];
    plots.push(by_load(loads, effort));
    let mut figure = of_motivation(
        "T3",
        "completion times of short flows, figure 2(c)",
        checks,
        plots,
        runs,
    );
    figure.note += " Short flows take as long with RPS at any load, as its long flows never fill a link; \
        with ECMP and LetFlow they do, and short flows wait behind them.";
    figure.rows.extend(loads.rows());
    figure.tables.push(table(loads, effort));
    figure
}

fn at_load(loads: &Runs, ratio: f64, other: &str, load: f64) -> Option<Estimate> {
    loads.ratio(
        &name("rps", ratio),
        &name(other, ratio),
        &[Some(load)],
        MEAN,
    )
}

fn widens(runs: &Runs, least: f64, worst: f64) -> Check {
    let growth = |scheme| runs.ratios(&name(scheme, worst), &name(scheme, least), None, MEAN);
    let (rps, ecmp) = (growth("rps"), growth("ecmp"));
    let by_seed = rps.iter().zip(&ecmp).map(|(rps, ecmp)| rps / ecmp);
    let steeper = Estimate::of(by_seed);
    let what = format!("growth from {least} to {worst}, RPS / ECMP, load 0.5");
    Band::more(1.0, f64::INFINITY).check(&what, "gaps widen", steeper)
}

/// Each ratio at each load.
fn table(loads: &Runs, effort: &Effort) -> Table {
    let ends = ends(effort);
    let header = ends.iter().flat_map(|ratio| {
        ["ECMP", "LetFlow"].map(|other| format!("RPS / {other} at {ratio} times"))
    });
    let mut table = Table::new(std::iter::once("load".to_owned()).chain(header));
    for load in &effort.motivation_loads {
        let cells = ends.iter().flat_map(|ratio| {
            OTHERS.map(|other| {
                let it = at_load(loads, *ratio, other, *load);
                it.map_or_else(String::new, |it| it.to_text(2))
            })
        });
        table.row(std::iter::once(load.to_string()).chain(cells));
    }
    table
}

fn by_load(loads: &Runs, effort: &Effort) -> Plot {
    let plot = Plot::new(
        "Mean completion time of short flows, RPS over another scheme",
        Axis::linear("load"),
        Axis::linear("times"),
    );
    let pairs = ends(effort)
        .into_iter()
        .flat_map(|ratio| OTHERS.map(|other| (ratio, other)));
    pairs.fold(plot, |plot, (ratio, other)| {
        let points = effort
            .motivation_loads
            .iter()
            .filter_map(|load| Some((*load, at_load(loads, ratio, other, *load)?.mean)));
        let label = format!("{other}, {ratio} times the round trip");
        plot.with(Series::line(label, points.collect()))
    })
}
