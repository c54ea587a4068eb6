//! Plain TCP segments: no VLAN tag, no IP options or extension headers, no
//! fragment, a frame as long as it says. All lies at fixed places, so that this says what
//! [`Network::parse`] and [`Transport::parse`](super::Transport::parse) do in a
//! fraction of the time.

use super::{
    Addresses, ETHERNET_BYTES, Fragment, IPV4_BYTES, IPV6_BYTES, Network, TCP_BYTES, TcpFlags,
    TransportHeader, ethertype, protocol,
};
use crate::buffer::Buffer;

const IP: usize = ETHERNET_BYTES;
pub(crate) const V4_TCP_AT: usize = IP + IPV4_BYTES;
pub(crate) const V6_TCP_AT: usize = IP + IPV6_BYTES;
const V4_BYTES: usize = V4_TCP_AT + TCP_BYTES;
const V6_BYTES: usize = V6_TCP_AT + TCP_BYTES;

/// A plain segment, of which nothing has been copied yet.
pub(crate) trait PlainSegment {
    /// Its addresses and ports.
    type Key;

    /// The name of its flow.
    fn key(&self) -> Self::Key;

    /// Its TCP flags.
    fn flags(&self) -> TcpFlags;

    /// Its TTL or hop limit.
    fn hops(&self) -> u8;

    /// Its TCP checksum, wire bytes read natively.
    fn tcp_checksum(&self) -> u16;

    /// Its length with the Ethernet header.
    fn frame_bytes(&self) -> usize;

    /// How much of that is payload.
    fn payload_bytes(&self) -> usize;
}

/// A plain segment over IPv4, where it lies in its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainV4<'f> {
    headers: &'f [u8; V4_BYTES],
    frame_bytes: usize,
    payload_at: usize,
}

/// A plain segment over IPv6, where it lies in its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainV6<'f> {
    headers: &'f [u8; V6_BYTES],
    frame_bytes: usize,
    payload_at: usize,
}

/// Addresses and ports of a TCP segment over IPv4 as they stand in its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireKeyV4<'f>(&'f [u8; V4_BYTES]);

/// Addresses and ports of a TCP segment over IPv6 as they stand in its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireKeyV6<'f>(&'f [u8; V6_BYTES]);

/// Whether an untagged frame says that it carries IPv4 without options. `None` when it is too
/// short for a segment of either family.
#[inline(always)]
pub(crate) fn is_v4<B: Buffer + ?Sized>(frame: &B) -> Option<bool> {
    // As much as is read next, so that it is checked once.
    Some(is_plain_v4(frame.head::<V4_BYTES>()?))
}

// What the frame carries and how its header begins are one word: one load, and one for both families.

#[inline(always)]
fn is_plain_v4<const N: usize>(headers: &[u8; N]) -> bool {
    const WITHOUT_OPTIONS: u8 = 0x45;
    const LOOKED_AT: u32 = u32::from_ne_bytes([0xff, 0xff, 0xff, 0]);
    let [first, second] = ethertype::IPV4.to_be_bytes();
    let wanted = u32::from_ne_bytes([first, second, WITHOUT_OPTIONS, 0]);
    word(headers, IP - 2) & LOOKED_AT == wanted
}

#[inline(always)]
fn is_v6<const N: usize>(headers: &[u8; N]) -> bool {
    const VERSION: u8 = 6 << 4;
    const LOOKED_AT: u32 = u32::from_ne_bytes([0xff, 0xff, 0xf0, 0]);
    let [first, second] = ethertype::IPV6.to_be_bytes();
    let wanted = u32::from_ne_bytes([first, second, VERSION, 0]);
    word(headers, IP - 2) & LOOKED_AT == wanted
}

/// The headers of a plain segment over IPv4; `None` for all else.
#[inline(always)]
pub fn parse_plain_v4<B: Buffer + ?Sized>(frame: &B) -> Option<(Network, TransportHeader)> {
    let plain = PlainV4::of(frame)?;
    let key = plain.key();
    let network = Network {
        offset: IP,
        transport_offset: V4_TCP_AT,
        traffic_class: plain.headers[IP + 1],
        protocol: protocol::TCP,
        fragment: Fragment::Whole,
        addresses: Addresses::V4 {
            source: key.source(),
            destination: key.destination(),
        },
        frame_bytes: plain.frame_bytes,
    };
    Some((network, transport_header(&plain, key.ports())))
}

/// The headers of a plain segment over IPv6; `None` for all else.
#[inline(always)]
pub fn parse_plain_v6<B: Buffer + ?Sized>(frame: &B) -> Option<(Network, TransportHeader)> {
    let plain = PlainV6::of(frame)?;
    let (headers, key) = (plain.headers, plain.key());
    let [a, b, c, d] = key.longs();
    let network = Network {
        offset: IP,
        transport_offset: V6_TCP_AT,
        traffic_class: headers[IP] << 4 | headers[IP + 1] >> 4,
        protocol: protocol::TCP,
        fragment: Fragment::Whole,
        addresses: Addresses::V6 {
            source: [a, b],
            destination: [c, d],
        },
        frame_bytes: plain.frame_bytes,
    };
    Some((network, transport_header(&plain, key.ports())))
}

#[inline(always)]
fn transport_header<P: PlainSegment>(plain: &P, ports: u32) -> TransportHeader {
    TransportHeader {
        protocol: protocol::TCP,
        ports,
        flags: plain.flags(),
        payload_bytes: plain.payload_bytes(),
    }
}

impl<'f> PlainV4<'f> {
    /// The plain segment that a frame is; `None` where it is none.
    #[inline(always)]
    pub(crate) fn of<B: Buffer + ?Sized>(frame: &'f B) -> Option<Self> {
        /// Offset and "more fragments", and the protocol; what lies between does not matter.
        const KIND: u32 = u32::from_ne_bytes([0x3f, 0xff, 0, 0xff]);
        const WHOLE_TCP: u32 = u32::from_ne_bytes([0, 0, 0, protocol::TCP]);
        let headers = frame.head::<V4_BYTES>()?;
        // One after the other: of a condition in a variable the compiler makes a number first.
        if !is_plain_v4(headers) {
            return None;
        }
        if word(headers, IP + 6) & KIND != WHOLE_TCP {
            return None;
        }
        let frame_bytes = IP + usize::from(u16::from_be(short(headers, IP + 2)));
        let payload_at = V4_TCP_AT + tcp_header_bytes(headers[V4_TCP_AT + 12]);
        if !is_whole(frame, V4_BYTES, payload_at, frame_bytes) {
            return None;
        }
        Some(Self {
            headers,
            frame_bytes,
            payload_at,
        })
    }
}

impl<'f> PlainV6<'f> {
    /// The plain segment that a frame is; `None` where it is none.
    #[inline(always)]
    pub(crate) fn of<B: Buffer + ?Sized>(frame: &'f B) -> Option<Self> {
        let headers = frame.head::<V6_BYTES>()?;
        if !is_v6(headers) {
            return None;
        }
        if headers[IP + 6] != protocol::TCP {
            return None;
        }
        let frame_bytes = V6_TCP_AT + usize::from(u16::from_be(short(headers, IP + 4)));
        let payload_at = V6_TCP_AT + tcp_header_bytes(headers[V6_TCP_AT + 12]);
        if !is_whole(frame, V6_BYTES, payload_at, frame_bytes) {
            return None;
        }
        Some(Self {
            headers,
            frame_bytes,
            payload_at,
        })
    }
}

/// Says of both families what differs in nothing but the place.
macro_rules! plain_segment {
    ($segment:ident, $key:ident, $tcp_at:expr, $hops_at:expr) => {
        impl<'f> PlainSegment for $segment<'f> {
            type Key = $key<'f>;

            #[inline(always)]
            fn key(&self) -> $key<'f> {
                $key(self.headers)
            }

            #[inline(always)]
            fn flags(&self) -> TcpFlags {
                TcpFlags(self.headers[$tcp_at + 13])
            }

            #[inline(always)]
            fn hops(&self) -> u8 {
                self.headers[$hops_at]
            }

            #[inline(always)]
            fn tcp_checksum(&self) -> u16 {
                short(self.headers, $tcp_at + 16)
            }

            #[inline(always)]
            fn frame_bytes(&self) -> usize {
                self.frame_bytes
            }

            #[inline(always)]
            fn payload_bytes(&self) -> usize {
                self.frame_bytes - self.payload_at
            }
        }

        impl $key<'_> {
            /// Source and destination port, wire bytes read natively.
            #[inline(always)]
            pub(crate) fn ports(self) -> u32 {
                word(self.0, $tcp_at)
            }
        }
    };
}

plain_segment!(PlainV4, WireKeyV4, V4_TCP_AT, IP + 8);
plain_segment!(PlainV6, WireKeyV6, V6_TCP_AT, IP + 7);

impl PlainV4<'_> {
    /// Its type of service.
    #[inline(always)]
    pub(crate) fn traffic_class(&self) -> u8 {
        self.headers[IP + 1]
    }
}

impl PlainV6<'_> {
    /// Version, traffic class and flow label, wire bytes read natively.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> u32 {
        word(self.headers, IP)
    }
}

impl WireKeyV4<'_> {
    /// Source address, wire bytes read natively.
    #[inline(always)]
    pub(crate) fn source(self) -> u32 {
        word(self.0, IP + 12)
    }

    /// Destination address, wire bytes read natively.
    #[inline(always)]
    pub(crate) fn destination(self) -> u32 {
        word(self.0, IP + 16)
    }

    /// Both at once, as the table keeps them: the source in the lower half.
    #[inline(always)]
    pub(crate) fn addresses(self) -> u64 {
        let in_memory = long(self.0, IP + 12);
        if cfg!(target_endian = "little") {
            in_memory
        } else {
            in_memory.rotate_left(32)
        }
    }
}

impl WireKeyV6<'_> {
    /// Source and destination address in two halves each, wire bytes read natively.
    #[inline(always)]
    pub(crate) fn longs(self) -> [u64; 4] {
        [self.long(0), self.long(1), self.long(2), self.long(3)]
    }

    /// One of [`longs`](Self::longs).
    #[inline(always)]
    pub(crate) fn long(self, index: usize) -> u64 {
        long(self.0, IP + 8 + 8 * index)
    }

    /// The lower and the upper half of one of [`longs`](Self::longs).
    #[inline(always)]
    pub(crate) fn halves(self, index: usize) -> [u32; 2] {
        let at = IP + 8 + 8 * index;
        let in_memory = [word(self.0, at), word(self.0, at + 4)];
        if cfg!(target_endian = "little") {
            in_memory
        } else {
            [in_memory[1], in_memory[0]]
        }
    }
}

/// Tells if a TCP header that starts 20 bytes before `end` and ends at `payload_at` has its least
/// length, and all lies in a frame of which all is at hand.
#[inline(always)]
fn is_whole<B: Buffer + ?Sized>(
    frame: &B,
    end: usize,
    payload_at: usize,
    frame_bytes: usize,
) -> bool {
    end <= payload_at && payload_at <= frame_bytes && frame_bytes <= frame.available()
}

#[inline(always)]
fn tcp_header_bytes(offset_byte: u8) -> usize {
    usize::from(offset_byte >> 4) * 4
}

// In one piece each: a compiler that sees bytes reads bytes.

#[inline(always)]
fn short<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    let mut two = [0; 2];
    two.copy_from_slice(&bytes[at..at + 2]);
    u16::from_ne_bytes(two)
}

#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(four)
}

#[inline(always)]
fn long<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(eight)
}
