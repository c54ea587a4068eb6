//! Attaching a program of traffic control by what the kernel has for it: TCX (Linux 6.6) or, before
//! that, a filter of the `clsact` queueing discipline.

use std::io;

use aya::programs::tc::{NlOptions, TcAttachOptions, TcError, qdisc_add_clsact};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcHeader, TcMessage};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkMessage,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::Serialize;

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
    pub(crate) made: Option<Clsact>,
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
            made: None,
        }),
        // An older kernel knows no such way to attach.
        Err(error) if program_errno(&error) == Some(libc::EINVAL) => {
            let made = Clsact::ensure(device, interface)?;
            let options = NlOptions {
                priority,
                ..NlOptions::default()
            };
            program.attach_with_options(device, direction, TcAttachOptions::Netlink(options))?;
            Ok(TcAttached {
                hook: TcHook::Clsact,
                made,
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

    fn remove_unused(&self) -> io::Result<()> {
        for parent in [TcHandle::MIN_INGRESS, TcHandle::MIN_EGRESS] {
            let parent = TcHandle {
                major: TcHandle::CLSACT.major,
                minor: parent,
            };
            let filters = RouteNetlinkMessage::GetTrafficFilter(self.message(parent));
            if exchange(filters, NLM_F_DUMP)?.contains(&RTM_NEWTFILTER) {
                return Ok(());
            }
        }
        let qdisc = RouteNetlinkMessage::DelQueueDiscipline(self.message(TcHandle::CLSACT));
        exchange(qdisc, NLM_F_ACK).map(|_| ())
    }

    fn message(&self, parent: TcHandle) -> TcMessage {
        let header = TcHeader {
            index: self.interface.cast_signed(),
            parent,
            ..TcHeader::default()
        };
        TcMessage::from_parts(header, Vec::new())
    }
}

impl Drop for Clsact {
    fn drop(&mut self) {
        match self.remove_unused() {
            // The device has gone, and it with the device.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => {
                tracing::warn!(interface = self.interface, %error, "cannot remove the clsact queueing discipline that was made; `tc qdisc del dev DEVICE clsact` does");
            }
            Ok(()) => {}
        }
    }
}

/// What a filter is told with.
const RTM_NEWTFILTER: u16 = 44;

/// One question to the kernel, which answers before `send` returns: nothing here waits. The types
/// of the messages that it answered with.
fn exchange(question: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<u16>> {
    let mut message = NetlinkMessage::from(question);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let mut types = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
            let message = NetlinkBuffer::new_checked(rest).map_err(invalid)?;
            match message.message_type() {
                NLMSG_DONE => return Ok(types),
                NLMSG_ERROR => return outcome(message.payload()).map(|()| types),
                other => types.push(other),
            }
            // Messages are aligned to 4 bytes.
            let length = (message.length() as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

/// An error message begins with the negative error number; 0 acknowledges.
fn outcome(payload: &[u8]) -> io::Result<()> {
    let code = payload.first_chunk().copied().map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
