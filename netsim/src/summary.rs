//! Statistics of one run, by size class.

use std::collections::BTreeMap;

use flow_report::{Summary, Table};
use flow_workload::Operation;
use serde::{Deserialize, Serialize};

use crate::{
    outcome::{FlowRecord, Outcome, PathRecord, Totals},
    scenario::{Experiment, Scenario},
};

/// A run's manifest: what ran, and what came out. The same experiment gives the same manifest, byte
/// for byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the scenario.
    pub scenario: String,
    /// The scheme that was laid over it.
    pub scheme: Option<String>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The version of the simulator.
    pub version: String,
    /// All settings, defaults included.
    pub settings: Scenario,
    /// Fingerprints of the files that the scenario names, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Flows by size class, and iterations of collective operations.
    pub classes: Vec<ClassSummary>,
    /// Links between switches.
    pub paths: PathSummary,
    /// Sums over all flows and links.
    pub totals: Totals,
}

/// Flows of one class of sizes, or iterations of a collective operation. Times and delays are nothing
/// where there was nothing to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Its name: the bounds of sizes.
    pub class: String,
    /// Number of flows that completed.
    pub flows: usize,
    /// Flows that had not when the run ended; they are in none of the times.
    pub unfinished: usize,
    /// Mean flow completion time, in microseconds.
    pub mean_us: Option<f64>,
    /// Median flow completion time, in microseconds.
    pub p50_us: Option<f64>,
    /// 95th percentile of flow completion times, in microseconds.
    pub p95_us: Option<f64>,
    /// 99th percentile of flow completion times, in microseconds.
    pub p99_us: Option<f64>,
    /// Longest flow completion time, in microseconds.
    pub max_us: Option<f64>,
    /// Mean over flows of bytes by completion time, in Mbit/s.
    pub goodput_mbps: Option<f64>,
    /// Segments sent again, of those sent, in percent.
    pub retransmitted_percent: Option<f64>,
    /// Segments that arrived after one that was sent later, of those that arrived, in percent.
    pub out_of_order_percent: Option<f64>,
    /// Segments that arrived marked, of those that arrived, in percent.
    pub marked_percent: Option<f64>,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Mean time that a segment spent in queues of switches, in microseconds.
    pub queued_us: Option<f64>,
    /// Mean over flows: segments sent, of those that the message has.
    pub sent_ratio: Option<f64>,
    /// Mean over flows: segments that had arrived when the message was complete, of those it has.
    pub needed_ratio: Option<f64>,
    /// Mean over flows: segments that had been sent when the message was complete, of those it has.
    #[serde(default)]
    pub sent_by_end_ratio: Option<f64>,
}

/// How evenly paths were used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathSummary {
    /// Mean share of time that the links between switches were sending.
    pub mean_utilisation: f64,
    /// Standard deviation among the uplinks of a leaf, or another switch with hosts, which is what load balancing is about: the
    /// root of the mean variance over these switches.
    pub deviation: f64,
    /// Standard deviation among the uplinks of a leaf of what they carried of long flows, of its mean: the root of the
    /// mean square over leaves. Long are messages above the last bound of the classes. Nothing where leaves sent none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_deviation: Option<f64>,
    /// Largest share of time that one of these links was sending.
    pub max_utilisation: f64,
    /// Packets lost on them.
    pub drops: u64,
    /// Packets marked on them.
    pub marks: u64,
}

impl Manifest {
    /// Returns whether this version of the simulator made it from these settings and files.
    pub(crate) fn is_of(&self, settings: &Scenario, files: &BTreeMap<String, String>) -> bool {
        self.settings == *settings
            && self.version == env!("CARGO_PKG_VERSION")
            && self.files == *files
    }

    /// Sums a run up.
    pub fn new(experiment: &Experiment, outcome: &Outcome) -> Self {
        let bounds = &experiment.scenario.classes_bytes;
        Self {
            scenario: outcome.scenario.clone(),
            scheme: outcome.scheme.clone(),
            seed: outcome.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: experiment.settings(),
            files: experiment.files.clone(),
            classes: classes(bounds, &outcome.flows)
                .into_iter()
                .chain(collectives(experiment, outcome))
                .collect(),
            paths: PathSummary::new(outcome),
            totals: outcome.totals,
        }
    }

    /// Completion times for people.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "class",
            "flows",
            "unfinished",
            "mean us",
            "p50 us",
            "p99 us",
            "max us",
            "goodput Mbit/s",
            "retx %",
            "out of order %",
            "marked %",
            "timeouts",
            "queued us",
        ]);
        for it in &self.classes {
            table.row([
                it.class.clone(),
                it.flows.to_string(),
                it.unfinished.to_string(),
                number(it.mean_us, 1),
                number(it.p50_us, 1),
                number(it.p99_us, 1),
                number(it.max_us, 1),
                number(it.goodput_mbps, 1),
                number(it.retransmitted_percent, 3),
                number(it.out_of_order_percent, 3),
                number(it.marked_percent, 2),
                it.timeouts.to_string(),
                number(it.queued_us, 2),
            ]);
        }
        table
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

/// Iterations of each collective operation, as a class of their own.
fn collectives(experiment: &Experiment, outcome: &Outcome) -> Vec<ClassSummary> {
    let mut classes = Vec::new();
    for (index, traffic) in experiment.scenario.traffic.iter().enumerate() {
        let Some((operation, settings)) = traffic.collective() else {
            continue;
        };
        let name = match operation {
            Operation::RingAllReduce => "ring all-reduce",
            Operation::TreeAllReduce => "tree all-reduce",
            Operation::AllToAll => "all-to-all",
        };
        let mine = outcome.iterations.iter();
        let mine = mine.filter(|it| usize::from(it.traffic) == index);
        let times: Vec<u64> = mine.filter_map(|it| it.completion_ns).collect();
        let iterations = settings.iterations as usize;
        let goodput = times
            .iter()
            .map(|it| settings.bytes as f64 * 8e3 / (*it).max(1) as f64);
        classes.push(ClassSummary {
            goodput_mbps: finite(Summary::new(goodput).mean()),
            unfinished: iterations - times.len(),
            ..ClassSummary::of_times(format!("traffic {index}: {name}"), &times)
        });
    }
    classes
}

/// Each class, and all flows together at the end.
fn classes(bounds: &[u64], flows: &[FlowRecord]) -> Vec<ClassSummary> {
    let mut classes = Vec::new();
    let mut above = 0;
    for bound in bounds.iter().copied().chain([u64::MAX]) {
        let name = match (above, bound) {
            (0, u64::MAX) => break,
            (0, _) => format!("<= {}", bytes(bound)),
            (_, u64::MAX) => format!("> {}", bytes(above)),
            _ => format!("{} - {}", bytes(above), bytes(bound)),
        };
        let within = |it: &&FlowRecord| it.bytes > above && it.bytes <= bound;
        let members: Vec<&FlowRecord> = flows.iter().filter(within).collect();
        classes.push(ClassSummary::new(name, &members));
        above = bound;
    }
    let all: Vec<&FlowRecord> = flows.iter().collect();
    classes.push(ClassSummary::new("all".to_owned(), &all));
    classes
}

/// Writes a size for people.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes as f64 / 1e3),
        _ => format!("{} MB", bytes as f64 / 1e6),
    }
}

impl ClassSummary {
    /// Completion times alone.
    fn of_times(class: String, times_ns: &[u64]) -> Self {
        let times = Summary::new(times_ns.iter().copied().map(us));
        Self {
            class,
            flows: times.count(),
            unfinished: 0,
            mean_us: finite(times.mean()),
            p50_us: finite(times.percentile(50.0)),
            p95_us: finite(times.percentile(95.0)),
            p99_us: finite(times.percentile(99.0)),
            max_us: finite(times.percentile(100.0)),
            goodput_mbps: None,
            retransmitted_percent: None,
            out_of_order_percent: None,
            marked_percent: None,
            timeouts: 0,
            queued_us: None,
            sent_ratio: None,
            needed_ratio: None,
            sent_by_end_ratio: None,
        }
    }

    fn new(class: String, flows: &[&FlowRecord]) -> Self {
        let times_ns: Vec<u64> = flows.iter().filter_map(|it| it.fct_ns).collect();
        let goodput = flows
            .iter()
            .filter_map(|it| Some(it.bytes as f64 * 8e3 / it.fct_ns?.max(1) as f64));
        let goodput = Summary::new(goodput);
        let ratio = |of: fn(&FlowRecord) -> u32| {
            let done = flows.iter().filter(|it| it.fct_ns.is_some());
            let ratios = done.map(|it| f64::from(of(it)) / f64::from(it.segments));
            finite(Summary::new(ratios).mean())
        };
        let sum = |of: fn(&FlowRecord) -> u64| flows.iter().map(|it| of(it)).sum::<u64>();
        let sent = sum(|it| it.sent.into());
        let arrived = sum(|it| it.arrived.into());
        let percent = |part, whole| finite(100.0 * part as f64 / whole as f64);
        Self {
            unfinished: flows.len() - times_ns.len(),
            goodput_mbps: finite(goodput.mean()),
            retransmitted_percent: percent(sum(|it| it.retransmitted.into()), sent),
            out_of_order_percent: percent(sum(|it| it.out_of_order.into()), arrived),
            marked_percent: percent(sum(|it| it.marked.into()), arrived),
            timeouts: sum(|it| it.timeouts.into()),
            queued_us: finite(us(sum(|it| it.queued_ns)) / arrived as f64),
            sent_ratio: ratio(|it| it.sent),
            needed_ratio: ratio(|it| it.needed),
            sent_by_end_ratio: ratio(|it| it.sent_by_end),
            ..Self::of_times(class, &times_ns)
        }
    }
}

impl PathSummary {
    fn new(outcome: &Outcome) -> Self {
        let paths = &outcome.paths;
        let count = paths.len() as f64;
        let mean = paths.iter().map(|it| it.utilisation).sum::<f64>() / count;
        Self {
            mean_utilisation: mean,
            deviation: deviation(paths),
            long_deviation: long_deviation(paths),
            max_utilisation: paths.iter().map(|it| it.utilisation).fold(0.0, f64::max),
            drops: paths.iter().map(|it| u64::from(it.drops)).sum(),
            marks: paths.iter().map(|it| u64::from(it.marks)).sum(),
        }
    }
}

fn deviation(paths: &[PathRecord]) -> f64 {
    let switches = by_switch(paths, |it| it.utilisation);
    let variances = switches.iter().map(|it| it.1);
    (variances.sum::<f64>() / switches.len().max(1) as f64).sqrt()
}

fn long_deviation(paths: &[PathRecord]) -> Option<f64> {
    let switches = by_switch(paths, |it| it.long_bytes as f64).into_iter();
    let squares = switches
        .filter(|it| it.0 > 0.0)
        .map(|(mean, variance)| variance / mean.powi(2));
    let squares: Vec<f64> = squares.collect();
    finite((squares.iter().sum::<f64>() / squares.len() as f64).sqrt())
}

/// Mean and variance of a value over the uplinks of each switch that has some.
fn by_switch(paths: &[PathRecord], value: fn(&PathRecord) -> f64) -> Vec<(f64, f64)> {
    let switch = |it: &PathRecord| it.link.split("->").next().unwrap_or_default().to_owned();
    let mut each = Vec::new();
    let mut uplinks: Vec<&PathRecord> = paths.iter().filter(|it| it.is_uplink).collect();
    let mut first = BTreeMap::new();
    for (index, it) in uplinks.iter().enumerate() {
        first.entry(switch(it)).or_insert(index);
    }
    // Those of a switch may lie apart.
    uplinks.sort_by_key(|it| first[&switch(it)]);
    for uplinks in uplinks.chunk_by(|first, second| switch(first) == switch(second)) {
        let count = uplinks.len() as f64;
        let mean = uplinks.iter().map(|it| value(it)).sum::<f64>() / count;
        let squares = uplinks.iter().map(|it| (value(it) - mean).powi(2));
        each.push((mean, squares.sum::<f64>() / count));
    }
    each
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_that_of_the_uplinks_of_a_leaf() {
        let path = |link: &str, utilisation| PathRecord {
            link: link.to_owned(),
            is_uplink: link.starts_with("leaf"),
            long_bytes: 0,
            utilisation,
            drops: 0,
            marks: 0,
        };
        let paths = [
            path("leaf0->spine0", 0.2),
            path("leaf0->spine1", 0.4),
            path("leaf1->spine0", 0.9),
            path("leaf1->spine1", 0.7),
            path("spine0->leaf0", 0.0),
        ];
        assert!((deviation(&paths) - 0.1).abs() < 1e-12);
        assert_eq!(long_deviation(&paths), None);
        // The second leaf sent no long flows, and no spine counts.
        let long = [1_000, 3_000, 0, 0, 9_000].into_iter().zip(paths);
        let long = long.map(|(long_bytes, path)| PathRecord { long_bytes, ..path });
        let long = long_deviation(&long.collect::<Vec<_>>());
        assert!(long.is_some_and(|it| (it - 0.5).abs() < 1e-12), "{long:?}");
    }

    #[test]
    fn classes_have_bounds_and_names() {
        let names = |bounds: &[u64]| {
            let classes = classes(bounds, &[]).into_iter();
            classes.map(|it| it.class).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["all"]);
        assert_eq!(
            names(&[100_000, 1_000_000]),
            ["<= 100 kB", "100 kB - 1 MB", "> 1 MB", "all"]
        );
        assert_eq!(classes(&[], &[])[0].mean_us, None);
    }
}
