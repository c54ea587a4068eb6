//! Packets that a tap has timed one by one.

use std::net::SocketAddr;

use aya::Ebpf;
use aya::maps::{Array, MapData, MapError};
use serde::{Deserialize, Serialize};
use splitter_policy::dscp::Dscp;
use splitter_policy::flow::FlowKey;
use splitter_policy::packet_selection::{PacketPassage, PacketSelection};

use super::{TapError, TapPoint};
use crate::Shape;
use crate::names::{PACKET_PASSAGES, PACKETS_SELECTED};

/// Packets that one tap has places for; later ones are not timed, but counted. 16 MiB.
pub const PACKET_CAPACITY: u32 = 262_144;

/// The packets that one tap has timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedPackets {
    /// The tap.
    pub point: TapPoint,
    /// Packets that were selected when there was no place left.
    pub missing: u64,
    /// The packets, roughly by time.
    pub packets: Vec<TimedPacket>,
}

/// The passage of one packet, or of an aggregate, which stands for its first segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedPacket {
    /// Its digest: tells it from others, the same at all taps with the same key.
    #[serde(with = "hexadecimal")]
    pub packet: u64,
    /// `CLOCK_MONOTONIC` of its machine.
    pub at_ns: u64,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Its DSCP at this point.
    pub dscp: u8,
    /// Its fwmark at this point.
    pub fwmark: u32,
}

/// The maps in which a tap notes packets.
pub(super) struct PacketMaps {
    selected: Array<MapData, u64>,
    passages: Array<MapData, Shape<PacketPassage>>,
}

impl PacketMaps {
    /// Takes them out of what was loaded.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, TapError> {
        let mut take = |name| ebpf.take_map(name).ok_or(TapError::Missing);
        let (selected, passages) = (take(PACKETS_SELECTED)?, take(PACKET_PASSAGES)?);
        Ok(Self {
            selected: Array::try_from(selected).map_err(|_| TapError::Missing)?,
            passages: Array::try_from(passages).map_err(|_| TapError::Missing)?,
        })
    }

    /// Returns the packets that they hold, and how many are missing there. A packet that passes just now may have its place, but not
    /// its time yet.
    pub(super) fn read(&self) -> Result<(Vec<TimedPacket>, u64), MapError> {
        let selected = self.selected.get(&0, 0)?;
        let timed = selected.min(self.passages.len().into());
        let mut packets = Vec::with_capacity(timed as usize);
        for place in 0..timed as u32 {
            let Shape(passage) = self.passages.get(&place, 0)?;
            if passage.at_ns != 0 {
                packets.push(TimedPacket::new(&passage));
            }
        }
        Ok((packets, selected - timed))
    }
}

/// Has as many places as `selection` needs.
pub(super) fn capacity(selection: &PacketSelection) -> u32 {
    if selection.is_any() {
        PACKET_CAPACITY
    } else {
        1
    }
}

impl TimedPacket {
    fn new(passage: &PacketPassage) -> Self {
        let key = FlowKey::V6(passage.flow);
        let ((source, destination), (from, to)) = (key.addresses(), key.ports());
        Self {
            packet: passage.digest,
            at_ns: passage.at_ns,
            source: SocketAddr::new(source.to_canonical(), from),
            destination: SocketAddr::new(destination.to_canonical(), to),
            dscp: Dscp::of_traffic_class(passage.traffic_class as u8).value(),
            fwmark: passage.fwmark,
        }
    }
}

/// As digits: not all that read JSON have integers of 64 bits.
mod hexadecimal {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(|_| {
            D::Error::custom(format!(
                "`{text}` is no packet: it takes hexadecimal digits"
            ))
        })
    }
}
