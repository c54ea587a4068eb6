//! Flows: the 5-tuple that names one, its class, its tunnel, and its entry.
//!
//! A flow is one direction of a 5-tuple: each border counts what passes it
//! towards the tunnels (A-S2 of the reproduction notes).

use flow_balance::silence_ns;

use crate::packet::{Addresses, TransportHeader};
use crate::thresholds::ThresholdIndex;

/// The 5-tuple of an IPv4 flow; 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKeyV4 {
    /// Source address, wire bytes read natively.
    pub source: u32,
    /// Destination address, wire bytes read natively.
    pub destination: u32,
    /// Source and destination port, wire bytes read natively.
    pub ports: u32,
    /// IANA protocol number, widened so that the key has no padding.
    pub protocol: u32,
}

/// The 5-tuple of an IPv6 flow; 40 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKeyV6 {
    /// Source address, wire bytes read natively.
    pub source: [u64; 2],
    /// Destination address, wire bytes read natively.
    pub destination: [u64; 2],
    /// Source and destination port, wire bytes read natively.
    pub ports: u32,
    /// IANA protocol number, widened so that the key has no padding.
    pub protocol: u32,
}

/// The 5-tuple that names a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowKey {
    /// An IPv4 flow.
    V4(FlowKeyV4),
    /// An IPv6 flow.
    V6(FlowKeyV6),
}

impl FlowKey {
    /// The key of a packet between these addresses.
    #[inline(always)]
    pub const fn new(addresses: Addresses, header: &TransportHeader) -> Self {
        let (ports, protocol) = (header.ports, header.protocol as u32);
        match addresses {
            Addresses::V4 {
                source,
                destination,
            } => Self::V4(FlowKeyV4 {
                source,
                destination,
                ports,
                protocol,
            }),
            Addresses::V6 {
                source,
                destination,
            } => Self::V6(FlowKeyV6 {
                source,
                destination,
                ports,
                protocol,
            }),
        }
    }

    /// Maps IPv4 addresses of the key into IPv6 (RFC 4291 §2.5.5.2), for tables that keep both
    /// families.
    #[inline(always)]
    pub const fn as_v6(&self) -> FlowKeyV6 {
        match *self {
            Self::V6(key) => key,
            Self::V4(FlowKeyV4 {
                source,
                destination,
                ports,
                protocol,
            }) => FlowKeyV6 {
                source: map_v4(source),
                destination: map_v4(destination),
                ports,
                protocol,
            },
        }
    }

    /// Source and destination port as numbers; of ESP and GRE, the halves of what
    /// [`TransportHeader::ports`] is there.
    pub const fn ports(&self) -> (u16, u16) {
        let ports = match self {
            Self::V4(key) => key.ports,
            Self::V6(key) => key.ports,
        };
        let bytes = ports.to_ne_bytes();
        (
            u16::from_be_bytes([bytes[0], bytes[1]]),
            u16::from_be_bytes([bytes[2], bytes[3]]),
        )
    }

    /// The IANA protocol number of the flow.
    pub const fn protocol(&self) -> u8 {
        match self {
            Self::V4(key) => key.protocol as u8,
            Self::V6(key) => key.protocol as u8,
        }
    }

    /// Source and destination address.
    pub fn addresses(&self) -> (core::net::IpAddr, core::net::IpAddr) {
        match self {
            Self::V4(key) => (
                key.source.to_ne_bytes().into(),
                key.destination.to_ne_bytes().into(),
            ),
            Self::V6(key) => (
                v6_bytes(key.source).into(),
                v6_bytes(key.destination).into(),
            ),
        }
    }
}

#[inline(always)]
const fn map_v4(address: u32) -> [u64; 2] {
    let [a, b, c, d] = address.to_ne_bytes();
    [0, u64::from_ne_bytes([0, 0, 0xff, 0xff, a, b, c, d])]
}

fn v6_bytes(halves: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&halves[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&halves[1].to_ne_bytes());
    bytes
}

/// Secret seeds of the hash, drawn at load, so that nobody outside can tell which flows meet in a
/// group: one for each factor, for what two factors share cancels out in keys that are made for it.
pub type Seeds = [u64; 10];

/// The passage of a flow by a tap, in time and size: 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapEntry {
    /// `CLOCK_MONOTONIC` at the first packet.
    pub first_ns: u64,
    /// `CLOCK_MONOTONIC` at the last packet so far.
    pub last_ns: u64,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far, Ethernet headers included.
    pub bytes: u64,
}

/// The class of a flow: short or long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// At most the threshold so far.
    Short = 0,
    /// More than the threshold.
    Long = 1,
}

/// The role of a tunnel: for short flows or for long ones. A long flow stays in the short tunnel
/// until it can leave without overtaking itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TunnelRole {
    /// The short tunnel.
    Short = 0,
    /// The long tunnel.
    Long = 1,
}

impl Class {
    /// Both classes, in the order of their counters.
    pub const ALL: [Self; 2] = [Self::Short, Self::Long];

    /// The class whose number the lowest bit is.
    #[inline(always)]
    pub const fn numbered(bits: u64) -> Self {
        if bits & 1 == 0 {
            Self::Short
        } else {
            Self::Long
        }
    }

    /// The tunnel that is for it, unless that is shared.
    #[inline(always)]
    pub const fn own_tunnel(self) -> TunnelRole {
        match self {
            Self::Short => TunnelRole::Short,
            Self::Long => TunnelRole::Long,
        }
    }

    /// The value of the `class` label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
        }
    }
}

impl TunnelRole {
    /// Both tunnels, in the order of their counters.
    pub const ALL: [Self; 2] = [Self::Short, Self::Long];

    /// The tunnel whose number the lowest bit is.
    #[inline(always)]
    pub const fn numbered(bits: u64) -> Self {
        if bits & 1 == 0 {
            Self::Short
        } else {
            Self::Long
        }
    }

    /// The class that it is for, unless it is shared.
    #[inline(always)]
    pub const fn own_class(self) -> Class {
        match self {
            Self::Short => Class::Short,
            Self::Long => Class::Long,
        }
    }

    /// The tunnel that is not this one.
    #[inline(always)]
    pub const fn other(self) -> Self {
        match self {
            Self::Short => Self::Long,
            Self::Long => Self::Short,
        }
    }

    /// The value of the `tunnel` label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
        }
    }
}

/// An entry of the flow table, unpacked: all that is known of a flow.
///
/// Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowEntry {
    /// Packets so far; the segments of a GRO aggregate count one each.
    pub packets: u64,
    /// Bytes so far, Ethernet headers included.
    pub bytes: u64,
    /// The time of the first packet.
    pub first_seen_ns: u64,
    /// The time of the last packet, up to 17 ms too early.
    pub last_seen_ns: u64,
    /// The time when the last packet that went into the short tunnel will have left it.
    pub drained_ns: u64,
    /// The time when the flow was found to be long; 0 while it is short.
    pub long_since_ns: u64,
    /// Flags of the flow: [`FlowEntry::ON_LONG_TUNNEL`], [`FlowEntry::FINISHED`], [`FlowEntry::PLACED`], and of
    /// a short flow the two bits of its stage and those of its threshold's index.
    pub flags: u64,
    /// How often the flow changed tunnels after it had been placed, up to
    /// [`FlowEntry::MOST_CHANGES`].
    pub changes: u64,
}

impl FlowEntry {
    /// A placed flow changes tunnels no more often than this (shared tunnels).
    pub const MOST_CHANGES: u64 = 7;

    /// The flow uses the long tunnel: it has changed to it, or started there.
    pub const ON_LONG_TUNNEL: u64 = 1;
    /// A FIN or RST has passed.
    pub const FINISHED: u64 = 2;
    /// The flow is long and stays in its tunnel from now on. Where the tunnels are
    /// shared it uses the long class there; one that is long and not placed
    /// waits until it can change to the other.
    pub const PLACED: u64 = 4;
    pub(crate) const STAGE_SHIFT: u32 = 3;
    /// How a short flow counts in its tunnel now (shared tunnels), two bits; `share` reads them.
    pub(crate) const STAGE: u64 = 3 << Self::STAGE_SHIFT;
    pub(crate) const THRESHOLD_SHIFT: u32 = 5;
    pub(crate) const THRESHOLD: u64 = ThresholdIndex::MASK << Self::THRESHOLD_SHIFT;

    /// The class that the flow has now.
    #[inline(always)]
    pub const fn class(&self) -> Class {
        if self.long_since_ns == 0 {
            Class::Short
        } else {
            Class::Long
        }
    }

    /// The index of the threshold that a short flow goes by now.
    #[inline(always)]
    pub const fn threshold(&self) -> ThresholdIndex {
        ThresholdIndex::numbered(self.flags >> Self::THRESHOLD_SHIFT)
    }

    /// Has a short flow go by another threshold.
    #[inline(always)]
    pub(crate) const fn set_threshold(&mut self, index: ThresholdIndex) {
        self.flags = self.flags & !Self::THRESHOLD | index.number() << Self::THRESHOLD_SHIFT;
    }

    /// The tunnel that the flow uses now.
    #[inline(always)]
    pub const fn tunnel(&self) -> TunnelRole {
        if self.flags & Self::ON_LONG_TUNNEL == 0 {
            TunnelRole::Short
        } else {
            TunnelRole::Long
        }
    }

    /// The flow is long and stays in its tunnel.
    #[inline(always)]
    pub const fn is_placed(&self) -> bool {
        self.flags & Self::PLACED != 0
    }

    /// A FIN or RST of the flow has passed.
    #[inline(always)]
    pub const fn is_finished(&self) -> bool {
        self.flags & Self::FINISHED != 0
    }

    /// Nothing was seen of the flow for `timeout_ns`.
    #[inline(always)]
    pub const fn is_idle(&self, now_ns: u64, timeout_ns: u64) -> bool {
        silence_ns(now_ns, self.last_seen_ns) >= timeout_ns
    }
}
