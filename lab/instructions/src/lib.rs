//! Executed instructions of the splitter's kernel programs.

mod border;
mod context;
mod counts;
mod fault;
mod helpers;
mod interpreter;
mod machine;
mod maps;
mod memory;
mod plain;

pub use border::{Border, Measured, SEEDS, TABLE_SIZE};
pub use context::{Hook, Metadata};
pub use counts::Counts;
pub use fault::{Fault, FaultAt};
pub use helpers::{Kernel, Route};
pub use machine::{LoadError, Machine, Ran};
