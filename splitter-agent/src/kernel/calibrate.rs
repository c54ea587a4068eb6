//! Measures how long a tick of this kernel is, and where it started.
//!
//! User space cannot ask for either: `HZ` is a build option, and the tick
//! count has no clock id. So a program reads both clocks, here, twice.

use std::time::{Duration, Instant};

use aya::maps::{Array, MapData};
use aya::programs::{ProgramError, TestRun as _, TestRunOptions, Xdp};
use splitter_common::config::{ClockReading, TickClock};
use thiserror::Error;

use super::shapes::Shape;

/// The tick clock could not be measured.
#[derive(Debug, Error)]
pub enum CalibrationError {
    /// The program could not be run.
    #[error("cannot run the clock program: {0}")]
    Run(#[from] ProgramError),
    /// Its answer could not be read.
    #[error("cannot read the clocks: {0}")]
    Read(#[from] aya::maps::MapError),
    /// The tick count does not move.
    #[error("the kernel's tick count stood still for {0:?}; its clock cannot be used")]
    Still(Duration),
}

/// `CONFIG_HZ` as mainline kernels offer it. A measured tick is taken for one of
/// these when it is within a fiftieth, and for the nearest whole rate otherwise.
const TICK_RATES_HZ: [u64; 4] = [100, 250, 300, 1000];

/// Between the two looks: ten ticks of the slowest kernel, so that the nearest
/// rate is never in doubt.
const BASELINE: Duration = Duration::from_millis(100);

/// Longer than any tick by far.
const PATIENCE: Duration = Duration::from_secs(1);

/// Measures with the loaded `read_clocks` program, in about a tenth of a second.
pub(super) fn measure(
    program: &Xdp,
    reading: &Array<MapData, Shape<ClockReading>>,
) -> Result<TickClock, CalibrationError> {
    let first = next_tick(program, reading)?;
    std::thread::sleep(BASELINE);
    let second = next_tick(program, reading)?;
    Ok(fit(first, second))
}

/// Both clocks just after the tick count has moved.
fn next_tick(
    program: &Xdp,
    reading: &Array<MapData, Shape<ClockReading>>,
) -> Result<ClockReading, CalibrationError> {
    let started = Instant::now();
    let before = read(program, reading)?;
    while started.elapsed() < PATIENCE {
        let now = read(program, reading)?;
        if now.ticks != before.ticks {
            return Ok(now);
        }
    }
    Err(CalibrationError::Still(PATIENCE))
}

fn read(
    program: &Xdp,
    reading: &Array<MapData, Shape<ClockReading>>,
) -> Result<ClockReading, CalibrationError> {
    // The kernel asks for an Ethernet header at the least.
    let frame = [0; 64];
    program.test_run(TestRunOptions {
        data_in: Some(&frame),
        ..TestRunOptions::default()
    })?;
    Ok(reading.get(&0, 0)?.0)
}

/// The clock that passes through the first reading with the nearest known rate.
fn fit(first: ClockReading, second: ClockReading) -> TickClock {
    let elapsed_ns = second.monotonic_ns.saturating_sub(first.monotonic_ns);
    let ticks = second.ticks.saturating_sub(first.ticks).max(1);
    let measured_ns = elapsed_ns / ticks;
    let tick_ns = TICK_RATES_HZ
        .map(|rate_hz| 1_000_000_000 / rate_hz)
        .into_iter()
        .find(|tick_ns| tick_ns.abs_diff(measured_ns) * 50 <= *tick_ns)
        .unwrap_or_else(|| whole_rate(measured_ns));
    let offset_ns = first
        .monotonic_ns
        .wrapping_sub(first.ticks.wrapping_mul(tick_ns));
    TickClock { tick_ns, offset_ns }
}

/// The tick of the whole number of ticks a second that is nearest.
fn whole_rate(tick_ns: u64) -> u64 {
    const SECOND_NS: u64 = 1_000_000_000;
    let rate_hz = (SECOND_NS + tick_ns / 2) / tick_ns.max(1);
    SECOND_NS / rate_hz.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_recognised_and_the_clock_passes_through_the_reading() {
        let first = ClockReading {
            ticks: 4_294_900_000,
            monotonic_ns: 5_000_010_000,
        };
        let second = ClockReading {
            ticks: 4_294_900_026,
            monotonic_ns: 5_104_030_000,
        };
        let clock = fit(first, second);
        assert_eq!(clock.tick_ns, 4_000_000);
        assert_eq!(clock.at(first.ticks), first.monotonic_ns);
        assert_eq!(
            clock.at(first.ticks + 250),
            first.monotonic_ns + 1_000_000_000
        );

        // 500 Hz, as some patch it.
        let patched = ClockReading {
            ticks: first.ticks + 50,
            monotonic_ns: first.monotonic_ns + 100_001_000,
        };
        assert_eq!(fit(first, patched).tick_ns, 2_000_000);
    }
}
