//! Scenarios: the keys of their files, and those that are built in.
//!
//! Data alone. The module `validation` makes an [`Experiment`] of it.

mod balance;
mod cloudburst;
mod embedded;
mod error;
mod experiment;
mod outage;
mod shape;
mod source;
mod traffic;
mod transport;

pub use self::{
    balance::*,
    cloudburst::*,
    embedded::{Embedded, embedded},
    error::ScenarioError,
    experiment::Experiment,
    outage::Outage,
    shape::*,
    source::{Overrides, Source},
    traffic::*,
    transport::*,
};
