//! Why a program could not be run to its end.

/// A reason why the interpreter stopped: the program is wrong, or does what is not emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The program read or wrote where nothing is.
    #[error("access to {length} bytes at {address:#x}, which are no region's")]
    OutOfBounds {
        /// Of the first byte.
        address: u64,
        /// How many bytes.
        length: usize,
    },
    /// The interpreter does not know an instruction.
    #[error(
        "instruction with the opcode {opcode:#04x}, which is not emulated: add it to lab/instructions/src/interpreter.rs"
    )]
    Opcode {
        /// The first byte of the instruction.
        opcode: u8,
    },
    /// The program called a helper that is not emulated.
    #[error(
        "call of helper {helper}, which is not emulated: add it to lab/instructions/src/helpers.rs"
    )]
    Helper {
        /// Its number in the kernel's list.
        helper: u32,
    },
    /// The program asked for a kind of map that is not emulated.
    #[error(
        "map {name} is of kind {kind}, which is not emulated: add it to lab/instructions/src/maps.rs"
    )]
    Map {
        /// Its name in the object.
        name: String,
        /// Its number in the kernel's list.
        kind: u32,
    },
    /// Something was to be a map of the object and is none.
    #[error("{0} is no map of the object")]
    NoMap(String),
    /// The context has no such field, or it is not emulated.
    #[error(
        "access to {length} bytes at {offset} of the context, which are not emulated: add them to lab/instructions/src/context.rs"
    )]
    Context {
        /// Of the first byte.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// The program called too deep, ran too long, or left its instructions.
    #[error("{0}")]
    Stopped(&'static str),
}

/// A fault with where it happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction {instruction} of {program}: {fault}")]
pub struct FaultAt {
    /// The program's name in the object.
    pub program: String,
    /// The number of the instruction, from the start of the program with all that it calls.
    pub instruction: usize,
    /// What is wrong there.
    pub fault: Fault,
}
