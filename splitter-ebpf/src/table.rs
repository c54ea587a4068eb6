//! The memory of the flow table, in maps; [`splitter_policy::table`] works on it.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::{Array, LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use splitter_policy::flow::FlowKey;
use splitter_policy::fragments::{self, FragmentStore};
use splitter_policy::sites::SiteThresholds;
use splitter_policy::table::{GroupV4, GroupV6, Layout, Memory, Tags, Word};
use splitter_policy::thresholds::ThresholdIndex;

use crate::pipeline;

/// What the agent changes to the configured size before it loads the maps.
const DEFAULT_GROUPS: usize = Layout::groups_for(1 << 20) as usize;

/// Lets the agent map the memory. And has the kernel align it to pages, so that
/// no line of ours lies across two of the processor's.
const MAPPABLE: usize = BPF_F_MMAPABLE as usize;

/// IPv4 flows.
#[btf_map]
static FLOWS_V4: Array<GroupV4, DEFAULT_GROUPS, MAPPABLE> = Array::new();

/// IPv6 flows, apart because their slots are larger.
#[btf_map]
static FLOWS_V6: Array<GroupV6, DEFAULT_GROUPS, MAPPABLE> = Array::new();

/// The tags of both.
#[btf_map]
static TAGS: Array<Tags, { 2 * DEFAULT_GROUPS }> = Array::new();

/// First fragments of packets, by the packet's name.
#[btf_map]
static FRAGMENTED: LruHashMap<u64, u64, { fragments::CAPACITY }> = LruHashMap::new();

const SCRATCH_WORDS: usize = 4;

#[btf_map]
static VALUE_SCRATCH: PerCpuArray<[u64; SCRATCH_WORDS], 1> = PerCpuArray::new();

/// The flow table's memory in the kernel: both maps, tags and fragments.
pub struct KernelMemory;

impl FragmentStore for KernelMemory {
    #[inline(always)]
    fn insert(&self, packet: u64, origin: u64) {
        // Refused only where there is no memory; later fragments pass untreated.
        let _ = FRAGMENTED.insert(&packet, &origin, 0);
    }

    #[inline(always)]
    fn lookup(&self, packet: u64) -> Option<u64> {
        // SAFETY: a plain integer, which may be replaced while it is read.
        unsafe { FRAGMENTED.get(&packet).copied() }
    }
}

impl SiteThresholds for KernelMemory {
    /// The key is the one that the pipeline has for both.
    #[inline(always)]
    fn threshold_of(&self, _: &FlowKey) -> ThresholdIndex {
        pipeline::find_threshold();
        pipeline::found_threshold()
    }
}

impl Memory for KernelMemory {
    /// What logs is for looking on, and by that has the more to verify.
    const SPLITS_AGGREGATES_FAST: bool = cfg!(not(feature = "log"));

    #[inline(always)]
    fn group_v4(&self, index: u32) -> Option<&GroupV4> {
        FLOWS_V4.get(index)
    }

    #[inline(always)]
    fn group_v6(&self, index: u32) -> Option<&GroupV6> {
        FLOWS_V6.get(index)
    }

    #[inline(always)]
    fn tags(&self, index: u32) -> Option<&Tags> {
        TAGS.get(index)
    }

    #[inline(always)]
    fn exchange(word: &Word, old: u64, new: u64) -> bool {
        const RELAXED: AtomicOrdering = AtomicOrdering::Relaxed;
        // SAFETY: the word is valid and aligned, and is only ever accessed by
        // atomic operations.
        unsafe { atomic_cxchg::<u64, RELAXED, RELAXED>(word.as_ptr(), old, new).1 }
    }

    #[inline(always)]
    fn forget_origin<const N: usize>(&self, values: [u64; N]) -> Option<[u64; N]> {
        const { assert!(N <= SCRATCH_WORDS) };
        let scratch = VALUE_SCRATCH.get_ptr_mut(0)?.cast::<[u64; N]>();
        // SAFETY: a per-CPU value, and XDP programs do not interrupt each other
        // on one CPU.
        unsafe {
            scratch.write_volatile(values);
            Some(scratch.read_volatile())
        }
    }
}
