//! The paper's model of completion times (equations 2 to 8) against the simulator: figure 6, `T5`
//! and `T6`.
//!
//! Eq. 4 says "k-H" where it must be "k = H".

use flow_report::{Axis, Estimate, Plot, Series};

use super::{
    Effort,
    band::Band,
    runs::{COLUMNS, Experiment, Metric, Runs, all},
};
use crate::{check::Check, figure::Figure};

/// Input of the paper's model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Number of flows, `N`.
    pub flows: f64,
    /// Flow size `S`, in packets.
    pub packets: u32,
    /// Good and bad paths, `n_g` and `n_b`.
    pub paths: (f64, f64),
    /// `d_g` and `d_b`, in seconds.
    pub delays: (f64, f64),
    /// Buffer `B`, in packets.
    pub buffer: f64,
    /// Transmission time `t` of a packet, in seconds.
    pub packet_time: f64,
    /// Duplicate ACK threshold `H`.
    pub dupacks: u32,
}

impl Model {
    /// The motivation's fabric at the most asymmetry.
    pub fn motivation(flows: u32, bytes: u32) -> Self {
        Self {
            flows: flows.into(),
            packets: bytes.div_ceil(PACKET_BYTES),
            paths: (5.0, 5.0),
            delays: (200e-6, 700e-6),
            buffer: 250.0,
            packet_time: 12e-6,
            dupacks: 3,
        }
    }

    /// Eq. 4: the probability of a fast retransmission.
    ///
    /// Summed up in order of k, each term from the one before, as the binomials are too large for
    /// a float.
    pub fn retransmission_probability(&self) -> f64 {
        let (good, bad) = (self.good_share(), 1.0 - self.good_share());
        let mut probability = 0.0;
        for first in 1..=self.packets.saturating_sub(self.dupacks) {
            // All before on good paths, this one on a bad one, k of those behind on good ones.
            let behind = self.packets - first;
            let mut term = bad.powi(behind as i32);
            let mut at_least = 0.0;
            for k in 0..=behind {
                if k >= self.dupacks {
                    at_least += term;
                }
                term *= f64::from(behind - k) / f64::from(k + 1) * good / bad;
            }
            probability += good.powi(first as i32 - 1) * bad * at_least;
        }
        probability
    }

    /// Eq. 7, in seconds.
    pub fn rps(&self) -> f64 {
        let p = self.retransmission_probability();
        let most = self.path_count() * self.buffer / self.flows;
        let window = most * (1.0 - p) + most / 2.0 * p;
        let all_good = self.good_share().powf(window);
        let (good, bad) = self.delays;
        let queueing = self.flows * window * self.packet_time / self.path_count();
        let delay = (1.0 - all_good) * bad + all_good * good + queueing;
        4.0 * f64::from(self.packets) * delay / (3.0 * window)
    }

    /// Eq. 8, in seconds: all packets on slow paths.
    pub fn tr(&self) -> f64 {
        let delay = 16.0 * self.delays.1 + 12.0 * self.buffer * self.packet_time;
        f64::from(self.packets) * self.flows * delay / (9.0 * self.path_count() * self.buffer)
    }

    fn path_count(&self) -> f64 {
        self.paths.0 + self.paths.1
    }

    fn good_share(&self) -> f64 {
        self.paths.0 / self.path_count()
    }
}

/// Bytes of data in each packet.
const PACKET_BYTES: u32 = 1_460;
const SIZES: [u32; 6] = [100_000, 150_000, 200_000, 250_000, 300_000, 350_000];
const FLOWS: [u32; 4] = [10, 20, 30, 40];
const SIZE: u32 = 300_000;
const COUNT: u32 = 20;
const SCHEMES: [&str; 2] = ["rps", "tr"];
const NOTE: &str = "The model has every flow in steady state from its first packet on and, for TR, on slow \
    paths alone, which it calls the worst case; the simulator starts with a window of ten and finds free \
    paths. RPS it has halve its window once in a round; in the simulator a spurious retransmission follows \
    the other, and windows stay far below. Hosts share their link of 1 Gbit/s among N/10 flows in both.";

/// All flows at once, each host with as many, at the most asymmetry.
pub fn experiment(effort: &Effort) -> Experiment {
    let sizes = SIZES.map(|bytes| (COUNT, bytes));
    let flows = FLOWS.map(|flows| (flows, SIZE));
    let mut schemes = Vec::new();
    for (flows, bytes) in sizes.into_iter().chain(flows) {
        let message = |flow: u32| {
            let (from, to) = (flow % 10, 10 + flow % 10);
            format!("{{ kind = \"message\", from = {from}, to = {to}, bytes = {bytes} }}")
        };
        let traffic: Vec<String> = (0..flows).map(message).collect();
        for scheme in SCHEMES {
            let changes = format!(
                "balance.policy = \"{scheme}\"\ntraffic = [{}]",
                traffic.join(", ")
            );
            let name = name(scheme, flows, bytes);
            if !schemes.iter().any(|(known, _)| *known == name) {
                schemes.push((name, changes));
            }
        }
    }
    Experiment {
        name: "model",
        scenario: "tr-motivation",
        schemes,
        loads: Vec::new(),
        seeds: effort.model_seeds,
        messages: None,
    }
}

fn name(scheme: &str, flows: u32, bytes: u32) -> String {
    format!("{scheme}-{flows}-{bytes}")
}

/// Builds `T5`: figure 6(a), over sizes.
pub fn over_sizes(runs: &Runs) -> Figure {
    let mut checks = Vec::new();
    let values = [(100_000, 3.24, 2.89), (350_000, 11.3, 10.1)];
    for (bytes, rps, tr) in values {
        let model = Model::motivation(COUNT, bytes);
        let kb = bytes / 1_000;
        checks.push(exact(
            &format!("model, RPS, {kb} kB"),
            rps,
            model.rps() * 1e3,
        ));
        checks.push(exact(&format!("model, TR, {kb} kB"), tr, model.tr() * 1e3));
    }
    let points = SIZES.map(|bytes| (f64::from(bytes) / 1e3, COUNT, bytes));
    checks.extend(common_checks(runs, &points));
    let x = "size of each flow, kB";
    figure(
        "T5",
        "model over sizes, figure 6(a)",
        checks,
        plot("20 flows", x, runs, &points),
        runs,
    )
}

/// Builds `T6`: figure 6(b), over numbers of flows.
pub fn over_flows(runs: &Runs) -> Figure {
    let points = FLOWS.map(|flows| (f64::from(flows), flows, SIZE));
    let checks = common_checks(runs, &points);
    let plot = plot("Flows of 300 kB", "flows", runs, &points);
    figure(
        "T6",
        "model over numbers of flows, figure 6(b)",
        checks,
        plot,
        runs,
    )
}

/// An abscissa, and what is sent there: flows, bytes.
type Point = (f64, u32, u32);

/// TR is faster, all grows linearly, and simulation and model are close.
fn common_checks(runs: &Runs, points: &[Point]) -> Vec<Check> {
    let mut checks = Vec::new();
    let metric: Metric = |it| all(it).mean_us;
    let last = points[points.len() - 1];
    for (_, flows, bytes) in [points[0], last] {
        let ratio = runs.ratio(
            &name("tr", flows, bytes),
            &name("rps", flows, bytes),
            &[None],
            metric,
        );
        let what = format!("simulated, TR / RPS, {flows} flows of {} kB", bytes / 1_000);
        checks.push(Band::less(1.0).check(&what, "always faster", ratio));
    }
    for scheme in SCHEMES {
        let line: Vec<(f64, f64)> = points
            .iter()
            .filter_map(|it| Some((it.0, simulated(runs, scheme, it)?.mean)))
            .collect();
        let what = format!("simulated, {scheme}: R² of a line");
        let fit = Some(determination(&line));
        checks.push(Band::about(0.95, f64::INFINITY).check_value(&what, "linear", fit));
        let ratio = |it: &Point| {
            let simulated = simulated(runs, scheme, it)?;
            let model_us = 1e3 * modelled(scheme, it);
            let ratio = Estimate {
                mean: simulated.mean / model_us,
                half_width: simulated.half_width.map(|half| half / model_us),
                ..simulated
            };
            Some((format!("at {}", it.0), ratio))
        };
        let each: Vec<(String, Estimate)> = points.iter().filter_map(ratio).collect();
        let each = each.iter().map(|(name, it)| (&**name, *it));
        let what = format!("{scheme}: simulated / modelled, farthest from the middle");
        checks.push(Band::about(0.7, 1.3).check_all(&what, "basically close", each));
    }
    checks
}

fn exact(what: &str, expected: f64, ours: f64) -> Check {
    let off = (ours / expected - 1.0).abs();
    let miss = (off > 0.01).then(|| format!("off by {:.1} %", 100.0 * off));
    let text = format!("{ours:.2} ms");
    let check = Check::new(
        what,
        &format!("{expected} ms by its equations"),
        "1 %",
        text,
        miss,
    );
    check.with_numbers((0.99 * expected, 1.01 * expected), Some(expected), ours)
}

/// Simulated completion time in microseconds.
fn simulated(runs: &Runs, scheme: &str, (_, flows, bytes): &Point) -> Option<Estimate> {
    runs.value(&name(scheme, *flows, *bytes), None, |it| all(it).mean_us)
}

/// Modelled completion time in milliseconds.
fn modelled(scheme: &str, (_, flows, bytes): &Point) -> f64 {
    let model = Model::motivation(*flows, *bytes);
    1e3 * if scheme == "rps" {
        model.rps()
    } else {
        model.tr()
    }
}

/// Share of the variance that a straight line explains.
pub(crate) fn determination(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|it| of(it.0 - x, it.1 - y)).sum::<f64>();
    let (xy, xx, yy) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    xy * xy / (xx * yy)
}

fn plot(title: &str, x: &str, runs: &Runs, points: &[Point]) -> Plot {
    let mut plot = Plot::new(
        title,
        Axis::linear(x),
        Axis::linear("mean completion time, ms"),
    );
    for scheme in SCHEMES {
        let ours = points
            .iter()
            .filter_map(|it| Some((it.0, simulated(runs, scheme, it)?.mean / 1e3)));
        let theirs = points.iter().map(|it| (it.0, modelled(scheme, it)));
        plot = plot
            .with(Series::line(format!("{scheme}, simulated"), ours.collect()))
            .with(Series::points(format!("{scheme}, model"), theirs.collect()));
    }
    plot
}

fn figure(
    id: &'static str,
    title: &'static str,
    checks: Vec<Check>,
    plot: Plot,
    runs: &Runs,
) -> Figure {
    Figure {
        id,
        title,
        note: NOTE.to_owned(),
        checks,
        rows: runs.rows(),
        columns: COLUMNS.to_vec(),
        tables: Vec::new(),
        plots: vec![plot],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_has_the_known_values() {
        let near =
            |ours: f64, expected: f64| assert!((ours / expected - 1.0).abs() < 0.01, "{ours}");
        let small = Model::motivation(20, 100_000);
        near(small.rps(), 3.24e-3);
        near(small.tr(), 2.89e-3);
        let large = Model::motivation(20, 350_000);
        near(large.rps(), 11.3e-3);
        near(large.tr(), 10.1e-3);
    }

    #[test]
    fn with_as_many_good_paths_as_bad_ones_reordering_is_all_but_certain() {
        let p = Model::motivation(20, 100_000).retransmission_probability();
        assert!((0.99..=1.0).contains(&p), "{p}");
        let all_good = Model {
            paths: (9.0, 1.0),
            packets: 5,
            ..Model::motivation(20, 100_000)
        };
        assert!(all_good.retransmission_probability() < 0.2);
    }

    #[test]
    fn a_line_is_explained_by_a_line() {
        assert!((determination(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]) - 1.0).abs() < 1e-12);
        assert!(determination(&[(1.0, 2.0), (2.0, 9.0), (3.0, 1.0)]) < 0.1);
    }
}
