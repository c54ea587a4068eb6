//! Pushes hostile frames through the splitter, for as many as are asked for.

use std::thread;
use std::time::Instant;

use clap::Parser;
use hostile::{Outcomes, push};

/// Push hostile frames through the splitter's parser and flow table.
#[derive(Parser)]
struct Arguments {
    /// Frames in all.
    #[arg(long, default_value_t = 10_000_000)]
    frames: u64,
    /// The first of the seeds; each processor has one, and each million of frames.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Frames of one seed.
const PART: u64 = 1_000_000;

fn main() {
    let Arguments { frames, seed } = Arguments::parse();
    let started = Instant::now();
    let workers = thread::available_parallelism().map_or(1, |it| it.get() as u64);
    let parts = frames.div_ceil(PART);
    let work = |worker: u64| {
        let mut sum = Outcomes::default();
        for part in (worker..parts).step_by(workers as usize) {
            let of_part = PART.min(frames - part * PART);
            let Outcomes {
                split,
                passed,
                dropped,
            } = push(of_part, seed + part);
            sum.split += split;
            sum.passed += passed;
            sum.dropped += dropped;
        }
        sum
    };
    let sums: Vec<Outcomes> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|it| scope.spawn(move || work(it)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let of = |part: fn(&Outcomes) -> u64| sums.iter().map(part).sum::<u64>();
    println!(
        "{} hostile frames: {} split, {} passed, {} dropped, in {:.0} s, overflow checks {}",
        of(Outcomes::frames),
        of(|it| it.split),
        of(|it| it.passed),
        of(|it| it.dropped),
        started.elapsed().as_secs_f64(),
        if cfg!(debug_assertions) { "on" } else { "off" },
    );
}
