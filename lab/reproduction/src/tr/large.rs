//! Ten leaves, ten spines, 200 hosts at 40 Gbit/s, under four workloads: figures 11 to 14, `T10` to
//! `T14`.

use flow_report::{Axis, Estimate, Plot, Table};

use super::{
    Effort,
    band::Band,
    headline_gains::Cell,
    runs::{COLUMNS, Experiment, Metric, Runs, all, medium, percent, short},
    workloads::{WORKLOADS, Workload},
};
use crate::{check::Check, figure::Figure};

/// Schemes as the paper orders them, and ours.
const SCHEMES: [&str; 7] = [
    "ecmp",
    "rps",
    "drb",
    "presto",
    "letflow",
    "tr",
    "tr_guarded",
];
const BASE: &str = "letflow";

/// Changes, one at a time, that show what makes large flows slow under TR to the letter.
const CAUSES: [(&str, &str); 8] = [
    ("letflow", "balance.policy = \"letflow\""),
    ("TR to the letter", "balance.policy = \"tr\""),
    (
        "spines' queues known exactly and at once",
        "balance = { policy = \"tr\", tr = { far = \"exact\" } }",
    ),
    (
        "sizes of packets counted",
        "balance = { policy = \"tr\", tr = { counts_serialisation = true } }",
    ),
    (
        "a guard of 5 us",
        "balance = { policy = \"tr\", tr = { guard_us = 5 } }",
    ),
    (
        "hosts with SACK",
        "balance.policy = \"tr\"\ntransport.recovery = \"sack\"",
    ),
    (
        "hosts that take ten duplicate ACKs for loss",
        "balance.policy = \"tr\"\ntransport.dupack_threshold = 10",
    ),
    (
        "hosts that wait out any reordering",
        "balance.policy = \"tr\"\ntransport.dupack_threshold = 1_000_000",
    ),
];
const CAUSES_LOAD: f64 = 0.6;

/// One for each workload.
pub fn experiments(effort: &Effort) -> Vec<Experiment> {
    let experiment = |it: &Workload| Experiment {
        name: it.runs,
        scenario: it.scenario,
        schemes: SCHEMES
            .map(|scheme| (scheme.to_owned(), it.changes(scheme)))
            .to_vec(),
        loads: effort.loads.clone(),
        seeds: effort.large_seeds,
        messages: Some(it.flows(effort)),
    };
    WORKLOADS.iter().map(experiment).collect()
}

/// Experiment on what makes large flows slow, under Web Search.
pub fn causes(effort: &Effort) -> Experiment {
    let schemes = CAUSES.map(|(name, changes)| (name.to_owned(), changes.to_owned()));
    Experiment {
        name: "large-causes",
        scenario: "tr-large",
        schemes: schemes.to_vec(),
        loads: vec![CAUSES_LOAD],
        seeds: effort.large_seeds,
        messages: Some(effort.large_flows),
    }
}

/// `T10`: short flows' mean.
pub fn short_mean(runs: &[Runs], effort: &Effort) -> Figure {
    let metric: Metric = |it| short(it).mean_us;
    let mut checks = against_letflow(
        runs,
        effort,
        Band::drop(-45.0, -10.0),
        "about -20 %",
        |_| true,
        metric,
    );
    for (runs, workload) in runs.iter().zip(&WORKLOADS) {
        let what = format!("{}: TR / best other", workload.name);
        let each = against_each(runs, effort, metric);
        checks.push(Band::less(1.0).check_all(&what, "TR is best", each));
    }
    let mut figure = figure(
        "T10",
        "short flows, mean, figures 11 to 14 (a)",
        checks,
        runs,
        effort,
        metric,
    );
    let medians = runs.iter().zip(&WORKLOADS).filter_map(|(runs, workload)| {
        let change = percent(runs.ratio("tr", BASE, &loads(effort), |it| short(it).p50_us))?;
        Some(format!("{} {} %", workload.name, change.to_text(1)))
    });
    let medians: Vec<String> = medians.collect();
    figure.note += &format!(
        " Medians, TR to the letter against LetFlow: {}.",
        medians.join(", ")
    );
    figure
}

/// `T11`: short flows' tail.
pub fn short_tail(runs: &[Runs], effort: &Effort) -> Figure {
    let metric: Metric = |it| short(it).p99_us;
    let checks = against_letflow(
        runs,
        effort,
        Band::drop(-60.0, -10.0),
        "up to -50 %",
        |_| true,
        metric,
    );
    figure(
        "T11",
        "short flows, 99th percentile, figures 11 to 14 (b)",
        checks,
        runs,
        effort,
        metric,
    )
}

/// `T12`: flows of 100 kB to 1 MB.
pub fn medium_mean(runs: &[Runs], effort: &Effort) -> Figure {
    let metric: Metric = |it| medium(it).mean_us;
    let checks = against_letflow(
        runs,
        effort,
        Band::drop(-25.0, 0.0),
        "up to -20 %",
        |_| true,
        metric,
    );
    figure(
        "T12",
        "100 kB to 1 MB, mean, figures 11 to 14 (c)",
        checks,
        runs,
        effort,
        metric,
    )
}

/// `T13`: larger flows, of which Web Server has none.
pub fn large_mean(runs: &[Runs], causes: &Runs, effort: &Effort) -> Figure {
    let metric: Metric = |it| it.classes[2].mean_us;
    let checks = against_letflow(
        runs,
        effort,
        Band::drop(-10.0, 10.0),
        "about -10 %",
        |it| it.has_large,
        metric,
    );
    let mut figure = figure(
        "T13",
        "above 1 MB, mean, figures 11 to 13 (d)",
        checks,
        runs,
        effort,
        metric,
    );
    figure.note += " What makes it, under Web Search at load 0.6, is in the last table: what is out of \
        order is paid for by hosts that take it for loss, and to know spines' queues better does not \
        mend it, as the next packet is already gone when others' packets reach the spine.";
    figure.tables.push(causes_table(causes));
    figure.rows.extend(causes.rows());
    figure
}

/// Large flows with one thing changed at a time.
fn causes_table(runs: &Runs) -> Table {
    let load = Some(CAUSES_LOAD);
    let mut table = Table::new([
        "TR with",
        "above 1 MB, relative to LetFlow",
        "out of order, %",
        "sent again, %",
        "100 kB to 1 MB",
        "up to 100 kB",
    ]);
    let metrics: [Metric; 3] = [
        |it| it.classes[2].mean_us,
        |it| medium(it).mean_us,
        |it| short(it).mean_us,
    ];
    let shares: [Metric; 2] = [
        |it| it.classes[2].out_of_order_percent,
        |it| it.classes[2].retransmitted_percent,
    ];
    for (scheme, _) in &CAUSES[1..] {
        let text = |it: Option<Estimate>| it.map_or_else(String::new, |it| it.to_text(2));
        let [large, medium, short] =
            metrics.map(|metric| text(runs.ratio(scheme, BASE, &[load], metric)));
        let [disorder, again] = shares.map(|metric| text(runs.value(scheme, load, metric)));
        table.row([(*scheme).to_owned(), large, disorder, again, medium, short]);
    }
    table
}

/// Builds `T14`: means of all flows.
pub fn all_mean(runs: &[Runs], effort: &Effort) -> Figure {
    let metric: Metric = |it| all(it).mean_us;
    let mut checks = Vec::new();
    for (runs, workload) in runs.iter().zip(&WORKLOADS) {
        for (one, other) in [("tr", "letflow"), ("letflow", "drb"), ("drb", "rps")] {
            let ratio = runs.ratio(one, other, &loads(effort), metric);
            let what = format!("{}: {one} / {other}", workload.name);
            checks.push(Band::less(1.0).check(&what, "less", ratio));
        }
    }
    figure(
        "T14",
        "all flows, mean, figures 11 to 13 (e), 14 (d)",
        checks,
        runs,
        effort,
        metric,
    )
}

/// TR against each other of the paper's schemes at each load under each workload.
pub fn cells(runs: &[Runs], effort: &Effort, metric: Metric) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (runs, workload) in runs.iter().zip(&WORKLOADS) {
        for load in &effort.loads {
            for other in &SCHEMES[..5] {
                cells.push(Cell {
                    name: format!("{} at load {load} against {other}", workload.name),
                    ratios: runs.ratios("tr", other, Some(*load), metric),
                });
            }
        }
    }
    cells
}

/// TR to the letter against LetFlow, over all loads.
fn against_letflow(
    runs: &[Runs],
    effort: &Effort,
    band: Band,
    paper: &str,
    is_meant: fn(&Workload) -> bool,
    metric: Metric,
) -> Vec<Check> {
    let runs = runs.iter().zip(&WORKLOADS);
    let runs = runs.filter(|(_, workload)| is_meant(workload));
    runs.map(|(runs, workload)| {
        let change = percent(runs.ratio("tr", BASE, &loads(effort), metric));
        band.check(
            &format!("{}: TR against LetFlow", workload.name),
            paper,
            change,
        )
    })
    .collect()
}

/// TR to the letter against each of the paper's others.
fn against_each(runs: &Runs, effort: &Effort, metric: Metric) -> Vec<(&'static str, Estimate)> {
    let ratio = |other: &&'static str| {
        let ratio = runs.ratio("tr", other, &loads(effort), metric)?;
        Some((*other, ratio))
    };
    SCHEMES[..5].iter().filter_map(ratio).collect()
}

fn loads(effort: &Effort) -> Vec<Option<f64>> {
    effort.loads.iter().copied().map(Some).collect()
}

fn figure(
    id: &'static str,
    title: &'static str,
    checks: Vec<Check>,
    runs: &[Runs],
    effort: &Effort,
    metric: Metric,
) -> Figure {
    let plots = runs.iter().zip(&WORKLOADS).map(|(runs, workload)| {
        let axes = (Axis::linear("load"), Axis::linear("relative to LetFlow"));
        SCHEMES
            .into_iter()
            .fold(Plot::new(workload.name, axes.0, axes.1), |plot, scheme| {
                plot.with(runs.line(scheme, Some(BASE), &effort.loads, metric))
            })
    });
    let guarded = runs.iter().zip(&WORKLOADS).filter_map(|(runs, workload)| {
        let change = percent(runs.ratio("tr_guarded", BASE, &loads(effort), metric))?;
        Some(format!("{} {} %", workload.name, change.to_text(1)))
    });
    let guarded: Vec<String> = guarded.collect();
    Figure {
        id,
        title,
        note: format!(
            "Means over loads {:?}, {} seeds of {} flows under Web Search, 0.4 times as many under Data Mining, \
             1.5 times under Cache Follower, 4 times under Web Server; first with public distributions of these names, then with ones \
             that add up to the paper's Table 1. With guard and slack, against LetFlow: {}.",
            effort.loads,
            effort.large_seeds,
            effort.large_flows,
            guarded.join(", ")
        ),
        checks,
        rows: runs.iter().flat_map(Runs::rows).collect(),
        columns: COLUMNS.to_vec(),
        tables: vec![
            over_loads(runs, effort, metric),
            table(runs, effort, metric),
        ],
        plots: plots.collect(),
    }
}

/// TR to the letter, and with guard and slack, against LetFlow over all loads.
fn over_loads(runs: &[Runs], effort: &Effort, metric: Metric) -> Table {
    let mut table = Table::new(["workload", "TR, %", "with guard and slack, %"]);
    for (runs, workload) in runs.iter().zip(&WORKLOADS) {
        let change = |scheme| {
            let change = percent(runs.ratio(scheme, BASE, &loads(effort), metric));
            change.map_or_else(|| "none".to_owned(), |it| it.to_text(1))
        };
        table.row([workload.name.to_owned(), change("tr"), change("tr_guarded")]);
    }
    table
}

/// Every scheme at every load, relative to LetFlow.
fn table(runs: &[Runs], effort: &Effort, metric: Metric) -> Table {
    let header = ["workload", "load"].into_iter().chain(SCHEMES);
    let mut table = Table::new(header);
    for (runs, workload) in runs.iter().zip(&WORKLOADS) {
        for load in &effort.loads {
            let cell = |scheme: &str| {
                let ratio = runs.ratio(scheme, BASE, &[Some(*load)], metric);
                ratio.map_or_else(String::new, |it| it.to_text(2))
            };
            let names = [workload.name.to_owned(), load.to_string()];
            table.row(names.into_iter().chain(SCHEMES.map(cell)));
        }
    }
    table
}
