//! Transfers that start within a round trip: backups, `rsync`, multipart uploads, `iperf3 -P`.
//!
//! Two seconds later they fill both tunnels, whatever the tunnels' rates and the round trip are.

use crate::border::{Border, MICROSECOND, MILLISECOND, SECOND};
use crate::tcp::{Opening, Small, Traffic, run};
use crate::traffic::Random;

const RATES_MBIT: [[u64; 2]; 3] = [[20, 20], [100, 100], [100, 40]];
const ROUND_TRIPS_NS: [u64; 2] = [200 * MICROSECOND, 22 * MILLISECOND];
/// As many as the experiments have.
const SMALL_PER_SECOND: u64 = 120;
const SEEDS: u64 = 6;
const STARTS_NS: u64 = SECOND;
const SETTLED_NS: u64 = STARTS_NS + 2 * SECOND;
const ENDS_NS: u64 = SETTLED_NS + SECOND / 2;

/// How the connections of one program are opened.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// All within a round trip, each sends at once.
    AtOnce,
    /// One after the other, a round trip apart; then all send at the same time. Another connection
    /// came first, on which little is said: `iperf3`.
    InTurn,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    rates_mbit: [u64; 2],
    round_trip_ns: u64,
    parallel: usize,
    program: Program,
    small_per_second: u64,
    seed: u64,
}

impl Case {
    fn each(parallel: &[usize], small_per_second: u64) -> Vec<Self> {
        let mut cases = Vec::new();
        for rates_mbit in RATES_MBIT {
            for round_trip_ns in ROUND_TRIPS_NS {
                for &parallel in parallel {
                    for program in [Program::AtOnce, Program::InTurn] {
                        cases.extend((0..SEEDS).map(|seed| Self {
                            rates_mbit,
                            round_trip_ns,
                            parallel,
                            program,
                            small_per_second,
                            seed,
                        }));
                    }
                }
            }
        }
        cases
    }

    fn traffic(&self) -> Traffic {
        let random = &mut Random(self.seed);
        let round_trip_ns = self.round_trip_ns;
        // What a host needs between two system calls.
        let mut pause_ns = |most_ns: u64| 20 * MICROSECOND + random.below(most_ns);
        let mut transfers = Vec::new();
        let mut small = Vec::new();
        match self.program {
            Program::AtOnce => {
                let opening = |_| Opening {
                    opens_ns: STARTS_NS + pause_ns(round_trip_ns),
                    sends_ns: None,
                    packets: u64::MAX,
                };
                transfers.extend((0..self.parallel).map(opening));
            }
            Program::InTurn => {
                let mut at_ns = STARTS_NS;
                // It shakes hands and says what is to be done.
                small.push(Small {
                    starts_ns: at_ns,
                    packets: 4,
                    payload: 120,
                });
                at_ns += 3 * round_trip_ns;
                for _ in 0..self.parallel {
                    transfers.push(Opening {
                        opens_ns: at_ns,
                        sends_ns: None,
                        packets: u64::MAX,
                    });
                    at_ns += round_trip_ns + pause_ns(100 * MICROSECOND);
                }
                let sends_ns = Some(at_ns + round_trip_ns + pause_ns(MILLISECOND));
                transfers.iter_mut().for_each(|it| it.sends_ns = sends_ns);
            }
        }
        if self.small_per_second > 0 {
            let from_ns = STARTS_NS / 2;
            small.extend(Small::mixed(
                random,
                self.small_per_second,
                from_ns,
                ENDS_NS,
            ));
        }
        Traffic {
            transfers,
            round_trip_ns,
            small,
            downloads: Vec::new(),
            ends_ns: ENDS_NS,
        }
    }

    /// The part of what both tunnels are shaped to that came out, from two seconds on.
    fn share_of_shaped(&self) -> f64 {
        let traffic = self.traffic();
        let mut border = Border::shared(self.rates_mbit, traffic.flows()).seeing_queues();
        let received = run(&mut border, &traffic, SETTLED_NS);
        assert!(
            received.overtaken.is_empty(),
            "{self:?}: {:?}",
            received.overtaken
        );
        let moves = border.verdicts.iter().filter(|it| it.2.hand_over.is_some());
        let of_transfers = moves.filter(|it| it.1 < self.parallel).count();
        // Each is placed once, and seldom later again.
        assert!(
            of_transfers <= 3 * self.parallel,
            "{self:?}: {of_transfers}"
        );
        let bytes: u64 = received.bytes.iter().sum();
        let shaped_mbit: u64 = self.rates_mbit.iter().sum();
        (bytes * 8) as f64 / (shaped_mbit as f64 * 1e6) / ((ENDS_NS - SETTLED_NS) as f64 / 1e9)
    }
}

/// Holds that in each of these cases at least this part of what both tunnels are shaped to is used.
fn fill(least: f64, cases: &[Case]) {
    let shares: Vec<_> = cases.iter().map(|it| (*it, it.share_of_shaped())).collect();
    let idle = shares.iter().filter(|it| it.1 < least);
    let idle: Vec<_> = idle.map(|it| format!("{:?}: {:.3}", it.0, it.1)).collect();
    assert!(
        idle.is_empty(),
        "{} of {} leave more than that idle:\n{}",
        idle.len(),
        cases.len(),
        idle.join("\n")
    );
}

#[test]
fn two_transfers_that_start_together_take_both_tunnels() {
    fill(0.90, &Case::each(&[2], 0));
}

#[test]
fn four_transfers_that_start_together_fill_both_tunnels() {
    fill(0.95, &Case::each(&[4], 0));
}

#[test]
fn eight_transfers_that_start_together_fill_both_tunnels() {
    fill(0.95, &Case::each(&[8], 0));
}

/// Short flows that are in one tunnel while a transfer starts look like others of its kind: some
/// pairs meet, and few can part again.
#[test]
fn transfers_beside_short_flows_leave_little_idle() {
    for (parallel, least) in [(2, 0.90), (4, 0.95)] {
        let cases = Case::each(&[parallel], SMALL_PER_SECOND);
        let sum: f64 = cases.iter().map(Case::share_of_shaped).sum();
        let mean = sum / cases.len() as f64;
        println!("{parallel} beside {SMALL_PER_SECOND} short flows a second: {mean:.3}");
        assert!(mean >= least, "{parallel}: {mean}");
    }
}

/// A lone one has all of a tunnel, and of unequal ones the faster.
#[test]
fn lone_transfer_fills_the_faster_tunnel() {
    for case in Case::each(&[1], 0) {
        let [one, other] = case.rates_mbit;
        let of_faster = one.max(other) as f64 / (one + other) as f64;
        let share = case.share_of_shaped();
        assert!(share >= 0.95 * of_faster, "{case:?}: {share}");
    }
}
