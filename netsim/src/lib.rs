//! A packet-level simulator of leaf-spine fabrics: load balancing, transports and queues under
//! data-centre workloads.
//!
//! A [`Source`] is the text of a scenario; with a scheme and a seed it becomes an [`Experiment`],
//! which has been checked; [`run`] makes an [`Outcome`] of it. A run is deterministic: the same
//! experiment gives the same outcome, byte for byte, on any machine.

mod engine;
mod fabric;
mod outcome;
mod scenario;
mod simulation;
mod size_distribution;
mod statistics;
mod summary;
pub mod sweep;
mod transport;
mod validation;
mod workload;

pub use self::{
    outcome::{FlowRecord, Outcome, PathRecord, Totals},
    scenario::*,
    simulation::run,
    size_distribution::{Distribution, DistributionError, names as distribution_names},
    statistics::Estimate,
    summary::{ClassSummary, Manifest, PathSummary},
};
