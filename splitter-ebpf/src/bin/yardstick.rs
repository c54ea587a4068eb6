//! Programs that the splitter's cost is measured against: nothing, and the program that one would
//! write first. And the splitter itself, on frames that are renewed.
//!
//! `BPF_PROG_TEST_RUN` runs a program over and over on one buffer. There a
//! packet finds its mark written by the run before, and its flow known. The
//! `split_*` programs run the shipped program's very code and then put the
//! buffer back as traffic would bring it.
#![no_std]
#![no_main]

#[path = "yardstick/live.rs"]
mod live;

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use splitter_ebpf::frame::Frame;
use splitter_ebpf::{clock, pipeline};
use splitter_policy::buffer::{Buffer, BufferMut};
use splitter_policy::flow::{FlowKey, FlowKeyV4, FlowKeyV6};
use splitter_policy::packet::{Network, Transport};

#[repr(C)]
#[derive(Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
    last_seen_ns: u64,
}

#[btf_map]
static LRU_V4: LruHashMap<FlowKeyV4, Count, { 1 << 20 }> = LruHashMap::new();

#[btf_map]
static LRU_V6: LruHashMap<FlowKeyV6, Count, { 1 << 20 }> = LruHashMap::new();

/// Does nothing: the floor under every measurement.
#[xdp(frags)]
pub fn bare_pass(_: XdpContext) -> u32 {
    XDP_PASS
}

/// Defines the programs that count in an LRU hash, those that split, and those
/// that do neither, in front of the same changes to the buffer.
///
/// Each is one function, as those that ship are: a compiler that may choose calls the larger ones, which
/// takes 6 to 8 ns where returns are guarded.
macro_rules! programs {
    ($($(#[$about:meta])* $name:ident: $body:expr, $renewal:expr;)*) => {$(
        $(#[$about])*
        #[xdp(frags)]
        #[inline(always)]
        pub fn $name(context: XdpContext) -> u32 {
            let body: fn(&XdpContext) -> Option<()> = $body;
            let renewal: fn(&XdpContext) -> Option<()> = $renewal;
            body(&context);
            renewal(&context);
            XDP_PASS
        }
    )*};
}

programs! {
    /// Parses and counts the packets of each 5-tuple in an LRU hash; no time, no
    /// classes, no marks.
    lru_hash: count_without_time, commit;
    /// The same with the time of the last packet, which an idle timeout needs.
    lru_hash_ktime: |context| count(context, clock::monotonic_ns), commit;
    /// Another flow every time.
    lru_hash_new_flow: count_without_time, |context| renew(context, 1);
    /// One of 2^20 flows, by chance.
    lru_hash_random: count_without_time, renew_by_chance;
    /// 63 new flows to each packet of 10,000 long ones.
    lru_hash_flood: count_without_time, |context| renew_for_flood(context, LONG_EVERY);
    /// The 10,000 long ones alone, in turn.
    lru_hash_long_flows: count_without_time, |context| renew_for_flood(context, 1);

    /// Splits a packet that arrives unmarked, as traffic does.
    split_unmarked: split, |context| renew(context, 0);
    /// The same of another flow every time.
    split_new_flow: split, |context| renew(context, 1);
    /// The same of one of 2^20 flows, by chance.
    split_random: split, renew_by_chance;
    /// The same, 63 new flows to each packet of 10,000 long ones.
    split_flood: split, |context| renew_for_flood(context, LONG_EVERY);
    /// The same of the 10,000 long ones alone, in turn.
    split_long_flows: split, |context| renew_for_flood(context, 1);

    /// The next flow of a list, of either family.
    lru_hash_listed: count_without_time, take_listed;
    /// Splits the next flow of a list, of either family.
    split_listed: split, take_listed;

    /// The error of `split_listed`.
    renew_listed: nothing, take_listed;
    /// What `split_unmarked` costs without the splitter: the error of its figure.
    renew_unmarked: nothing, |context| renew(context, 0);
    /// The error of `split_new_flow`.
    renew_new_flow: nothing, |context| renew(context, 1);
    /// The error of `split_random`.
    renew_random: nothing, renew_by_chance;
    /// The error of `split_flood`.
    renew_flood: nothing, |context| renew_for_flood(context, LONG_EVERY);
}

#[inline(always)]
fn split(context: &XdpContext) -> Option<()> {
    pipeline::split(context).map(|_| ())
}

#[inline(always)]
fn count_without_time(context: &XdpContext) -> Option<()> {
    count(context, || 0)
}

#[inline(always)]
fn nothing(_: &XdpContext) -> Option<()> {
    None
}

#[inline(always)]
fn commit(_: &XdpContext) -> Option<()> {
    None
}

/// One packet of so many in the flood is of a long flow.
const LONG_EVERY: u32 = 64;

const IP: usize = 14;
const IPV4_SOURCE: usize = IP + 12;
/// The last four bytes of the source address.
const IPV6_SOURCE_END: usize = IP + 8 + 12;
/// Sequence numbers of segments without IPv4 options and IPv6 extensions; the splitter does not look at them.
const SEQUENCE: usize = IP + 20 + 4;
const IPV6_SEQUENCE: usize = IP + 40 + 4;

/// Takes the mark off an untagged frame without IPv4 options, and raises the
/// source address by `stride`. Checksums go wrong, which
/// nobody here looks at.
///
/// It comes after the splitter, so that the next run's wide loads do not wait
/// for these narrow stores.
#[inline(always)]
fn renew(context: &XdpContext, stride: u32) -> Option<()> {
    let mut buffer = Frame::new(context);
    let [first] = buffer.read::<1>(IP)?;
    if first == 0x45 {
        buffer.write(IP + 1, [0])?;
        if stride != 0 {
            let source = u32::from_ne_bytes(buffer.read::<4>(IPV4_SOURCE)?);
            buffer.write(IPV4_SOURCE, source.wrapping_add(stride).to_ne_bytes())?;
        }
    } else {
        buffer.write(IP, [0x60, 0])?;
        if stride != 0 {
            let source = u32::from_ne_bytes(buffer.read::<4>(IPV6_SOURCE_END)?);
            buffer.write(IPV6_SOURCE_END, source.wrapping_add(stride).to_ne_bytes())?;
        }
    }
    Some(())
}

/// Takes the mark off and draws one of 2^20 source addresses; the sequence
/// number keeps the generator's state.
#[inline(always)]
fn renew_by_chance(context: &XdpContext) -> Option<()> {
    let mut buffer = Frame::new(context);
    let [first] = buffer.read::<1>(IP)?;
    if first == 0x45 {
        let next = next_by_chance(&mut buffer, SEQUENCE)?;
        buffer.write(IP + 1, [0])?;
        buffer.write(IPV4_SOURCE, long_source(next >> 12).to_ne_bytes())
    } else {
        let next = next_by_chance(&mut buffer, IPV6_SEQUENCE)?;
        buffer.write(IP, [0x60, 0])?;
        buffer.write(IPV6_SOURCE_END, long_source(next >> 12).to_ne_bytes())
    }
}

/// Draws the next number of those that a sequence number holds the state of.
#[inline(always)]
fn next_by_chance(buffer: &mut Frame<XdpContext>, sequence: usize) -> Option<u32> {
    let state = u32::from_ne_bytes(buffer.read::<4>(sequence)?);
    // Numerical Recipes' generator; its upper bits are the better ones.
    let next = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    buffer.write(sequence, next.to_ne_bytes())?;
    Some(next)
}

/// Takes the mark off and writes the flow that is next in the list into the source address.
#[inline(always)]
fn take_listed(context: &XdpContext) -> Option<()> {
    let (flow, _) = live::next_listed()?;
    set_flow(context, flow)
}

/// Takes the mark off, and writes the flow's number into the source address.
#[inline(always)]
fn set_flow(context: &XdpContext, flow: u32) -> Option<()> {
    let mut buffer = Frame::new(context);
    let [first] = buffer.read::<1>(IP)?;
    if first == 0x45 {
        buffer.write(IP + 1, [0])?;
        buffer.write(IPV4_SOURCE, (10 << 24 | flow).to_be_bytes())
    } else {
        buffer.write(IP, [0x60, 0])?;
        buffer.write(IPV6_SOURCE_END, flow.to_be_bytes())
    }
}

/// Takes the mark off and draws the next 5-tuple of a flood; the sequence number
/// counts, and every so many packets is a long flow's.
#[inline(always)]
fn renew_for_flood(context: &XdpContext, long_every: u32) -> Option<()> {
    const LONG_FLOWS: u32 = 10_000;
    let mut buffer = Frame::new(context);
    let [first] = buffer.read::<1>(IP)?;
    let is_v4 = first == 0x45;
    let sequence = if is_v4 { SEQUENCE } else { IPV6_SEQUENCE };
    let number = u32::from_ne_bytes(buffer.read::<4>(sequence)?).wrapping_add(1);
    buffer.write(sequence, number.to_ne_bytes())?;
    let (source, destination, ports) = if number % long_every == 0 {
        let flow = number / long_every % LONG_FLOWS;
        (long_source(flow), LONG_DESTINATION, LONG_PORTS)
    } else {
        let chance = mixed(u64::from(number));
        let more = mixed(chance);
        ((chance >> 32) as u32, more as u32, chance as u32)
    };
    if is_v4 {
        buffer.write(IP + 1, [0])?;
        buffer.write(IPV4_SOURCE, source.to_ne_bytes())?;
        buffer.write(IPV4_SOURCE + 4, destination.to_ne_bytes())?;
        buffer.write(IPV4_SOURCE + 8, ports.to_ne_bytes())
    } else {
        buffer.write(IP, [0x60, 0])?;
        buffer.write(IPV6_SOURCE_END, source.to_ne_bytes())?;
        buffer.write(IPV6_SOURCE_END + 16, destination.to_ne_bytes())?;
        buffer.write(IPV6_SOURCE_END + 20, ports.to_ne_bytes())
    }
}

/// 10.x.y.z, as it lies in memory.
#[inline(always)]
const fn long_source(flow: u32) -> u32 {
    (10 << 24 | flow).to_be()
}

/// 10.255.0.1 and ports 40000 and 443, as they lie in memory.
const LONG_DESTINATION: u32 = 0x0aff_0001_u32.to_be();
const LONG_PORTS: u32 = (40_000 << 16 | 443_u32).to_be();

/// The finaliser of SplitMix64.
#[inline(always)]
const fn mixed(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

#[inline(always)]
fn count(context: &XdpContext, now_ns: impl Fn() -> u64) -> Option<()> {
    let buffer = Frame::new(context);
    let network = Network::parse(&buffer).ok()?;
    let Ok(Transport::Tcp(tcp)) = Transport::parse(&buffer, &network) else {
        return None;
    };
    let bytes = network.frame_bytes as u64;
    match FlowKey::new(network.addresses, &tcp) {
        FlowKey::V4(key) => count_in(&LRU_V4, &key, bytes, now_ns),
        FlowKey::V6(key) => count_in(&LRU_V6, &key, bytes, now_ns),
    }
}

#[inline(always)]
fn count_in<K>(
    map: &LruHashMap<K, Count, { 1 << 20 }>,
    key: &K,
    bytes: u64,
    now_ns: impl Fn() -> u64,
) -> Option<()> {
    let Some(entry) = map.get_ptr_mut(key) else {
        let first = Count {
            packets: 1,
            bytes,
            last_seen_ns: now_ns(),
        };
        return map.insert(key, &first, 0).ok();
    };
    // SAFETY: the value stays mapped while the program runs; plain integers.
    let entry = unsafe { &mut *entry };
    entry.packets += 1;
    entry.bytes += bytes;
    entry.last_seen_ns = now_ns();
    Some(())
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
