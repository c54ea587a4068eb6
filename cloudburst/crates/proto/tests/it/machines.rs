//! What hosts run here: this crate's machine.

use cloudburst_proto::{Machine, Time, Transport, TransportConfig};

/// Starts a host's machine.
pub(crate) fn start(
    is_paper: bool,
    config: TransportConfig,
    seed: [u8; 32],
    now: Time,
) -> Box<dyn Machine> {
    assert!(!is_paper, "the paper's machine is in the laboratory");
    Box::new(Transport::deterministic(config, seed, now).expect("it is a valid one"))
}

/// Whether an input with such options is run here.
pub(crate) fn run(options: u8) -> bool {
    options & (64 | 128) == 0
}
