//! What is written down: a row for each run and size class, and what the runs of a scheme come to together.

use flow_report::{Median, Summary, Table};
use flow_testbed::campaign::Skip;
use serde::{Deserialize, Serialize};

use crate::{
    cell::{Cell, SizeClass},
    measurement::Outcome,
    scheme::Scheme,
};

/// The flows of a class in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scheme: String,
    /// Decides which flows start when.
    pub(crate) seed: u64,
    /// Leaves and spines, asymmetry and sizes: `2x2-asym2.5-web_search`.
    pub(crate) case: String,
    /// The part of what a leaf's uplinks carry that its hosts offer, from 0 to 1.
    pub(crate) load: f64,
    /// `short`, `middle` or `long`, by what the flow would have been in its workload.
    pub(crate) size_class: String,
    /// Flows of the class that started while they counted.
    pub(crate) flows: u64,
    /// Those of them that had not finished, which count as long as they were waited for.
    pub(crate) unfinished: u64,
    /// Completion times; nothing without a flow.
    pub(crate) mean_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// The part of the mean that handshakes took, from the call of `connect` until it returned; nothing without one that
    /// came about.
    #[serde(default)]
    pub(crate) connect_ms: Option<f64>,
    /// The mean that the simulator has for the same flows, where it knows the scheme.
    pub(crate) predicted_mean_ms: Option<f64>,
    /// Payload of the class's flows by the time that they took together, in Mbit/s.
    pub(crate) goodput: Option<f64>,
    /// Of all packets with data after the warm-up: the part that one sent later had overtaken, from 0 to 1.
    pub(crate) out_of_order: f64,
    /// Segments sent again after the warm-up, of all flows.
    pub(crate) retransmits: u64,
    /// The part of the bytes from leaves that each spine had, from 0 to 1.
    pub(crate) path_share: Vec<f64>,
    /// What the leaves' programs took a packet, where there are some and the kernel accounts for it.
    pub(crate) ns_per_packet: Option<f64>,
    /// CPU time of the whole machine during the run.
    pub(crate) cpu_s: f64,
    /// What the daemons of all leaves and their maps in the kernel take, in 10^6 bytes; nothing without them.
    pub(crate) memory_mb: Option<f64>,
    /// By how much the leaves' models of their queues were wrong when they were held against these, in the mean;
    /// nothing without such models.
    pub(crate) prediction_error_us: Option<f64>,
}

impl Row {
    pub(crate) fn new(
        cell: &Cell,
        scheme: Scheme,
        seed: u64,
        class: SizeClass,
        outcome: &Outcome,
        predicted_mean_ms: Option<f64>,
    ) -> Self {
        let flows = || outcome.flows.iter().filter(|it| it.class == class);
        let ms = Summary::new(flows().map(|it| it.took.as_secs_f64() * 1e3));
        let seconds: f64 = flows().map(|it| it.took.as_secs_f64()).sum();
        let delivered = flows().filter(|it| it.is_finished);
        let bytes: u64 = delivered.clone().map(|it| u64::from(it.bytes)).sum();
        let is_known = ms.count() > 0;
        let connected = flows().filter_map(|it| it.connected);
        let connect_ms = Summary::new(connected.map(|it| it.as_secs_f64() * 1e3));
        Self {
            scheme: scheme.name().to_owned(),
            seed,
            case: cell.case(),
            load: cell.load,
            size_class: class.name().to_owned(),
            flows: ms.count() as u64,
            unfinished: (ms.count() - delivered.count()) as u64,
            mean_ms: is_known.then(|| ms.mean()),
            p99_ms: is_known.then(|| ms.percentile(99.0)),
            connect_ms: (connect_ms.count() > 0).then(|| connect_ms.mean()),
            predicted_mean_ms,
            goodput: is_known.then(|| bytes as f64 * 8.0 / 1e6 / seconds),
            out_of_order: outcome.arrivals.late_part(),
            retransmits: outcome.retransmits,
            path_share: outcome.path_share.clone(),
            ns_per_packet: outcome.ns_per_packet,
            cpu_s: outcome.cpu_s,
            memory_mb: outcome.memory_bytes.map(|it| it as f64 / 1e6),
            prediction_error_us: outcome.prediction_error_us,
        }
    }

    /// Tells if the row is of a run in a cell.
    pub(crate) fn is_in(&self, cell: &Cell) -> bool {
        self.case == cell.case() && self.load == cell.load
    }

    fn is_of(&self, cell: &Cell, scheme: &str, class: SizeClass) -> bool {
        self.scheme == scheme && self.is_in(cell) && self.size_class == class.name()
    }
}

/// Titles of the columns.
const COLUMNS: [&str; 14] = [
    "cell",
    "scheme",
    "flows",
    "mean ms",
    "p99 ms",
    "predicted mean ms",
    "goodput Mbit/s",
    "unfinished",
    "out of order %",
    "sent again",
    "share of spines %",
    "ns/packet",
    "CPU s",
    "memory MB",
];

/// A line for each scheme and size class of each cell: medians over the seeds, with the least and the greatest, or
/// that it was not available.
pub(crate) fn table(cells: &[Cell], rows: &[Row], skips: &[Skip]) -> Table {
    let mut table = Table::new(COLUMNS);
    for cell in cells {
        for class in SizeClass::ALL {
            let schemes = Scheme::ALL.into_iter().chain(Scheme::CONTROLS);
            for scheme in schemes.map(Scheme::name) {
                let own = rows.iter().filter(|it| it.is_of(cell, scheme, class));
                let own: Vec<_> = own.collect();
                if !own.is_empty() {
                    table.row(line(cell, scheme, class, &own));
                }
            }
        }
        for skip in skips.iter().filter(|it| it.case == cell.case()) {
            let mut line: [String; COLUMNS.len()] = std::array::from_fn(|_| "-".to_owned());
            line[0] = cell.to_string();
            line[1] = skip.scheme.to_owned();
            line[3] = "not available".to_owned();
            table.row(line);
        }
    }
    table
}

fn line(cell: &Cell, scheme: &str, class: SizeClass, rows: &[&Row]) -> [String; COLUMNS.len()] {
    let text = |digits, figure: &dyn Fn(&Row) -> Option<f64>| {
        Median::of(rows.iter().filter_map(|it| figure(it)))
            .map_or_else(|| "-".to_owned(), |it| it.to_text(digits))
    };
    let spines = rows.first().map_or(0, |it| it.path_share.len());
    let shares = (0..spines).map(|spine| {
        let shares = rows.iter().filter_map(|it| it.path_share.get(spine));
        Median::of(shares.map(|it| it * 100.0)).map_or(0.0, |it| it.median)
    });
    let shares: Vec<_> = shares.map(|it| format!("{it:.0}")).collect();
    [
        cell.to_string(),
        scheme.to_owned(),
        format!(
            "{} {}",
            rows.iter().map(|it| it.flows).sum::<u64>(),
            class.name()
        ),
        text(2, &|it| it.mean_ms),
        text(2, &|it| it.p99_ms),
        text(2, &|it| it.predicted_mean_ms),
        text(2, &|it| it.goodput),
        rows.iter().map(|it| it.unfinished).sum::<u64>().to_string(),
        text(3, &|it| Some(it.out_of_order * 100.0)),
        text(0, &|it| Some(it.retransmits as f64)),
        shares.join(" : "),
        text(0, &|it| it.ns_per_packet),
        text(1, &|it| Some(it.cpu_s)),
        text(1, &|it| it.memory_mb),
    ]
}

#[cfg(test)]
mod tests;
