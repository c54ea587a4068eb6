//! The room that keeps flows. Everything else knows it as a [`FlowTable`].

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use splitter_common::flow::{FlowEntry, FlowKey, FlowKeyV4, FlowKeyV6};
use splitter_common::split::FlowTable;

/// What the agent changes to the configured size before it loads the maps.
const DEFAULT_FLOWS: usize = 1 << 20;

/// IPv4 flows. Least recently used entries give way, so that the table works
/// on when nobody sweeps it.
#[btf_map]
static FLOWS_V4: LruHashMap<FlowKeyV4, FlowEntry, DEFAULT_FLOWS> = LruHashMap::new();

/// IPv6 flows, apart because their keys cost more to hash and compare.
#[btf_map]
static FLOWS_V6: LruHashMap<FlowKeyV6, FlowEntry, DEFAULT_FLOWS> = LruHashMap::new();

/// The two maps as one table.
pub struct KernelTable;

impl FlowTable for KernelTable {
    #[inline(always)]
    fn find_or_insert(&mut self, key: &FlowKey) -> Option<&mut FlowEntry> {
        let entry = match key {
            FlowKey::V4(key) => find_or_insert(&FLOWS_V4, key),
            FlowKey::V6(key) => find_or_insert(&FLOWS_V6, key),
        }?;
        // SAFETY: the kernel keeps the memory of a looked-up value mapped while
        // the program runs. Another CPU may change it at the same time; every
        // field is a plain integer, so that a count may be lost, nothing worse.
        Some(unsafe { &mut *entry })
    }
}

#[inline(always)]
fn find_or_insert<K>(
    map: &LruHashMap<K, FlowEntry, DEFAULT_FLOWS>,
    key: &K,
) -> Option<*mut FlowEntry> {
    if let Some(entry) = map.get_ptr_mut(key) {
        return Some(entry);
    }
    const NEW: FlowEntry = FlowEntry {
        packets: 0,
        bytes: 0,
        first_seen_ns: 0,
        last_seen_ns: 0,
        drained_ns: 0,
        long_since_ns: 0,
        flags: 0,
    };
    // Fails when another CPU was faster, which is as good, or for want of room,
    // which the look-up then tells.
    let _ = map.insert(key, &NEW, u64::from(BPF_NOEXIST));
    map.get_ptr_mut(key)
}
