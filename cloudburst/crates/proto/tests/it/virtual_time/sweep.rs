//! Many scenarios, whatever they turn out to be.

use std::fmt::Write as _;

use super::seeds;
use crate::simulation::{
    run::{run, run_seed},
    scenario::Scenario,
};

/// Where nothing else is asked for. `CLOUDBURST_SEEDS=from..to` runs others.
const SEEDS: std::ops::Range<u64> = 0..10_000;
const MOST_FAILURES: usize = 40;

#[test]
fn ten_thousand_scenarios() {
    let seeds = std::env::var("CLOUDBURST_SEEDS").map_or(SEEDS, |range| {
        let (from, to) = range.split_once("..").expect("from..to");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    seeds::each(seeds, MOST_FAILURES, |seed| {
        let scenario = Scenario::generate(seed);
        // The laboratory runs those, with the paper's machine.
        if !scenario.is_paper() {
            run(scenario);
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in (0..50).filter(|seed| !Scenario::generate(*seed).is_paper()) {
        assert_eq!(
            run_seed(seed).log_hash,
            run_seed(seed).log_hash,
            "seed {seed}"
        );
    }
}

/// `CLOUDBURST_SEED=123 cargo test -p cloudburst-proto --test it replay -- --nocapture`
#[test]
fn replay() {
    let Ok(seed) = std::env::var("CLOUDBURST_SEED") else {
        return;
    };
    let seed = seed.parse().expect("a number");
    println!("{:#?}", Scenario::generate(seed));
    let outcome = run_seed(seed);
    for host in 0..outcome.world.hosts.len() {
        println!("host {host}: {:#?}", outcome.statistics(host));
    }
    println!("log {:016x}", outcome.log_hash);
}

/// Writes what the first thousand scenarios came to, a line each, to the file that
/// `CLOUDBURST_FINGERPRINTS` names: two commits that write the same behave alike.
#[test]
#[ignore = "compares commits by hand"]
fn fingerprints() {
    let Ok(file) = std::env::var("CLOUDBURST_FINGERPRINTS") else {
        return;
    };
    let mut lines = String::new();
    for seed in 0..1_000 {
        let scenario = Scenario::generate(seed);
        if !scenario.is_paper() {
            let _ = writeln!(lines, "{seed} {:016x}", run(scenario).log_hash);
        }
    }
    std::fs::write(file, lines).expect("can be written");
}
