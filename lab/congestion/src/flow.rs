//! What a flow is to the world: a sender and a receiver on both sides of the bottleneck.

use cloudburst_proto::Ecn;

use crate::series::Counts;

/// A packet on its way.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) flow: usize,
    /// The path that it takes, of those that the flow has.
    pub(crate) path: u16,
    /// Bytes on the wire, with the headers of IP and above.
    pub(crate) bytes: usize,
    pub(crate) ecn: Ecn,
    pub(crate) payload: Payload,
}

/// Content of a packet.
#[derive(Debug)]
pub(crate) enum Payload {
    /// A datagram of the machine.
    Datagram(Vec<u8>),
    /// A segment of a stream, with the number of the packet and of the segment.
    Segment { packet: u64, segment: u64 },
    /// Packets that have arrived since the acknowledgement before.
    Acknowledgement {
        packets: Vec<u64>,
        /// Some of them were marked.
        is_marked: bool,
    },
}

/// Packets that a flow sends in both directions.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) forward: Vec<Packet>,
    pub(crate) back: Vec<Packet>,
}

/// A sender on this side of the bottleneck, and its receiver on the other.
pub(crate) trait Flow {
    /// Takes a packet that came through the bottleneck.
    fn arrived(&mut self, now: u64, packet: Packet);

    /// Takes a packet that came back to the sender.
    fn returned(&mut self, now: u64, packet: Packet);

    /// Does what is due, and returns when it is to be called next.
    fn drive(&mut self, now: u64, out: &mut Outbox) -> Option<u64>;

    /// Takes the bytes that the receiving application got since the last call.
    fn take_goodput(&mut self) -> u64;

    /// Completion times of messages in ms, in the order of their ends.
    fn completions(&self) -> &[(u64, f64)];
}

/// Adds what an application got to its flow's counts.
pub(crate) fn count_goodput(flow: &mut dyn Flow, counts: &mut Counts) {
    counts.goodput_bytes += flow.take_goodput();
}

/// Messages that an application sends.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// Always something to send, in messages of so many bytes.
    Backlog { message_bytes: usize, ahead: usize },
    /// Messages at these times, in ns, of so many bytes.
    Messages(Vec<(u64, usize)>),
}
