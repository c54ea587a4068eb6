//! Cost of a packet on one core, on two and on all at once, which share the tables that exist once.

use std::sync::Barrier;
use std::thread::{self, available_parallelism};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use splitter_policy::config::PolicyConfig;
use splitter_policy::thresholds::Thresholds;

use super::case::thread_time;
use super::loaded::Loaded;
use super::{SHORT_RUNS, YARDSTICK, from_port, full_segment, gigabit, loaded, ordinary};

/// Number of timed runs, of which the median is taken.
const ROUNDS: usize = 7;

/// Runs of one flow, and flows of a round.
const RUNS: u32 = SHORT_RUNS;
const FLOWS: u16 = 4;

const FLOOR: &str = "bare_pass";

/// A row, its program, and what is to be set for it.
type Row = (&'static str, &'static str, PolicyConfig);

/// Rows by the number of cores, in ns a packet of a core above the bare pass.
pub(super) fn measure() -> Vec<(String, f64)> {
    let eager = PolicyConfig {
        drain_margin_ns: 0,
        ..ordinary()
    };
    let rated = PolicyConfig {
        short_service: gigabit(),
        long_service: gigabit(),
        ..eager
    };
    let never_long = |config| PolicyConfig {
        thresholds: Thresholds::uniform(u64::MAX),
        ..config
    };
    let rows: [Row; 4] = [
        ("known_flow", "split_unmarked", eager),
        ("known_flow_rated", "split_unmarked", rated),
        (
            "known_short_flow_rated",
            "split_unmarked",
            never_long(rated),
        ),
        ("lru_hash_known", "lru_hash", eager),
    ];
    let all = available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, 2.min(all), all];
    counts.dedup();
    let mut yardstick = loaded(YARDSTICK, &[FLOOR, "split_unmarked", "lru_hash"]);
    let mut figures = Vec::new();
    for (name, program, config) in rows {
        for cores in &counts {
            let mut above: Vec<f64> = (0..ROUNDS)
                .map(|round| {
                    yardstick.pass_time(config, 1_000_000_000);
                    let floor = on_cores(&yardstick, FLOOR, *cores, round);
                    on_cores(&yardstick, program, *cores, round) - floor
                })
                .collect();
            above.sort_by(f64::total_cmp);
            figures.push((format!("{name}_{cores}_cores"), above[ROUNDS / 2]));
        }
    }
    figures
}

/// ns of CPU time a packet, each core with flows of its own.
fn on_cores(loaded: &Loaded, program: &str, cores: usize, round: usize) -> f64 {
    let together = Barrier::new(cores);
    let together = &together;
    let of_core = |core: usize| {
        let mut cpu = CpuSet::new();
        cpu.set(core).expect("is one of the machine's");
        sched_setaffinity(Pid::from_raw(0), &cpu).expect("a thread may stay where it is");
        let mut elapsed = std::time::Duration::ZERO;
        for flow in 0..FLOWS {
            let number = (round * cores + core) as u16 * FLOWS + flow;
            let frame = from_port(1_000 + number, full_segment());
            // Known, and long if it is to be.
            loaded.run_xdp(program, &frame, None, 100);
            together.wait();
            let started = thread_time();
            loaded.run_xdp(program, &frame, None, RUNS);
            elapsed += thread_time() - started;
        }
        elapsed.as_nanos() as f64 / (f64::from(RUNS) * f64::from(FLOWS))
    };
    let of_core = &of_core;
    let sum: f64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|core| scope.spawn(move || of_core(core)))
            .collect();
        threads
            .into_iter()
            .map(|it| it.join().expect("is timed"))
            .sum()
    });
    sum / cores as f64
}
