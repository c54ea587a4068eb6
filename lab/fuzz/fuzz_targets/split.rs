//! Any bytes as a frame, under settings that the first byte chooses: no panic,
//! nothing but the mark changes, checksums stay right, and what is counted is
//! what happened.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../../crates/splitter-policy/tests/support/mod.rs"]
mod support;

#[path = "../processor_time.rs"]
mod processor_time;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    processor_time::begin();
    support::checks::split(input);
});
