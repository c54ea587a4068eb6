//! Counts of what leaves by a tunnel's device, by mark and family.
//!
//! A packet is marked at one end of the network stack, and its tunnel's device is handed it at the
//! other. Between them rules and routes are looked up, and others may write marks.

use crate::config::{PolicyConfig, Protocols};
use crate::dscp::Dscp;
use crate::flow::{Class, TunnelRole};
use crate::fwmark::MarkBits;
use crate::packet::protocol;

/// A packet's mark, as its tunnel's device is handed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Marked {
    /// It has the mark of short flows in the short tunnel.
    Short = 0,
    /// It has the mark of long flows in the long tunnel.
    Long = 1,
    /// It has the mark of short flows in the long tunnel (shared tunnels).
    ShortOnLong = 2,
    /// It has the mark of long flows in the short tunnel (shared tunnels).
    LongOnShort = 3,
    /// It came from the site, is of a protocol that is split, and has no mark: somebody has taken
    /// it away.
    Unmarked = 4,
    /// It is not split: of another protocol, or not from the site.
    Other = 5,
}

impl Marked {
    /// All of them, in the order of their counts.
    pub const ALL: [Self; 6] = [
        Self::Short,
        Self::Long,
        Self::ShortOnLong,
        Self::LongOnShort,
        Self::Unmarked,
        Self::Other,
    ];

    /// Reads the mark of a packet that came from the site. `fwmark` is the kernel's mark of it
    /// (`skb->mark`), which counts where that carries marks.
    #[inline(always)]
    pub const fn of(config: &PolicyConfig, fwmark: u32, ip: &IpStart) -> Self {
        let mark = if config.mark_bits.mask() == MarkBits::NONE.mask() {
            ip.dscp
        } else {
            config.mark_bits.read(fwmark)
        };
        let mark = mark.value();
        if mark == config.long_mark.value() {
            Self::Long
        } else if mark == config.short_mark.value() {
            Self::Short
        } else if config.is_shared() && mark == config.short_on_long_mark.value() {
            Self::ShortOnLong
        } else if config.is_shared() && mark == config.long_on_short_mark.value() {
            Self::LongOnShort
        } else if is_split(config.protocols, ip.protocol) {
            Self::Unmarked
        } else {
            Self::Other
        }
    }

    /// The tunnel that the mark is for.
    pub const fn tunnel(self) -> Option<TunnelRole> {
        match self {
            Self::Short | Self::LongOnShort => Some(TunnelRole::Short),
            Self::Long | Self::ShortOnLong => Some(TunnelRole::Long),
            Self::Unmarked | Self::Other => None,
        }
    }

    /// The queue class that the mark is for.
    pub const fn class(self) -> Option<Class> {
        match self {
            Self::Short | Self::ShortOnLong => Some(Class::Short),
            Self::Long | Self::LongOnShort => Some(Class::Long),
            Self::Unmarked | Self::Other => None,
        }
    }
}

#[inline(always)]
const fn is_split(protocols: Protocols, number: u8) -> bool {
    match number {
        protocol::TCP => true,
        protocol::UDP => protocols.contain(Protocols::UDP),
        protocol::ESP => protocols.contain(Protocols::ESP),
        protocol::GRE => protocols.contain(Protocols::GRE),
        _ => false,
    }
}

/// The part of an IP header that tells family, DSCP, protocol and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpStart {
    /// The packet is of IPv6.
    pub is_v6: bool,
    /// Its DSCP.
    pub dscp: Dscp,
    /// The protocol number of the header that follows; in IPv6 that may be an extension header, which
    /// is not followed.
    pub protocol: u8,
    /// Bytes of the packet with this header, as it says.
    pub packet_bytes: u32,
}

impl IpStart {
    /// The bytes of the header that it takes.
    pub const BYTES: usize = 10;

    /// Bytes of a frame with this packet and an Ethernet header in front of it. What a link adds to short
    /// frames is not counted, as the stack does not either.
    #[inline(always)]
    pub const fn frame_bytes(&self) -> u64 {
        self.packet_bytes as u64 + ETHERNET_BYTES
    }

    /// Reads the first bytes of a header; `None` where it is of neither family.
    #[inline(always)]
    pub const fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        match bytes[0] >> 4 {
            4 => Some(Self {
                is_v6: false,
                dscp: Dscp::of_traffic_class(bytes[1]),
                protocol: bytes[9],
                packet_bytes: u16::from_be_bytes([bytes[2], bytes[3]]) as u32,
            }),
            6 => Some(Self {
                is_v6: true,
                dscp: Dscp::of_traffic_class(bytes[0] << 4 | bytes[1] >> 4),
                protocol: bytes[6],
                packet_bytes: V6_BYTES + u16::from_be_bytes([bytes[4], bytes[5]]) as u32,
            }),
            _ => None,
        }
    }
}

const COUNTS: usize = Marked::ALL.len() * 2;

/// Counts of one device on one CPU; all rise from zero and never fall.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressCounts {
    packets: [u64; COUNTS],
    bytes: [u64; COUNTS],
    /// Added to the length of each packet.
    missing_header_bytes: u64,
}

/// Bytes of the header that packets of the site always have.
const ETHERNET_BYTES: u64 = 14;
/// Bytes of a header of IPv6, which its length leaves out.
const V6_BYTES: u32 = 40;

impl EgressCounts {
    /// Counts before anything was counted.
    pub const ZERO: Self = Self {
        packets: [0; COUNTS],
        bytes: [0; COUNTS],
        missing_header_bytes: 0,
    };

    /// Counts before anything was counted, of a device with or without Ethernet headers: bytes are
    /// counted with such a header on all, as they are where packets come from the site.
    pub const fn of_device(has_ethernet_header: bool) -> Self {
        Self {
            missing_header_bytes: if has_ethernet_header {
                0
            } else {
                ETHERNET_BYTES
            },
            ..Self::ZERO
        }
    }

    /// Counts `packets` that the device is handed as one of so many bytes.
    #[inline(always)]
    pub fn count(&mut self, marked: Marked, is_v6: bool, packets: u64, bytes: u64) {
        // As in `Counters::count_sent`: the verifier wants the check, the compiler would drop it.
        let index = core::hint::black_box(index(marked, is_v6));
        let bytes = bytes + self.missing_header_bytes;
        if let Some(count) = self.packets.get_mut(index) {
            *count += packets;
        }
        if let Some(count) = self.bytes.get_mut(index) {
            *count += bytes;
        }
    }

    /// Packets of a family with a mark; a segment each, where the device takes several at once.
    pub const fn packets(&self, marked: Marked, is_v6: bool) -> u64 {
        self.packets[index(marked, is_v6)]
    }

    /// Bytes of a family with a mark, Ethernet headers included.
    pub const fn bytes(&self, marked: Marked, is_v6: bool) -> u64 {
        self.bytes[index(marked, is_v6)]
    }

    /// Returns what was counted since `before`; `None` where that is of another device or program.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut counts = *self;
        for index in 0..COUNTS {
            counts.packets[index] = counts.packets[index].checked_sub(before.packets[index])?;
            counts.bytes[index] = counts.bytes[index].checked_sub(before.bytes[index])?;
        }
        Some(counts)
    }

    /// Adds what another CPU counted.
    pub fn add(&mut self, other: &Self) {
        for index in 0..COUNTS {
            self.packets[index] += other.packets[index];
            self.bytes[index] += other.bytes[index];
        }
    }
}

#[inline(always)]
const fn index(marked: Marked, is_v6: bool) -> usize {
    marked as usize * 2 + is_v6 as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TunnelUse;

    const fn ip(dscp: u8, protocol: u8) -> IpStart {
        IpStart {
            is_v6: false,
            dscp: Dscp::new(dscp).unwrap(),
            protocol,
            packet_bytes: 1_500,
        }
    }

    #[test]
    fn marks_are_those_of_the_settings_and_what_should_have_one_is_unmarked() {
        let dedicated = PolicyConfig::default();
        let marked = |mark, protocol| Marked::of(&dedicated, 0, &ip(mark, protocol));
        assert_eq!(marked(4, protocol::TCP), Marked::Short);
        // What is not split, too, has the short tunnel's mark where it came with a reserved one.
        assert_eq!(marked(4, protocol::UDP), Marked::Short);
        assert_eq!(marked(2, protocol::TCP), Marked::Long);
        assert_eq!(marked(5, protocol::TCP), Marked::Unmarked);
        assert_eq!(marked(0, protocol::TCP), Marked::Unmarked);
        assert_eq!(marked(0, protocol::UDP), Marked::Other);
        let shared = PolicyConfig {
            tunnel_use: TunnelUse::SHARED,
            protocols: Protocols::UDP,
            ..dedicated
        };
        let marked = |mark, protocol| Marked::of(&shared, 0, &ip(mark, protocol));
        assert_eq!(marked(5, protocol::TCP), Marked::ShortOnLong);
        assert_eq!(marked(3, protocol::TCP), Marked::LongOnShort);
        assert_eq!(marked(0, protocol::UDP), Marked::Unmarked);
    }

    #[test]
    fn fwmark_counts_where_it_carries_marks_and_the_dscp_does_not() {
        let config = PolicyConfig {
            mark_bits: MarkBits::new(0x3f00_0000).unwrap(),
            ..PolicyConfig::default()
        };
        let packet = ip(2, protocol::TCP);
        assert_eq!(Marked::of(&config, 0x0400_0007, &packet), Marked::Short);
        assert_eq!(Marked::of(&config, 0x0200_0000, &packet), Marked::Long);
        assert_eq!(Marked::of(&config, 0x0000_0002, &packet), Marked::Unmarked);
    }

    #[test]
    fn header_of_either_family_tells_dscp_protocol_and_length() {
        let v4 = [0x45, 0x0a, 0, 40, 0, 0, 0, 0, 64, protocol::TCP];
        let read = IpStart::read(&v4).unwrap();
        assert_eq!(
            (read.is_v6, read.dscp.value(), read.protocol),
            (false, 2, 6)
        );
        assert_eq!((read.packet_bytes, read.frame_bytes()), (40, 54));
        let v6 = [0x61, 0x0f, 0xff, 0xff, 5, 8, protocol::UDP, 64, 0, 0];
        let read = IpStart::read(&v6).unwrap();
        assert_eq!(
            (read.is_v6, read.dscp.value(), read.protocol),
            (true, 4, 17)
        );
        assert_eq!((read.packet_bytes, read.frame_bytes()), (1_328, 1_342));
        // An ARP request to Ethernet.
        assert_eq!(IpStart::read(&[0, 1, 8, 0, 6, 4, 0, 1, 2, 0]), None);
    }

    #[test]
    fn each_count_is_its_own_and_has_the_missing_header() {
        let mut counts = EgressCounts::of_device(false);
        for marked in Marked::ALL {
            counts.count(marked, false, 2, 2_000);
            counts.count(marked, true, 1, 86);
        }
        let mut sum = EgressCounts::ZERO;
        sum.add(&counts);
        sum.add(&counts);
        for marked in Marked::ALL {
            assert_eq!(sum.packets(marked, false), 4);
            assert_eq!(sum.bytes(marked, false), 4_028);
            assert_eq!(sum.bytes(marked, true), 200);
        }
        let since = sum.since(&counts).unwrap();
        assert_eq!(since.packets(Marked::Long, false), 2);
        assert_eq!(since.bytes(Marked::Long, true), 100);
        assert_eq!(counts.since(&sum), None);
    }
}
