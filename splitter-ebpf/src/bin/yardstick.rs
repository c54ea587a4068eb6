//! What the splitter's cost is measured against: nothing, and the program that
//! one would write first. And the splitter itself, on frames that are renewed.
//!
//! `BPF_PROG_TEST_RUN` runs a program over and over on one buffer. There a
//! packet finds its mark written by the run before, and its flow known. The
//! `split_*` programs run the shipped program's very code and then put the
//! buffer back as traffic would bring it.
#![no_std]
#![no_main]

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use splitter_common::buffer::{Buffer, BufferMut};
use splitter_common::flow::{FlowKey, FlowKeyV4};
use splitter_common::packet::{Network, Transport};
use splitter_ebpf::frame::Frame;
use splitter_ebpf::{clock, pipeline};

#[repr(C)]
#[derive(Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
    last_seen_ns: u64,
}

#[btf_map]
static FLOWS: LruHashMap<FlowKeyV4, Count, { 1 << 20 }> = LruHashMap::new();

/// Does nothing: the floor under every measurement.
#[xdp(frags)]
pub fn bare_pass(_: XdpContext) -> u32 {
    XDP_PASS
}

/// Parses and counts the packets of each IPv4 5-tuple in an LRU hash; no time,
/// no classes, no marks.
#[xdp(frags)]
pub fn lru_hash(context: XdpContext) -> u32 {
    count(&context, || 0);
    XDP_PASS
}

/// The same with the time of the last packet, which an idle timeout needs.
#[xdp(frags)]
pub fn lru_hash_ktime(context: XdpContext) -> u32 {
    count(&context, clock::monotonic_ns);
    XDP_PASS
}

/// Splits a packet that arrives unmarked, as traffic does.
#[xdp(frags)]
pub fn split_unmarked(context: XdpContext) -> u32 {
    pipeline::split(&context);
    renew(&context, 0);
    XDP_PASS
}

/// Splits an unmarked packet of another IPv4 flow every time.
#[xdp(frags)]
pub fn split_new_flow(context: XdpContext) -> u32 {
    pipeline::split(&context);
    renew(&context, 1);
    XDP_PASS
}

/// What `split_unmarked` costs without the splitter: the error of its figure.
#[xdp(frags)]
pub fn renew_unmarked(context: XdpContext) -> u32 {
    renew(&context, 0);
    XDP_PASS
}

/// What `split_new_flow` costs without the splitter: the error of its figure.
#[xdp(frags)]
pub fn renew_new_flow(context: XdpContext) -> u32 {
    renew(&context, 1);
    XDP_PASS
}

/// Takes the mark off an untagged frame without IPv4 options, and raises the
/// source address of an IPv4 packet by `stride`. Checksums go wrong, which
/// nobody here looks at.
///
/// It comes after the splitter, so that the next run's wide loads do not wait
/// for these narrow stores.
#[inline(always)]
fn renew(context: &XdpContext, stride: u32) -> Option<()> {
    const IP: usize = 14;
    const IPV4_SOURCE: usize = IP + 12;
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
    }
    Some(())
}

#[inline(always)]
fn count(context: &XdpContext, now_ns: impl Fn() -> u64) -> Option<()> {
    let buffer = Frame::new(context);
    let network = Network::parse(&buffer).ok()?;
    let Ok(Transport::Tcp(tcp)) = Transport::parse(&buffer, &network) else {
        return None;
    };
    let FlowKey::V4(key) = FlowKey::tcp(network.addresses, &tcp) else {
        return None;
    };
    let bytes = network.frame_bytes as u64;
    let Some(entry) = FLOWS.get_ptr_mut(&key) else {
        let first = Count {
            packets: 1,
            bytes,
            last_seen_ns: now_ns(),
        };
        return FLOWS.insert(&key, &first, 0).ok();
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
