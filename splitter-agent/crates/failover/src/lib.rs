//! Failover: watches the tunnels, and moves the classes off those that are dead.
//!
//! What is decided is pure: the state machines of [`splitter_health`], and [`choose`], which tunnel
//! carries which class. Around them, [`HealthMonitors`] has a loop for each remote site that sends,
//! listens and carries out, and [`Report`](splitter_instance::report::Report) is what others see of it.

mod announce;
mod choose;
mod health_monitor;
mod link_events;
mod links;
mod liveness;
mod looking;
mod monitored_tunnel;
mod next_hops;
mod overload_signs;
mod reporting;
mod responding;
mod shared;
mod sites;
mod socket;
mod spec;
mod start;
mod switch;
mod timestamps;
mod untimed;

pub use choose::{Graded, choose};
pub use shared::HealthMonitorError;
pub use sites::HealthMonitors;
pub use socket::SocketError;
