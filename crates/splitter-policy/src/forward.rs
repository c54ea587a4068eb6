//! Forwarding without the network stack: the kernel's FIB lookup, and what a router does to a
//! packet (RFC 1812 §5.3.1).
//!
//! Whatever is not plain goes by the stack, which can do all of it: each packet by
//! itself, under a named reason. So does the SYN of a TCP connection: rules that
//! clamp its segment size are followed, and the next hop's address is kept fresh.

mod fallback;
mod rewrite;

use crate::buffer::{Buffer, BufferMut};
use crate::dscp::Dscp;
use crate::egress_counts::IpStart;
use crate::flow::TunnelRole;
use crate::packet::{ethertype, protocol};
use crate::prefix_lengths::{MatchedBits, PrefixLengths};
use crate::routing_key::RoutingKey;
pub use fallback::Fallback;
pub(crate) use rewrite::{decrement_hop_limit, decrement_hops, decrement_ttl, readdress};

/// Devices that packets can be put into, at most; each has a slot.
pub const TARGET_SLOTS: u32 = 64;

/// Under which number a device stands among those that packets for a tunnel may be
/// put into.
///
/// By class, since the kernel does not pass over routes in IPv6 for programs where a
/// rule of ours says so (`suppress_prefixlength`): what it finds then may be the path
/// of everybody else, which happens to lead through the other class' device.
#[inline(always)]
pub const fn target(device: u32, tunnel: TunnelRole) -> u32 {
    device << 1 | tunnel as u32
}

/// A link address in the lower six bytes, the first one lowest; the others are zero.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mac(u64);

impl Mac {
    /// Builds an address from its six bytes.
    pub const fn new([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// The six bytes of the address.
    pub const fn bytes(self) -> [u8; 6] {
        let [a, b, c, d, e, f, _, _] = self.0.to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// The number that it is made of.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The destination address of a frame.
    #[inline(always)]
    pub fn destination<B: Buffer + ?Sized>(frame: &B) -> Option<Self> {
        const SIX_BYTES: u64 = (1 << 48) - 1;
        let word = u64::from_le_bytes(frame.read(0)?);
        Some(Self(word & SIX_BYTES))
    }
}

/// The question and the answer of a FIB lookup: `struct bpf_fib_lookup` of linux/bpf.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibLookup {
    family: u8,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
    packet_bytes: u16,
    /// Where it came in; then, where it goes out.
    pub device: u32,
    /// ToS of IPv4 in its first byte, the first word of IPv6 without its version.
    flow: u32,
    source: [u32; 4],
    destination: [u32; 4],
    vlan: [u16; 2],
    own_address: [u16; 3],
    next_hop: [u16; 3],
}

const _: () = assert!(size_of::<FibLookup>() == 64);

pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
/// The bits of an IPv6 header's first word that a lookup has, as they lie in memory.
pub(crate) const WITHOUT_VERSION: u32 = u32::from_be(0x0fff_ffff);
const IP: usize = 14;
const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
/// In the header of TCP.
const FLAGS: usize = 13;
const SYN: u8 = 2;

impl FibLookup {
    /// Fills in the question for a frame that came in by `device`, and is for its address.
    ///
    /// # Errors
    /// With the reason to leave the frame to the stack.
    #[inline(always)]
    pub fn fill<B: Buffer + ?Sized>(&mut self, frame: &B, device: u32) -> Result<(), Fallback> {
        self.device = device;
        match u16::from_be_bytes(frame.read(IP - 2).ok_or(Fallback::Scattered)?) {
            ethertype::IPV4 => self.fill_v4(frame),
            ethertype::IPV6 => self.fill_v6(frame),
            _ => Err(Fallback::Options),
        }
    }

    #[inline(always)]
    fn fill_v4<B: Buffer + ?Sized>(&mut self, frame: &B) -> Result<(), Fallback> {
        const WITHOUT_OPTIONS: u8 = 0x45;
        let header = frame.read::<12>(IP).ok_or(Fallback::Scattered)?;
        if header[0] != WITHOUT_OPTIONS {
            return Err(Fallback::Options);
        }
        if u16::from_be_bytes([header[6] & 0x3f, header[7]]) != 0 {
            return Err(Fallback::Fragment);
        }
        if header[8] <= 1 {
            return Err(Fallback::Ttl);
        }
        self.family = AF_INET;
        self.flow = u32::from_ne_bytes([header[1], 0, 0, 0]);
        self.source[0] = word(frame, IP + 12)?;
        if is_martian_v4(self.source[0]) {
            return Err(Fallback::NoRoute);
        }
        self.destination[0] = word(frame, IP + 16)?;
        self.fill_length(frame, 0, u16::from_be_bytes([header[2], header[3]]))?;
        self.fill_transport(frame, header[9], IP + V4_BYTES)
    }

    #[inline(always)]
    fn fill_v6<B: Buffer + ?Sized>(&mut self, frame: &B) -> Result<(), Fallback> {
        let header = frame.read::<8>(IP).ok_or(Fallback::Scattered)?;
        if header[7] <= 1 {
            return Err(Fallback::Ttl);
        }
        self.family = AF_INET6;
        self.flow = word(frame, IP)? & WITHOUT_VERSION;
        // In one piece: of a loop over words the compiler makes comparisons that the
        // kernel's verifier does not take.
        let addresses = frame.read::<32>(IP + 8).ok_or(Fallback::Scattered)?;
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&addresses[at..at + 4]);
            u32::from_ne_bytes(bytes)
        };
        self.source = [word(0), word(4), word(8), word(12)];
        self.destination = [word(16), word(20), word(24), word(28)];
        if is_martian_v6(self.source) {
            return Err(Fallback::NoRoute);
        }
        let bytes = u16::from_be_bytes([header[4], header[5]]);
        self.fill_length(frame, V6_BYTES, bytes)?;
        self.fill_transport(frame, header[6], IP + V6_BYTES)
    }

    #[inline(always)]
    fn fill_transport<B: Buffer + ?Sized>(
        &mut self,
        frame: &B,
        protocol: u8,
        offset: usize,
    ) -> Result<(), Fallback> {
        self.protocol = protocol;
        match protocol {
            protocol::TCP => {
                let [flags] = frame.read(offset + FLAGS).ok_or(Fallback::Scattered)?;
                if flags & SYN != 0 {
                    return Err(Fallback::Opening);
                }
            }
            protocol::UDP => {}
            // What tells its flows apart, routes do not look at.
            protocol::GRE => return Ok(()),
            // Multipath routes hash its SPI as they do ports.
            protocol::ESP => return self.fill_ports(frame, offset),
            protocol::FRAGMENT => return Err(Fallback::Fragment),
            _ => return Err(Fallback::Options),
        }
        let checksum_at = offset + if protocol == protocol::TCP { 16 } else { 6 };
        let checksum = frame.read(checksum_at).ok_or(Fallback::Scattered)?;
        let carried = self.packet_bytes.wrapping_sub((offset - IP) as u16);
        if u16::from_ne_bytes(checksum) == self.pseudo_header_sum(carried) {
            return Err(Fallback::Checksum);
        }
        self.fill_ports(frame, offset)
    }

    #[inline(always)]
    fn fill_ports<B: Buffer + ?Sized>(&mut self, frame: &B, offset: usize) -> Result<(), Fallback> {
        let ports = frame.read::<4>(offset).ok_or(Fallback::Scattered)?;
        self.source_port = u16::from_ne_bytes([ports[0], ports[1]]);
        self.destination_port = u16::from_ne_bytes([ports[2], ports[3]]);
        Ok(())
    }

    /// The sum of the pseudo-header, which stands in the place of a checksum that is yet to be
    /// made. One in 65,536 others is the same, and goes by the stack for nothing.
    #[inline(always)]
    fn pseudo_header_sum(&self, carried_bytes: u16) -> u16 {
        let [a, b, c, d] = self.source;
        let [e, f, g, h] = self.destination;
        let addresses = a as u64 + b as u64 + c as u64 + d as u64;
        let addresses = addresses + e as u64 + f as u64 + g as u64 + h as u64;
        let sum =
            addresses + u16::from(self.protocol).to_be() as u64 + carried_bytes.to_be() as u64;
        let sum = (sum & 0xffff_ffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// Aggregates beyond 64 KiB say 0, and what goes on elsewhere is not in one piece.
    #[inline(always)]
    fn fill_length<B: Buffer + ?Sized>(
        &mut self,
        frame: &B,
        header_bytes: usize,
        stated_bytes: u16,
    ) -> Result<(), Fallback> {
        let bytes = header_bytes + usize::from(stated_bytes);
        let is_whole = IP + bytes <= frame.available();
        if stated_bytes == 0 || bytes > usize::from(u16::MAX) || !is_whole {
            return Err(Fallback::Scattered);
        }
        self.packet_bytes = bytes as u16;
        Ok(())
    }

    /// Tells if the link address of the next hop was found; it may still be asked for.
    #[inline(always)]
    pub const fn has_next_hop(&self) -> bool {
        self.next_hop[0] | self.next_hop[1] | self.next_hop[2] != 0
    }

    /// The same with an answer: our link address and the next hop's.
    #[cfg(test)]
    pub(crate) fn with_link(self, own: [u8; 6], next_hop: [u8; 6]) -> Self {
        let parts = |of: [u8; 6]| [0, 2, 4].map(|at| u16::from_ne_bytes([of[at], of[at + 1]]));
        Self {
            own_address: parts(own),
            next_hop: parts(next_hop),
            ..self
        }
    }

    /// The destination in words.
    #[inline(always)]
    const fn destination(&self) -> [u64; 2] {
        let [a, b, c, d] = self.destination;
        [joined(a, b), joined(c, d)]
    }

    /// Family, protocol and ports, and the source, in words.
    #[inline(always)]
    pub(crate) const fn beyond(&self) -> [u64; 3] {
        let [a, b, c, d] = self.source;
        let kind = self.family as u64 | (self.protocol as u64) << 8;
        let ports = (self.source_port as u64) << 16 | (self.destination_port as u64) << 32;
        [kind | ports, joined(a, b), joined(c, d)]
    }

    /// Tells how much of the packet routing looks at.
    #[inline(always)]
    pub const fn matched_bits(&self, lengths: &PrefixLengths) -> MatchedBits {
        let [destination, _] = self.destination();
        lengths.of(self.family == AF_INET6, destination)
    }

    /// The start of the header of the packet that is asked for.
    #[inline(always)]
    pub const fn ip_start(&self) -> IpStart {
        let is_v6 = self.family == AF_INET6;
        let [first, second, ..] = self.flow.to_ne_bytes();
        let class = if is_v6 {
            first << 4 | second >> 4
        } else {
            first
        };
        IpStart {
            is_v6,
            dscp: Dscp::of_traffic_class(class),
            protocol: self.protocol,
            packet_bytes: self.packet_bytes as u32,
        }
    }

    /// The MTU of the path that was found; before Linux 5.12, what the packet has, which fits.
    #[inline(always)]
    pub(crate) const fn mtu(&self) -> u16 {
        self.packet_bytes
    }

    /// The link address of the next hop that was found.
    #[inline(always)]
    pub const fn next_hop(&self) -> Mac {
        let [a, b, c] = self.next_hop;
        Mac(a as u64 | (b as u64) << 16 | (c as u64) << 32)
    }

    /// The link addresses of the frame that leaves: the next hop's, then ours.
    #[inline(always)]
    pub(crate) const fn link_addresses(&self) -> [u8; 12] {
        let ([a, b, c], [d, e, f]) = (self.next_hop, self.own_address);
        let [a, b, c] = [a.to_ne_bytes(), b.to_ne_bytes(), c.to_ne_bytes()];
        let [d, e, f] = [d.to_ne_bytes(), e.to_ne_bytes(), f.to_ne_bytes()];
        [
            a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1], e[0], e[1], f[0], f[1],
        ]
    }

    /// Makes of the frame what leaves towards the next hop that was found: one hop
    /// less to go, and other link addresses. `None` when it cannot be written.
    #[inline(always)]
    pub fn forward<B: BufferMut + ?Sized>(&self, frame: &mut B) -> Option<()> {
        decrement_hops(frame)?;
        readdress(frame, self.link_addresses())
    }
}

impl RoutingKey for FibLookup {
    #[inline(always)]
    fn place(&self) -> u64 {
        joined(self.device, self.flow)
    }

    #[inline(always)]
    fn destination(&self) -> [u64; 2] {
        Self::destination(self)
    }

    #[inline(always)]
    fn beyond(&self) -> [u64; 3] {
        Self::beyond(self)
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        self.protocol
    }

    #[inline(always)]
    fn packet_bytes(&self) -> usize {
        self.packet_bytes.into()
    }
}

/// Puts the first word into the lower half of one of twice its length.
#[inline(always)]
pub(crate) const fn joined(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Whether no router forwards what says to come from there, which the lookup does not
/// look at: this network, loopback, multicast and above (RFC 1812 §5.3.7).
#[inline(always)]
pub(crate) const fn is_martian_v4(source: u32) -> bool {
    let first = u32::from_be(source) >> 24;
    first == 0 || first == 127 || first >= 224
}

/// The same: unspecified, loopback, link-local and multicast (RFC 4291 §2.5 and §2.7).
#[inline(always)]
pub(crate) const fn is_martian_v6([a, b, c, d]: [u32; 4]) -> bool {
    let first = u32::from_be(a);
    let is_link_local = first & 0xffc0_0000 == 0xfe80_0000;
    let is_lowest = a | b | c == 0 && u32::from_be(d) <= 1;
    is_link_local || is_lowest || first >> 24 == 0xff
}

#[inline(always)]
fn word<B: Buffer + ?Sized>(frame: &B, offset: usize) -> Result<u32, Fallback> {
    let bytes = frame.read(offset).ok_or(Fallback::Scattered)?;
    Ok(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests;
