//! Counts of the reverse direction of flows: what comes back to the site.
//!
//! The flow table has what comes from the site. What goes there is split at the other site's border,
//! and only counted here, so that a connection can be shown as a whole: which of its directions fills
//! a tunnel, at a site that downloads.

use flow_balance::silence_ns;

use crate::config::Protocols;
use crate::flow::{FlowKey, FlowKeyV4, FlowKeyV6};
use crate::packet::{Transport, TransportHeader, protocol};

/// The reverse direction of a flow, as it was counted so far: 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReverseEntry {
    /// Packets so far; the segments of an aggregate count one each.
    pub packets: u64,
    /// Bytes so far, Ethernet headers included.
    pub bytes: u64,
    /// `CLOCK_MONOTONIC` at the last packet so far, to a tick.
    pub last_ns: u64,
    /// Number of the device by which the last packet came in.
    pub device: u32,
    /// Zero, so that there is no padding.
    pub reserved: u32,
}

/// A packet, or an aggregate of segments, on its way to the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Segments.
    pub packets: u64,
    /// Bytes, Ethernet header included.
    pub bytes: u64,
    /// `CLOCK_MONOTONIC`, to a tick.
    pub now_ns: u64,
    /// Number of the device by which it came in.
    pub device: u32,
    /// It opens a connection in its direction.
    pub opens: bool,
}

impl ReverseEntry {
    /// The entry of a direction of which this is the first packet.
    #[inline(always)]
    pub const fn first(arrival: &Arrival) -> Self {
        Self {
            packets: arrival.packets,
            bytes: arrival.bytes,
            last_ns: arrival.now_ns,
            device: arrival.device,
            reserved: 0,
        }
    }

    /// Counts a packet. One that opens a connection, or comes after a silence of `idle_timeout_ns`,
    /// begins again, as flows of the table do: ports are used again.
    ///
    /// Not atomic: where two CPUs take packets of one flow at once, one of them may be missing.
    #[inline(always)]
    pub fn count(&mut self, arrival: &Arrival, idle_timeout_ns: u64) {
        let is_idle = silence_ns(arrival.now_ns, self.last_ns) >= idle_timeout_ns;
        if arrival.opens || is_idle {
            *self = Self::first(arrival);
            return;
        }
        self.packets += arrival.packets;
        self.bytes += arrival.bytes;
        self.last_ns = arrival.now_ns;
        self.device = arrival.device;
    }
}

/// Returns the header of a packet whose flow may be in the table and has ports that name its reverse.
///
/// ESP has another SPI in each direction, and GRE may have another key.
#[inline(always)]
pub const fn counted(transport: Transport, protocols: Protocols) -> Option<TransportHeader> {
    match transport {
        Transport::Tcp(header) => Some(header),
        Transport::Udp(header) if protocols.contain(Protocols::UDP) => Some(header),
        _ => None,
    }
}

/// Returns the key of the other direction of a flow; `None` where it has no ports that name it.
#[must_use]
pub const fn reversed(key: &FlowKey) -> Option<FlowKey> {
    if !matches!(key.protocol(), protocol::TCP | protocol::UDP) {
        return None;
    }
    // The two ports of 16 bits change places, whatever the order of bytes.
    Some(match *key {
        FlowKey::V4(key) => FlowKey::V4(FlowKeyV4 {
            source: key.destination,
            destination: key.source,
            ports: key.ports.rotate_left(16),
            protocol: key.protocol,
        }),
        FlowKey::V6(key) => FlowKey::V6(FlowKeyV6 {
            source: key.destination,
            destination: key.source,
            ports: key.ports.rotate_left(16),
            protocol: key.protocol,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT_NS: u64 = 30_000;

    const fn arrival(now_ns: u64) -> Arrival {
        Arrival {
            packets: 2,
            bytes: 3_000,
            now_ns,
            device: 7,
            opens: false,
        }
    }

    #[test]
    fn counts_rise_and_the_last_device_is_known() {
        let mut entry = ReverseEntry::first(&arrival(1_000));
        let by_another = Arrival {
            device: 8,
            ..arrival(2_000)
        };
        entry.count(&by_another, TIMEOUT_NS);
        let expected = ReverseEntry {
            packets: 4,
            bytes: 6_000,
            last_ns: 2_000,
            device: 8,
            reserved: 0,
        };
        assert_eq!(entry, expected);
        // Clocks of other CPUs may lie behind.
        entry.count(&arrival(1_900), TIMEOUT_NS);
        assert_eq!(entry.packets, 6);
    }

    #[test]
    fn ports_that_are_used_again_begin_again() {
        let old = ReverseEntry {
            packets: 1_000,
            bytes: 1_000_000,
            ..ReverseEntry::first(&arrival(1_000))
        };
        let opens = Arrival {
            opens: true,
            ..arrival(1_500)
        };
        let late = arrival(1_000 + TIMEOUT_NS);
        for again in [opens, late] {
            let mut entry = old;
            entry.count(&again, TIMEOUT_NS);
            assert_eq!(entry, ReverseEntry::first(&again));
        }
        let mut entry = old;
        entry.count(&arrival(999 + TIMEOUT_NS), TIMEOUT_NS);
        assert_eq!(entry.packets, 1_002);
    }

    #[test]
    fn reverse_of_a_key_has_ends_and_ports_the_other_way_round() {
        let v4 = FlowKey::V4(FlowKeyV4 {
            source: 1,
            destination: 2,
            ports: u32::from_ne_bytes([0, 80, 1, 187]),
            protocol: protocol::TCP.into(),
        });
        let v6 = FlowKey::V6(FlowKeyV6 {
            source: [1, 2],
            destination: [3, 4],
            ports: u32::from_ne_bytes([0, 80, 1, 187]),
            protocol: protocol::UDP.into(),
        });
        for key in [v4, v6] {
            let other = reversed(&key).unwrap();
            let (source, destination) = key.addresses();
            assert_eq!(other.addresses(), (destination, source));
            assert_eq!((key.ports(), other.ports()), ((80, 443), (443, 80)));
            assert_eq!(other.protocol(), key.protocol());
            assert_eq!(reversed(&other), Some(key));
        }
        let FlowKey::V4(esp) = v4 else { unreachable!() };
        let esp = FlowKey::V4(FlowKeyV4 {
            protocol: protocol::ESP.into(),
            ..esp
        });
        assert_eq!(reversed(&esp), None);
    }

    #[test]
    fn only_flows_that_the_table_may_have_and_with_ports_are_counted() {
        let header = TransportHeader {
            protocol: 17,
            ports: 0,
            flags: crate::packet::TcpFlags::NONE,
            payload_bytes: 0,
        };
        let is_counted = |transport, protocols| counted(transport, protocols).is_some();
        assert!(is_counted(Transport::Tcp(header), Protocols::NONE));
        assert!(!is_counted(Transport::Udp(header), Protocols::NONE));
        assert!(is_counted(Transport::Udp(header), Protocols::UDP));
        let all = Protocols::UDP.with(Protocols::ESP).with(Protocols::GRE);
        assert!(!is_counted(Transport::Esp(header), all));
        assert!(!is_counted(Transport::Gre(header), all));
        assert!(!is_counted(Transport::Other, all));
    }
}
