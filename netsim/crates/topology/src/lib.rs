//! Topologies of simulated networks, and their equal-cost shortest paths hop by hop.
//!
//! A [`Topology`] is a graph of switches with hosts at some of them: a [fat tree](FatTree), or what a file
//! [says](Topology::parse). [`Routes`] hold, for each switch and each rack (a switch with hosts), the next hops of
//! all shortest paths. Everything is deterministic: numbers follow the order of the file.
//!
//! ```
//! use flow_topology::{Routes, Topology};
//!
//! let topology = Topology::parse(
//!     r#"
//!     switches = ["a", "b", "up", "down"]
//!     hosts = [
//!       { at = "a", count = 2, gbps = 10, delay_us = 1 },
//!       { at = "b", gbps = 10, delay_us = 1 },
//!     ]
//!     links = [
//!       { between = ["a", "up"], gbps = 40, delay_us = 1 },
//!       { between = ["up", "b"], gbps = 40, delay_us = 1 },
//!       { between = ["a", "down"], gbps = 40, delay_us = 5 },
//!       { between = ["down", "b"], gbps = 40, delay_us = 5 },
//!     ]
//!     "#,
//! )?;
//! let routes = Routes::new(&topology)?;
//! assert_eq!(routes.paths(0, 1), 2);
//! assert_eq!(routes.next_hops(0, 1).len(), 2);
//! # Ok::<(), flow_topology::TopologyError>(())
//! ```

mod error;
mod fat_tree;
mod file;
mod routes;
mod topology;

pub use error::TopologyError;
pub use fat_tree::FatTree;
pub use routes::{Continuation, MAX_NEXT_HOPS, Routes};
pub use topology::{Host, Link, Port, Topology};
