//! TR in the kernel: the earliest arrival in order, by the queues here and, at a fabric's leaf, by those that spines
//! report.
//!
//! What is reported comes by maps of the fabric's programs, which the agent puts into these here. The fabric may come,
//! go and change its programs meanwhile; nothing is loaded again for it.

use aya_ebpf::bindings::{__sk_buff, bpf_hdr_start_off::BPF_HDR_START_NET};
use aya_ebpf::btf_maps::lpm_trie::Key;
use aya_ebpf::btf_maps::{Array, ArrayOfMaps, LpmTrie, PerCpuArray};
use aya_ebpf::helpers::generated::bpf_skb_load_bytes_relative;
use aya_ebpf::macros::btf_map;
use flow_balance::{EarliestArrival, EarliestFlow, MAX_PATHS, PathId, RemoteBacklogs};
use splitter_policy::fabric::MAX_LEAVES;
use splitter_policy::paths::{
    BalancerNumber, Behind, FarLeaf, Heard, LivePaths, Unheard, UplinkNumbers,
};
use splitter_policy::sites::SiteKey;

use super::account::{count, counters, mark};
use super::redirected::taken;
use super::{Asked, ETH_P_IPV6, SEED, asked, asked_of, is_used, look};
use crate::word::KernelWord;

/// The fabric's map of what spines have reported, by the number of the leaf that their ports lead to.
#[btf_map]
static HEARD: ArrayOfMaps<Array<RemoteBacklogs, MAX_LEAVES>, 1> = ArrayOfMaps::new();

/// The fabric's map of the numbers of leaves, by the prefixes of the hosts behind them.
#[btf_map]
static HEARD_LEAVES: ArrayOfMaps<LpmTrie<[u32; 5], u32, 4_096>, 1> = ArrayOfMaps::new();

/// Which tunnels are uplinks of the fabric: none where it is not there.
#[btf_map]
static HEARD_UPLINKS: Array<UplinkNumbers, 1> = Array::new();

/// How many packets have chosen each tunnel by reports, of each CPU.
#[btf_map]
static HEARD_CHOICES: PerCpuArray<[u64; MAX_PATHS], 1> = PerCpuArray::new();

/// A flow, and the leaf that it leads to where that counts.
#[repr(C)]
struct TrFlow {
    order: EarliestFlow,
    far: FarLeaf,
}

/// The answer of [`forward_by_tr`] where it has only looked at the packet.
const HEARS: u64 = 2;

/// Chooses by TR, and has the packet take the path.
#[inline(always)]
pub(super) fn forward(context: *mut __sk_buff, class: u64) {
    let is_sent = match forward_by_tr(context, class, 1) {
        HEARS => forward_by_reports(context) != 0 || forward_by_tr(context, class, 0) != 0,
        sent => sent != 0,
    };
    if is_used(BalancerNumber::LETFLOW) && is_sent {
        note_flowlet();
    }
}

/// Has LetFlow, by which the other class chooses, know by which tunnel a packet went. By itself, for the search above has
/// no registers to spare.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn note_flowlet() -> u64 {
    if !is_used(BalancerNumber::LETFLOW) {
        return 0;
    }
    let noted = asked().and_then(|asked| {
        let path = PathId::from_low_bits(*asked.chosen);
        asked.slot()?.note_flowlet(path, asked.packet.now_ns);
        Some(())
    });
    noted.map_or(0, |()| 1)
}

/// Chooses by the queues here, and has the packet take the path: all at once, for it is little. With `may_hear` it
/// leaves that to others where reports count, too.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn forward_by_tr(context: *mut __sk_buff, class: u64, may_hear: u64) -> u64 {
    let Some((site, scratch)) = look(context, class) else {
        return 0;
    };
    if u64::from(site.hears) & may_hear != 0 {
        return HEARS;
    }
    let forwarded = asked_of(site, scratch).and_then(|asked| {
        let paths = asked.paths.with_behind(Unheard);
        forward_in_order(context, asked, &paths)
    });
    forwarded.map_or(0, |_| 1)
}

/// Chooses for a packet that was looked at, also by what spines have reported of their ports to the leaf that it goes
/// to. 0 where nothing is known of these.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn forward_by_reports(context: *mut __sk_buff) -> u64 {
    if !is_used(BalancerNumber::TR) {
        return 0;
    }
    forward_hearing(context).map_or(0, |()| 1)
}

#[inline(always)]
fn forward_hearing(context: *mut __sk_buff) -> Option<()> {
    let uplinks = HEARD_UPLINKS.get(0)?;
    if uplinks.are_none() {
        return None;
    }
    let leaf = find_far_leaf(context);
    if leaf == NO_LEAF {
        return None;
    }
    let (asked, leaf) = (asked()?, leaf as u32);
    let reports = HEARD.get_value(0, &leaf)?;
    let paths = asked.paths.with_behind(Heard { uplinks, reports });
    let path = forward_in_order(context, asked, &paths)?;
    if let Some(choices) = HEARD_CHOICES.get_ptr_mut(0) {
        // Linux 6.12 has forgotten it by now, as where it is counted.
        let path = PathId::from_low_bits(path.index() as u64);
        // SAFETY: a per-CPU value, made of integers.
        unsafe { (*choices)[path.index()] += 1 };
    }
    Some(())
}

#[inline(always)]
fn forward_in_order<B: Behind>(
    context: *mut __sk_buff,
    asked: Asked<'_>,
    paths: &LivePaths<'_, KernelWord, B>,
) -> Option<PathId> {
    let balancer = EarliestArrival {
        patience_ns: paths.site().patience_ns,
        seed: SEED,
    };
    let slot = asked.slot()?;
    let flow: &mut TrFlow = slot.flow();
    let mut earliest = balancer.find(&flow.order, paths, &asked.packet);
    *asked.chosen = earliest.path.index() as u64;
    // As it is read from a map, so that the verifier does not ask how the number came about: all ways
    // through the search would differ to it.
    // SAFETY: valid, as a reference is.
    earliest.path = PathId::from_low_bits(unsafe { (&raw const *asked.chosen).read_volatile() });
    let path = earliest.path;
    paths.send_in_order(earliest, asked.packet.bytes, &mut flow.order);
    // SAFETY: the context is the one that the kernel passed to the program.
    let skb = unsafe { &mut *context };
    mark(skb, &asked, path);
    let counters = counters()?;
    let order = [slot.note(path), earliest.is_held() != 0];
    count(counters, asked.to_count(), path, order);
    Some(path)
}

/// Chooses for a packet that XDP puts into its tunnel, by the queues here, and enters the tunnel's.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn choose_tr() -> u64 {
    if !is_used(BalancerNumber::TR) {
        return 0;
    }
    asked().and_then(choose_in_order).map_or(0, |()| 1)
}

/// The steps of [`forward_in_order`] where nothing is marked. By themselves, for of both in one the compiler makes what the
/// verifier does not come to the end of.
#[inline(always)]
fn choose_in_order(asked: Asked<'_>) -> Option<()> {
    let paths = asked.paths.with_behind(Unheard);
    let balancer = EarliestArrival {
        patience_ns: paths.site().patience_ns,
        seed: SEED,
    };
    let slot = asked.slot()?;
    let flow: &mut TrFlow = slot.flow();
    let mut earliest = balancer.find(&flow.order, &paths, &asked.packet);
    *asked.chosen = earliest.path.index() as u64;
    // SAFETY: valid, as a reference is.
    earliest.path = PathId::from_low_bits(unsafe { (&raw const *asked.chosen).read_volatile() });
    let path = earliest.path;
    paths.send_in_order(earliest, asked.packet.bytes, &mut flow.order);
    *asked.chosen = taken(path, [slot.note(path), earliest.is_held() != 0]);
    Some(())
}

/// What lies at no leaf.
const NO_LEAF: u64 = u64::MAX;

/// Finds the leaf that a packet goes to, which was looked at. By itself, for the verifier would follow each way to the
/// number through the choice.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn find_far_leaf(context: *mut __sk_buff) -> u64 {
    far_leaf(context).map_or(NO_LEAF, u64::from)
}

/// The number of the leaf: as the packet's flow remembers it, or looked up.
#[inline(always)]
fn far_leaf(context: *mut __sk_buff) -> Option<u32> {
    let asked = asked()?;
    let flow: &mut TrFlow = asked.slot()?.flow();
    let (hash, now_ns) = (asked.hash, asked.packet.now_ns);
    if let Some(leaf) = flow.far.get(hash, now_ns) {
        return leaf;
    }
    let SiteKey { words, bits } = destination(context)?;
    let leaves = HEARD_LEAVES.get(0)?;
    let leaf = leaves.get(&Key::new(bits, words)).copied();
    flow.far.set(hash, leaf, now_ns);
    leaf
}

/// Where a packet goes that was looked at: IPv4 or IPv6.
#[inline(always)]
fn destination(context: *mut __sk_buff) -> Option<SiteKey> {
    // SAFETY: the context is the one that the kernel passed to the program.
    let is_v6 = unsafe { (*context).protocol } == ETH_P_IPV6;
    // Where it lies in the header, and how long it is.
    let (at, bytes) = if is_v6 { (24, 16) } else { (16, 4) };
    let mut words = [0; 4];
    // SAFETY: the helper writes as many bytes as it is told there are, which are not more than that.
    let loaded = unsafe {
        let to = words.as_mut_ptr().cast();
        bpf_skb_load_bytes_relative(context.cast(), at, to, bytes, BPF_HDR_START_NET)
    };
    (loaded == 0).then(|| SiteKey::of_address(is_v6, words))
}
