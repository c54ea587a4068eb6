//! The remote sites that flows lead to, as far as they have thresholds of their own.

use aya_ebpf::btf_maps::LpmTrie;
use aya_ebpf::btf_maps::lpm_trie::Key;
use aya_ebpf::macros::btf_map;
use splitter_policy::flow::FlowKey;
use splitter_policy::sites::SiteKey;
use splitter_policy::thresholds::ThresholdIndex;

/// The index of each site's threshold by the prefixes that lie there. Empty where all sites have the
/// same; the agent fills it. Only what is there takes memory.
#[btf_map]
static SITES: LpmTrie<[u32; 5], u32, 65_536> = LpmTrie::new();

/// Looks up the destination of a flow.
#[inline(always)]
pub fn threshold_of(key: &FlowKey) -> ThresholdIndex {
    let SiteKey { words, bits } = SiteKey::of_destination(key);
    match SITES.get(&Key::new(bits, words)) {
        Some(index) => ThresholdIndex::numbered(u64::from(*index)),
        None => ThresholdIndex::UNKNOWN,
    }
}
