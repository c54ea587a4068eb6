//! The protocol as a state machine: no socket, clock, thread or global randomness.

pub mod envelope;
pub mod packet;
