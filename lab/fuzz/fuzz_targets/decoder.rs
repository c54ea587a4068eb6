//! Any bytes as options of a message and what is done to its decoder: honest
//! datagrams in any order, spoiled ones, any bytes. No panic; what is refused
//! changes nothing; what is complete is the message.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../../cloudburst/crates/code/tests/support/mod.rs"]
mod support;

#[path = "../processor_time.rs"]
mod processor_time;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    processor_time::begin();
    support::checks::decoder(input);
});
