//! The command `splitter`.
mod cli;
fn main() {}
