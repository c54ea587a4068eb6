//! Repeats an experiment on all processors, with results that depend on the
//! seed alone.

use std::{num::NonZero, thread};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Runs trials 0 to `count`, each thread with an accumulator of its own.
///
/// `merge` must not depend on the order (counts and sums of whole numbers do
/// not), for trials are spread over as many threads as there are processors.
pub fn run<T: Send>(
    count: u64,
    start: impl Fn() -> T + Sync,
    trial: impl Fn(&mut T, u64) + Sync,
    merge: impl Fn(&mut T, T),
) -> T {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    run_on(threads, count, start, trial, merge)
}

fn run_on<T: Send>(
    threads: usize,
    count: u64,
    start: impl Fn() -> T + Sync,
    trial: impl Fn(&mut T, u64) + Sync,
    merge: impl Fn(&mut T, T),
) -> T {
    let share = |first: usize| {
        let mut accumulator = start();
        for number in (first as u64..count).step_by(threads) {
            trial(&mut accumulator, number);
        }
        accumulator
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|first| scope.spawn(move || share(first)))
            .collect();
        let mut total = share(0);
        for other in others {
            match other.join() {
                Ok(accumulator) => merge(&mut total, accumulator),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        total
    })
}

/// Random numbers of one trial: `seed` is that of the run, `cell` tells what is
/// measured.
pub fn random(seed: u64, cell: [u32; 2], trial: u64) -> ChaCha8Rng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&cell[0].to_le_bytes());
    bytes[12..16].copy_from_slice(&cell[1].to_le_bytes());
    bytes[16..24].copy_from_slice(&trial.to_le_bytes());
    ChaCha8Rng::from_seed(bytes)
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let sum = |threads| {
            run_on(
                threads,
                100,
                || 0u64,
                |sum, trial| {
                    let drawn = random(1, [2, 3], trial).next_u64();
                    *sum = sum.wrapping_add(drawn);
                },
                |sum, other| *sum = sum.wrapping_add(other),
            )
        };
        assert_eq!(sum(1), sum(2));
        assert_eq!(sum(1), sum(7));
    }
}
