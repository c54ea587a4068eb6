//! Ten minutes of traffic, from an empty table on: flows that come by chance, of sizes with a heavy tail.

use std::collections::HashMap;

use aya::maps::{PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, Pareto};
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::flow::{Class, TunnelRole};

use super::case::{TICK_NS, hold};
use super::listed::{self, LISTED};
use super::loaded::Loaded;
use super::{TRACKED, YARDSTICK, full_segment, loaded, ordinary, split};

const SECONDS: f64 = 600.0;

/// New flows a second, and their packets: three at the least and 18 in the mean, some of thousands.
const FLOWS_A_SECOND: f64 = 200.0;
const FEWEST_PACKETS: f64 = 3.0;
const TAIL: f64 = 1.2;
const MOST_PACKETS: f64 = 20_000.0;

/// Between the packets of a flow, in the mean.
const GAP_SECONDS: f64 = 0.005;

/// Cost of a packet of the trace above a program that only draws it.
pub(super) fn measure() -> Vec<(String, f64)> {
    let trace = trace();
    let expected = Expected::of(&trace);
    let [floor, ours, peer] = ["renew_listed", "split_listed", "lru_hash_listed"].map(|program| {
        let mut fresh = loaded(YARDSTICK, &[program]);
        let _held = hold(&mut fresh, program);
        let ns = run(&mut fresh, program, &trace);
        if program == "split_listed" {
            expected.hold_against(&fresh.counters());
        }
        ns
    });
    vec![
        ("trace_10_minutes".to_owned(), ours - floor),
        ("lru_hash_trace_10_minutes".to_owned(), peer - floor),
    ]
}

/// Packets of a trace, by what is to become of them.
struct Expected {
    packets: u64,
    flows: u64,
    /// Beyond their flows' threshold.
    long: u64,
}

impl Expected {
    fn of(trace: &[(u64, u32)]) -> Self {
        let mut packets_of = HashMap::new();
        for (_, flow) in trace {
            *packets_of.entry(flow).or_insert(0_u64) += 1;
        }
        let beyond = |packets: &u64| packets.saturating_sub(PolicyConfig::DEFAULT_THRESHOLD);
        Self {
            packets: trace.len() as u64,
            flows: packets_of.len() as u64,
            long: packets_of.values().map(beyond).sum(),
        }
    }

    /// Nearly all packets were counted in their flow, each flow started once, and long ones went to their own
    /// tunnel at their first pauses.
    fn hold_against(&self, counters: &Counters) {
        /// The rest waits in the short tunnel for a pause.
        const SETTLED: f64 = 0.95;
        let long = counters.packets(Class::Long, TunnelRole::Long);
        let started = counters.events(FlowEvent::Started);
        let rows = [
            ("packets", split(counters), self.packets, TRACKED),
            ("flows", started, self.flows, TRACKED),
            ("long packets, settled", long, self.long, SETTLED),
        ];
        for (name, counted, expected, at_least) in rows {
            let part = counted as f64 / expected as f64;
            assert!(
                (at_least..=1.0 / at_least).contains(&part),
                "{counted} {name} of {expected}"
            );
        }
    }
}

/// Packets in order: the tick in which each comes, and its flow.
fn trace() -> Vec<(u64, u32)> {
    let mut random = SmallRng::seed_from_u64(7);
    let between = Exp::new(FLOWS_A_SECOND).expect("is a rate");
    let gap = Exp::new(1.0 / GAP_SECONDS).expect("is a rate");
    let size = Pareto::new(FEWEST_PACKETS, TAIL).expect("is a tail");
    let tick = |seconds: f64| (seconds * 1e9) as u64 / TICK_NS;
    let mut packets = Vec::new();
    let (mut start, mut flow) = (between.sample(&mut random), 0);
    while start < SECONDS {
        let mut time = start;
        for _ in 0..size.sample(&mut random).min(MOST_PACKETS) as u32 {
            packets.push((tick(time), flow));
            time += gap.sample(&mut random);
        }
        start += between.sample(&mut random);
        flow += 1;
    }
    packets.retain(|(at, _)| *at < tick(SECONDS));
    // In a tick packets of several flows come in any order.
    packets.sort_by_key(|(at, _)| *at);
    for within in packets.chunk_by_mut(|one, other| one.0 == other.0) {
        let last = within.len() - 1;
        within.swap(random.random_range(0..=last), 0);
    }
    packets
}

/// ns a packet, as the kernel tells it for those of each tick.
fn run(yardstick: &mut Loaded, program: &str, trace: &[(u64, u32)]) -> f64 {
    // Where in the list it is, each CPU knows for itself.
    let mut cpu = CpuSet::new();
    let before = nix::sched::sched_getaffinity(Pid::from_raw(0)).expect("is known");
    cpu.set(0).expect("is there");
    sched_setaffinity(Pid::from_raw(0), &cpu).expect("a thread may stay where it is");
    let config = ordinary();
    let mut frame = full_segment().bytes();
    let (mut elapsed_ns, mut last_tick) = (0, 0);
    for part in trace.chunks(LISTED as usize) {
        let flows: Vec<u32> = part.iter().map(|(_, flow)| *flow).collect();
        listed::write(yardstick, &flows);
        rewind(yardstick);
        for within in part.chunk_by(|one, other| one.0 == other.0) {
            let tick = within[0].0;
            yardstick.pass_time(config, (tick - last_tick) * TICK_NS);
            last_tick = tick;
            let runs = within.len() as u32;
            let input = frame.clone();
            let each = yardstick.run_xdp(program, &input, Some(&mut frame), runs);
            elapsed_ns += each.duration.as_nanos() * u128::from(runs);
        }
    }
    sched_setaffinity(Pid::from_raw(0), &before).expect("it was there before");
    elapsed_ns as f64 / trace.len() as f64
}

/// Has each CPU begin the list again: the place that is next, and where its part begins and ends.
fn rewind(yardstick: &mut Loaded) {
    let cpus = nr_cpus().expect("they are known");
    let map = yardstick.map("POSITION");
    let mut positions: PerCpuArray<_, [u32; 3]> = map.try_into().expect("is per CPU");
    let start = PerCpuValues::try_from(vec![[0; 3]; cpus]).expect("one for each");
    positions.set(0, start, 0).expect("can be written");
}
