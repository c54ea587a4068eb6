//! Endpoints in a network that is made up, in a time that is made up.
//!
//! A [`world::World`] has hosts and paths between them, of which all that can go
//! wrong can be told to. Everything random comes from one number, so that a
//! failure is seen again with the number that is printed with it.
//!
//! Which machine a host runs is up to the crate that includes this: its `machines::start`.

pub(crate) mod generate;
pub(crate) mod host;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod messages;
pub(crate) mod network;
pub(crate) mod path;
pub(crate) mod queue;
pub(crate) mod random;
pub(crate) mod run;
pub(crate) mod scenario;
pub(crate) mod service;
pub(crate) mod totals;
pub(crate) mod world;
