//! Executed instructions of the splitter's kernel programs.

mod context;
mod counts;
mod fault;
mod helpers;
mod interpreter;
mod machine;
mod maps;
mod memory;

pub use context::{Hook, Metadata};
pub use counts::Counts;
pub use fault::{Fault, FaultAt};
pub use helpers::{Kernel, Route};
pub use machine::{LoadError, Machine, Ran};
