//! Many scenarios, whatever they turn out to be.

use super::{run::run_seed, scenario::Scenario};

/// Where nothing else is asked for. `CLOUDBURST_SEEDS=from..to` runs others.
const SEEDS: std::ops::Range<u64> = 0..10_000;
const MOST_FAILURES: usize = 40;

#[test]
fn ten_thousand_scenarios() {
    let seeds = std::env::var("CLOUDBURST_SEEDS").map_or(SEEDS, |range| {
        let (from, to) = range.split_once("..").expect("from..to");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    let mut failed = Vec::new();
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| run_seed(seed)) {
            let literal = || panic.downcast_ref::<&str>().copied();
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message = text.or_else(literal).unwrap_or("?");
            failed.push(format!("{seed}: {message}"));
        }
        // A few tell more than one, and hundreds no more than a few.
        assert!(failed.len() < MOST_FAILURES, "{}", failed.join("\n"));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..50 {
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
