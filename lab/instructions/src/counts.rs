//! What is counted of a run.

use serde::{Deserialize, Serialize};

/// Counts of what a program executed, from its first instruction to its exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// All instructions; one that loads a constant of 64 bits is one.
    pub instructions: u64,
    /// Those that read memory.
    pub loads: u64,
    /// Those that write memory.
    pub stores: u64,
    /// Of these and those, the ones on the stack.
    pub stack_accesses: u64,
    /// Those that compare and exchange; they are among the stores.
    pub atomics: u64,
    /// Cache lines of flow tables that are written: those of the packet's flow, which one core has while
    /// its packets come there.
    pub flow_lines: u64,
    /// Cache lines that are written of maps which exist once, besides: each of them goes from core to
    /// core. They are told apart as if each value began a line.
    pub shared_lines: u64,
    /// Calls of functions of the program itself.
    pub function_calls: u64,
    /// Calls of the kernel's helpers that remain calls; the verifier writes the look-up of an array
    /// and the tick count in their places.
    pub helper_calls: u64,
}
