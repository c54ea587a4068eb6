//! Failover: watches the tunnels, and moves the classes off those that are dead.
//!
//! What is decided is pure: the state machines of [`splitter_health`], and [`choose`], which tunnel
//! carries which class. Around them, [`HealthMonitor`] is the loop of the agent that sends, listens and
//! carries out, and [`Report`] is what others see of it.

mod announce;
mod choose;
mod health_monitor;
mod link_events;
mod liveness;
mod monitored_tunnel;
mod next_hops;
mod overload_signs;
mod report;
mod socket;
mod spec;
mod switch;

pub use choose::{Graded, choose};
pub use health_monitor::{HealthMonitor, HealthMonitorError};
pub use report::{ClassReport, Move, Report, SharedReport, TunnelReport};
pub use socket::SocketError;
