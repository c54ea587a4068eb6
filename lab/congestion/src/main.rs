//! Congestion control measured: our sender through a bottleneck, alone and beside cubic. `cargo
//! xtask` builds and calls it.

#![expect(dead_code, reason = "the scenarios that use them follow")]

mod cubic;
mod flow;
mod link;
mod random;
mod series;
mod world;

fn main() {}
