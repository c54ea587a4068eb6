//! Filters of the `clsact` queueing discipline, by which BPF programs of traffic control are
//! attached before Linux 6.6.
//!
//! Unlike [`Netlink`](crate::Netlink) these functions block: the kernel answers before `send`
//! returns, and a `Drop` cannot wait for a task.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage};
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_DUMP, NlasIterator};

use crate::blocking::{Answer, exchange};
use crate::qdisc::RTM_NEWQDISC;

/// A BPF filter of a device's `clsact` queueing discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfFilter {
    /// Its priority; filters with lower numbers run first.
    pub priority: u16,
    /// Its number among the filters of that priority.
    pub handle: u32,
    /// The kernel's number of its program.
    pub program_id: Option<u32>,
    /// As the kernel reported it, priority and protocol among it.
    info: u32,
    /// The side of the device that it is at.
    parent: TcHandle,
}

impl BpfFilter {
    /// Removes the filter from the side of `interface` at which it was found.
    ///
    /// # Errors
    /// The kernel's, such as `ENODEV` for a device that has gone.
    pub fn remove(&self, interface: u32) -> io::Result<()> {
        let mut message = message(interface, self.parent);
        message.header.handle = self.handle.into();
        message.header.info = self.info;
        message.attributes.push(TcAttribute::Kind("bpf".to_owned()));
        exchange(RouteNetlinkMessage::DelTrafficFilter(message), NLM_F_ACK).map(drop)
    }

    /// `None` for what is not a BPF filter, or only heads a list of them.
    fn read(parent: TcHandle, message: &[u8]) -> Option<Self> {
        const TCA_BPF_ID: u16 = 11;
        let word = |at: usize| {
            let bytes = message.get(at..at + 4)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        let (handle, info) = (word(8)?, word(16)?);
        let attributes = message.get(TCMSG_BYTES..)?;
        if handle == 0 || attribute(attributes, TCA_KIND)? != b"bpf\0" {
            return None;
        }
        let options = attribute(attributes, TCA_OPTIONS)?;
        let program_id = attribute(&options, TCA_BPF_ID).and_then(|it| it.first_chunk().copied());
        Some(Self {
            priority: (info >> 16) as u16,
            handle,
            program_id: program_id.map(u32::from_ne_bytes),
            info,
            parent,
        })
    }
}

/// Lists the BPF filters that `interface` has for what it receives.
///
/// # Errors
/// The kernel's, such as `ENODEV` for a device that has gone.
pub fn ingress_filters(interface: u32) -> io::Result<Vec<BpfFilter>> {
    filters(interface, CLSACT_INGRESS)
}

/// Lists the BPF filters that `interface` has for what it sends.
///
/// # Errors
/// As [`ingress_filters`].
pub fn egress_filters(interface: u32) -> io::Result<Vec<BpfFilter>> {
    filters(interface, CLSACT_EGRESS)
}

fn filters(interface: u32, parent: TcHandle) -> io::Result<Vec<BpfFilter>> {
    let question = RouteNetlinkMessage::GetTrafficFilter(message(interface, parent));
    let answers = exchange(question, NLM_F_DUMP)?;
    let filters = answers.iter().filter(|it| it.kind == RTM_NEWTFILTER);
    Ok(filters
        .filter_map(|it| BpfFilter::read(parent, &it.payload))
        .collect())
}

/// Tells whether `interface` has a `clsact` queueing discipline.
///
/// # Errors
/// When the kernel does not list them.
pub fn has_clsact(interface: u32) -> io::Result<bool> {
    let question = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let answers = exchange(question, NLM_F_DUMP)?;
    let is_it = |it: &Answer| {
        let index = it.payload.get(4..8).and_then(|bytes| bytes.first_chunk());
        let attributes = it.payload.get(TCMSG_BYTES..).unwrap_or_default();
        it.kind == RTM_NEWQDISC
            && index.copied().map(u32::from_ne_bytes) == Some(interface)
            && attribute(attributes, TCA_KIND).as_deref() == Some(b"clsact\0")
    };
    Ok(answers.iter().any(is_it))
}

/// Removes the `clsact` queueing discipline of `interface`, unless somebody has filters in it.
///
/// # Errors
/// The kernel's, such as `ENODEV` for a device that has gone.
pub fn remove_unused_clsact(interface: u32) -> io::Result<()> {
    for parent in [CLSACT_INGRESS, CLSACT_EGRESS] {
        let filters = RouteNetlinkMessage::GetTrafficFilter(message(interface, parent));
        let answers = exchange(filters, NLM_F_DUMP)?;
        if answers.iter().any(|it| it.kind == RTM_NEWTFILTER) {
            return Ok(());
        }
    }
    let qdisc = RouteNetlinkMessage::DelQueueDiscipline(message(interface, TcHandle::CLSACT));
    exchange(qdisc, NLM_F_ACK).map(drop)
}

const CLSACT_INGRESS: TcHandle = TcHandle {
    major: TcHandle::CLSACT.major,
    minor: TcHandle::MIN_INGRESS,
};
const CLSACT_EGRESS: TcHandle = TcHandle {
    major: TcHandle::CLSACT.major,
    minor: TcHandle::MIN_EGRESS,
};
/// Of `struct tcmsg`: family, device, handle, parent, information.
const TCMSG_BYTES: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

fn message(interface: u32, parent: TcHandle) -> TcMessage {
    let header = TcHeader {
        index: interface.cast_signed(),
        parent,
        ..TcHeader::default()
    };
    TcMessage::from_parts(header, Vec::new())
}

fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(attributes).filter_map(Result::ok);
    let found = attributes.find(|it| it.kind() == kind)?;
    Some(found.value().to_vec())
}

/// What filters are reported with, as linux/rtnetlink.h has it.
const RTM_NEWTFILTER: u16 = 44;
