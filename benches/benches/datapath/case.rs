//! How one figure is come by.

use std::time::Duration;

use aya::programs::{Xdp, XdpMode};
use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use flow_testbed::namespace::Namespace;
use nix::time::{ClockId, clock_gettime};
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::Counters;

use super::loaded::{LOOPBACK, Loaded};
use super::{full_segment, next_port, ordinary};

/// Below this the system call itself, a microsecond or two, would show.
pub(super) const FEWEST_RUNS: u64 = 100_000;

/// What a full table of the default size takes at a time without more than a few evictions.
pub(super) const RUNS_OF_A_TICK: u32 = 10_000;
pub(super) const TICK_NS: u64 = 4_000_000;

/// One figure and how it is come by.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    pub(super) config: PolicyConfig,
    pub(super) frame: Vec<u8>,
    pub(super) runs_before: u32,
    /// After which the next port makes it another.
    pub(super) runs_of_a_flow: u32,
    /// By which the clock goes on, as it does in traffic; it stands still where there is none.
    pub(super) pace: Option<Pace>,
    /// A counter that rises with each timed packet which is what the case's name says.
    pub(super) counts: Option<fn(&Counters) -> u64>,
    /// The part of the timed packets for which that has to be so.
    pub(super) at_least: f64,
}

/// How many packets come at a time, and how far times are apart.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) runs: u32,
    pub(super) step_ns: u64,
    /// Packets of a sample at the least: a system call for each time is what they take.
    pub(super) fewest: u64,
}

impl Pace {
    /// So many packets in each clock tick.
    pub(super) const fn of_tick(runs: u32) -> Self {
        Self {
            runs,
            step_ns: TICK_NS,
            fewest: FEWEST_RUNS,
        }
    }
}

impl Case {
    /// A full TCP segment under settings by which a flow becomes long soon.
    pub(super) fn new(name: &'static str, program: &'static str) -> Self {
        Self {
            name,
            program,
            config: PolicyConfig {
                drain_margin_ns: 0,
                ..ordinary()
            },
            frame: full_segment().bytes(),
            runs_before: 1_000,
            runs_of_a_flow: u32::MAX,
            pace: None,
            counts: None,
            at_least: 1.0,
        }
    }

    pub(super) fn measure(&self, group: &mut BenchmarkGroup<'_, WallTime>, loaded: &mut Loaded) {
        let mut frame = self.frame.clone();
        let _held = hold(loaded, self.program);
        self.warm_up(loaded, &mut frame);
        group.bench_function(self.name, |bencher| {
            bencher.iter_custom(|iterations| self.time(loaded, &mut frame, iterations));
        });
    }

    /// Brings the table into the state that is meant, a clock tick or a moment at a time: what
    /// would evict more flows within a tick is a flood, which passes the table by.
    fn warm_up(&self, loaded: &mut Loaded, frame: &mut [u8]) {
        // Where few come at a time, more at a time fill the table as well, if time goes on as fast.
        let pace = self.pace.unwrap_or(Pace::of_tick(RUNS_OF_A_TICK));
        let times = (RUNS_OF_A_TICK / 4).div_ceil(pace.runs);
        let (runs, step_ns) = (pace.runs * times, pace.step_ns * u64::from(times));
        let mut left = self.runs_before;
        while left > 0 {
            loaded.pass_time(self.config, step_ns);
            let some = left.min(runs);
            self.run(loaded, frame, some);
            left -= some;
        }
    }

    /// Runs the program so many times; `frame` is what it then left, from which
    /// new flows go on where this run ends.
    fn run(&self, loaded: &Loaded, frame: &mut [u8], runs: u32) -> Duration {
        let input = frame.to_vec();
        loaded
            .run_xdp(self.program, &input, Some(frame), runs)
            .duration
    }

    /// Time of `iterations` packets, taken over more of them if they are few. All of them did what
    /// the row says, or there is no figure.
    fn time(&self, loaded: &mut Loaded, frame: &mut [u8], iterations: u64) -> Duration {
        loaded.pass_time(self.config, self.pace.map_or(TICK_NS, |pace| pace.step_ns));
        let before = self.counted(loaded);
        let (elapsed, runs) = match self.pace {
            Some(pace) => self.time_by_pace(loaded, frame, iterations, pace),
            None => self.time_at_once(loaded, frame, iterations),
        };
        if let (Some(before), Some(after)) = (before, self.counted(loaded)) {
            let counted = (after - before) as f64 / runs as f64;
            assert!(
                counted >= self.at_least && counted <= 1.0,
                "{}: {:.2} % of the timed packets were what the name says",
                self.name,
                100.0 * counted
            );
        }
        elapsed.mul_f64(iterations as f64 / runs as f64)
    }

    fn counted(&self, loaded: &Loaded) -> Option<u64> {
        self.counts.map(|counts| counts(&loaded.counters()))
    }

    /// CPU time of packets that come within one tick, and how many there were.
    fn time_at_once(
        &self,
        loaded: &mut Loaded,
        frame: &mut [u8],
        iterations: u64,
    ) -> (Duration, u64) {
        let runs = u32::try_from(iterations.max(FEWEST_RUNS)).expect("no sample is so long");
        let mut elapsed = Duration::ZERO;
        let mut left = runs;
        while left > 0 {
            let some = left.min(self.runs_of_a_flow);
            if self.runs_of_a_flow < u32::MAX {
                next_port(frame);
            }
            let started = thread_time();
            self.run(loaded, frame, some);
            elapsed += thread_time() - started;
            left -= some;
        }
        (elapsed, runs.into())
    }

    /// Time of packets that come a few at a time, as the kernel tells it for each, in whole
    /// nanoseconds: to begin and to end a few runs takes longer than they do.
    fn time_by_pace(
        &self,
        loaded: &mut Loaded,
        frame: &mut [u8],
        iterations: u64,
        pace: Pace,
    ) -> (Duration, u64) {
        let times = iterations.max(pace.fewest).div_ceil(pace.runs.into());
        let mut elapsed = Duration::ZERO;
        for _ in 0..times {
            loaded.pass_time(self.config, pace.step_ns);
            elapsed += self.run(loaded, frame, pace.runs) * pace.runs;
        }
        (elapsed, times * u64::from(pace.runs))
    }
}

/// Attaches a program to the loopback device of a namespace of its own, where no packet comes, while that
/// lives. The kernel patches its code for each program that is not attached anywhere whenever it is run
/// more than once, and waits some 20 ms for that: too long where few packets come at a time.
pub(super) fn hold(loaded: &mut Loaded, name: &str) -> Namespace {
    let namespace = Namespace::new("held").expect("root may make one");
    let program: &mut Xdp = loaded
        .program_mut(name)
        .try_into()
        .expect("is an XDP program");
    let attached = namespace.enter(|| program.attach_to_if_index(LOOPBACK, XdpMode::Skb));
    attached
        .expect("can be entered")
        .expect("the kernel attaches it");
    namespace
}

/// CPU time of this thread, the kernel's work for it included.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("there is such a clock");
    time.into()
}
