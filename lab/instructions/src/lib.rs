//! Executed instructions of the splitter's kernel programs, counted on named paths.
//!
//! Nanoseconds differ from machine to machine and from minute to minute; what a program executes for a
//! packet does not. An object that is committed is linked as a loader does it and run, instruction by
//! instruction, on frames and flows that are always the same: [`Machine`] is object, maps and clock;
//! [`Border`] a router made of it, [`FabricRouter`] a leaf or a spine; [`paths`] what is counted; [`Record`] what somebody has accepted.
//!
//! Counted is the object as it is committed. The verifier writes the look-up of an array in the place
//! of its call, four instructions or so, which are not in the counts; nor is what helpers do.

mod border;
mod context;
mod counts;
mod fabric_router;
mod fault;
mod helpers;
mod interpreter;
mod machine;
mod maps;
mod memory;
mod objects;
pub mod paths;
mod plain;
mod record;

#[allow(dead_code, reason = "other users need the rest of it")]
#[path = "../../../crates/splitter-policy/tests/support/packet.rs"]
pub(crate) mod packet;

pub use border::{Border, Measured, SEEDS, TABLE_SIZE};
pub use context::{Hook, Metadata};
pub use counts::Counts;
pub use fabric_router::FabricRouter;
pub use fault::{Fault, FaultAt};
pub use helpers::{Kernel, Route};
pub use machine::{LoadError, Machine, Ran};
pub use objects::{Object, Objects};
pub use record::{ACCEPT, ALLOWED_PERCENT, Judgement, Record};

/// The record of what its paths took when somebody last accepted that, within the tree.
pub const RECORD: &str = "splitter-agent/crates/datapath/bpf/instructions.json";
