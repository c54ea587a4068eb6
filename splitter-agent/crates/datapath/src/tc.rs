//! Attaching a program of traffic control by what the kernel has for it: TCX (Linux 6.6) or, before
//! that, a filter of the `clsact` queueing discipline.

use aya::programs::tc::{NlOptions, TcAttachOptions, TcError, qdisc_add_clsact};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use serde::Serialize;
use splitter_netlink::clsact::remove_unused_clsact;

use super::error::program_errno;

/// How a program of traffic control turned out to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TcHook {
    /// By a link, which goes with its last holder however that ends.
    Tcx,
    /// As a filter of the device's `clsact` queueing discipline, which outlives a killed process.
    Clsact,
}

impl TcHook {
    /// The word in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }
}

/// Where among a device's programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Position {
    First,
    Last,
}

/// A program is attached.
#[derive(Debug)]
pub(crate) struct TcAttached {
    pub(crate) hook: TcHook,
    /// To be kept for as long as the program stays attached.
    pub(crate) created: Option<Clsact>,
}

/// A `clsact` queueing discipline that was not there before. Dropped in the network namespace that
/// it was made in, it is removed, unless somebody has put filters into it meanwhile.
#[derive(Debug)]
pub(crate) struct Clsact {
    interface: u32,
}

/// Attaches `program` to the device of that name and number.
pub(crate) fn attach(
    program: &mut SchedClassifier,
    device: &str,
    interface: u32,
    direction: TcAttachType,
    position: Position,
) -> Result<TcAttached, ProgramError> {
    let (order, priority) = match position {
        Position::First => (LinkOrder::first(), 1),
        Position::Last => (LinkOrder::last(), u16::MAX),
    };
    match program.attach_with_options(device, direction, TcAttachOptions::TcxOrder(order)) {
        Ok(_) => Ok(TcAttached {
            hook: TcHook::Tcx,
            created: None,
        }),
        // An older kernel knows no such way to attach.
        Err(error) if program_errno(&error) == Some(libc::EINVAL) => {
            let created = Clsact::ensure(device, interface)?;
            let options = NlOptions {
                priority,
                ..NlOptions::default()
            };
            program.attach_with_options(device, direction, TcAttachOptions::Netlink(options))?;
            Ok(TcAttached {
                hook: TcHook::Clsact,
                created,
            })
        }
        Err(error) => Err(error),
    }
}

impl Clsact {
    /// Makes it; `None` when it was there already.
    fn ensure(device: &str, interface: u32) -> Result<Option<Self>, TcError> {
        match qdisc_add_clsact(device) {
            Ok(()) => Ok(Some(Self { interface })),
            Err(TcError::AlreadyAttached) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Clsact {
    fn drop(&mut self) {
        match remove_unused_clsact(self.interface) {
            // The device has gone, and it with the device.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => {
                tracing::warn!(event = "clsact_left", interface = self.interface, %error, "cannot remove the clsact queueing discipline that was made; `tc qdisc del dev DEVICE clsact` does");
            }
            Ok(()) => {}
        }
    }
}
