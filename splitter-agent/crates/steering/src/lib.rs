//! Steering: how packets of each class get into the tunnels that carry it.
//!
//! [`routes`] plans, applies, verifies and restores the rules and routes of policy routing;
//! [`shaping`] does the same for the queueing disciplines in front of shared tunnels.

pub mod placement;
pub mod redirection;
pub mod routes;
pub mod shaping;

pub use placement::{Egress, Placement, Placements};
