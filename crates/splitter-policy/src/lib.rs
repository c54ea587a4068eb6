//! Policy of the splitter: everything that decides what happens to a packet.
//!
//! The crate has no I/O, no clock, no allocation and (outside [`buffer`]) no
//! unsafe code, so that the kernel programs, the agent, the simulator, the
//! fuzzers and the tests all run this very code.
//!
//! Read [`split`] first: it is the whole path of a packet. It calls
//!
//! - [`packet`]: finds the headers, or says why it cannot,
//! - [`headers`]: what of them the rest works on,
//! - [`flow`]: what is known of a flow and how it is named,
//! - [`table`]: where that is kept, and who gives way when there is no room,
//! - [`classify`](mod@classify): short or long, and when a long flow may change tunnels,
//! - [`share`]: which tunnel a flow takes where both carry both classes,
//! - [`models`]: where the host keeps what it models of the tunnels,
//! - [`dedicated`]: when what was sent into a tunnel will have left it,
//! - [`fragments`]: which flow a fragment without ports is of,
//! - [`steer`]: gives the packet the mark that the kernel routes by,
//! - [`dscp`]: rewrites it where it is the DSCP,
//! - [`forward`]: forwards a packet without the network stack, where that is wanted,
//! - [`counters`] and [`histogram`]: what is counted, under which name,
//! - [`config`]: what an operator can set.
//!
//! [`flow_balance`] stands beside it: which of several paths a packet takes. The
//! policy `share` places long flows with it.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

#[allow(unsafe_code, reason = "the one room that touches raw packet memory")]
pub mod buffer;
pub mod classify;
pub mod clock;
pub mod config;
pub mod counters;
pub mod dedicated;
pub mod dscp;
pub mod egress;
pub mod flow;
pub mod flow_packet;
pub mod forward;
pub mod fragments;
pub mod fwmark;
pub mod headers;
pub mod histogram;
pub mod models;
pub mod packet;
pub mod pass_reason;
pub mod settings;
pub mod share;
pub mod split;
pub mod steer;
pub mod table;
