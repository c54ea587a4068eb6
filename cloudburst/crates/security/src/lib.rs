//! Guards of an endpoint: who may speak, by which keys, from where, and how often.
//!
//! Each part is a pure data structure that takes the time as an argument and knows none of the
//! others. The transport, `cloudburst-proto`, asks them about each datagram.

// Peers and strangers report much of what is reckoned with here: nothing may overflow, whatever they say.
// A test that does fails, as it should.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod absence;
mod address;
mod associations;
mod inbound;
mod key_mismatch;
mod message_window;
mod offer_budgets;
mod randomness;
mod remotes;
mod replay_store;
mod secrets;
mod security;
mod suspicion;

pub use self::{
    absence::Absence,
    address::{Addresses, Verdict},
    associations::{Association, Associations, Missed, PendingOffer, Slot},
    inbound::Inbound,
    key_mismatch::{KeyMismatch, KeyMismatches, RefusedKeys},
    message_window::{MAX_SPAN, MessageStatus, MessageWindow},
    offer_budgets::OfferBudgets,
    randomness::{Purpose, Randomness, RandomnessError},
    remotes::Remotes,
    replay_store::{Freshness, MOST_OFFER_AGE, RETRY_LIFETIME, ReplayStore},
    secrets::Secrets,
    security::{Identity, Security},
    suspicion::Suspicion,
};
