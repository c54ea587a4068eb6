//! Incast and broken paths: figures 15 and 16, `C8` and `C9`.

use flow_report::{Axis, Plot, Series, Table};
use netsim::Manifest;

use super::{
    Effort,
    experiment::{Experiment, as_they_are, figure, percent_text},
};
use crate::{
    check::Check,
    figure::Figure,
    tr::{
        band::Band,
        model::determination,
        runs::{Metric, Runs, all, percent},
    },
};

const INCAST: [&str; 5] = ["dctcp", "pias", "mptcp", "cloudburst", "cloudburst-native"];
/// DCTCP with Linux's least timeout, in place of the paper's 10 ms.
const PATIENT: &str = "dctcp-rto-200";
/// First timeouts come with so many flows at the latest.
const FIRST_TIMEOUTS: u32 = 16;

/// Each scheme with each number of flows.
pub fn incast_experiment(effort: &Effort) -> Experiment {
    let mut schemes = Vec::new();
    for scheme in INCAST {
        for flows in &effort.incasts {
            let changes = format!("traffic.0.senders = {flows}\ntraffic.0.rounds = 1");
            schemes.push((name(scheme, *flows), scheme, changes));
        }
    }
    for flows in &effort.incasts {
        let changes = format!(
            "traffic.0.senders = {flows}\ntraffic.0.rounds = 1\ntransport.rto_min_us = 200_000\nuntil_ms = 60_000"
        );
        schemes.push((name(PATIENT, *flows), "dctcp", changes));
    }
    Experiment {
        name: "incast",
        scenario: "cloudburst-incast",
        schemes,
        seeds: effort.incast_seeds,
        messages: None,
    }
}

fn name(scheme: &str, flows: u32) -> String {
    format!("{scheme}-{flows}")
}

/// Builds `C8`: figure 15, incast.
pub fn incast(runs: &Runs, effort: &Effort) -> Figure {
    // From the start of all to the end of the last (§V-C).
    let metric: Metric = |it| all(it).max_us;
    let timeouts: Metric = |it| Some(all(it).timeouts as f64);
    let line = |scheme: &str| -> Vec<(f64, f64)> {
        let point = |flows: &u32| {
            Some((
                f64::from(*flows),
                runs.value(&name(scheme, *flows), None, metric)?.mean / 1e3,
            ))
        };
        effort.incasts.iter().filter_map(point).collect()
    };
    let fit = |scheme: &str| {
        let points = line(scheme);
        (points.len() > 2).then(|| determination(&points))
    };
    let most = effort.incasts.last().copied().unwrap_or(1);
    let against = |one: &str, other: &str, flows| {
        runs.ratio(&name(one, flows), &name(other, flows), &[None], metric)
    };
    let waits = runs
        .value(&name("dctcp", most), None, timeouts)
        .map_or(0.0, |it| it.mean);
    let miss = (waits < 1.0).then(|| "there were none".to_owned());
    let mut checks = vec![
        Band::about(0.95, f64::INFINITY).check_value(
            "Cloudburst: R² of a line over flows",
            "almost linear",
            fit("cloudburst"),
        ),
        Check::new(
            "DCTCP's timeouts in a run, most flows",
            "some",
            "at least 1",
            format!("{waits:.0}"),
            miss,
        )
        .with_numbers((1.0, f64::INFINITY), None, waits),
    ];
    // Where first timeouts come, and where there are so many flows that some always send.
    let few = effort.incasts.iter().filter(|it| **it <= FIRST_TIMEOUTS);
    for flows in [few.max().copied().unwrap_or(most), most] {
        for other in ["dctcp", "pias"] {
            let what = format!("Cloudburst / {other}, {flows} flows");
            let ratio = against("cloudburst", other, flows);
            checks.push(Band::less(0.6).check(&what, "diverges", ratio));
        }
    }
    let note = format!(
        "Time until the last flow has arrived, mean over runs of one incast each. This project's own mode against DCTCP with {most} flows: {}; R² of its line {}.",
        percent_text(percent(against("cloudburst-native", "dctcp", most))),
        fit("cloudburst-native").map_or_else(String::new, |it| format!("{it:.3}")),
    );
    let plot = Plot::new(
        "Incast of 90 kB each",
        Axis::linear("concurrent flows"),
        Axis::linear("until the last has arrived, ms"),
    );
    let plot = INCAST.iter().fold(plot, |plot, scheme| {
        plot.with(Series::line(*scheme, line(scheme)))
    });
    Figure {
        tables: vec![incast_table(runs, effort)],
        ..figure("C8", "incast, figure 15", note, checks, &[runs], vec![plot])
    }
}

/// Until the last flow has arrived, and the mean of all, for each number of flows.
fn incast_table(runs: &Runs, effort: &Effort) -> Table {
    const SHOWN: [&str; 4] = ["dctcp", PATIENT, "mptcp", "cloudburst"];
    let header = SHOWN.map(|scheme| format!("{scheme}, last / mean, ms"));
    let mut table = Table::new(std::iter::once("flows".to_owned()).chain(header));
    for flows in &effort.incasts {
        let cells = SHOWN.map(|scheme| {
            let ms = |metric: Metric| {
                let found = runs.value(&name(scheme, *flows), None, metric);
                found.map_or_else(|| "-".to_owned(), |it| format!("{:.1}", it.mean / 1e3))
            };
            format!("{} / {}", ms(|it| all(it).max_us), ms(|it| all(it).mean_us))
        });
        table.row(std::iter::once(flows.to_string()).chain(cells));
    }
    table
}

/// 0 to 3 of 4 paths broken, known to routing or not, with both modes.
pub fn failures_experiment(effort: &Effort) -> Experiment {
    Experiment {
        name: "failures",
        scenario: "cloudburst-failures",
        schemes: as_they_are(&FAILURES),
        seeds: effort.testbed_seeds,
        messages: Some(effort.testbed_messages),
    }
}

const FAILURES: [&str; 14] = [
    "cloudburst-0",
    "cloudburst-1",
    "cloudburst-2",
    "cloudburst-3",
    "cloudburst-native-0",
    "cloudburst-native-1",
    "cloudburst-native-2",
    "cloudburst-native-3",
    "unknown-1",
    "unknown-2",
    "unknown-3",
    "unknown-native-1",
    "unknown-native-2",
    "unknown-native-3",
];

/// Builds `C9`: figure 16, broken paths.
pub fn failures(runs: &Runs) -> Figure {
    let metric: Metric = |it| all(it).p99_us;
    let against = |one, other| runs.ratio(one, other, &[None], metric);
    let mut checks = vec![Band::about(1.1, 1.6).check(
        "3 of 4 broken / none",
        "5,412 to 6,907 us: 1.276",
        against("cloudburst-3", "cloudburst-0"),
    )];
    for (one, other, what) in [
        ("cloudburst-1", "cloudburst-0", "1 broken / none"),
        ("cloudburst-2", "cloudburst-1", "2 broken / 1"),
        ("cloudburst-3", "cloudburst-2", "3 broken / 2"),
    ] {
        checks.push(Band::more(0.99, f64::INFINITY).check(what, "grows", against(one, other)));
    }
    let unknown = |one, other| percent_text(percent(against(one, other)));
    let unfinished = |it: &Manifest| Some(it.totals.unfinished as f64);
    let lost: f64 = FAILURES
        .iter()
        .filter_map(|it| runs.largest(it, unfinished))
        .sum();
    let note = format!(
        "99th percentiles at 2,000 requests a second; paths lead over links that work. Where endpoints do not know which do not, \
         1, 2 and 3 broken paths cost {}, {} and {}. This project's own mode: 3 broken {}; where it has to find out, {}. \
         Messages that did not arrive: {lost}.",
        unknown("unknown-1", "cloudburst-0"),
        unknown("unknown-2", "cloudburst-0"),
        unknown("unknown-3", "cloudburst-0"),
        unknown("cloudburst-native-3", "cloudburst-native-0"),
        unknown("unknown-native-3", "cloudburst-native-0"),
    );
    let line = |title: &str, prefix: &str, first: &str| {
        let scheme = |failed: u32| match failed {
            0 => first.to_owned(),
            _ => format!("{prefix}-{failed}"),
        };
        let point = |failed: u32| {
            Some((
                f64::from(failed),
                runs.value(&scheme(failed), None, metric)?.mean / 1e3,
            ))
        };
        Series::line(title, (0..4).filter_map(point).collect())
    };
    let plot = Plot::new(
        "99th percentile with broken paths",
        Axis::linear("broken paths of 4"),
        Axis::linear("ms"),
    )
    .with(line("known to routing", "cloudburst", "cloudburst-0"))
    .with(line("not known", "unknown", "cloudburst-0"))
    .with(line(
        "ours, known",
        "cloudburst-native",
        "cloudburst-native-0",
    ))
    .with(line(
        "ours, not known",
        "unknown-native",
        "cloudburst-native-0",
    ))
    .with(Series::points("paper", vec![(0.0, 5.412), (3.0, 6.907)]));
    figure(
        "C9",
        "broken paths, figure 16",
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
    fn incasts_go_to_200_flows_with_both_least_timeouts() {
        let experiment = incast_experiment(&Effort::full(1));
        let source = netsim::Source::from_text("incast", &experiment.text().expect("it is right"))
            .with_paper_machine(paper_machine::simulated);
        for (scheme, rto_min_us) in [("dctcp", 10_000), (PATIENT, 200_000)] {
            let overrides = netsim::Overrides {
                scheme: Some(name(scheme, 200)),
                ..Default::default()
            };
            let found = source.experiment(&overrides).expect("it is right");
            let found = serde_json::to_value(found.settings()).expect("they are numbers");
            assert_eq!(found["transport"]["rto_min_us"], rto_min_us, "{scheme}");
            assert_eq!(found["traffic"][0]["senders"], 200, "{scheme}");
        }
    }

    #[test]
    fn incasts_are_compared_where_timeouts_begin_and_with_the_most_flows() {
        let figure = incast(&Runs::new("none", Vec::new()), &Effort::full(1));
        let compared = figure
            .checks
            .iter()
            .filter(|it| it.what.contains("Cloudburst / "));
        let compared: Vec<&str> = compared.map(|it| &*it.what).collect();
        assert_eq!(
            compared,
            [
                "Cloudburst / dctcp, 16 flows",
                "Cloudburst / pias, 16 flows",
                "Cloudburst / dctcp, 200 flows",
                "Cloudburst / pias, 200 flows",
            ]
        );
    }
}
