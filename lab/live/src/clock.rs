//! The relation of the kernel's ticks to its time, as the agent finds it.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use aya::Pod;
use aya::maps::Array;
use splitter_policy::clock::{ClockReading, TickClock};

use crate::loaded::Loaded;

#[repr(transparent)]
#[derive(Clone, Copy)]
struct Reading(ClockReading);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Reading {}

/// Kernels are built with one of these.
const RATES_HZ: [u64; 4] = [100, 250, 300, 1_000];

/// Reads both clocks twice, by the program of the object that ships.
pub(crate) fn calibrated(shipped: &mut Loaded) -> Result<TickClock> {
    shipped.load_xdp("read_clocks");
    let first = read(shipped)?;
    thread::sleep(Duration::from_millis(200));
    let second = read(shipped)?;
    let elapsed_ns = second.monotonic_ns - first.monotonic_ns;
    let measured_ns = elapsed_ns / (second.ticks - first.ticks).max(1);
    let tick_ns = RATES_HZ
        .map(|rate| 1_000_000_000 / rate)
        .into_iter()
        .min_by_key(|it| it.abs_diff(measured_ns))
        .unwrap_or(measured_ns);
    let offset_ns = second
        .monotonic_ns
        .wrapping_sub(second.ticks.wrapping_mul(tick_ns));
    Ok(TickClock { tick_ns, offset_ns })
}

fn read(shipped: &mut Loaded) -> Result<ClockReading> {
    const FRAME: [u8; 64] = [0; 64];
    shipped.run_xdp("read_clocks", &FRAME, None, 1);
    let map = shipped.map("CLOCK_READING");
    let reading: Array<_, Reading> = map.try_into()?;
    Ok(reading.get(&0, 0)?.0)
}
