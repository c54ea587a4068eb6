//! Any bytes as what a peer with a key says, of every kind and sealed as it has to be, to two
//! endpoints that speak to each other: no panic, no overflow, quotas kept, and what they send each
//! other arrives, once and as it was sent.
#![no_main]

#[path = "../../../cloudburst/crates/proto/tests/support/liar/mod.rs"]
#[allow(dead_code, reason = "the tests' adversary needs the rest of it")]
mod liar;
#[path = "../processor_time.rs"]
mod processor_time;

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

/// The liar's datagrams so far. They are what there is to count: an input is one, or five hundred.
static DATAGRAMS: AtomicU64 = AtomicU64::new(0);
const TOLD_EVERY: u64 = 20_000;

/// As many as that there are to be; without, the fuzzer's own bounds hold alone.
static GOAL: LazyLock<Option<u64>> =
    LazyLock::new(|| std::env::var("FUZZ_GOAL").ok()?.parse().ok());

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    processor_time::begin();
    let more = liar::check(input);
    let before = DATAGRAMS.fetch_add(more, Ordering::Relaxed);
    let now = before + more;
    if before / TOLD_EVERY != now / TOLD_EVERY {
        eprintln!("counted: {now}");
    }
    if GOAL.is_some_and(|goal| now >= goal) {
        eprintln!("counted: {now}");
        // libFuzzer ends then, prints its figures and is content.
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGUSR1);
    }
});
