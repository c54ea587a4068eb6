//! How long frames take where a core is busy to a tenth, to a half and nearly always.
//!
//! Frames are due at times drawn beforehand, as many a second as are wanted, by chance (Poisson). The
//! generator puts into the router what is due, up to 16 frames at a time, and writes into each when it
//! was due; where it arrives, the time since is counted. So a frame waits for those before it, and for
//! the core, as in a card's ring. What a core carries is measured in the same way, with frames that are
//! always due.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use aya::Pod;
use aya::maps::PerCpuArray;
use serde::Serialize;

use crate::generator;
use crate::loaded::now_ns;
use crate::program::{PACED, Program, Router, Sinks, Yardstick};
use crate::rig::{DESTINATION, ROUTER};
use crate::row::rounded;
use crate::traffic::{self, GAPS, Mix, Size, Traffic};
use crate::{Missing, conntrack};

/// A row of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    program: &'static str,
    traffic: &'static str,
    load_percent: u32,
    mpps: f64,
    p50_us: f64,
    p99_us: f64,
    /// The program without the splitter or its peer, at as many packets a second.
    beside: &'static str,
    added_p50_us: f64,
    added_p99_us: f64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            traffic,
            load_percent,
            mpps,
            p50_us,
            p99_us,
            beside,
            added_p50_us,
            added_p99_us,
        } = self;
        write!(
            f,
            "{program:10} {traffic} {load_percent:3} % {mpps:7.3} Mpps  p50 {p50_us:7.1} us, p99 {p99_us:7.1} us, \
             above {beside} {added_p50_us:6.1} and {added_p99_us:6.1} us"
        )
    }
}

const LOADS_PERCENT: [u32; 3] = [10, 50, 90];

const TRAFFIC: Traffic = Traffic::new(Mix::Zipf, Size::Smallest);

/// What each adds to, by how frames leave the router.
const PAIRS: [(Program, Program); 4] = [
    (Program::Redirect, Program::BareRedirect),
    (Program::Dscp, Program::Stack),
    (Program::Mark, Program::Stack),
    (Program::NftSplit, Program::Stack),
];

/// Frames that the generator hands on at once.
const BATCH: u32 = 16;

/// Runs of the generator for a figure; where nothing is due a run has no frame.
const RUNS: u32 = 4_000_000;
/// Of those that find what a core carries.
const RUNS_AT_ONCE: u32 = 1 << 20;

/// A figure is the median of so many.
const ROUNDS: usize = 3;

/// Measures those of the programs that frames leave by.
pub(crate) fn measure(
    programs: &[Program],
    yardstick: &mut Yardstick,
    missing: &mut Missing,
    prints: bool,
) -> Result<Vec<Row>> {
    let pairs = PAIRS.iter().filter(|(it, _)| programs.contains(it));
    let mut needed: Vec<Program> = pairs.flat_map(|(it, beside)| [*beside, *it]).collect();
    needed.dedup();
    let routers = missing.set_up(&needed, yardstick, Sinks::Timing);
    let _room = conntrack::Room::for_connections(2 << 20);
    let list = traffic::list(TRAFFIC, 1);
    generator::set_list(&mut yardstick.loaded, &list, 1)?;
    let router = |program| routers.iter().find(|it| it.program == program);
    let mut rows = Vec::new();
    for (program, beside) in PAIRS {
        let (Some(measured), Some(beside)) = (router(program), router(beside)) else {
            continue;
        };
        // Once for the flows, and once for the figure.
        capacity(yardstick, measured)?;
        capacity(yardstick, beside)?;
        let capacity = capacity(yardstick, measured)?;
        for load_percent in LOADS_PERCENT {
            let rate = capacity * f64::from(load_percent) / 100.0;
            let row = row(yardstick, measured, beside, (load_percent, rate))?;
            if prints {
                println!("{row}");
            } else {
                eprintln!("{row}");
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn row(
    yardstick: &mut Yardstick,
    measured: &Router,
    beside: &Router,
    (load_percent, rate): (u32, f64),
) -> Result<Row> {
    let gaps = traffic::gaps(rate);
    let mut quantiles = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for (router, into) in [(measured, 0), (beside, 2)] {
            let latencies = run(yardstick, router, &gaps, RUNS)?.latencies;
            for (quantile, into) in [(0.5, into), (0.99, into + 1)] {
                quantiles[into].push(quantile_us(&latencies, quantile)?);
            }
        }
    }
    let [p50_us, p99_us, beside_p50_us, beside_p99_us] = quantiles.map(|mut each| {
        each.sort_by(f64::total_cmp);
        each[ROUNDS / 2]
    });
    Ok(Row {
        program: measured.program.name(),
        traffic: TRAFFIC.name(),
        load_percent,
        mpps: rounded(rate / 1e6, 1_000.0),
        p50_us: rounded(p50_us, 100.0),
        p99_us: rounded(p99_us, 100.0),
        beside: beside.program.name(),
        added_p50_us: rounded(p50_us - beside_p50_us, 100.0),
        added_p99_us: rounded(p99_us - beside_p99_us, 100.0),
    })
}

/// Packets a second that the core carries when there always are some.
fn capacity(yardstick: &mut Yardstick, router: &Router) -> Result<f64> {
    let run = run(yardstick, router, &[0; GAPS as usize], RUNS_AT_ONCE)?;
    Ok(run.arrived as f64 * 1e9 / run.elapsed_ns as f64)
}

/// What became of a run's frames.
struct Run {
    arrived: u64,
    elapsed_ns: u64,
    latencies: Vec<u64>,
}

/// When a CPU's next frame is due, as the yardstick has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Schedule {
    due_ns: u64,
    next: u64,
}

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Schedule {}

fn run(yardstick: &mut Yardstick, router: &Router, gaps: &[u32], runs: u32) -> Result<Run> {
    /// By which the kernel has made its frames; until then nothing is due.
    const PREPARATION_NS: u64 = 3_000_000;
    const ARRIVED: f64 = 0.999;
    ensure!(!yardstick.cancel.is_cancelled(), "cancelled");
    let loaded = &mut yardstick.loaded;
    generator::set_template(loaded, router.template)?;
    generator::set_all(loaded, "GAPS", gaps)?;
    let starts_ns = now_ns() + PREPARATION_NS;
    let start = Schedule {
        due_ns: starts_ns,
        next: 0,
    };
    generator::set_per_cpu(loaded, "SCHEDULE", |_| start)?;
    let (before, latencies_before) = (generator::arrived(loaded)?, latencies(loaded)?);
    let program = yardstick.generator(PACED)?;
    let frame = generator::frame(ROUTER, DESTINATION, TRAFFIC.size);
    let elapsed_ns = router.rig.generator.enter(|| {
        generator::bind(0)?;
        generator::run(program, &frame, runs, BATCH)?;
        anyhow::Ok(now_ns() - starts_ns)
    })??;
    std::thread::sleep(std::time::Duration::from_millis(10));
    let loaded = &mut yardstick.loaded;
    let arrived = generator::arrived(loaded)? - before;
    let schedules: PerCpuArray<_, Schedule> = loaded.map("SCHEDULE").try_into()?;
    let sent = schedules.get(&0, 0)?.iter().map(|it| it.next).sum::<u64>();
    ensure!(
        sent > 0 && arrived as f64 >= ARRIVED * sent as f64,
        "{} of {sent} frames of {} arrived",
        arrived,
        router.program.name()
    );
    let after = latencies(loaded)?;
    let counts = after.iter().zip(&latencies_before);
    Ok(Run {
        arrived,
        elapsed_ns,
        latencies: counts.map(|(after, before)| after - before).collect(),
    })
}

/// Frames by how late they were, of all CPUs.
fn latencies(yardstick: &mut crate::loaded::Loaded) -> Result<Vec<u64>> {
    let map: PerCpuArray<_, u64> = yardstick.map("LATENCIES").try_into()?;
    let bucket = |index| anyhow::Ok(map.get(&index, 0)?.iter().sum());
    (0..map.len()).map(bucket).collect()
}

fn quantile_us(latencies: &[u64], quantile: f64) -> Result<f64> {
    let frames: u64 = latencies.iter().sum();
    let wanted = (frames as f64 * quantile).ceil() as u64;
    let mut sum = 0;
    let found = latencies.iter().position(|count| {
        sum += count;
        sum >= wanted && sum > 0
    });
    let bucket = found.context("no frame arrived")?;
    Ok(middle_ns(bucket) / 1e3)
}

/// The middle of a bucket of the yardstick's: sixteen for each doubling.
fn middle_ns(bucket: usize) -> f64 {
    let (doubling, part) = (bucket as i32 / 16, (bucket % 16) as f64);
    if doubling == 0 {
        return part;
    }
    (16.0 + part + 0.5) * 2f64.powi(doubling - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the yardstick counts.
    fn bucket(ns: u64) -> usize {
        if ns < 16 {
            return ns as usize;
        }
        let exponent = 63 - ns.leading_zeros();
        let mantissa = (ns >> (exponent - 4)) as usize & 15;
        (exponent as usize - 3) * 16 + mantissa
    }

    #[test]
    fn buckets_keep_a_time_to_a_thirtieth() {
        for ns in [
            16,
            17,
            31,
            32,
            100,
            999,
            1_000,
            54_321,
            1_000_000,
            123_456_789,
        ] {
            let middle = middle_ns(bucket(ns));
            assert!(
                (middle / ns as f64 - 1.0).abs() < 1.0 / 30.0,
                "{ns} became {middle}"
            );
        }
    }

    #[test]
    fn quantiles_are_those_of_the_frames() {
        let mut latencies = vec![0; 640];
        latencies[bucket(1_000)] = 98;
        latencies[bucket(64_000)] = 2;
        let (median, p99) = (quantile_us(&latencies, 0.5), quantile_us(&latencies, 0.99));
        assert!((median.unwrap() - 1.0).abs() < 0.04);
        assert!((p99.unwrap() - 64.0).abs() < 2.1);
        assert!(quantile_us(&[0; 640], 0.5).is_err());
    }
}
