//! Which threshold suits the flows that are there.
//!
//! In the manner of PIAS (W. Bai et al., "Information-Agnostic Flow Scheduling for Commodity Data
//! Centers", NSDI 2015, §4.2): take the distribution of flow sizes, predict by a queueing model
//! what each threshold would do to completion times, choose the one that does best. The
//! [model] is made for two tunnels instead of priorities in one switch; [`advise`] searches it and
//! says how sure it is; [`Follower`] turns a row of advice into a threshold that does not flap.
//!
//! Everything here is a function of its arguments, without clock and without I/O but for [`mod@file`].

use std::time::Duration;

pub mod file;
mod follow;
pub mod model;
mod search;
mod sizes;
mod unit;

pub use follow::{Decision, Follower};
pub use search::{Advice, Expected, Verdict, advise};
pub use sizes::{FlowSize, Sample, Sizes};
pub use unit::ThresholdUnit;

/// Holds what advice depends on besides the sizes of flows.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What thresholds count.
    pub unit: ThresholdUnit,
    /// The threshold in force.
    pub current: u32,
    /// The lowest and the highest to consider.
    pub bounds: [u32; 2],
    /// Bits per second that the short and the long tunnel carry, where that is known.
    pub rates: Option<[f64; 2]>,
    /// Round-trip time without queues.
    pub rtt: Duration,
    /// How much traffic there is.
    pub traffic: Traffic,
}

/// How much traffic there is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Traffic {
    /// Flows that end in a second.
    FlowsPerSecond(f64),
    /// Share of what both tunnels carry together, 0 to 1.
    Load(f64),
}
