//! Congestion control measured: our sender through a bottleneck, alone and beside cubic. `cargo
//! xtask` builds and calls it.

#![expect(dead_code, reason = "the scenarios that use them follow")]

mod cell;
mod cubic;
mod flow;
mod link;
mod ours;
mod random;
mod series;
mod stream;
mod world;

fn main() {}
