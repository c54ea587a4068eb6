//! Queueing disciplines, asked about in the caller's own thread.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHeader, TcMessage};
use rtnetlink::packet_core::NLM_F_ACK;

use crate::blocking::exchange;

/// Has the kernel describe one queueing discipline of `interface` by its handle, within this call
/// and in the calling thread, for a program that watches the kernel do so.
///
/// # Errors
/// The kernel's: `ENOENT` where there is none, `ENODEV` for a device that has gone.
pub fn describe_qdisc(interface: u32, handle: u32) -> io::Result<()> {
    let header = TcHeader {
        index: interface.cast_signed(),
        handle: handle.into(),
        ..TcHeader::default()
    };
    let question = TcMessage::from_parts(header, Vec::new());
    exchange(RouteNetlinkMessage::GetQueueDiscipline(question), NLM_F_ACK).map(drop)
}
