//! Two sites, two tunnels and real TCP traffic on one machine.
//!
//! Everything happens in [anonymous network namespaces](namespace::Namespace): the kernel removes
//! them, and all that was made in them, when the last process that holds them ends, however it ends.

pub mod built;
pub mod campaign;
pub mod collector;
pub mod cpu;
pub mod demo;
pub mod experiment;
pub mod finished;
pub mod home;
pub mod multipath;
pub mod namespace;
pub mod order;
pub mod parallel;
pub mod prometheus;
pub mod require;
pub mod scheme;
pub mod timed;
pub mod topology;
pub mod traffic;
pub mod wait;
pub mod workload;
