//! Attaching the program to an interface, in the mode that was asked for.

use aya::programs::links::{FdLink, LinkError};
use aya::programs::xdp::XdpLink;
use aya::programs::{Xdp, XdpMode};
use serde::Serialize;
use splitter_config::AttachMode;

use super::KernelError;
use super::error::{program_errno, program_error};

/// How a program turned out to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachedMode {
    /// In the driver.
    Native,
    /// In the network stack.
    Generic,
    /// In the chain of traffic control, by a link.
    Tcx,
    /// In traffic control, as a filter of the device's `clsact` queueing discipline.
    Clsact,
}

impl AttachedMode {
    /// Lists every mode in which programs attach.
    pub const ALL: [Self; 4] = [Self::Native, Self::Generic, Self::Tcx, Self::Clsact];

    /// Describes the mode for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Native => "native XDP",
            Self::Generic => "generic XDP",
            Self::Tcx => "TC ingress by TCX",
            Self::Clsact => "TC ingress by clsact",
        }
    }

    /// The word in metrics and machines' tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }
}

/// A link that holds the program on an interface, not pinned yet.
pub(super) struct Attached {
    pub(super) link: FdLink,
    pub(super) mode: AttachedMode,
}

/// Attaches `program`, which is called `name`; only [`AttachMode::Auto`] ever takes another mode than
/// the first.
pub(super) fn attach(
    program: &mut Xdp,
    name: &'static str,
    interface: &str,
    index: u32,
    mode: AttachMode,
) -> Result<Attached, KernelError> {
    use AttachedMode::{Generic, Native};
    match mode {
        AttachMode::Native => attach_as(program, name, interface, index, Native),
        AttachMode::Generic => attach_as(program, name, interface, index, Generic),
        AttachMode::Auto => match attach_as(program, name, interface, index, Native) {
            Err(error @ KernelError::NoNativeXdp { .. }) => {
                tracing::warn!(event = "attached_generic", interface, %error, "no native XDP, attaching generic");
                attach_as(program, name, interface, index, Generic)
            }
            other => other,
        },
    }
}

fn attach_as(
    program: &mut Xdp,
    name: &'static str,
    interface: &str,
    index: u32,
    mode: AttachedMode,
) -> Result<Attached, KernelError> {
    let requested = match mode {
        AttachedMode::Native => XdpMode::Driver,
        AttachedMode::Generic | AttachedMode::Tcx | AttachedMode::Clsact => XdpMode::Skb,
    };
    let interface = interface.to_owned();
    let id = program
        .attach_to_if_index(index, requested)
        .map_err(|source| {
            let errno = program_errno(&source);
            match errno {
                Some(libc::EPERM) => KernelError::NotPermitted {
                    action: "attach an XDP program",
                },
                Some(libc::EBUSY | libc::EEXIST) => KernelError::Busy {
                    interface: interface.clone(),
                    program: None,
                },
                Some(
                    errno @ (libc::EOPNOTSUPP
                    | libc::ERANGE
                    | libc::EINVAL
                    | libc::ENOSPC
                    | libc::ENOMEM),
                ) if mode == AttachedMode::Native => KernelError::NoNativeXdp {
                    interface: interface.clone(),
                    source: std::io::Error::from_raw_os_error(errno),
                },
                _ => KernelError::Attach {
                    interface: interface.clone(),
                    mode: mode.as_str(),
                    source,
                },
            }
        })?;
    let link: XdpLink = program.take_link(id).map_err(program_error(name))?;
    let link = FdLink::try_from(link)
        .map_err(|source: LinkError| KernelError::Link { interface, source })?;
    Ok(Attached { link, mode })
}
