//! Endpoints in a network that is made up, in a time that is made up.
//!
//! A [`world::World`] has hosts and paths between them, of which all that can go
//! wrong can be told to. Everything random comes from one number, so that a
//! failure is seen again with the number that is printed with it.

mod accounts;
mod faults;
mod generate;
mod host;
mod hostile;
mod keys;
mod ledger;
mod load;
mod log;
mod network;
mod paper;
mod path;
mod performance;
mod ports;
mod queue;
mod random;
mod revival;
mod run;
mod scenario;
mod service;
mod silence;
mod sweep;
mod world;
