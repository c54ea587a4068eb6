//! Queueing disciplines, asked about in the caller's own thread.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage, TcStats2};
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_DUMP, Parseable as _};

use crate::{blocking::exchange, ecn_marks::ecn_marks};

/// What queueing disciplines are reported with, as linux/rtnetlink.h has it.
pub(crate) const RTM_NEWQDISC: u16 = 36;

/// Counts what the outermost queueing discipline of a device has sent, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootQueue {
    /// The device's index.
    pub interface: u32,
    /// Bytes that it has sent since it was made, link-layer headers included.
    pub sent_bytes: u64,
    /// Bytes that wait in it now.
    pub backlog_bytes: u32,
    /// Packets that these are; several segments may be one.
    pub backlog_packets: u32,
    /// Packets that it has dropped since it was made, modulo 2^32.
    pub drops: u32,
    /// Packets that were marked as congested (ECN) by it and by all that are below it, each of which
    /// counts with 32 bits.
    pub ecn_marks: u64,
}

/// Reads what [`root_queues`] does on a thread for that, as the kernel may be busy with other devices. In the network namespace of
/// the tokio runtime's threads.
///
/// # Errors
/// Those of [`root_queues`].
pub async fn root_queues_aside() -> io::Result<Vec<RootQueue>> {
    let read = tokio::task::spawn_blocking(root_queues).await;
    read.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads the outermost queueing discipline of each device that has one, and what those below it mark, in the network namespace of
/// the calling thread and within this call.
///
/// # Errors
/// The kernel's, and `InvalidData` for an answer that is not understood.
pub fn root_queues() -> io::Result<Vec<RootQueue>> {
    let question = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let answers = exchange(question, NLM_F_DUMP)?;
    let described = answers.iter().filter(|it| it.kind == RTM_NEWQDISC);
    let messages = described
        .map(|it| TcMessage::parse(&it.payload))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut queues: Vec<RootQueue> = messages.iter().filter_map(root_queue).collect();
    for message in &messages {
        let index = message.header.index.cast_unsigned();
        if let Some(queue) = queues.iter_mut().find(|it| it.interface == index) {
            queue.ecn_marks += marks(message);
        }
    }
    Ok(queues)
}

/// What a queueing discipline itself has marked.
fn marks(message: &TcMessage) -> u64 {
    let kind = message.attributes.iter().find_map(|it| match it {
        TcAttribute::Kind(kind) => Some(&**kind),
        _ => None,
    });
    let own = statistics(message).into_iter().flatten();
    own.map(|it| match it {
        TcStats2::App(of_kind) => ecn_marks(kind.unwrap_or_default(), of_kind),
        _ => 0,
    })
    .sum()
}

fn root_queue(message: &TcMessage) -> Option<RootQueue> {
    if message.header.parent != TcHandle::ROOT {
        return None;
    }
    let mut queue = RootQueue {
        interface: message.header.index.cast_unsigned(),
        sent_bytes: 0,
        backlog_bytes: 0,
        backlog_packets: 0,
        drops: 0,
        ecn_marks: 0,
    };
    for statistic in statistics(message)? {
        match statistic {
            TcStats2::Basic(basic) => queue.sent_bytes = basic.bytes,
            TcStats2::Queue(of_queue) => {
                queue.backlog_bytes = of_queue.backlog;
                queue.backlog_packets = of_queue.qlen;
                queue.drops = of_queue.drops;
            }
            _ => {}
        }
    }
    Some(queue)
}

fn statistics(message: &TcMessage) -> Option<&Vec<TcStats2>> {
    message.attributes.iter().find_map(|it| match it {
        TcAttribute::Stats2(statistics) => Some(statistics),
        _ => None,
    })
}

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
