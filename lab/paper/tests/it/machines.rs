//! What hosts run here: either machine, as they are told.

use cloudburst_proto::{Machine, Time, TransportConfig};

/// Starts a host's machine.
pub(crate) fn start(
    is_paper: bool,
    config: TransportConfig,
    seed: [u8; 32],
    now: Time,
) -> Box<dyn Machine> {
    paper_machine::start(is_paper, config, seed, now).expect("it is a valid one")
}

/// Whether an input with such options is run here: those with the paper's machine at either end.
pub(crate) fn run(options: u8) -> bool {
    options & (64 | 128) != 0
}
