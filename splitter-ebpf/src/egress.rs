//! Counts what leaves by the tunnels' devices with the network stack, and hands on what leaves by
//! those of the site.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, bpf_hdr_start_off::BPF_HDR_START_NET};
use aya_ebpf::btf_maps::{HashMap, PerCpuHashMap};
use aya_ebpf::helpers::generated::bpf_skb_load_bytes_relative;
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::TcContext;
use splitter_policy::egress_counts::{EgressCounts, IpStart, Marked};

use crate::pipeline::settings;
use crate::{balance, reverse};

/// Only what the agent has put there takes memory.
const SPARSE: usize = BPF_F_NO_PREALLOC as usize;

/// What left, by the number of the device; the agent adds the devices.
#[btf_map]
static EGRESS: PerCpuHashMap<u32, EgressCounts, 4_096, SPARSE> = PerCpuHashMap::new();

/// The numbers of the devices that packets come in by from the site, which alone are split.
#[btf_map]
static SITE_DEVICES: HashMap<u32, u32, 4_096, SPARSE> = HashMap::new();

/// Counts a packet that a device is handed, and changes nothing of it. `None` where it is not IP or the
/// agent does not know the device.
#[inline(always)]
pub fn count(context: &TcContext) -> Option<()> {
    // SAFETY: the context is the one that the kernel passed to the program.
    let skb = unsafe { &*context.skb.skb };
    let Some(counts) = EGRESS.get_ptr_mut(skb.ifindex) else {
        return if is_from_site(skb.ifindex) {
            reverse::count(context)
        } else {
            None
        };
    };
    // SAFETY: a per-CPU value, and nothing interrupts a device's egress on its CPU.
    let counts = unsafe { &mut *counts };
    let is_from_site = is_from_site(skb.ingress_ifindex);
    balance::enter(skb, is_from_site);
    let ip = ip_start(context)?;
    let marked = if is_from_site {
        Marked::of(&settings().config, skb.mark, &ip)
    } else {
        Marked::Other
    };
    // Zero where the packet is one segment.
    let packets = skb.gso_segs.max(1);
    counts.count(marked, ip.is_v6, packets.into(), skb.len.into());
    Some(())
}

/// By what the rules of the two classes, too, tell what is from the site.
#[inline(always)]
fn is_from_site(device: u32) -> bool {
    SITE_DEVICES.get_ptr(device).is_some()
}

/// Reads by the kernel's own note of where the IP header is, which holds with and without an
/// Ethernet header.
#[inline(always)]
fn ip_start(context: &TcContext) -> Option<IpStart> {
    let mut bytes = [0; IpStart::BYTES];
    // SAFETY: the helper writes as many bytes as it is told there are.
    let loaded = unsafe {
        bpf_skb_load_bytes_relative(
            context.as_ptr().cast(),
            0,
            bytes.as_mut_ptr().cast(),
            IpStart::BYTES as u32,
            BPF_HDR_START_NET,
        )
    };
    if loaded != 0 {
        return None;
    }
    IpStart::read(&bytes)
}
