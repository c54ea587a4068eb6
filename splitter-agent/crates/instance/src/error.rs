//! Why an instance could not be brought up or down.

use std::io;
use std::path::PathBuf;

use splitter_config::{SiteName, SteeringMode};
use splitter_datapath::KernelError;
use splitter_netlink::{InterfaceName, NetlinkError, NoSuchInterface};
use splitter_steering::routes;
use splitter_steering::shaping::ShapeError;
use thiserror::Error;

use crate::files::FileError;
use crate::privileges::MissingCapabilities;

/// Bringing an instance up or down, or looking at it, failed.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// The caller lacks capabilities.
    #[error(transparent)]
    NotPermitted(#[from] MissingCapabilities),
    /// Another agent holds the instance.
    #[error(
        "the instance is held by {holder}; stop that one first, or give this instance another `name`"
    )]
    Running {
        /// Its process id and command line, as far as they are known.
        holder: String,
    },
    /// Another instance has its rules or routes there.
    #[error(
        "the instance {name} ({}) has {shared}, too; give one of them other numbers in `short.table`, `long.table` and `routes.rule_priority`, or run `splitter down` with the configuration of {name}",
        directory.display()
    )]
    OtherInstance {
        /// Its name.
        name: String,
        /// Where its state is.
        directory: PathBuf,
        /// What both claim.
        shared: String,
    },
    /// Another instance has its rules there, and its state is not to be seen.
    #[error(
        "an instance whose state is not to be seen from here, such as one in a container, has {shared}, too, and a program at {interfaces}; give this one other numbers in `short.table`, `long.table` and `routes.rule_priority`, or run `splitter down` where that one was brought up; if nobody has it any more, detach its program (`bpftool net show dev INTERFACE`)"
    )]
    UnseenInstance {
        /// The interfaces that its programs are attached to.
        interfaces: String,
        /// What both claim.
        shared: String,
    },
    /// Another instance of the same name has its pins where ours would be.
    #[error(
        "the pins {} are of an instance {place} with its state in {}; give this one another `name`, or another `bpffs`",
        pins.display(), directory.display()
    )]
    PinsTaken {
        /// The directory of the pins.
        pins: PathBuf,
        /// Where that instance is, in words.
        place: &'static str,
        /// Where its state is.
        directory: PathBuf,
    },
    /// The lock or state could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The state file is not ours to read.
    #[error("cannot understand {}: {source}; `splitter down` works without it once it is deleted", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The kernel object could not be read.
    #[error("cannot read the kernel object that SPLITTER_EBPF_OBJECT_DIR names: {source}")]
    Object {
        /// The reason.
        source: io::Error,
    },
    /// The NUMA node that the flow tables are to be on does not exist.
    #[error(
        "flows.table_numa_node = {wanted}: this machine has no such NUMA node, but {present}; give one of \
         these, or \"any\""
    )]
    NoSuchNumaNode {
        /// The node that the configuration asks for.
        wanted: u32,
        /// Those that are there, as the kernel lists them.
        present: String,
    },
    /// The way of steering cannot change while packets are steered.
    #[error(
        "the program of steering.mode = \"{loaded}\" cannot be replaced by that of \"{wanted}\" while the instance is up (with \
         `balance`, \"dscp\" has the kind of program of \"mark\"): run `splitter down` first"
    )]
    OtherSteering {
        /// The one whose program is loaded.
        loaded: SteeringMode,
        /// The one that the configuration asks for.
        wanted: SteeringMode,
    },
    /// A site was taken out of the configuration meanwhile.
    #[error("the site {0} is in the configuration no more")]
    NoSuchSite(SiteName),
    /// The programs cannot tell so many thresholds apart.
    #[error("the sites have more different thresholds than the kernel programs can hold")]
    TooManyThresholds,
    /// An interface of the configuration does not exist.
    #[error(transparent)]
    NoSuchInterface(#[from] NoSuchInterface),
    /// The program could not tell where a packet begins.
    #[error(
        "packets on {0} have no Ethernet header, which the splitter goes by; list the Ethernet interfaces behind it as `lan` instead"
    )]
    NoEthernet(InterfaceName),
    /// The kernel's routing side did not answer.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Tunnels could not be shaped.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Rules and routes could not be planned.
    #[error(transparent)]
    PlanRoutes(#[from] routes::PlanError),
    /// Rules and routes could not be applied.
    #[error(transparent)]
    ApplyRoutes(#[from] Box<routes::ApplyError>),
    /// Marked packets do not take the intended tunnel.
    #[error(transparent)]
    Verify(Box<routes::VerifyError>),
    /// The kernel's BPF side failed.
    #[error(transparent)]
    Kernel(Box<KernelError>),
}

impl InstanceError {
    /// Returns true where missing rights are the reason.
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::NotPermitted(_) => true,
            Self::File(error) => error.source.kind() == io::ErrorKind::PermissionDenied,
            Self::Netlink(error) | Self::Shape(ShapeError::Netlink(error)) => {
                error.is_permission_denied()
            }
            Self::Kernel(error) => error.is_not_permitted(),
            _ => false,
        }
    }

    /// Returns true where the configuration asks for what this kernel does not have.
    pub fn is_configuration(&self) -> bool {
        use routes::PlanError::{MarksCollide, NoExactMatch};
        matches!(
            self,
            Self::NoSuchNumaNode { .. }
                | Self::PlanRoutes(NoExactMatch | MarksCollide(_))
                | Self::Shape(ShapeError::Unsupported { .. } | ShapeError::NoFairQueue { .. })
        )
    }

    /// Returns true where something that is not ours, or another instance, is in the way.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Running { .. }
            | Self::OtherInstance { .. }
            | Self::UnseenInstance { .. }
            | Self::PinsTaken { .. }
            | Self::OtherSteering { .. } => true,
            Self::Kernel(error) => matches!(**error, KernelError::Busy { .. }),
            Self::PlanRoutes(error) => matches!(error, routes::PlanError::Conflicts(_)),
            // Only what somebody else has put in the way of our rules can lead elsewhere.
            Self::Verify(error) => matches!(
                **error,
                routes::VerifyError::WrongWay { .. } | routes::VerifyError::Dropped { .. }
            ),
            Self::Shape(error) => matches!(error, ShapeError::Foreign { .. }),
            _ => false,
        }
    }
}

// Boxed: results are passed on far more often than they are errors.

impl From<KernelError> for InstanceError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(Box::new(error))
    }
}

impl From<routes::VerifyError> for InstanceError {
    fn from(error: routes::VerifyError) -> Self {
        Self::Verify(Box::new(error))
    }
}
