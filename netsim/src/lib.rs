//! A packet-level simulator of leaf-spine fabrics and other topologies: load balancing, transports and queues under
//! data-centre workloads.
//!
//! A [`Source`] is the text of a scenario; with a scheme and a seed it becomes an [`Experiment`],
//! which has been checked; [`run`] makes an [`Outcome`] of it. A run is deterministic: the same
//! experiment gives the same outcome, byte for byte, on any machine.
//!
//! # Modules
//!
//! Each uses only those above it in this list:
//!
//! | module | holds |
//! |---|---|
//! | `engine` | the crate `flow_engine`: the event queue, packets, datagrams, random streams |
//! | `message` | messages, between the workload and the transport |
//! | `scenario` | the keys of scenario files, and the topologies that they name: data alone |
//! | `workload` | which messages are due, when and between which hosts |
//! | `fabric` | leaf and spine switches, other topologies, ports, queues, load balancing, link failures |
//! | `transport` | hosts: congestion control, loss recovery, Cloudburst's endpoints |
//! | `validation` | checks of a scenario, with its fabric and its workload |
//! | `outcome` | records of flows and of links |
//! | `simulation` | the event loop of one run |
//! | `summary` | statistics of one run: its manifest |
//! | `sweep` | many runs, on one machine or in shards on many, with confidence intervals over seeds |

mod fabric;
mod message;
mod outcome;
mod scenario;
mod simulation;
mod summary;
pub mod sweep;
mod transport;
mod validation;
mod workload;

use flow_engine as engine;
pub use flow_topology::FatTree;
pub use flow_workload::{
    FlowListFormat, SizeDistribution, SizeDistributionError, SizeFormat, StartUnit,
    distribution_names,
};

pub use self::{
    outcome::{FlowRecord, Outcome, PathRecord, Totals},
    scenario::*,
    simulation::{run, run_with_balancer},
    summary::{ClassSummary, Manifest, PathSummary},
    workload::IterationRecord,
};
