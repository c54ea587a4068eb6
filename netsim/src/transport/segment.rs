//! Segments as packets, with their priority (PIAS).

use flow_tcp::Segment;

use super::flow::Flow;
use crate::{
    engine::packet::{EntryKind, Packet, flag},
    scenario::{CongestionControl, TransportSettings},
};

/// The packet of a segment.
pub(super) fn data(
    flow: &Flow,
    number: u32,
    segment: Segment,
    settings: &TransportSettings,
    now: u32,
) -> Packet {
    let payload = if flow.has_handshake && segment.number == 0 {
        0
    } else if segment.number == flow.short.0 {
        flow.short.1
    } else {
        settings.mss_bytes
    };
    let mut packet = Packet::new(EntryKind::Data);
    packet.flow = number;
    packet.seq = segment.number;
    packet.aux = 0;
    packet.stamp = now;
    packet.bytes = settings.header_bytes + payload;
    packet.to = flow.to;
    packet.set(flag::ECT, settings.control == CongestionControl::Dctcp);
    packet.set(flag::RETRANSMITTED, segment.is_retransmission);
    packet.set_priority(priority(flow, segment.number, settings));
    packet
}

/// PIAS: the further into the flow, the less urgent.
fn priority(flow: &Flow, segment: u32, settings: &TransportSettings) -> u8 {
    let position = u64::from(segment) * u64::from(settings.mss_bytes);
    let passed = settings.pias_bytes.iter().filter(|it| position >= **it);
    flow.priority + passed.count() as u8
}
