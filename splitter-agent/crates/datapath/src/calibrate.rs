//! Measures how long a tick of this kernel is, and where it started.
//!
//! User space cannot ask for either: `HZ` is a build option, and the tick
//! count has no clock id. So a program reads both clocks, here, several times at
//! each end of a baseline: on a busy machine, and on a virtual one whose
//! processor was taken away, a reading may come long after the tick.

use std::time::{Duration, Instant};

use aya::maps::{Array, MapData};
use aya::programs::{ProgramError, TestRun as _, TestRunOptions, Xdp};
use splitter_policy::clock::{ClockReading, TickClock};
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

/// Between the two ends: ten ticks of the slowest kernel, so that the nearest
/// rate is never in doubt.
const BASELINE: Duration = Duration::from_millis(100);

/// At each end. Most have to be in time for the rate, one for the offset.
const READINGS: usize = 5;

/// Longer than any tick by far.
const PATIENCE: Duration = Duration::from_secs(1);

/// Measures with the loaded `read_clocks` program, in less than a quarter of a second.
pub(super) fn measure(
    program: &Xdp,
    reading: &Array<MapData, Shape<ClockReading>>,
) -> Result<TickClock, CalibrationError> {
    let first = next_ticks(program, reading)?;
    std::thread::sleep(BASELINE);
    let second = next_ticks(program, reading)?;
    Ok(fit(&first, &second))
}

fn next_ticks(
    program: &Xdp,
    reading: &Array<MapData, Shape<ClockReading>>,
) -> Result<Vec<ClockReading>, CalibrationError> {
    (0..READINGS).map(|_| next_tick(program, reading)).collect()
}

/// Both clocks just after the tick count has moved.
fn next_tick(
    program: &Xdp,
    reading: &Array<MapData, Shape<ClockReading>>,
) -> Result<ClockReading, CalibrationError> {
    let started = Instant::now();
    let before = read(program, reading)?;
    loop {
        // Looked at before the reading: one that comes late, as whoever reads was not let run, counts still.
        let is_last = started.elapsed() >= PATIENCE;
        let now = read(program, reading)?;
        if now.ticks != before.ticks {
            return Ok(now);
        }
        if is_last {
            return Err(CalibrationError::Still(PATIENCE));
        }
    }
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

/// The clock with the nearest known rate that passes through the reading that was
/// the earliest after its tick.
fn fit(first: &[ClockReading], second: &[ClockReading]) -> TickClock {
    let measured_ns = median_tick_ns(first, second);
    let tick_ns = TICK_RATES_HZ
        .map(|rate_hz| 1_000_000_000 / rate_hz)
        .into_iter()
        .find(|tick_ns| tick_ns.abs_diff(measured_ns) * 50 <= *tick_ns)
        .unwrap_or_else(|| whole_rate(measured_ns));
    // The tick count starts before zero, so that only differences can be compared.
    let offset_ns =
        |it: &ClockReading| it.monotonic_ns.wrapping_sub(it.ticks.wrapping_mul(tick_ns));
    let reference_ns = first.first().map_or(0, offset_ns);
    let earliest_ns = first
        .iter()
        .chain(second)
        .map(|it| offset_ns(it).wrapping_sub(reference_ns).cast_signed())
        .min()
        .unwrap_or(0);
    TickClock {
        tick_ns,
        offset_ns: reference_ns.wrapping_add_signed(earliest_ns),
    }
}

/// The median of what each reading of the first and each of the second say
/// (Theil and Sen), which some late readings do not change.
fn median_tick_ns(first: &[ClockReading], second: &[ClockReading]) -> u64 {
    let pairs = first
        .iter()
        .flat_map(|one| second.iter().map(move |other| (one, other)));
    let mut measured_ns: Vec<u64> = pairs
        .map(|(one, other)| {
            let ticks = other.ticks.saturating_sub(one.ticks).max(1);
            other.monotonic_ns.saturating_sub(one.monotonic_ns) / ticks
        })
        .collect();
    measured_ns.sort_unstable();
    measured_ns.get(measured_ns.len() / 2).copied().unwrap_or(1)
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

    const START: ClockReading = ClockReading {
        ticks: 4_294_900_000,
        monotonic_ns: 5_000_000_000,
    };

    /// Readings at so many ticks after the start, each so long after its tick.
    fn readings(tick_ns: u64, at: &[(u64, u64)]) -> Vec<ClockReading> {
        at.iter()
            .map(|(ticks, late_ns)| ClockReading {
                ticks: START.ticks + ticks,
                monotonic_ns: START.monotonic_ns + ticks * tick_ns + late_ns,
            })
            .collect()
    }

    #[test]
    fn the_rate_is_recognised_and_the_clock_passes_through_the_soonest_reading() {
        for tick_ns in [1_000_000, 2_000_000, 3_333_333, 4_000_000, 10_000_000] {
            let first = readings(tick_ns, &[(0, 9_000), (1, 2_000), (2, 8_000)]);
            let second = readings(tick_ns, &[(100, 5_000), (101, 3_000), (103, 30_000)]);
            let clock = fit(&first, &second);
            assert_eq!(clock.tick_ns, tick_ns);
            let expected_ns = START.monotonic_ns + 2_000;
            // A third of a nanosecond is missing from each tick of 300 Hz.
            assert!(clock.at(START.ticks).abs_diff(expected_ns) <= 1);
        }
    }

    #[test]
    fn readings_that_come_long_after_their_tick_change_nothing() {
        let stall_ns = 45_000_000;
        let late = readings(4_000_000, &[(0, stall_ns), (12, 2_000), (13, 2_000)]);
        let in_time = readings(4_000_000, &[(40, 2_000), (41, 2_000), (42, 2_000)]);
        let late_at_the_end = readings(4_000_000, &[(40, stall_ns), (52, 2_000), (53, 2_000)]);
        for second in [in_time, late_at_the_end] {
            let clock = fit(&late, &second);
            assert_eq!(clock.tick_ns, 4_000_000);
            assert_eq!(clock.at(START.ticks), START.monotonic_ns + 2_000);
        }
    }
}
