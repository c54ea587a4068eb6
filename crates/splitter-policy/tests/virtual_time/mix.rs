//! Uploads, downloads and clicks that come by chance, as in the demonstration.
//!
//! An upload starts where fewer are, whatever else passes: short flows, and the acknowledgements of
//! downloads, which take next to nothing of a tunnel. So all are done sooner than with per-flow ECMP.

use crate::border::{Border, MICROSECOND, SECOND};
use crate::ideal::{self, Placement};
use crate::tcp::{Opening, Received, Small, Traffic, run};
use crate::traffic::Random;

const RATES_MBIT: [u64; 2] = [100, 100];
const ROUND_TRIP_NS: u64 = 300 * MICROSECOND;
/// 1.5 MB.
const UPLOAD_PACKETS: u64 = 1_036;
const SMALL_PER_SECOND: u64 = 120;
const SEEDS: u64 = 6;
const FROM_NS: u64 = SECOND;
const TO_NS: u64 = 21 * SECOND;
const ENDS_NS: u64 = TO_NS + 20 * SECOND;

/// Uploads that are this load of both tunnels, and as many downloads.
fn traffic(seed: u64, load_percent: u64) -> Traffic {
    let random = &mut Random(seed);
    let mbit: u64 = RATES_MBIT.iter().sum();
    let bits = (TO_NS - FROM_NS) / 1_000 * mbit * load_percent / 100;
    let count = bits / (UPLOAD_PACKETS * 1_514 * 8);
    let mut any_time = || FROM_NS + random.below(TO_NS - FROM_NS);
    let transfers = (0..count).map(|_| Opening {
        opens_ns: any_time(),
        sends_ns: None,
        packets: UPLOAD_PACKETS,
    });
    Traffic {
        transfers: transfers.collect(),
        round_trip_ns: ROUND_TRIP_NS,
        downloads: (0..count).map(|_| any_time()).collect(),
        small: Small::mixed(random, SMALL_PER_SECOND, FROM_NS, TO_NS),
        ends_ns: ENDS_NS,
    }
}

const PLACEMENTS: [Placement; 3] = [
    Placement::ByChance,
    Placement::WhereFewest,
    Placement::Anywhere,
];

/// The time that an upload takes alone, in what the short flows leave of a tunnel.
fn alone_ns(traffic: &Traffic) -> f64 {
    let of_small = traffic
        .small
        .iter()
        .map(|it| it.packets * (it.payload + 66));
    let small_bits = (8 * of_small.sum::<u64>()) as f64;
    let mbit: u64 = RATES_MBIT.iter().sum();
    let all_bits = mbit as f64 * (TO_NS - FROM_NS) as f64 / 1e3;
    let bits = (UPLOAD_PACKETS * 1_514 * 8) as f64;
    bits * 1e3 / RATES_MBIT[0] as f64 / (1.0 - small_bits / all_bits)
}

/// The mean time that an upload takes.
fn mean_ms(traffic: &Traffic, received: &Received) -> f64 {
    let all = traffic.transfers.iter().zip(&received.completed_ns);
    let taken = all.map(|(opening, done)| done.expect("it ends") - opening.opens_ns);
    taken.sum::<u64>() as f64 / 1e6 / traffic.transfers.len() as f64
}

#[test]
fn uploads_among_downloads_and_short_flows_are_done_sooner_than_with_per_flow_ecmp() {
    for (load_percent, most) in [(20, 0.90), (40, 0.81), (60, 0.73), (80, 0.77)] {
        let (mut shared_ms, mut hashed_ms) = (0.0, 0.0);
        for seed in 0..SEEDS {
            let traffic = traffic(seed, load_percent);
            let mut shared = Border::shared(RATES_MBIT, traffic.flows()).seeing_queues();
            let received = run(&mut shared, &traffic, 0);
            assert!(received.overtaken.is_empty(), "{:?}", received.overtaken);
            shared_ms += mean_ms(&traffic, &received) / SEEDS as f64;
            let mut hashed = Border::shared(RATES_MBIT, traffic.flows()).hashed();
            hashed_ms += mean_ms(&traffic, &run(&mut hashed, &traffic, 0)) / SEEDS as f64;
        }
        let ratio = shared_ms / hashed_ms;
        println!("{load_percent} %: {shared_ms:.1} ms, {ratio:.3} of {hashed_ms:.1} ms");
        assert!(ratio <= most, "{load_percent} %: {ratio:.3}");
    }
}

#[test]
fn uploads_take_hardly_longer_than_if_each_started_where_the_fewest_are_and_lost_nothing() {
    for (load_percent, most) in [(20, 1.02), (40, 1.02), (60, 1.02), (80, 1.18)] {
        let mut shared_ms = 0.0;
        let mut ideal_ms = [0.0; 3];
        for seed in 0..SEEDS {
            let traffic = traffic(seed, load_percent);
            let mut shared = Border::shared(RATES_MBIT, traffic.flows()).seeing_queues();
            shared_ms += mean_ms(&traffic, &run(&mut shared, &traffic, 0)) / SEEDS as f64;
            let starts: Vec<u64> = traffic.transfers.iter().map(|it| it.opens_ns).collect();
            for (sum, placement) in ideal_ms.iter_mut().zip(PLACEMENTS) {
                let all = ideal::mean_ms(&starts, alone_ns(&traffic), placement, seed);
                *sum += all / SEEDS as f64;
            }
        }
        let [by_chance, fewest, anywhere] = ideal_ms;
        println!(
            "{load_percent} %: {shared_ms:.1} ms; ideal {fewest:.1} where the fewest are, {anywhere:.1} moving \
             freely, {by_chance:.1} by chance ({:.3} and {:.3} of that)",
            fewest / by_chance,
            anywhere / by_chance
        );
        assert!(shared_ms <= most * fewest, "{shared_ms} {fewest}");
    }
}
