//! Any bytes as a datagram, an envelope, a token and a key's text: no panic,
//! what is read is written alike, and nothing unsealed or spoilt gets past a key.
#![no_main]

#[allow(dead_code, reason = "the seeds are for the replay of the corpus")]
#[path = "../../../cloudburst/crates/proto/tests/support/packet.rs"]
mod packet;

#[path = "../processor_time.rs"]
mod processor_time;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    processor_time::begin();
    packet::check(input);
});
