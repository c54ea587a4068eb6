//! How one figure is come by.

use std::time::Duration;

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use nix::time::{ClockId, clock_gettime};
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::Counters;

use super::loaded::Loaded;
use super::{full_segment, next_port};

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
    /// After which the clock goes on, so that flows that were silent are over.
    pub(super) runs_of_a_moment: Option<u32>,
    /// What rises by one with each packet, if it is the case that is meant.
    pub(super) counts: Option<fn(&Counters) -> u64>,
}

impl Case {
    /// A full TCP segment under settings by which a flow becomes long soon.
    pub(super) fn new(name: &'static str, program: &'static str) -> Self {
        Self {
            name,
            program,
            config: PolicyConfig {
                drain_margin_ns: 0,
                ..PolicyConfig::default()
            },
            frame: full_segment().bytes(),
            runs_before: 1_000,
            runs_of_a_flow: u32::MAX,
            runs_of_a_moment: None,
            counts: None,
        }
    }

    pub(super) fn measure(&self, group: &mut BenchmarkGroup<'_, WallTime>, loaded: &mut Loaded) {
        let mut frame = self.frame.clone();
        self.warm_up(loaded, &mut frame);
        self.check(loaded, &mut frame);
        group.bench_function(self.name, |bencher| {
            bencher.iter_custom(|iterations| self.time(loaded, &mut frame, iterations));
        });
        self.check(loaded, &mut frame);
    }

    /// Brings the table into the state that is meant, a clock tick or a moment at a time: what
    /// would evict more flows within a tick is a flood, which passes the table by.
    fn warm_up(&self, loaded: &mut Loaded, frame: &mut [u8]) {
        let at_a_time = self.runs_of_a_moment.unwrap_or(RUNS_OF_A_TICK);
        let mut left = self.runs_before;
        while left > 0 {
            self.pass_time(loaded);
            let some = left.min(at_a_time);
            self.run(loaded, frame, some);
            left -= some;
        }
    }

    /// Runs the program so many times; `frame` is what it then left, from which
    /// new flows go on where this run ends.
    fn run(&self, loaded: &Loaded, frame: &mut [u8], runs: u32) {
        let input = frame.to_vec();
        loaded.run_xdp(self.program, &input, Some(frame), runs);
    }

    /// CPU time of `iterations` packets, taken over more of them if they are few.
    fn time(&self, loaded: &mut Loaded, frame: &mut [u8], iterations: u64) -> Duration {
        let runs = u32::try_from(iterations.max(FEWEST_RUNS)).expect("no sample is so long");
        if let Some(at_a_time) = self.runs_of_a_moment {
            let moments = runs.div_ceil(at_a_time);
            let elapsed = self.time_moments(loaded, frame, moments, at_a_time);
            return elapsed
                .mul_f64(iterations as f64 / (f64::from(moments) * f64::from(at_a_time)));
        }
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
        elapsed.mul_f64(iterations as f64 / f64::from(runs))
    }

    /// Time of so many packets at a time, as the kernel tells it for each, in whole nanoseconds: to
    /// begin and to end a few runs takes longer than they do.
    fn time_moments(
        &self,
        loaded: &mut Loaded,
        frame: &mut [u8],
        moments: u32,
        runs: u32,
    ) -> Duration {
        let mut elapsed = Duration::ZERO;
        for _ in 0..moments {
            self.pass_time(loaded);
            let input = frame.to_vec();
            let each = loaded
                .run_xdp(self.program, &input, Some(frame), runs)
                .duration;
            elapsed += each * runs;
        }
        elapsed
    }

    /// Lets a clock tick pass for the splitter, or so long that flows that are silent meanwhile are
    /// over.
    fn pass_time(&self, loaded: &mut Loaded) {
        const MOMENT_NS: u64 = 250_000_000;
        let step_ns = match self.runs_of_a_moment {
            Some(_) => MOMENT_NS,
            None => TICK_NS,
        };
        loaded.pass_time(self.config, step_ns);
    }

    /// Guards against a figure for something else than its name says.
    fn check(&self, loaded: &mut Loaded, frame: &mut [u8]) {
        const RUNS: u32 = 100;
        let Some(counts) = self.counts else {
            return;
        };
        self.pass_time(loaded);
        let before = counts(&loaded.counters());
        self.run(loaded, frame, RUNS);
        let risen = counts(&loaded.counters()) - before;
        assert_eq!(risen, u64::from(RUNS), "{}", self.name);
    }
}

/// CPU time of this thread, the kernel's work for it included.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("there is such a clock");
    time.into()
}
