//! What can go wrong between the agent and the kernel's BPF side.

use std::io;
use std::path::{Path, PathBuf};

use aya::EbpfError;
use aya::maps::MapError;
use aya::maps::xdp::XdpMapError;
use aya::pin::PinError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;
use splitter_policy::forward::TARGET_SLOTS as SLOTS;
use thiserror::Error;

use super::foreign_xdp::remedy;
use super::{CalibrationError, ForeignProgram};

/// Loading, attaching or reading the kernel programs failed.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The configured directory is not a BPF file system.
    #[error(
        "no BPF file system at {}: programs could not stay loaded; run `{}` or set `bpffs`",
        path.display(), mount_command(path)
    )]
    NoBpffs {
        /// The directory.
        path: PathBuf,
    },
    /// A pin could not be made, opened or removed.
    #[error("cannot use the pin {}: {source}", path.display())]
    Pin {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A map or program could not be pinned.
    #[error("cannot pin {}: {source}", path.display())]
    PinObject {
        /// The path of the pin.
        path: PathBuf,
        /// The reason.
        source: PinError,
    },
    /// The caller lacks the capabilities.
    #[error(
        "not permitted to {action}: run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (AmbientCapabilities= of a service)"
    )]
    NotPermitted {
        /// What was tried.
        action: &'static str,
    },
    /// The object could not be loaded into the kernel.
    #[error("cannot load the kernel programs: {0}")]
    Load(#[from] EbpfError),
    /// Something else was wrong with a program.
    #[error("cannot use the program `{program}`: {source}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The reason.
        source: ProgramError,
    },
    /// The verifier refused a program.
    #[error(
        "the kernel's verifier refused the program `{program}`: {source}; its last words:\n{last_words}"
    )]
    Verifier {
        /// Its name.
        program: &'static str,
        /// The error of the call.
        source: io::Error,
        /// The end of the verifier's log.
        last_words: String,
    },
    /// The object does not hold what this agent expects.
    #[error("the kernel object has no {kind} `{name}`; agent and object are of different versions")]
    Missing {
        /// "program" or "map".
        kind: &'static str,
        /// What was looked for.
        name: &'static str,
    },
    /// A map could not be read or written.
    #[error("cannot use the map {name}: {source}; `splitter down` and `splitter up` make it again")]
    Map {
        /// Its name.
        name: &'static str,
        /// The reason.
        source: MapError,
    },
    /// The flow tables could not be mapped.
    #[error(
        "cannot map the flow tables into memory: {source}; `splitter down` and `splitter up` make them again"
    )]
    Mapping {
        /// The reason.
        source: io::Error,
    },
    /// The flow tables could not be made where they were to be.
    #[error("cannot make the flow tables on NUMA node {node} (flows.table_numa_node): {source}")]
    NumaNode {
        /// The node's number.
        node: u32,
        /// The reason.
        source: io::Error,
    },
    /// No seeds could be drawn.
    #[error("cannot draw seeds for the flow table from {path}: {source}")]
    Seeds {
        /// Where randomness comes from.
        path: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The tick clock could not be measured.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// Another XDP program is attached to the interface.
    #[error(
        "`{interface}` has another XDP program attached already{}; {}",
        named(program.as_ref()), remedy(interface, program.as_ref())
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The program, where it is known.
        program: Option<ForeignProgram>,
    },
    /// The driver has no native XDP, or not in the interface's present state.
    #[error(
        "the driver of `{interface}` refused native XDP: {source}; lower its MTU or its number of queues, or set attach.mode to \"auto\" or \"generic\""
    )]
    NoNativeXdp {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Attaching failed for another reason.
    #[error("cannot attach the program to `{interface}` in {mode} mode: {source}")]
    Attach {
        /// The interface.
        interface: String,
        /// The mode that was tried.
        mode: &'static str,
        /// The reason.
        source: ProgramError,
    },
    /// Traffic control could not be asked or changed.
    #[error(
        "cannot use traffic control of `{interface}`: {source}; TCX (Linux 6.6 or later) or the clsact queueing discipline with BPF filters is needed"
    )]
    TrafficControl {
        /// The interface.
        interface: String,
        /// The reason.
        source: io::Error,
    },
    /// A tunnel's device could not be made known as one to redirect into.
    #[error("cannot redirect into the device number {device}: {source}")]
    Target {
        /// Its number.
        device: u32,
        /// The reason.
        source: XdpMapError,
    },
    /// There are more devices to redirect into than the programs know.
    #[error(
        "cannot redirect into the device number {device}: packets are put into {SLOTS} devices at most; \
         set steering.mode = \"dscp\""
    )]
    NoTargetSlot {
        /// Its number.
        device: u32,
    },
    /// The link could not be kept.
    #[error(
        "cannot keep the program attached to `{interface}`: {source}; a kernel of 5.9 or later is needed"
    )]
    Link {
        /// The interface.
        interface: String,
        /// The reason.
        source: LinkError,
    },
}

impl KernelError {
    /// Returns true where missing rights are the reason.
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::NotPermitted { .. } => true,
            Self::Pin { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Map { source, .. } => map_errno(source) == Some(libc::EPERM),
            _ => false,
        }
    }
}

/// Returns the command that makes the BPF file system of an instance, and the directory for it where there is none.
pub fn mount_command(path: &Path) -> String {
    let mount = format!("mount -t bpf bpf {}", path.display());
    match path.exists() {
        true => mount,
        false => format!("mkdir -p {} && {mount}", path.display()),
    }
}

fn named(program: Option<&ForeignProgram>) -> String {
    program.map_or_else(String::new, |program| format!(": {program}"))
}

/// The errno behind an aya program error, if there is one.
pub(super) fn program_errno(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        ProgramError::LoadError { io_error, .. } => io_error.raw_os_error(),
        _ => None,
    }
}

/// The errno behind an aya map error, if there is one.
pub(super) fn map_errno(error: &MapError) -> Option<i32> {
    match error {
        MapError::SyscallError(error) => error.io_error.raw_os_error(),
        MapError::CreateError { io_error, .. } => io_error.raw_os_error(),
        _ => None,
    }
}

/// Names the map in an error.
pub(super) fn typed<T>(name: &'static str, map: Result<T, MapError>) -> Result<T, KernelError> {
    map.map_err(map_error(name))
}

/// Names the map in an error.
pub(super) fn map_error(name: &'static str) -> impl Fn(MapError) -> KernelError {
    move |source| KernelError::Map { name, source }
}

/// Names the program in an error.
pub(super) fn program_error(program: &'static str) -> impl Fn(ProgramError) -> KernelError {
    move |source| KernelError::Program { program, source }
}
