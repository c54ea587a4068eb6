//! Forwarding of plain TCP segments, which most packets are, by records alone.
//!
//! It does what [`FibLookup::fill`](crate::forward::FibLookup::fill), a [`Question`] and the record that answers
//! it do, in half the instructions: headers are read where they lie, and what only the kernel would be asked is not kept.

use super::{NextHop, NextHopTrust, Question};
use crate::buffer::{Buffer, BufferMut};
use crate::dscp::Dscp;
use crate::egress_counts::IpStart;
use crate::flow::TunnelRole;
use crate::forward::{
    AF_INET, AF_INET6, Mac, WITHOUT_VERSION, decrement_hop_limit, decrement_ttl, is_martian_v4,
    is_martian_v6, joined, readdress,
};
use crate::packet::{
    ETHERNET_BYTES, PlainSegment, PlainV4, PlainV6, V4_TCP_AT, V6_TCP_AT, is_v4, protocol,
};
use crate::prefix_lengths::PrefixLengths;
use crate::routing_key::RoutingKey;

/// The records of next hops that a host keeps, and what it knows of them.
pub trait NextHops {
    /// False where the path of a segment is only looked for, and its frame left as it is.
    const FORWARDS: bool = true;

    /// Tells how much of a packet routing looks at.
    fn prefix_lengths(&self) -> &PrefixLengths;

    /// Tells how far records may be believed; read after the prefix lengths, so that what is of a new
    /// generation never meets records of the one before.
    fn trust(&self) -> NextHopTrust;

    /// Reads the time, `CLOCK_MONOTONIC` to a tick.
    fn now_ns(&self) -> u64;

    /// The record at an index below [`Question::RECORDS`].
    fn record(&self, index: u32) -> Option<&NextHop>;

    /// Has the frame put into the device at a slot; `None` where there is none any more.
    fn redirect(&self, slot: u32) -> Option<()>;

    /// Notes a segment for which there is a record.
    #[inline(always)]
    fn note<K: RoutingKey>(&self, _: &K, _: &IpStart) {}
}

/// Forwards a plain TCP segment that came in by `device`, for a tunnel, towards the next hop that a record has. Returns
/// the slot of its device, and what is counted there; only looks for it where the host [does not forward](NextHops::FORWARDS).
/// `None`, and the frame as it was, for all else: then a
/// [`FibLookup`](crate::forward::FibLookup) says what becomes of it.
#[inline(always)]
pub fn forward_plain<B: BufferMut + ?Sized, R: NextHops>(
    frame: &mut B,
    device: u32,
    tunnel: TunnelRole,
    records: &R,
) -> Option<(u32, IpStart)> {
    // Each family apart to the end: keys and places differ.
    if is_v4(frame)? {
        forward_family::<V4, B, R>(frame, device, tunnel, records)
    } else {
        forward_family::<V6, B, R>(frame, device, tunnel, records)
    }
}

#[inline(always)]
fn forward_family<F: Family, B: BufferMut + ?Sized, R: NextHops>(
    frame: &mut B,
    device: u32,
    tunnel: TunnelRole,
    records: &R,
) -> Option<(u32, IpStart)> {
    let segment = F::segment_of(frame)?;
    if !is_forwarded::<F>(&segment) {
        return None;
    }
    let to = Mac::destination(frame)?;
    let key = PlainKey::<F> { segment, device };
    let record = answer(&key, tunnel, to, records)?;
    let ip = key.ip_start();
    records.redirect(record.slot())?;
    records.note(&key, &ip);
    if R::FORWARDS {
        F::decrement_hops(frame)?;
        readdress(frame, record.link)?;
    }
    Some((record.slot(), ip))
}

/// The record that answers for a segment.
#[inline(always)]
fn answer<'r, F: Family, R: NextHops>(
    key: &PlainKey<'_, F>,
    tunnel: TunnelRole,
    to: Mac,
    records: &'r R,
) -> Option<&'r NextHop> {
    let [destination, _] = key.destination();
    let matched = records.prefix_lengths().of(F::IS_V6, destination);
    let (trust, now_ns) = (records.trust(), records.now_ns());
    if !trust.is_given(now_ns) {
        return None;
    }
    let question = Question::new(key, tunnel, to, matched);
    let record = records.record(question.index(key))?;
    let is_answer = record.answers((&question, key), &trust, now_ns);
    is_answer.then_some(record)
}

/// Tells if a segment goes past the stack, as [`FibLookup::fill`](crate::forward::FibLookup::fill) does; or not, for some that do.
#[inline(always)]
fn is_forwarded<F: Family>(segment: &F::Segment<'_>) -> bool {
    // One after the other, as the parser does.
    if segment.hops() <= 1 || segment.flags().opens() {
        return false;
    }
    if F::is_martian(segment) {
        return false;
    }
    let carried = segment.frame_bytes() - F::TCP_AT;
    !may_lack_checksum(
        F::address_sum(segment),
        carried as u16,
        segment.tcp_checksum(),
    )
}

/// Tells if a checksum may be the sum of the pseudo-header, which stands there when the device is to make it. In
/// one's complement both are the same number if they differ by a multiple of 0xffff; zero and 0xffff are
/// not told apart here.
#[inline(always)]
const fn may_lack_checksum(address_sum: u64, carried_bytes: u16, checksum: u16) -> bool {
    const MODULUS: u64 = 0xffff;
    let protocol = (protocol::TCP as u16).to_be() as u64;
    let pseudo_header = address_sum + protocol + carried_bytes.to_be() as u64;
    (pseudo_header + (MODULUS - checksum as u64)).is_multiple_of(MODULUS)
}

/// The fields of a plain segment that routing may look at.
struct PlainKey<'f, F: Family> {
    segment: F::Segment<'f>,
    device: u32,
}

impl<F: Family> PlainKey<'_, F> {
    #[inline(always)]
    fn ip_start(&self) -> IpStart {
        IpStart {
            is_v6: F::IS_V6,
            dscp: Dscp::of_traffic_class(F::traffic_class(&self.segment)),
            protocol: protocol::TCP,
            packet_bytes: self.packet_bytes() as u32,
        }
    }
}

impl<F: Family> RoutingKey for PlainKey<'_, F> {
    #[inline(always)]
    fn place(&self) -> u64 {
        joined(self.device, F::flow(&self.segment))
    }

    #[inline(always)]
    fn destination(&self) -> [u64; 2] {
        F::destination(&self.segment)
    }

    #[inline(always)]
    fn beyond(&self) -> [u64; 3] {
        let kind = u64::from(F::NUMBER) | u64::from(protocol::TCP) << 8;
        let [source, source_low] = F::source(&self.segment);
        let ports = u64::from(first_below(F::ports(&self.segment))) << 16;
        [kind | ports, source, source_low]
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        protocol::TCP
    }

    #[inline(always)]
    fn packet_bytes(&self) -> usize {
        self.segment.frame_bytes() - ETHERNET_BYTES
    }
}

/// An address family, by what forwarding reads of plain segments of it.
trait Family {
    type Segment<'f>: PlainSegment + Copy;

    const IS_V6: bool;
    /// Its number in a [`FibLookup`](crate::forward::FibLookup).
    const NUMBER: u8;
    /// Where the TCP header starts.
    const TCP_AT: usize;

    fn segment_of<B: Buffer + ?Sized>(frame: &B) -> Option<Self::Segment<'_>>;

    /// The traffic class, and of IPv6 the flow label, as a lookup has them.
    fn flow(segment: &Self::Segment<'_>) -> u32;

    fn traffic_class(segment: &Self::Segment<'_>) -> u8;

    fn source(segment: &Self::Segment<'_>) -> [u64; 2];

    fn destination(segment: &Self::Segment<'_>) -> [u64; 2];

    fn ports(segment: &Self::Segment<'_>) -> u32;

    /// The sum of all 32-bit words of both addresses.
    fn address_sum(segment: &Self::Segment<'_>) -> u64;

    fn is_martian(segment: &Self::Segment<'_>) -> bool;

    /// Takes a hop from what the packet has to go.
    fn decrement_hops<B: BufferMut + ?Sized>(frame: &mut B) -> Option<()>;
}

struct V4;

struct V6;

impl Family for V4 {
    type Segment<'f> = PlainV4<'f>;

    const IS_V6: bool = false;
    const NUMBER: u8 = AF_INET;
    const TCP_AT: usize = V4_TCP_AT;

    #[inline(always)]
    fn segment_of<B: Buffer + ?Sized>(frame: &B) -> Option<PlainV4<'_>> {
        PlainV4::of(frame)
    }

    #[inline(always)]
    fn flow(segment: &PlainV4<'_>) -> u32 {
        u32::from_ne_bytes([segment.traffic_class(), 0, 0, 0])
    }

    #[inline(always)]
    fn traffic_class(segment: &PlainV4<'_>) -> u8 {
        segment.traffic_class()
    }

    #[inline(always)]
    fn source(segment: &PlainV4<'_>) -> [u64; 2] {
        [segment.key().source().into(), 0]
    }

    #[inline(always)]
    fn destination(segment: &PlainV4<'_>) -> [u64; 2] {
        [segment.key().destination().into(), 0]
    }

    #[inline(always)]
    fn ports(segment: &PlainV4<'_>) -> u32 {
        segment.key().ports()
    }

    #[inline(always)]
    fn address_sum(segment: &PlainV4<'_>) -> u64 {
        let key = segment.key();
        u64::from(key.source()) + u64::from(key.destination())
    }

    #[inline(always)]
    fn is_martian(segment: &PlainV4<'_>) -> bool {
        is_martian_v4(segment.key().source())
    }

    #[inline(always)]
    fn decrement_hops<B: BufferMut + ?Sized>(frame: &mut B) -> Option<()> {
        decrement_ttl(frame)
    }
}

impl Family for V6 {
    type Segment<'f> = PlainV6<'f>;

    const IS_V6: bool = true;
    const NUMBER: u8 = AF_INET6;
    const TCP_AT: usize = V6_TCP_AT;

    #[inline(always)]
    fn segment_of<B: Buffer + ?Sized>(frame: &B) -> Option<PlainV6<'_>> {
        PlainV6::of(frame)
    }

    #[inline(always)]
    fn flow(segment: &PlainV6<'_>) -> u32 {
        segment.first_word() & WITHOUT_VERSION
    }

    #[inline(always)]
    fn traffic_class(segment: &PlainV6<'_>) -> u8 {
        let [first, second, ..] = segment.first_word().to_ne_bytes();
        first << 4 | second >> 4
    }

    #[inline(always)]
    fn source(segment: &PlainV6<'_>) -> [u64; 2] {
        [0, 1].map(|index| in_memory_order(segment.key().long(index)))
    }

    #[inline(always)]
    fn destination(segment: &PlainV6<'_>) -> [u64; 2] {
        [2, 3].map(|index| in_memory_order(segment.key().long(index)))
    }

    #[inline(always)]
    fn ports(segment: &PlainV6<'_>) -> u32 {
        segment.key().ports()
    }

    #[inline(always)]
    fn address_sum(segment: &PlainV6<'_>) -> u64 {
        let of = |index| {
            let [low, high] = segment.key().halves(index);
            u64::from(low) + u64::from(high)
        };
        of(0) + of(1) + of(2) + of(3)
    }

    #[inline(always)]
    fn is_martian(segment: &PlainV6<'_>) -> bool {
        let [first, second] = Self::source(segment);
        is_martian_v6([
            first as u32,
            (first >> 32) as u32,
            second as u32,
            (second >> 32) as u32,
        ])
    }

    #[inline(always)]
    fn decrement_hops<B: BufferMut + ?Sized>(frame: &mut B) -> Option<()> {
        decrement_hop_limit(frame)
    }
}

/// The source port below the other, as a lookup has them.
#[inline(always)]
const fn first_below(ports: u32) -> u32 {
    if cfg!(target_endian = "little") {
        ports
    } else {
        ports.rotate_left(16)
    }
}

/// The half that comes first in memory as the lower one, in which a lookup has it.
#[inline(always)]
const fn in_memory_order(long: u64) -> u64 {
    if cfg!(target_endian = "little") {
        long
    } else {
        long.rotate_left(32)
    }
}

#[cfg(test)]
mod tests;
