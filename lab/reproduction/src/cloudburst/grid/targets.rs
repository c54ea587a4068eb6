//! Statements of the paper that the points of the grid are scored by.

use super::{RATES, name};
use crate::{
    cloudburst::experiment::{P99, over},
    tr::runs::{Metric, Runs, all},
};

/// A target is reached when ours is within this factor of it.
pub(super) const CLOSE: f64 = 1.25;

/// A statement of the paper that a point is scored by.
pub(super) struct Target {
    pub(super) item: &'static str,
    pub(super) what: &'static str,
    /// The paper's value, or the end of what it allows.
    pub(super) paper: f64,
    pub(super) side: Side,
    pub(super) ours: fn(&At<'_>) -> Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Value,
    AtLeast,
    AtMost,
}

/// The runs of one point.
pub(super) struct At<'a> {
    pub(super) runs: &'a Runs,
    pub(super) point: usize,
}

const MEAN: Metric = |it| all(it).mean_us;
const TAIL: Metric = |it| all(it).p99_us;

impl At<'_> {
    /// A ratio of 99th percentiles, mean over these sizes, at 2,000 requests a second.
    fn sizes(&self, one: &str, other: &str, sizes: &[usize]) -> Option<f64> {
        let metrics: Vec<Metric> = sizes.iter().map(|it| P99[*it]).collect();
        let [one, other] = [one, other].map(|it| name(self.point, it, RATES[1], 0));
        Some(over(self.runs, &one, &other, &metrics)?.mean)
    }

    fn ratio(&self, one: (&str, u32, u32), other: (&str, u32, u32), metric: Metric) -> Option<f64> {
        let [one, other] = [one, other].map(|it| name(self.point, it.0, it.1, it.2));
        Some(self.runs.ratio(&one, &other, &[None], metric)?.mean)
    }

    fn rate(&self, one: &str, other: &str, rate: u32, metric: Metric) -> Option<f64> {
        self.ratio((one, rate, 0), (other, rate, 0), metric)
    }

    /// MPTCP's mean, of that of the worst other.
    fn mptcp(&self, rate: u32) -> Option<f64> {
        let others = ["dctcp", "pias", "repdctcp-4", "cloudburst"].into_iter();
        others
            .filter_map(|it| self.rate("mptcp", it, rate, MEAN))
            .reduce(f64::min)
    }

    fn broken(&self, one: u32, other: u32) -> Option<f64> {
        let scheme = |broken| ("cloudburst", RATES[1], broken);
        self.ratio(scheme(one), scheme(other), TAIL)
    }
}

const EVERY: [usize; 5] = [0, 1, 2, 3, 4];

pub(super) const TARGETS: [Target; 19] = [
    value("C4", "A / DCTCP, all sizes", 1.5112, |it| {
        it.sizes("fec-one-path", "dctcp", &EVERY)
    }),
    value("C4", "B / A, 5 kB", 0.5548, |it| {
        it.sizes("fec-all-paths", "fec-one-path", &[0])
    }),
    value("C4", "B / A, 93 kB", 0.7612, |it| {
        it.sizes("fec-all-paths", "fec-one-path", &[4])
    }),
    value("C4", "B / DCTCP, 5 kB", 0.8376, |it| {
        it.sizes("fec-all-paths", "dctcp", &[0])
    }),
    value("C4", "B / DCTCP, 93 kB", 1.0589, |it| {
        it.sizes("fec-all-paths", "dctcp", &[4])
    }),
    value("C4", "C / DCTCP, 5 kB", 0.4858, |it| {
        it.sizes("fec-dropping", "dctcp", &[0])
    }),
    value("C4", "C / DCTCP, 20 and 93 kB", 1.0, |it| {
        it.sizes("fec-dropping", "dctcp", &[2, 4])
    }),
    value("C4", "D / DCTCP, all sizes", 0.2468, |it| {
        it.sizes("cloudburst", "dctcp", &EVERY)
    }),
    value("C5", "Cloudburst / PIAS, 800/s", 1.0, |it| {
        it.rate("cloudburst", "pias", 800, MEAN)
    }),
    value("C5", "Cloudburst / PIAS, 2000/s", 1.0, |it| {
        it.rate("cloudburst", "pias", 2_000, MEAN)
    }),
    side("C5", "MPTCP / worst other, 800/s", Side::AtLeast, |it| {
        it.mptcp(800)
    }),
    side("C5", "MPTCP / worst other, 2000/s", Side::AtLeast, |it| {
        it.mptcp(2_000)
    }),
    side("C5", "4 copies / DCTCP, 800/s", Side::AtMost, |it| {
        it.rate("repdctcp-4", "dctcp", 800, MEAN)
    }),
    side("C5", "4 copies / DCTCP, 2000/s", Side::AtLeast, |it| {
        it.rate("repdctcp-4", "dctcp", 2_000, MEAN)
    }),
    value("C6", "Cloudburst / DCTCP", 0.3631, |it| {
        it.rate("cloudburst", "dctcp", 2_000, TAIL)
    }),
    value("C6", "Cloudburst / PIAS", 0.3994, |it| {
        it.rate("cloudburst", "pias", 2_000, TAIL)
    }),
    value("C9", "3 of 4 paths broken / none", 1.2762, |it| {
        it.broken(3, 0)
    }),
    side("C9", "1 broken / none", Side::AtLeast, |it| it.broken(1, 0)),
    side("C9", "3 broken / 1", Side::AtLeast, |it| it.broken(3, 1)),
];
pub(super) const ITEMS: [&str; 4] = ["C4", "C5", "C6", "C9"];

type Ours = fn(&At<'_>) -> Option<f64>;

const fn value(item: &'static str, what: &'static str, paper: f64, ours: Ours) -> Target {
    Target {
        item,
        what,
        paper,
        side: Side::Value,
        ours,
    }
}

/// One is before the other.
const fn side(item: &'static str, what: &'static str, side: Side, ours: Ours) -> Target {
    Target {
        item,
        what,
        paper: 1.0,
        side,
        ours,
    }
}

impl Target {
    /// The factor between the paper's value and ours, as a logarithm; 0 on the right side of an end.
    pub(super) fn error(&self, ours: f64) -> f64 {
        let off = (ours / self.paper).ln();
        match self.side {
            Side::Value => off.abs(),
            Side::AtLeast => (-off).max(0.0),
            Side::AtMost => off.max(0.0),
        }
    }

    pub(super) fn paper_text(&self) -> String {
        match self.side {
            Side::Value => format!("{:.3}", self.paper),
            Side::AtLeast => "at least 1".to_owned(),
            Side::AtMost => "at most 1".to_owned(),
        }
    }

    pub(super) fn band(&self) -> (f64, f64) {
        match self.side {
            Side::Value => (self.paper / CLOSE, self.paper * CLOSE),
            Side::AtLeast => (1.0 / CLOSE, f64::INFINITY),
            Side::AtMost => (0.0, CLOSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_factors_on_both_sides_and_orders_have_one() {
        let find = |what: &str| TARGETS.iter().find(|it| it.what == what).unwrap();
        let value = find("Cloudburst / PIAS, 800/s");
        assert!((value.error(2.0) - value.error(0.5)).abs() < 1e-12);
        assert!((value.error(2.0).exp() - 2.0).abs() < 1e-12);
        let least = find("MPTCP / worst other, 800/s");
        assert_eq!(least.error(1.5), 0.0);
        assert!((least.error(0.5).exp() - 2.0).abs() < 1e-12);
        assert_eq!(find("4 copies / DCTCP, 800/s").error(0.5), 0.0);
    }
}
