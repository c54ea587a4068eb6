//! The agent of the flow splitter: it loads and attaches the kernel programs, steers the two
//! classes of flows over their tunnels, and watches and measures what happens.

pub mod agent;
pub mod egress_auditor;
pub mod metrics;
pub mod monitor;
pub mod overview;
#[cfg(feature = "page")]
mod page_history;
pub mod route_auditor;
pub mod route_follower;
#[cfg(feature = "page")]
pub mod status_page;
