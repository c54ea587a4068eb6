//! Proves with real packets that a border splits.

mod filter;
mod frame;
mod judge;
mod mtu;
mod report;
mod survey;
