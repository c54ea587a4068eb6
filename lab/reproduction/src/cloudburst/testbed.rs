//! Eight servers and four paths of 1 Gbit/s: figures 12 to 14, `C5` to `C7`.

use flow_report::{Axis, Plot, Series, Table};

use super::{
    Effort,
    experiment::{Experiment, against_each, figure, percent_text},
};
use crate::{
    figure::Figure,
    tr::{
        band::Band,
        runs::{Metric, Runs, all, percent},
    },
};

const SCHEMES: [&str; 9] = [
    "dctcp",
    "pias",
    "repdctcp-2",
    "repdctcp-3",
    "repdctcp-4",
    "mptcp",
    "cloudburst",
    "cloudburst-halves",
    "cloudburst-native",
];
/// Schemes that the paper has besides Cloudburst.
const OTHERS: [&str; 6] = [
    "dctcp",
    "pias",
    "repdctcp-2",
    "repdctcp-3",
    "repdctcp-4",
    "mptcp",
];
/// Readings of MPTCP and of PIAS that the paper leaves open: their names, the schemes that they begin with, and changes.
/// Another subflow begins its handshake when the first one is there, and Linux waits for 200 ms at least.
const VARIANTS: [(&str, &str, &str); 5] = [
    ("mptcp-joins-1", "mptcp", "transport.join_round_trips = 1"),
    ("mptcp-joins-2", "mptcp", "transport.join_round_trips = 2"),
    ("mptcp-rto-200", "mptcp", "transport.rto_min_us = 200_000"),
    (
        "mptcp-joins-2-rto-200",
        "mptcp",
        "transport = { join_round_trips = 2, rto_min_us = 200_000 }",
    ),
    ("pias-rto-200", "pias", "transport.rto_min_us = 200_000"),
];
/// Requests a second over all servers, and names for the runs.
const RATES: [(u32, &str); 3] = [
    (800, "testbed-800"),
    (1_600, "testbed-1600"),
    (2_000, "testbed-2000"),
];

/// All schemes, at each rate.
pub fn rate_experiments(effort: &Effort) -> Vec<Experiment> {
    let schemes = |rate: u32| {
        let as_they_are = SCHEMES.map(|it| (it, it, "")).into_iter();
        let schemes = as_they_are.chain(VARIANTS).map(|(name, base, changes)| {
            let changes = format!("traffic.0.per_second = {rate}\n{changes}");
            (name.to_owned(), base, changes)
        });
        schemes.collect()
    };
    let experiment = |(rate, name): (u32, &'static str)| Experiment {
        name,
        scenario: "cloudburst-testbed",
        schemes: schemes(rate),
        seeds: effort.testbed_seeds,
        messages: Some(effort.testbed_messages),
    };
    RATES.map(experiment).to_vec()
}

/// Schemes compared by buffer. Timeouts depend on the buffers of switches, which the paper does not
/// say.
const AGAINST: [&str; 3] = ["dctcp", "pias", "cloudburst"];

/// DCTCP, PIAS and Cloudburst at 2,000 requests a second, by what a switch holds.
pub fn buffers_experiment(effort: &Effort) -> Experiment {
    let mut schemes = Vec::new();
    for scheme in AGAINST {
        for kilobytes in &effort.buffers {
            let bytes = kilobytes * 1_000;
            let changes =
                format!("port.buffer_bytes = {bytes}\nport.shared.buffer_bytes = {bytes}");
            schemes.push((with_buffer(scheme, *kilobytes), scheme, changes));
        }
    }
    Experiment {
        name: "buffers",
        scenario: "cloudburst-testbed",
        schemes,
        seeds: effort.testbed_seeds,
        messages: Some(effort.testbed_messages),
    }
}

fn with_buffer(scheme: &str, kilobytes: u32) -> String {
    format!("{scheme}-{kilobytes}")
}

/// Builds `C5`: figure 12, means.
pub fn means(runs: &[Runs]) -> Figure {
    let metric: Metric = |it| all(it).mean_us;
    let mut checks = Vec::new();
    for (runs, (rate, _)) in runs.iter().zip(RATES) {
        let ratio = runs.ratio("cloudburst", "pias", &[None], metric);
        let what = format!("Cloudburst / PIAS at {rate}/s");
        checks.push(Band::about(0.75, 1.25).check(&what, "similar", ratio));
        let rest = [
            "dctcp",
            "pias",
            "repdctcp-2",
            "repdctcp-3",
            "repdctcp-4",
            "cloudburst",
        ];
        let each = against_each(runs, "mptcp", &rest, metric);
        let what = format!("MPTCP / worst other at {rate}/s");
        checks.push(Band::more(1.0, f64::INFINITY).check_all(&what, "MPTCP is worst", each));
    }
    let replicated = |place: usize| runs[place].ratio("repdctcp-4", "dctcp", &[None], metric);
    checks.push(Band::less(1.0).check(
        "4 copies / DCTCP at 800/s",
        "best of the DCTCP family",
        replicated(0),
    ));
    checks.push(Band::more(1.0, f64::INFINITY).check(
        "4 copies / DCTCP at 2000/s",
        "degrades",
        replicated(2),
    ));
    let ours = |place: usize| {
        percent_text(percent(runs[place].ratio(
            "cloudburst-native",
            "pias",
            &[None],
            metric,
        )))
    };
    let note = format!(
        "Copies share the 1 Gbit/s of their sender, which costs more than the choice of paths gains. This project's own mode \
         against PIAS: {}, {} and {}.",
        ours(0),
        ours(1),
        ours(2),
    );
    let all_runs: Vec<&Runs> = runs.iter().collect();
    let plot = over_rates("Mean completion time", runs, metric);
    let mut figure = figure(
        "C5",
        "mean completion times, figure 12",
        note,
        checks,
        &all_runs,
        vec![plot],
    );
    figure.tables.push(variants(runs));
    figure
}

/// MPTCP's mean of that of the worst other, and Cloudburst's of PIAS's, by reading.
fn variants(runs: &[Runs]) -> Table {
    let metric: Metric = |it| all(it).mean_us;
    let rates = RATES.map(|it| format!("{}/s", it.0));
    let mut table = Table::new(["mean".to_owned()].into_iter().chain(rates));
    let text = |it: Option<flow_report::Estimate>| it.map_or_else(String::new, |it| it.to_text(2));
    let mptcp = VARIANTS
        .iter()
        .map(|it| it.0)
        .filter(|it| it.starts_with("mptcp"));
    for name in ["mptcp"].into_iter().chain(mptcp) {
        let rest = OTHERS
            .iter()
            .filter(|it| **it != "mptcp")
            .chain(&["cloudburst"]);
        let rest: Vec<&str> = rest.copied().collect();
        let cells = runs.iter().map(|runs| {
            let each = against_each(runs, name, &rest, metric).into_iter();
            text(each.map(|it| it.1).min_by(|a, b| a.mean.total_cmp(&b.mean)))
        });
        table.row([format!("{name} / worst other")].into_iter().chain(cells));
    }
    for pias in ["pias", "pias-rto-200"] {
        let cells = runs
            .iter()
            .map(|runs| text(runs.ratio("cloudburst", pias, &[None], metric)));
        table.row([format!("cloudburst / {pias}")].into_iter().chain(cells));
    }
    table
}

/// Builds `C6`: figure 13, 99th percentiles.
pub fn tails(runs: &[Runs], buffers: &Runs, effort: &Effort) -> Figure {
    let metric: Metric = |it| all(it).p99_us;
    let most = &runs[2];
    let against = |one, other| percent(most.ratio(one, other, &[None], metric));
    let checks = vec![
        Band::drop(-80.0, -45.0).check(
            "against DCTCP at 2000/s",
            "-63.69 %",
            against("cloudburst", "dctcp"),
        ),
        Band::drop(-80.0, -45.0).check(
            "against PIAS at 2000/s",
            "-60.06 %",
            against("cloudburst", "pias"),
        ),
        Band::less(1.0).check_all(
            "against the best other",
            "best of all",
            against_each(most, "cloudburst", &OTHERS, metric),
        ),
    ];
    let note = format!(
        "All sizes together. What a switch holds is chosen so that DCTCP has the paper's 14.9 ms; nothing else is fitted: \
         without timeouts PIAS is the fastest. With sums of halves: {} against DCTCP; this project's own mode: {} against DCTCP, {} against PIAS.",
        percent_text(against("cloudburst-halves", "dctcp")),
        percent_text(against("cloudburst-native", "dctcp")),
        percent_text(against("cloudburst-native", "pias")),
    );
    let by_buffer = Plot::new(
        "99th percentile by what a switch holds, 2,000 requests a second",
        Axis::linear("kB"),
        Axis::linear("ms"),
    );
    let by_buffer = AGAINST.iter().fold(by_buffer, |plot, scheme| {
        let point = |it: &u32| {
            let value = buffers.value(&with_buffer(scheme, *it), None, metric)?;
            Some((f64::from(*it), value.mean / 1e3))
        };
        plot.with(Series::line(
            *scheme,
            effort.buffers.iter().filter_map(point).collect(),
        ))
    });
    let all_runs: Vec<&Runs> = runs.iter().chain([buffers]).collect();
    let plot = over_rates("99th percentile of completion times", runs, metric);
    let mut figure = figure(
        "C6",
        "99th percentiles, figure 13",
        note,
        checks,
        &all_runs,
        vec![plot, by_buffer],
    );
    figure.tables.push(buffer_table(buffers, effort));
    figure
}

/// 99th percentiles over all sizes, by what a switch holds.
fn buffer_table(buffers: &Runs, effort: &Effort) -> Table {
    let kilobytes = effort.buffers.iter().map(|it| format!("{it} kB"));
    let mut table = Table::new(
        ["a switch holds, ms".to_owned()]
            .into_iter()
            .chain(kilobytes),
    );
    for scheme in AGAINST {
        let cell = |it: &u32| {
            let value = buffers.value(&with_buffer(scheme, *it), None, |it| all(it).p99_us);
            value.map_or_else(String::new, |it| format!("{:.1}", it.mean / 1e3))
        };
        table.row(
            [scheme.to_owned()]
                .into_iter()
                .chain(effort.buffers.iter().map(cell)),
        );
    }
    table
}

fn over_rates(title: &str, runs: &[Runs], metric: Metric) -> Plot {
    let plot = Plot::new(
        title,
        Axis::linear("requests a second over all servers"),
        Axis::linear("us"),
    );
    SCHEMES.iter().fold(plot, |plot, scheme| {
        let point = |(runs, (rate, _)): (&Runs, (u32, &str))| {
            Some((f64::from(rate), runs.value(scheme, None, metric)?.mean))
        };
        plot.with(Series::line(
            *scheme,
            runs.iter().zip(RATES).filter_map(point).collect(),
        ))
    })
}

/// Settings of the paper are in the scenario, so that a check cannot name another.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_schemes_that_run() {
        assert!(OTHERS.iter().all(|it| SCHEMES.contains(it)));
        let source = netsim::Source::find("cloudburst-testbed").unwrap();
        let known = source.scenario().unwrap().schemes;
        for scheme in SCHEMES {
            assert!(known.contains_key(scheme), "{scheme}");
        }
    }
}
