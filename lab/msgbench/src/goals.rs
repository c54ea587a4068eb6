//! Goals: what Cloudburst's figures should come to beside the best peer of the same run.

use flow_report::{Median, Table};

use crate::{
    scenario::Scenario,
    summary::{Row, median},
};

/// The sizes that goals are stated for.
const SIZES: [u32; 3] = [5_000, 20_000, 93_000];
const CLOUDBURST: &str = "cloudburst";

/// A figure of a scheme, in the unit of its goal.
#[derive(Clone, Copy)]
enum Figure {
    P50,
    P99,
    Longest,
    Cpu,
    Bulk,
    /// Packets sent for each that is needed, weighted by bytes.
    Sent,
}

/// Limit that a figure is held against.
#[derive(Clone, Copy)]
enum Base {
    /// The least of all peers in this scenario.
    BestPeer(Scenario),
    /// The same figure of a scheme.
    Scheme(&'static str),
    /// Cloudburst's own in this scenario.
    Own(Scenario),
    /// This, in ms or as a plain number.
    Known([f64; 3]),
}

/// A goal of one scenario: at most, or for bulk at least, so much of a base, for each size or for all.
struct Goal {
    scenario: Scenario,
    figure: Figure,
    base: Base,
    limits: [f64; 3],
}

/// Lists goals that have all their figures in the rows, with what they come to: for each size, or once where a figure is of
/// all sizes together. A share is of medians over the seeds, and has the least and the greatest of single seeds in brackets. Last come
/// the peers that were best at each size: a goal says as much as these do.
pub fn table(rows: &[Row]) -> Table {
    let columns = [
        "scenario",
        "RTT ms",
        "goal",
        "5 / 20 / 93 kB",
        "verdict",
        "best",
    ];
    let mut table = Table::new(columns);
    let mut rtts: Vec<f64> = rows.iter().map(|row| row.rtt_ms).collect();
    rtts.sort_by(f64::total_cmp);
    rtts.dedup();
    for rtt_ms in rtts {
        for goal in goals(rtt_ms) {
            let run = Run {
                rows,
                rtt_ms,
                seed: None,
            };
            if let Some((figures, is_met)) = goal.judge(&run) {
                table.row([
                    goal.scenario.name().to_owned(),
                    rtt_ms.to_string(),
                    goal.text(),
                    figures,
                    if is_met { "met" } else { "missed" }.to_owned(),
                    goal.best_peers(&run),
                ]);
            }
        }
    }
    table
}

fn goals(rtt_ms: f64) -> Vec<Goal> {
    use Base::{BestPeer, Known, Own, Scheme};
    use Figure::{Bulk, Cpu, Longest, P50, P99, Sent};
    use Scenario::{Bulk3, Bulk4, Bulk4Down, Bulk4Queue, Dead, Idle, Incast, Loss1, Loss5};
    let goal = |scenario, figure, base, limits| Goal {
        scenario,
        figure,
        base,
        limits,
    };
    // One path of 200 Mbit/s, the shortest message first, at a round trip of 0.2 ms.
    let pipe = [0.57, 1.1, 4.4].map(|ms| ms + rtt_ms - 0.2);
    let mut goals = vec![
        goal(Idle, P99, BestPeer(Idle), [0.8, 0.8, 0.6]),
        goal(Idle, P50, Known(pipe), [1.15; 3]),
        goal(Loss1, P99, BestPeer(Loss1), [0.8, 0.7, 0.4]),
        goal(Loss1, P99, Own(Idle), [1.2; 3]),
        goal(Loss5, P99, BestPeer(Loss5), [0.2, 0.2, 0.25]),
        goal(Loss5, P99, Own(Idle), [1.3; 3]),
        goal(Dead, P99, Scheme("mptcp"), [0.8, 0.6, 0.2]),
        goal(Dead, Longest, Known([1.0; 3]), [50.0 + rtt_ms; 3]),
        goal(Bulk4Down, P99, BestPeer(Bulk4Down), [0.65, 0.6, 0.5]),
        goal(Bulk4, P99, BestPeer(Bulk4), [0.85, 0.7, 0.6]),
        goal(Bulk4, Bulk, Scheme("quic"), [0.97; 3]),
        goal(Bulk3, P99, BestPeer(Bulk3), [0.8, 0.75, 0.5]),
        goal(Bulk3, P50, Scheme("mptcp"), [1.5; 3]),
        goal(Bulk4Queue, P99, BestPeer(Bulk4), [0.15, 0.15, 0.3]),
        goal(Bulk4Queue, P99, Own(Idle), [1.5; 3]),
        goal(Incast, P99, BestPeer(Incast), [1.0, 0.9, 0.8]),
    ];
    for scenario in Scenario::ALL {
        let most = if scenario == Idle { 1.03 } else { 1.3 };
        goals.push(goal(scenario, Sent, Known([1.0; 3]), [most; 3]));
        goals.push(goal(scenario, Cpu, Scheme("quic"), [1.0; 3]));
    }
    goals
}

/// Rows of one round-trip time, with all seeds or one of them.
#[derive(Clone, Copy)]
struct Run<'r> {
    rows: &'r [Row],
    rtt_ms: f64,
    seed: Option<u64>,
}

impl Goal {
    fn text(&self) -> String {
        let [first, rest @ ..] = self.limits;
        let limits = if rest == [first; 2] {
            first.to_string()
        } else {
            self.limits.map(|it| it.to_string()).join(" / ")
        };
        let bound = match self.figure {
            Figure::Bulk => "at least",
            _ => "at most",
        };
        let base = match self.base {
            Base::BestPeer(it) if it == self.scenario => " of the best peer's".to_owned(),
            Base::BestPeer(it) => format!(" of the best peer's in `{}`", it.name()),
            Base::Scheme(scheme) => format!(" of `{scheme}`'s"),
            Base::Own(it) => format!(" of its own in `{}`", it.name()),
            Base::Known(_) => self.figure.unit().to_owned(),
        };
        format!("{} {bound} {limits}{base}", self.figure.name())
    }

    /// Returns the share that it comes to, and whether it is met; nothing where a figure is missing.
    fn judge(&self, run: &Run<'_>) -> Option<(String, bool)> {
        let shares: Option<Vec<f64>> = self.sizes().map(|at| self.share(run, at)).collect();
        let shares = shares?;
        let is_met = shares
            .iter()
            .zip(self.limits)
            .all(|(share, limit)| match self.figure {
                Figure::Bulk => *share >= limit,
                _ => *share <= limit,
            });
        let texts = shares.iter().zip(self.sizes()).map(|(share, at)| {
            let of_seeds = run.seeds().filter_map(|it| self.share(&it, at));
            let bounds = Median::of(of_seeds).filter(|it| it.least < it.greatest);
            bounds.map_or_else(
                || format!("{share:.2}"),
                |it| format!("{share:.2} [{:.2}, {:.2}]", it.least, it.greatest),
            )
        });
        Some((texts.collect::<Vec<_>>().join(" / "), is_met))
    }

    /// Names the peer that was best at each size, or once where it was the same; nothing where no peer is looked for.
    fn best_peers(&self, run: &Run<'_>) -> String {
        let Base::BestPeer(scenario) = self.base else {
            return String::new();
        };
        let best = self
            .sizes()
            .filter_map(|at| run.best_peer(scenario, self.figure, at));
        let mut names: Vec<&str> = best.map(|(name, _)| name).collect();
        if names.iter().all(|it| *it == names[0]) {
            names.truncate(1);
        }
        names.join(" / ")
    }

    /// Places of the sizes that it has a share for.
    fn sizes(&self) -> std::ops::Range<usize> {
        match self.figure.is_of_all_sizes() {
            true => 0..1,
            false => 0..SIZES.len(),
        }
    }

    /// The figure as a share of its base.
    fn share(&self, run: &Run<'_>, at: usize) -> Option<f64> {
        let own = run.figure(self.scenario, CLOUDBURST, self.figure, at)?;
        let base = match self.base {
            Base::BestPeer(scenario) => run.best_peer(scenario, self.figure, at)?.1,
            Base::Scheme(scheme) => run.figure(self.scenario, scheme, self.figure, at)?,
            Base::Own(scenario) => run.figure(scenario, CLOUDBURST, self.figure, at)?,
            Base::Known(known) => known[at],
        };
        Some(own / base)
    }
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Longest => "the longest",
            Self::Cpu => "processor time",
            Self::Bulk => "bulk",
            Self::Sent => "packets sent",
        }
    }

    /// Returns the words behind its limits where those are no share of another scheme's.
    fn unit(self) -> &'static str {
        match self {
            Self::P50 => " of a perfect pipe's",
            Self::Sent => " of those needed",
            _ => " ms",
        }
    }

    fn is_of_all_sizes(self) -> bool {
        !matches!(self, Self::P50 | Self::P99)
    }

    fn of(self, row: &Row) -> Option<f64> {
        match self {
            Self::P50 => Some(row.p50_us / 1e3),
            Self::P99 => Some(row.p99_us / 1e3),
            Self::Longest => Some(row.max_us / 1e3),
            Self::Cpu => Some(row.cpu_us_per_message),
            Self::Bulk => row.bulk_mbit,
            Self::Sent => row.sent_per_n,
        }
    }
}

impl<'r> Run<'r> {
    /// The same with each seed by itself.
    fn seeds(self) -> impl Iterator<Item = Self> {
        let mut seeds: Vec<u64> = self.rows.iter().map(|row| row.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds.into_iter().map(move |seed| Self {
            seed: Some(seed),
            ..self
        })
    }

    /// The peer with the least figure, and that.
    fn best_peer(&self, scenario: Scenario, figure: Figure, at: usize) -> Option<(&'r str, f64)> {
        let mut peers: Vec<&str> = self.rows.iter().map(|row| row.scheme.as_str()).collect();
        peers.sort_unstable();
        peers.dedup();
        // No peers: Cloudburst in all its variants, and the paper's algorithm.
        peers.retain(|it| !it.starts_with(CLOUDBURST) && *it != "paper");
        let figures = peers.into_iter().filter_map(|peer| {
            let figure = self.figure(scenario, peer, figure, at)?;
            Some((peer, figure))
        });
        figures.min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// The median over the seeds that it has, for the size at this place or for all.
    fn figure(&self, scenario: Scenario, scheme: &str, figure: Figure, at: usize) -> Option<f64> {
        let of_size = |size: u32| {
            let is_it = |row: &&Row| {
                row.scenario == scenario
                    && row.rtt_ms == self.rtt_ms
                    && self.seed.is_none_or(|seed| row.seed == seed)
                    && row.load_percent.is_none()
                    && row.scheme == scheme
                    && row.size == Some(size)
            };
            let rows: Vec<&Row> = self.rows.iter().filter(is_it).collect();
            median(&rows, |row| figure.of(row)).map(|it| it.median)
        };
        match figure {
            Figure::Longest => {
                let longest: Option<Vec<f64>> = SIZES.into_iter().map(of_size).collect();
                longest?.into_iter().max_by(f64::total_cmp)
            }
            Figure::Sent => {
                let sent = SIZES.map(|size| Some(of_size(size)? * f64::from(size)));
                let [one, two, three] = sent;
                let bytes: u32 = SIZES.iter().sum();
                Some((one? + two? + three?) / f64::from(bytes))
            }
            // All sizes have the same.
            _ => of_size(SIZES[at]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{rows, tests::round};

    /// Rows of `loss1` and `idle` at 10 ms: p99 in ms of a scheme, for each size.
    fn run(schemes: &[(&str, [f64; 3])]) -> Vec<Row> {
        let row = &rows(&round(1, &[Some(1)], None), &[5_000])[0];
        let mut all = Vec::new();
        for (scheme, p99s_ms) in schemes {
            for (size, p99_ms) in SIZES.into_iter().zip(p99s_ms) {
                all.push(Row {
                    scheme: (*scheme).to_owned(),
                    size: Some(size),
                    p99_us: p99_ms * 1e3,
                    ..row.clone()
                });
            }
        }
        all
    }

    fn line(rows: &[Row], words: &str) -> Option<String> {
        let text = table(rows).to_text();
        text.lines()
            .find(|it| it.contains(words))
            .map(str::to_owned)
    }

    #[test]
    fn goal_is_held_against_the_least_of_the_peers_at_each_size() {
        let peers = [
            ("paper", [0.1; 3]),
            ("tcp_cubic", [10.0, 20.0, 90.0]),
            ("quic", [20.0, 10.0, 100.0]),
        ];
        let of = |own: [f64; 3]| run(&[&[(CLOUDBURST, own)][..], &peers].concat());
        let met = line(&of([8.0, 7.0, 36.0]), "0.8 / 0.7 / 0.4").expect("all is there");
        assert!(
            met.contains("0.80 / 0.70 / 0.40") && met.contains("met"),
            "{met}"
        );
        let missed = line(&of([8.0, 7.1, 36.0]), "0.8 / 0.7 / 0.4").expect("all is there");
        assert!(missed.contains("missed"), "{missed}");
    }

    #[test]
    fn a_share_is_of_medians_and_has_bounds_of_single_seeds() {
        let of_seed = |seed, own: f64, quic: f64| {
            let mut rows = run(&[
                (CLOUDBURST, [own; 3]),
                ("quic", [quic, quic, 100.0]),
                ("mptcp", [50.0; 3]),
            ]);
            rows.iter_mut().for_each(|row| row.seed = seed);
            rows
        };
        let rows = [
            of_seed(1, 5.0, 10.0),
            of_seed(2, 8.0, 20.0),
            of_seed(3, 12.0, 12.0),
        ];
        let line = line(&rows.concat(), "0.8 / 0.7 / 0.4").expect("all is there");
        // 8 of 12 at the median; 5 of 10, 8 of 20 and 12 of 12 with each seed.
        assert!(line.contains("0.67 [0.40, 1.00] / "), "{line}");
        assert!(line.contains(" / 0.16 [0.10, 0.24]"), "{line}");
        assert!(line.contains("quic / quic / mptcp"), "{line}");
    }

    #[test]
    fn goal_without_its_figures_is_left_out() {
        let rows = run(&[(CLOUDBURST, [8.0, 7.0, 36.0])]);
        assert_eq!(line(&rows, "best peer"), None);
        assert_eq!(line(&rows, "quic"), None);
        assert_eq!(line(&rows, "of its own"), None, "there is no idle");
    }

    #[test]
    fn bulk_is_to_keep_at_least_its_share() {
        let of = |own, quic| {
            let mut rows = run(&[(CLOUDBURST, [1.0; 3]), ("quic", [1.0; 3])]);
            for row in &mut rows {
                row.scenario = Scenario::Bulk4;
                row.bulk_mbit = Some(if row.scheme == CLOUDBURST { own } else { quic });
            }
            line(&rows, "bulk at least").expect("all is there")
        };
        assert!(of(97.0, 100.0).contains("met"));
        assert!(of(96.0, 100.0).contains("missed"));
    }
}
