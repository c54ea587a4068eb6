//! Completion times of small messages over several paths, by TCP, MPTCP, QUIC and others.
//!
//! All of it runs on one machine: a [rig](rig::Rig) of network namespaces with four shaped paths, a
//! [workload](workload::Workload) that is the same for every [scheme](scheme::Scheme), and
//! [measurements](measurement::Run) of the schemes in rotation.

pub mod campaign;
pub mod cell;
pub mod goals;
pub mod measurement;
pub mod output;
pub mod rig;
pub mod scenario;
pub mod scheme;
pub mod server;
pub mod summary;
pub mod workload;
