//! Proves with real packets that a border splits.

mod filter;
mod frame;
mod mtu;
