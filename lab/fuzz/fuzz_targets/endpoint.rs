//! Any bytes as a course of calls and datagrams, honest, spoilt or made up, for
//! two endpoints: no panic, quotas kept, and nothing forged under a key.
#![no_main]

#[allow(dead_code, reason = "the seeds are for the replay of the corpus")]
#[path = "../../../cloudburst/crates/proto/tests/support/endpoint.rs"]
mod endpoint;

libfuzzer_sys::fuzz_target!(|input: &[u8]| endpoint::check(input));
