//! Programs in a device's chain of traffic control, where they stay: the one that sets fwmarks at
//! ingress, and the one that counts at egress. Attached by TCX or clsact.
//!
//! By TCX a pinned link holds a program there. By `clsact` the filter stays until it is removed; then
//! the program itself is pinned in the link's place, to tell where it is, and once more where the
//! queueing discipline was not there before.

use std::io;
use std::mem::forget;
use std::path::Path;

use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcHandle,
    qdisc_add_clsact,
};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use nix::net::if_::if_nametoindex;
use splitter_netlink::clsact::{self, BpfFilter};

use super::error::{program_errno, program_error};
use super::pins::remove_pin;
use super::program::program_at;
use super::raw::{self, Pinned};
use super::{AttachedMode, KernelError, Pins, TcSide};

/// In front of all others, some of which may end the chain.
const PRIORITY: u16 = 1;

/// Attaches `program` to a side of an interface, where it stays.
pub(super) fn attach(
    program: &mut SchedClassifier,
    pins: &Pins,
    side: TcSide,
    interface: &str,
    index: u32,
) -> Result<AttachedMode, KernelError> {
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    match program.attach_with_options(interface, attach_type(side), order) {
        Ok(link) => {
            let path = pins.link_at(side, interface);
            // A link whose interface has gone is of no use any more.
            let _ = std::fs::remove_file(&path);
            fd_link(program, link, side, interface)?
                .pin(&path)
                .map_err(|source| KernelError::PinObject { path, source })?;
            Ok(AttachedMode::Tcx)
        }
        // An older kernel knows no such way to attach.
        Err(error) if program_errno(&error) == Some(libc::EINVAL) => {
            attach_filter(program, pins, side, interface, index)?;
            Ok(AttachedMode::Clsact)
        }
        Err(error) => Err(refused(interface, AttachedMode::Tcx, error)),
    }
}

const fn attach_type(side: TcSide) -> TcAttachType {
    match side {
        TcSide::Ingress => TcAttachType::Ingress,
        TcSide::Egress => TcAttachType::Egress,
    }
}

fn filters(side: TcSide, index: u32) -> io::Result<Vec<BpfFilter>> {
    match side {
        TcSide::Ingress => clsact::ingress_filters(index),
        TcSide::Egress => clsact::egress_filters(index),
    }
}

fn attach_filter(
    program: &mut SchedClassifier,
    pins: &Pins,
    side: TcSide,
    interface: &str,
    index: u32,
) -> Result<(), KernelError> {
    let failed = |source| KernelError::TrafficControl {
        interface: interface.to_owned(),
        source,
    };
    // Noted first, for the process that takes down what an agent that was killed here has left.
    if clsact::has_clsact(index).map_err(failed)? {
        // Where a filter of ours is in it, the note says who made it.
        if !has_filter(pins, other(side), interface) {
            remove_note(&pins.made_clsact(interface))?;
        }
    } else {
        write_note(&pins.made_clsact(interface))?;
        qdisc_add_clsact(interface)
            .map_err(|error| refused(interface, AttachedMode::Clsact, error.into()))?;
    }
    pin(program, pins, &pins.link_at(side, interface))?;
    let options = NlOptions {
        priority: PRIORITY,
        ..NlOptions::default()
    };
    let link = program
        .attach_with_options(
            interface,
            attach_type(side),
            TcAttachOptions::Netlink(options),
        )
        .map_err(|error| refused(interface, AttachedMode::Clsact, error))?;
    // It is to stay when this process ends.
    forget(
        program
            .take_link(link)
            .map_err(program_error(program_at(side)))?,
    );
    Ok(())
}

/// How the program of that number is attached to a side of an interface, if it is.
pub(super) fn attached_mode(
    pins: &Pins,
    side: TcSide,
    interface: &str,
    index: u32,
    program_id: u32,
) -> Option<AttachedMode> {
    match raw::pinned(&pins.link_at(side, interface)).ok()?? {
        Pinned::TcxLink(link) if (link.program_id, link.interface) == (program_id, index) => {
            Some(AttachedMode::Tcx)
        }
        Pinned::Program(_) => {
            let filters = filters(side, index).ok()?;
            let ours = filters.iter().any(|it| it.program_id == Some(program_id));
            ours.then_some(AttachedMode::Clsact)
        }
        _ => None,
    }
}

/// Takes the program off a side of an interface, and the queueing discipline that was made for it.
/// What is not there counts as removed.
pub(super) fn detach(pins: &Pins, side: TcSide, interface: &str) -> Result<(), KernelError> {
    let path = pins.link_at(side, interface);
    let failed = |source| KernelError::TrafficControl {
        interface: interface.to_owned(),
        source,
    };
    match raw::pinned(&path).map_err(failed)? {
        Some(Pinned::TcxLink(link)) if link.interface != 0 => {
            link.detach().or_else(unless_gone).map_err(failed)?;
        }
        Some(Pinned::Program(id)) => {
            remove_filters(side, interface, id).map_err(failed)?;
        }
        _ => {}
    }
    // Apart from the link: an agent may have been killed before it was pinned.
    let made = pins.made_clsact(interface);
    // What the other side needs goes with that.
    if made.exists() && !has_filter(pins, other(side), interface) {
        if let Ok(index) = if_nametoindex(interface) {
            clsact::remove_unused_clsact(index)
                .or_else(unless_gone)
                .map_err(failed)?;
        }
        remove_note(&made)?;
    }
    remove_pin(&path)
}

const fn other(side: TcSide) -> TcSide {
    match side {
        TcSide::Ingress => TcSide::Egress,
        TcSide::Egress => TcSide::Ingress,
    }
}

/// Tells if a program of ours is a filter at a side of an interface.
fn has_filter(pins: &Pins, side: TcSide, interface: &str) -> bool {
    let Ok(Some(Pinned::Program(id))) = raw::pinned(&pins.link_at(side, interface)) else {
        return false;
    };
    let found = if_nametoindex(interface).map(|index| filters(side, index));
    matches!(found, Ok(Ok(found)) if found.iter().any(|it| it.program_id == Some(id)))
}

fn remove_filters(side: TcSide, interface: &str, program_id: u32) -> io::Result<()> {
    // With an interface its filters go.
    let Ok(index) = if_nametoindex(interface) else {
        return Ok(());
    };
    let found = filters(side, index).or_else(|error| unless_gone(error).map(|()| Vec::new()))?;
    for filter in found {
        if filter.program_id == Some(program_id) {
            filter.remove(index).or_else(unless_gone)?;
        }
    }
    Ok(())
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENOENT | libc::EINVAL | libc::ENOLINK) => Ok(()),
        _ => Err(error),
    }
}

/// Puts `new` in the place of the earlier program at the ingress of an interface, in one step.
pub(super) fn hand_over(
    pins: &Pins,
    interface: &str,
    new: &mut SchedClassifier,
) -> Result<(), KernelError> {
    let path = pins.link(interface);
    let failed = |source| KernelError::TrafficControl {
        interface: interface.to_owned(),
        source,
    };
    match raw::pinned(&path).map_err(failed)? {
        Some(Pinned::TcxLink(_)) => {
            let failed = |source: LinkError| KernelError::Link {
                interface: interface.to_owned(),
                source,
            };
            let pinned = PinnedLink::from_pin(&path).map_err(failed)?;
            let link = SchedClassifierLink::try_from(FdLink::from(pinned)).map_err(failed)?;
            new.attach_to_link(link)
                .map(drop)
                .map_err(program_error(program_at(TcSide::Ingress)))
        }
        Some(Pinned::Program(old)) => {
            let Ok(index) = if_nametoindex(interface) else {
                return Ok(());
            };
            for filter in filters(TcSide::Ingress, index).map_err(failed)? {
                if filter.program_id == Some(old) {
                    replace_filter(interface, &filter, new)?;
                }
            }
            pin(new, pins, &path)
        }
        _ => Ok(()),
    }
}

fn replace_filter(
    interface: &str,
    filter: &BpfFilter,
    new: &mut SchedClassifier,
) -> Result<(), KernelError> {
    let failed = |source| KernelError::TrafficControl {
        interface: interface.to_owned(),
        source,
    };
    let handle = TcHandle::from(filter.handle);
    let ingress = attach_type(TcSide::Ingress);
    let link = SchedClassifierLink::attached(interface, ingress, filter.priority, handle, None)
        .map_err(failed)?;
    let link = new
        .attach_to_link(link)
        .map_err(|error| refused(interface, AttachedMode::Clsact, error))?;
    forget(
        new.take_link(link)
            .map_err(program_error(program_at(TcSide::Ingress)))?,
    );
    Ok(())
}

fn fd_link(
    program: &mut SchedClassifier,
    link: SchedClassifierLinkId,
    side: TcSide,
    interface: &str,
) -> Result<FdLink, KernelError> {
    let link = program
        .take_link(link)
        .map_err(program_error(program_at(side)))?;
    FdLink::try_from(link).map_err(|source| KernelError::Link {
        interface: interface.to_owned(),
        source,
    })
}

/// In the place of whatever was pinned there.
fn pin(program: &mut SchedClassifier, pins: &Pins, path: &Path) -> Result<(), KernelError> {
    let failed = |source| KernelError::Pin {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let new = pins.marker();
    remove_pin(&new)?;
    program.pin(&new).map_err(|source| KernelError::PinObject {
        path: path.to_owned(),
        source,
    })?;
    std::fs::rename(&new, path).map_err(failed)
}

/// Makes a note: a directory, which the file system of pins has, and which keeps nothing
/// in memory.
fn write_note(path: &Path) -> Result<(), KernelError> {
    std::fs::create_dir_all(path).map_err(|source| KernelError::Pin {
        path: path.to_owned(),
        source,
    })
}

fn remove_note(path: &Path) -> Result<(), KernelError> {
    match std::fs::remove_dir(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(KernelError::Pin {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn refused(interface: &str, mode: AttachedMode, source: ProgramError) -> KernelError {
    match program_errno(&source) {
        Some(libc::EPERM) => KernelError::NotPermitted {
            action: "attach a program of traffic control",
        },
        _ => KernelError::Attach {
            interface: interface.to_owned(),
            mode: mode.as_str(),
            source,
        },
    }
}
