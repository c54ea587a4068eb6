//! What becomes of a packet that has chosen its tunnel: its mark, and what is counted.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use flow_balance::PathId;
use splitter_policy::flow::Class;
use splitter_policy::paths::PathCounters;

use super::{Asked, NOT_SPLIT};
use crate::pipeline::settings;

#[btf_map]
static PATH_COUNTERS: PerCpuArray<PathCounters, 1> = PerCpuArray::new();

/// Marks the packet for its class, and for the tunnel that was chosen.
#[inline(always)]
pub(super) fn mark(skb: &mut __sk_buff, asked: &Asked<'_>, path: PathId) {
    let config = &settings().config;
    let mark = match numbered(asked.class) {
        Some(Class::Short) => config.mark_bits.applied_to(skb.mark, config.short_mark),
        Some(Class::Long) => config.mark_bits.applied_to(skb.mark, config.long_mark),
        None => skb.mark,
    };
    skb.mark = asked.paths.site().marked(mark, path);
}

/// Counts what was chosen; `order` says if the packet changes paths, and if it is held for the sake of order.
#[inline(always)]
pub(super) fn count(
    counters: &mut PathCounters,
    (class, bytes): (u64, u32),
    path: PathId,
    [is_change, is_held]: [bool; 2],
) {
    // Linux 6.12 has forgotten which numbers a path may have once it has followed these branches.
    let bounded = || PathId::from_low_bits(path.index() as u64);
    // Neither is of most packets.
    if is_change {
        counters.count_order(bounded(), 1, 0);
    }
    if is_held {
        counters.count_order(bounded(), 0, 1);
    }
    counters.count(bounded(), numbered(class), bytes);
}

#[inline(always)]
pub(super) fn counters() -> Option<&'static mut PathCounters> {
    // SAFETY: a per-CPU value, and nothing interrupts a device's ingress on its CPU.
    PATH_COUNTERS.get_ptr_mut(0).map(|it| unsafe { &mut *it })
}

#[inline(always)]
const fn numbered(number: u64) -> Option<Class> {
    match number {
        NOT_SPLIT => None,
        number => Some(Class::numbered(number)),
    }
}
