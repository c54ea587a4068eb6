//! The agent of the flow splitter: it loads and attaches the kernel programs, steers the two
//! classes of flows over their tunnels, and watches and measures what happens.

pub mod agent;
mod clock;
pub mod control;
pub mod doctor;
pub mod figures;
mod files;
pub mod flows;
pub mod health;
pub mod instance;
pub mod kernel;
pub mod metrics;
pub mod monitor;
pub mod overview;
pub mod privileges;
pub mod routes;
pub mod shaping;
pub mod status_page;
pub mod tap;
