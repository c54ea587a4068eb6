//! Any bytes as what a peer with a key says, of every kind and sealed as it has to be, to two
//! endpoints that speak to each other: no panic, no overflow, quotas kept, and what they send each
//! other arrives, once and as it was sent.
#![no_main]

#[path = "../../../cloudburst/crates/proto/tests/support/liar.rs"]
mod liar;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    liar::check(input);
});
