//! What is written down: each run, what the runs of a policy come to together, and whether that is within the
//! bounds.

use flow_report::{Summary, Table};
use serde::{Deserialize, Serialize};

use crate::{measurement::Measured, policy::Policy, prediction::Predicted};

/// A predicted mean is within the bounds if it is so near to the measured one.
const MEAN_BOUND: f64 = 0.10;
/// The same for the 99th percentile.
const P99_BOUND: f64 = 0.20;

/// A figure as it was predicted and as it was measured; none where no flow has completed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) predicted: Option<f64>,
    pub(crate) measured: Option<f64>,
}

/// One run: the flows of a seed under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) load_percent: u32,
    pub(crate) policy: String,
    pub(crate) seed: u64,
    /// True if these flows were recorded in this run, and not in another one.
    pub(crate) is_recorded: bool,
    /// Flows that completed.
    pub(crate) short_flows: Pair,
    pub(crate) long_flows: Pair,
    /// Completion times.
    pub(crate) short_mean_ms: Pair,
    pub(crate) short_p99_ms: Pair,
    pub(crate) long_mean_ms: Pair,
    /// Segments that hosts sent again, and retransmission timeouts.
    pub(crate) retransmitted_segments: Pair,
    pub(crate) timeouts: Pair,
    /// Flows that had not completed when the run ended.
    pub(crate) unfinished_flows: u64,
    /// What the machine lacked, so that this may not have measured the uplinks.
    pub(crate) objection: Option<String>,
}

/// Medians over the runs of a policy under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) load_percent: u32,
    pub(crate) policy: String,
    pub(crate) predicted_short_mean_ms: f64,
    pub(crate) measured_short_mean_ms: f64,
    /// Predicted by measured.
    pub(crate) short_mean_ratio: f64,
    /// The least and the greatest ratio of a run.
    pub(crate) short_mean_ratio_bounds: [f64; 2],
    pub(crate) predicted_short_p99_ms: f64,
    pub(crate) measured_short_p99_ms: f64,
    pub(crate) short_p99_ratio: f64,
    pub(crate) short_p99_ratio_bounds: [f64; 2],
    /// None without long flows.
    pub(crate) predicted_long_mean_ms: Option<f64>,
    pub(crate) measured_long_mean_ms: Option<f64>,
    pub(crate) is_mean_within_10_percent: bool,
    pub(crate) is_p99_within_20_percent: bool,
    pub(crate) runs: Vec<Run>,
}

impl Run {
    pub(crate) fn new(
        (load_percent, policy, seed): (u32, Policy, u64),
        predicted: &Predicted,
        measured: &Measured,
    ) -> Self {
        let figure = |measured: f64| Pair {
            predicted: None,
            measured: Some(measured).filter(|it| it.is_finite()),
        };
        let count = |measured: u64| figure(measured as f64);
        let (short, long) = (&measured.short_ms, &measured.long_ms);
        let mut run = Self {
            load_percent,
            policy: policy.name().to_owned(),
            seed,
            is_recorded: policy == Policy::RECORDED,
            short_flows: count(short.count() as u64),
            long_flows: count(long.count() as u64),
            short_mean_ms: figure(short.mean()),
            short_p99_ms: figure(short.percentile(99.0)),
            long_mean_ms: figure(long.mean()),
            retransmitted_segments: count(measured.retransmitted_segments),
            timeouts: count(measured.timeouts),
            unfinished_flows: measured.unfinished,
            objection: measured.objection.clone(),
        };
        run.predict(predicted);
        run
    }

    /// Takes a prediction in the place of the one before.
    pub(crate) fn predict(&mut self, predicted: &Predicted) {
        let Predicted { short, long, .. } = predicted;
        let count = |count: u64| Some(count as f64);
        self.short_flows.predicted = count(short.flows);
        self.long_flows.predicted = count(long.flows);
        self.short_mean_ms.predicted = short.mean_ms;
        self.short_p99_ms.predicted = short.p99_ms;
        self.long_mean_ms.predicted = long.mean_ms;
        self.retransmitted_segments.predicted = count(predicted.retransmitted_segments);
        self.timeouts.predicted = count(predicted.timeouts);
    }
}

/// Medians and ratio of a figure over some runs.
struct Compared {
    predicted: f64,
    measured: f64,
    ratio: f64,
    bounds: [f64; 2],
}

impl Compared {
    fn of(runs: &[Run], figure: impl Fn(&Run) -> Pair) -> Self {
        let median = |of: fn(Pair) -> Option<f64>| {
            Summary::new(runs.iter().filter_map(|it| of(figure(it)))).median()
        };
        let (predicted, measured) = (median(|it| it.predicted), median(|it| it.measured));
        let ratios = runs.iter().filter_map(|it| {
            let Pair {
                predicted,
                measured,
            } = figure(it);
            Some(predicted? / measured?)
        });
        let ratios = Summary::new(ratios);
        Self {
            predicted,
            measured,
            ratio: predicted / measured,
            bounds: [ratios.percentile(0.0), ratios.percentile(100.0)],
        }
    }

    fn is_within(&self, bound: f64) -> bool {
        (self.ratio - 1.0).abs() <= bound
    }
}

/// A row for each policy under each load that has runs.
pub(crate) fn rows(loads: impl IntoIterator<Item = u32>, runs: &[Run]) -> Vec<Row> {
    let mut rows = Vec::new();
    for load_percent in loads {
        for policy in Policy::ALL.map(Policy::name) {
            let of = |it: &&Run| it.load_percent == load_percent && it.policy == policy;
            let runs: Vec<Run> = runs.iter().filter(of).cloned().collect();
            if !runs.is_empty() {
                rows.push(row(load_percent, policy, runs));
            }
        }
    }
    rows
}

fn row(load_percent: u32, policy: &str, runs: Vec<Run>) -> Row {
    let mean = Compared::of(&runs, |it| it.short_mean_ms);
    let p99 = Compared::of(&runs, |it| it.short_p99_ms);
    let long = Compared::of(&runs, |it| it.long_mean_ms);
    Row {
        load_percent,
        policy: policy.to_owned(),
        predicted_short_mean_ms: mean.predicted,
        measured_short_mean_ms: mean.measured,
        short_mean_ratio: mean.ratio,
        short_mean_ratio_bounds: mean.bounds,
        predicted_short_p99_ms: p99.predicted,
        measured_short_p99_ms: p99.measured,
        short_p99_ratio: p99.ratio,
        short_p99_ratio_bounds: p99.bounds,
        predicted_long_mean_ms: Some(long.predicted).filter(|it| it.is_finite()),
        measured_long_mean_ms: Some(long.measured).filter(|it| it.is_finite()),
        is_mean_within_10_percent: mean.is_within(MEAN_BOUND),
        is_p99_within_20_percent: p99.is_within(P99_BOUND),
        runs,
    }
}

/// A line for each row.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "load %",
        "policy",
        "short mean ms: predicted",
        "measured",
        "ratio",
        "within 10 %",
        "short p99 ms: predicted",
        "measured",
        "ratio",
        "within 20 %",
        "long mean ms: predicted",
        "measured",
    ]);
    let ratio =
        |ratio: f64, [least, greatest]: [f64; 2]| format!("{ratio:.2} [{least:.2}, {greatest:.2}]");
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let long = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.0}"));
    for it in rows {
        table.row([
            it.load_percent.to_string(),
            it.policy.clone(),
            format!("{:.1}", it.predicted_short_mean_ms),
            format!("{:.1}", it.measured_short_mean_ms),
            ratio(it.short_mean_ratio, it.short_mean_ratio_bounds),
            yes(it.is_mean_within_10_percent),
            format!("{:.1}", it.predicted_short_p99_ms),
            format!("{:.1}", it.measured_short_p99_ms),
            ratio(it.short_p99_ratio, it.short_p99_ratio_bounds),
            yes(it.is_p99_within_20_percent),
            long(it.predicted_long_mean_ms),
            long(it.measured_long_mean_ms),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: Policy, seed: u64, [predicted, measured]: [f64; 2]) -> Run {
        let pair = Pair {
            predicted: Some(predicted),
            measured: Some(measured),
        };
        let none = Pair {
            predicted: None,
            measured: None,
        };
        Run {
            load_percent: 0,
            policy: policy.name().to_owned(),
            seed,
            is_recorded: false,
            short_flows: pair,
            long_flows: none,
            short_mean_ms: pair,
            short_p99_ms: pair,
            long_mean_ms: none,
            retransmitted_segments: pair,
            timeouts: pair,
            unfinished_flows: 0,
            objection: None,
        }
    }

    #[test]
    fn medians_are_compared_and_not_single_runs() {
        let ecmp = |seed, pair| run(Policy::Ecmp, seed, pair);
        let runs = [
            ecmp(1, [108.0, 100.0]),
            ecmp(2, [300.0, 90.0]),
            ecmp(3, [50.0, 110.0]),
            run(Policy::Share, 1, [115.0, 100.0]),
        ];
        let rows = rows([0, 30], &runs);
        let [first, second] = &rows[..] else {
            panic!("two policies under one load: {rows:?}");
        };
        assert_eq!((&*first.policy, first.short_mean_ratio), ("ecmp", 1.08));
        assert_eq!(first.short_mean_ratio_bounds[1], 300.0 / 90.0);
        assert_eq!(first.predicted_long_mean_ms, None);
        let within = |it: &Row| (it.is_mean_within_10_percent, it.is_p99_within_20_percent);
        assert_eq!(
            (within(first), within(second)),
            ((true, true), (false, true))
        );
    }

    #[test]
    fn figure_that_nothing_is_known_of_is_within_no_bounds() {
        let nothing = Run {
            short_mean_ms: Pair {
                predicted: None,
                measured: Some(1.0),
            },
            ..run(Policy::Ecmp, 1, [1.0, 1.0])
        };
        let rows = rows([0], &[nothing]);
        assert!(!rows[0].is_mean_within_10_percent && rows[0].is_p99_within_20_percent);
    }

    #[test]
    fn units_stand_in_the_names_of_fields() {
        let rows = rows([0], &[run(Policy::Share, 7, [2.0, 4.0])]);
        let json = serde_json::to_value(&rows).expect("plain data");
        assert_eq!(json[0]["measured_short_p99_ms"], 4.0);
        assert_eq!(json[0]["runs"][0]["short_mean_ms"]["predicted"], 2.0);
        assert_eq!(json[0]["runs"][0]["seed"], 7);
    }
}
