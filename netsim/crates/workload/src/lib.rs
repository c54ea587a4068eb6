//! Workloads of simulated networks: collective operations as schedules of transfers, lists of flows, and
//! distributions of sizes.
//!
//! A [`Collective`] knows which transfers an operation consists of and which of them wait for which. What has arrived
//! goes in, what may start comes out; clock and network are the host's.
//!
//! ```
//! use flow_workload::{Collective, CollectiveSettings, Operation};
//!
//! let settings = CollectiveSettings { ranks: 4, bytes: 1_000_000, chunks: 1, at_once: 3 };
//! let mut ring = Collective::new(Operation::RingAllReduce, settings)?;
//! let mut under_way = Vec::new();
//! ring.begin(&mut under_way);
//! let mut transfers = 0;
//! while let Some(transfer) = under_way.pop() {
//!     transfers += 1;
//!     ring.arrived(transfer, &mut under_way);
//! }
//! // Each of four ranks sends a quarter of the buffer in each of six steps.
//! assert_eq!((transfers, ring.is_complete()), (4 * 6, true));
//! # Ok::<(), flow_workload::CollectiveError>(())
//! ```
//!
//! [`FlowList`] reads flows out of files of three formats. A [`SizeDistribution`] is empirical: one that is built in, or a
//! file.

mod collective;
mod columns;
mod error;
mod flow_list;
mod formats;
mod htsim;
mod listed_flow;
mod ns3;
mod number;
mod ring;
mod size_distribution;
mod transfer;
mod tree;

pub use collective::{Collective, CollectiveError, CollectiveSettings, Operation};
pub use error::{FlowListError, MAX_FLOWS, Problem};
pub use flow_list::FlowList;
pub use listed_flow::{FlowListFormat, ListedFlow, StartUnit};
pub use size_distribution::{
    SizeDistribution, SizeDistributionError, SizeFormat, distribution_names,
};
pub use transfer::Transfer;
