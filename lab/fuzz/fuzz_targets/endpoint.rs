//! Any bytes as a course of calls and datagrams, honest, spoilt or made up, for
//! two endpoints: no panic, quotas kept, and nothing forged under a key.
#![no_main]

#[allow(dead_code, reason = "the seeds are for the replay of the corpus")]
#[path = "../../../cloudburst/crates/proto/tests/support/endpoint.rs"]
mod endpoint;

/// What the two endpoints run: either machine, as the input says.
mod machines {
    use cloudburst_proto::{Machine, Time, TransportConfig};

    pub(crate) fn start(
        is_paper: bool,
        config: TransportConfig,
        seed: [u8; 32],
        now: Time,
    ) -> Box<dyn Machine> {
        paper_machine::start(is_paper, config, seed, now).expect("it is a valid one")
    }
}

#[path = "../processor_time.rs"]
mod processor_time;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    processor_time::begin();
    endpoint::check(input);
});
