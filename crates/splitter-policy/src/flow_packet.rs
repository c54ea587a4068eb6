//! The part of a packet that classification looks at: size, segments, TCP flags.

use crate::config::PolicyConfig;
use crate::packet::TcpFlags;

/// The part of a packet that classification looks at: size, segments, TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPacket {
    /// How many packets it stands for: the segments of a GRO aggregate.
    pub segments: u64,
    /// Its length with the Ethernet header.
    pub bytes: u64,
    /// Its TCP flags.
    pub flags: TcpFlags,
    /// How much of that is payload; of what is not TCP, and of parts of packets,
    /// all.
    pub payload_bytes: u64,
}

impl FlowPacket {
    /// A packet with `payload_bytes` of TCP payload, counted as so many
    /// segments as the sender's stack made of it.
    #[inline(always)]
    pub const fn new(
        bytes: u64,
        payload_bytes: u64,
        flags: TcpFlags,
        config: &PolicyConfig,
    ) -> Self {
        Self {
            segments: Self::segments_of(payload_bytes, config),
            bytes,
            flags,
            payload_bytes,
        }
    }

    /// A segment with so much payload is one that the receiver's stack made of several.
    #[inline(always)]
    pub(crate) const fn is_aggregate(payload_bytes: u64, config: &PolicyConfig) -> bool {
        config.segment_bytes != 0 && payload_bytes > config.segment_bytes as u64
    }

    /// The number of segments that the sender's stack made of so much payload.
    #[inline(always)]
    pub(crate) const fn segments_of(payload_bytes: u64, config: &PolicyConfig) -> u64 {
        if Self::is_aggregate(payload_bytes, config) {
            payload_bytes.div_ceil(config.segment_bytes as u64)
        } else {
            1
        }
    }

    /// A packet that is never an aggregate and never only acknowledges: of
    /// another protocol, or a part of a larger one.
    #[inline(always)]
    pub const fn single(bytes: u64, flags: TcpFlags) -> Self {
        Self {
            segments: 1,
            bytes,
            flags,
            payload_bytes: bytes,
        }
    }

    /// The packet carries payload.
    #[inline(always)]
    pub const fn carries_data(&self) -> bool {
        self.payload_bytes > 0
    }

    /// The packet does nothing but acknowledge.
    #[inline(always)]
    pub const fn is_pure_ack(&self) -> bool {
        !self.carries_data() && !self.flags.opens() && !self.flags.closes()
    }
}
