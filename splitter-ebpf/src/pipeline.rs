//! The split program's body, with the maps that it works on.
//!
//! It lies here and not in the program's file so that the yardstick can time
//! the very same code.
//!
//! What most packets are passes without a call. The rest goes through the steps
//! of [`Splitter::split`] as functions that are exported: so the verifier looks
//! at each once, for all values there may be ("global functions", Linux 5.6), and
//! not again on each of the paths that lead there. What they pass on lies in a map,
//! of whose values it remembers nothing: no more paths lead on from them than one.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{__sk_buff, xdp_md};
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::{TcContext, XdpContext};
use splitter_policy::counters::Counters;
use splitter_policy::flow::FlowEntry;
use splitter_policy::headers::Headers;
use splitter_policy::pass_reason::PassReason;
use splitter_policy::settings::Settings;
use splitter_policy::split::{Decision, Outcome, PackedVerdict, Splitter};
use splitter_policy::steer::Steer;
use splitter_policy::table::{SlotRef, Table};
use splitter_policy::thresholds::ThresholdIndex;

use crate::clock::KernelClock;
use crate::fixed::Fixed;
use crate::frame::{Context, DscpContext, Frame};
use crate::models::KernelModels;
use crate::sites;
use crate::table::KernelMemory;

/// Kept as it is by the attribute: nothing here writes it, by which a compiler would take it for zeros.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.settings")]
static SETTINGS: Fixed<Settings> = Fixed::zeroed();

/// The settings, which the agent has written.
#[inline(always)]
pub(crate) fn settings() -> &'static Settings {
    // SAFETY: made of integers. The agent may write while a program reads, as in any map.
    unsafe { &*SETTINGS.as_ptr() }
}

#[btf_map]
static COUNTERS: PerCpuArray<Counters, 1> = PerCpuArray::new();

/// The scratch space in which each step leaves its result. Written by one before the next reads it.
#[repr(C, align(8))]
struct StepScratch {
    headers: MaybeUninit<Headers>,
    slot_ref: MaybeUninit<SlotRef>,
    /// Of the packet's flow.
    entry: MaybeUninit<FlowEntry>,
    decided: MaybeUninit<PackedVerdict>,
    decision: u64,
    /// What [`find_threshold`] has found.
    threshold: u64,
}

/// The value of [`StepScratch::decision`] before it says something else.
const TO_BE_SPLIT: u64 = u64::MAX;

impl StepScratch {
    /// Tells if no slot was found.
    #[inline(always)]
    fn needs_slot(&self) -> bool {
        // SAFETY: of these numbers, zeros are valid ones.
        unsafe { self.slot_ref.assume_init_ref() }.is_none()
    }
}

/// As plain words, because the kernel takes no type description with Rust's
/// enumerations.
#[btf_map]
static STEP_SCRATCH: PerCpuArray<[u64; size_of::<StepScratch>() / 8], 1> = PerCpuArray::new();

type KernelSplitter = Splitter<'static, KernelMemory, KernelClock<'static>, KernelModels>;

/// A caller of the splitter: XDP or traffic control.
pub trait Caller: Context + Sized {
    /// Has the headers read by a function that the verifier checks once.
    fn read_headers(&self);
}

/// Splits the frame; `None` only when a map is not there, which the kernel
/// rules out and the verifier cannot know.
#[inline(always)]
pub fn split<C: Caller>(context: &C) -> Option<Outcome>
where
    for<'a> Frame<'a, C>: Steer,
{
    if let Some(outcome) = splitter()?.split_fast(&mut Frame::new(context)) {
        return Some(outcome);
    }
    context.read_headers();
    if scratch()?.decision == TO_BE_SPLIT {
        decide_flow()?;
    }
    let scratch = scratch()?;
    // SAFETY: written just above.
    let mark = unsafe { scratch.headers.assume_init_ref().mark };
    let decision = Decision::from_bits(scratch.decision);
    // A frame of its own: what the verifier has learnt of the first's bounds would
    // have it look at this path once more.
    Some(splitter()?.finish(&mut Frame::new(context), mark, decision))
}

/// The steps of [`Splitter::decide_flow`].
#[inline(always)]
fn decide_flow() -> Option<()> {
    lookup_slot();
    if scratch()?.needs_slot() {
        insert_slot();
    }
    decide();
    commit();
    Some(())
}

impl Caller for XdpContext {
    #[inline(always)]
    fn read_headers(&self) {
        read_headers(self.as_ptr().cast());
    }
}

impl Caller for TcContext {
    #[inline(always)]
    fn read_headers(&self) {
        read_headers_skb(self.skb.skb);
        // Headers may lie in the packet's pages. Asked for only where it matters:
        // for what is shared with its sender it means a copy.
        if is_cut_short() && self.pull_data(self.len().min(HEADERS_BYTES)).is_ok() {
            read_headers_skb(self.skb.skb);
        }
    }
}

impl Caller for DscpContext<'_> {
    #[inline(always)]
    fn read_headers(&self) {
        self.0.read_headers();
    }
}

/// What is brought to hand of a packet whose headers are not: more than nearly all have.
pub(crate) const HEADERS_BYTES: u32 = 256;

#[inline(always)]
fn is_cut_short() -> bool {
    let decision = scratch().map(|it| Decision::from_bits(it.decision));
    matches!(decision, Some(Err(refusal)) if refusal.is_truncated())
}

// They answer in the map alone: the compiler knows what they may return and
// relies on it, the verifier does not.

/// Runs [`Headers::read`] on a frame in XDP.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn read_headers(context: *mut xdp_md) -> u64 {
    read_headers_of(&XdpContext::new(context))
}

/// Runs [`Headers::read`] on a packet in traffic control.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn read_headers_skb(context: *mut __sk_buff) -> u64 {
    read_headers_of(&TcContext::new(context))
}

#[inline(always)]
fn read_headers_of<C: Context>(context: &C) -> u64 {
    let (Some(splitter), Some(scratch)) = (splitter(), scratch()) else {
        return 0;
    };
    let frame = Frame::new(context);
    let is_plain = Headers::read_plain_to(&frame, splitter.config, |headers| {
        scratch.headers.write(headers);
        scratch.decision = TO_BE_SPLIT;
    });
    if is_plain {
        return 0;
    }
    // A frame of its own, as above.
    let frame = Frame::new(context);
    Headers::read_to(&frame, splitter.config, &splitter.fragments(), |headers| {
        scratch.decision = match headers.segment {
            Ok(_) => TO_BE_SPLIT,
            Err(refusal) => Decision::to_bits(Err(refusal)),
        };
        scratch.headers.write(headers);
    });
    0
}

/// Runs [`Splitter::lookup`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn lookup_slot() -> u64 {
    let (Some(splitter), Some(scratch)) = (splitter(), scratch()) else {
        return 0;
    };
    // SAFETY: the caller has written it.
    if let Ok(segment) = unsafe { &scratch.headers.assume_init_ref().segment } {
        scratch.slot_ref.write(splitter.lookup(segment));
    }
    0
}

/// Runs [`Splitter::insert`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn insert_slot() -> u64 {
    let (Some(mut splitter), Some(scratch)) = (splitter(), scratch()) else {
        return 0;
    };
    // SAFETY: as above.
    if let Ok(segment) = unsafe { &scratch.headers.assume_init_ref().segment } {
        scratch.slot_ref.write(splitter.insert(segment));
    }
    0
}

/// Runs [`Splitter::decide`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn decide() -> u64 {
    let (Some(mut splitter), Some(scratch)) = (splitter(), scratch()) else {
        return 0;
    };
    // SAFETY: the caller has written both, and of an entry any bytes are
    // a valid one.
    let (headers, slot_ref, entry) = unsafe {
        (
            scratch.headers.assume_init_ref(),
            scratch.slot_ref.assume_init_ref(),
            scratch.entry.assume_init_mut(),
        )
    };
    if let Ok(segment) = &headers.segment
        && let Some(decided) = splitter.decide(segment, slot_ref, entry)
    {
        scratch.decided.write(decided);
    }
    0
}

/// Runs [`Splitter::commit`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn commit() -> u64 {
    let (Some(mut splitter), Some(scratch)) = (splitter(), scratch()) else {
        return 0;
    };
    // SAFETY: the caller has written them; where the table was full what was
    // decided is of another packet, or zeros, and is not looked at.
    let (headers, slot_ref, entry, decided) = unsafe {
        (
            scratch.headers.assume_init_ref(),
            scratch.slot_ref.assume_init_ref(),
            scratch.entry.assume_init_ref(),
            scratch.decided.assume_init_ref(),
        )
    };
    if let Ok(segment) = &headers.segment {
        let kept = splitter.commit(segment, slot_ref, entry, decided);
        scratch.decision = Decision::to_bits(kept.ok_or(PassReason::TableFull));
    }
    0
}

/// Looks up the threshold of the site that the packet's flow leads to, as a function of its own: its
/// key takes room on a stack that calls in a chain share.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn find_threshold() -> u64 {
    let Some(scratch) = scratch() else {
        return 0;
    };
    // SAFETY: the caller of `decide`, which calls this, has written it.
    if let Ok(segment) = unsafe { &scratch.headers.assume_init_ref().segment } {
        scratch.threshold = sites::threshold_of(&segment.key).number();
    }
    0
}

/// The answer of [`find_threshold`].
#[inline(always)]
pub(crate) fn found_threshold() -> ThresholdIndex {
    scratch().map_or(ThresholdIndex::UNKNOWN, |scratch| {
        // SAFETY: valid, as a reference is. Volatile, because the compiler knows what may have been
        // written and the verifier does not.
        ThresholdIndex::numbered(unsafe { (&raw const scratch.threshold).read_volatile() })
    })
}

/// The entry of the flow whose packet is being decided on.
#[inline(always)]
pub(crate) fn entry() -> Option<&'static mut FlowEntry> {
    // SAFETY: as in `decide`, which waits while another step has it.
    scratch().map(|scratch| unsafe { scratch.entry.assume_init_mut() })
}

/// What this CPU counts.
#[inline(always)]
pub(crate) fn counters() -> Option<&'static mut Counters> {
    // SAFETY: a per-CPU value, and programs that receive packets do not interrupt
    // each other on one CPU.
    COUNTERS.get_ptr_mut(0).map(|it| unsafe { &mut *it })
}

/// Whether packets are only classified and counted.
#[inline(always)]
pub(crate) fn is_shadow() -> bool {
    settings().config.marking.is_shadow()
}

#[inline(always)]
fn splitter() -> Option<KernelSplitter> {
    let settings = settings();
    let counters = counters()?;
    Some(Splitter {
        config: &settings.config,
        table: Table {
            memory: &KernelMemory,
            layout: &settings.layout,
        },
        clock: KernelClock(&settings.clock),
        models: KernelModels,
        counters,
    })
}

#[inline(always)]
fn scratch() -> Option<&'static mut StepScratch> {
    // SAFETY: as in `counters`; each step takes it once.
    STEP_SCRATCH
        .get_ptr_mut(0)
        .map(|words| unsafe { &mut *words.cast() })
}
