//! Any bytes as a frame: the kernel's buffer never reads beyond them (the
//! address sanitizer watches), the parser agrees with etherparse, and roles in a
//! fabric change nothing but what is theirs.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../../crates/splitter-policy/tests/support/mod.rs"]
mod support;

#[path = "../processor_time.rs"]
mod processor_time;

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    processor_time::begin();
    support::checks::parser(frame);
    support::fabric::check(frame);
});
