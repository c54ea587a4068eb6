//! Executed instructions of the splitter's kernel programs.
#![expect(dead_code, reason = "what runs the programs follows")]

mod context;
mod counts;
mod fault;
mod maps;
mod memory;

pub use context::{Hook, Metadata};
pub use counts::Counts;
pub use fault::{Fault, FaultAt};
