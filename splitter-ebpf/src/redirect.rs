//! Puts packets that were split into their tunnel without the network stack.
//!
//! Where a packet goes is looked up in this CPU's records of next hops; the kernel is asked where
//! none [answers](NextHop::answers).

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, xdp_md};
use aya_ebpf::btf_maps::{DevMap, HashMap, LruHashMap, PerCpuArray};
use aya_ebpf::helpers::bpf_fib_lookup;
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::XdpContext;
use splitter_policy::clock::Clock as _;
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::{EgressCounts, IpStart, Marked};
use splitter_policy::flow::TunnelRole;
use splitter_policy::forward::{Fallback, FibLookup, Mac, TARGET_SLOTS as SLOTS, target};
use splitter_policy::next_hop::{
    Generation, NextHop, NextHopTrust, NextHops, Question, forward_plain, neighbour,
};
use splitter_policy::prefix_lengths::{MatchedBits, PrefixLengths};
use splitter_policy::routing_key::RoutingKey;

use crate::balance::redirected as choice;
use crate::clock::KernelClock;
use crate::fixed::Fixed;
use crate::frame::Frame;
use crate::pipeline::{counters, is_shadow, settings};

mod chosen;

pub use self::chosen::redirect_chosen;

/// Only what the agent has put there takes memory.
const SPARSE: usize = BPF_F_NO_PREALLOC as usize;

/// Devices that packets can be put into; the agent fills it.
#[btf_map]
static TARGETS: DevMap<{ SLOTS as usize }> = DevMap::new();

/// The slots of devices that packets for a tunnel can be put into, as [`target`] numbers them.
#[btf_map]
static TARGET_SLOTS: HashMap<u32, u32, { 2 * SLOTS as usize }, SPARSE> = HashMap::new();

/// What was put into each of them, of which no program at the device's egress knows.
#[btf_map]
static REDIRECTED: PerCpuArray<EgressCounts, { SLOTS as usize }> = PerCpuArray::new();

/// The link address of each device that packets come in by.
#[btf_map]
static LAN_ADDRESSES: HashMap<u32, Mac, 64> = HashMap::new();

/// What the kernel is handed and answers, and what it was asked. Not on the stack, where the verifier wants
/// words to be aligned and the compiler does not care, and which has no place for both.
#[btf_map]
static FIB_LOOKUP: PerCpuArray<FibLookup, 2> = PerCpuArray::new();

/// What it has answered.
#[btf_map]
static NEXT_HOPS: PerCpuArray<NextHop, { Question::RECORDS as usize }> = PerCpuArray::new();

/// The generation of what is right of it. A word of its own, as the next, for others write it than vouch.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.routing")]
static ROUTING_GENERATION: Fixed<Generation> = Fixed::zeroed();

/// Until when somebody vouches for it.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.vouched")]
static VOUCHED_UNTIL: Fixed<u64> = Fixed::zeroed();

/// How much of a packet routing looks at.
#[used]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.prefixes")]
static PREFIX_LENGTHS: Fixed<PrefixLengths> = Fixed::zeroed();

/// When the kernel last gave each [`neighbour`] for an answer: the agent keeps those alive.
#[btf_map]
static NEIGHBOURS: LruHashMap<u64, u64, 1_024> = LruHashMap::new();

/// Redirects the frame into its tunnel; false when the stack is to forward it.
#[inline(always)]
pub fn redirect(context: &XdpContext, tunnel: TunnelRole) -> bool {
    let frame = context.as_ptr().cast();
    !is_shadow()
        && (redirect_plain(frame, tunnel as u64) == DONE
            || redirect_frame(frame, tunnel as u64) == DONE)
}

const DONE: u64 = 1;
/// Redirects a plain segment for whose next hop there is a record, which most packets are. A function of its own,
/// as the next: so the verifier checks the other once, and not for each place where this one gives up.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn redirect_plain(context: *mut xdp_md, tunnel: u64) -> u64 {
    let context = XdpContext::new(context);
    // SAFETY: the context is the one that the kernel passed to the program.
    let device = unsafe { (*context.ctx).ingress_ifindex };
    let tunnel = TunnelRole::numbered(tunnel);
    let records = KernelNextHops::<true>;
    let forwarded = forward_plain(&mut Frame::new(&context), device, tunnel, &records);
    let Some((slot, ip)) = forwarded else {
        return 0;
    };
    if let Some(counters) = counters() {
        counters.redirected += 1;
    }
    count(&ip, slot);
    DONE
}

/// This CPU's records, and what the agent says of them; with `FORWARDS` as in [`NextHops::FORWARDS`].
struct KernelNextHops<const FORWARDS: bool>;

impl<const FORWARDS: bool> NextHops for KernelNextHops<FORWARDS> {
    const FORWARDS: bool = FORWARDS;

    #[inline(always)]
    fn prefix_lengths(&self) -> &PrefixLengths {
        // SAFETY: made of bytes, each of which the agent may replace while it is read.
        unsafe { &*PREFIX_LENGTHS.as_ptr() }
    }

    #[inline(always)]
    fn trust(&self) -> NextHopTrust {
        trust()
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    #[inline(always)]
    fn record(&self, index: u32) -> Option<&NextHop> {
        // SAFETY: as the counters are, and nothing writes to it while this function runs.
        record(index).map(|it| unsafe { &*it })
    }

    #[inline(always)]
    fn redirect(&self, slot: u32) -> Option<()> {
        // Takes effect only with the program's answer.
        TARGETS.redirect(slot, 0).ok().map(|_| ())
    }

    #[inline(always)]
    fn note<K: RoutingKey>(&self, key: &K, ip: &IpStart) {
        if !FORWARDS {
            choice::note(key, ip);
        }
    }
}

/// Looks up the path of a frame and sends it there. A function of its own for the
/// verifier, which checks it once, and for its own stack frame.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn redirect_frame(context: *mut xdp_md, tunnel: u64) -> u64 {
    let context = XdpContext::new(context);
    let Some(counters) = counters() else {
        return 0;
    };
    match forward::<true>(&context, TunnelRole::numbered(tunnel), counters) {
        Ok((slot, asked)) => {
            counters.redirected += 1;
            count(&asked.ip_start(), slot);
            DONE
        }
        Err(reason) => {
            counters.count_fallback(reason);
            0
        }
    }
}

/// Returns the slot of the device that the frame is put into, and what was asked; with `WRITES` it is made what leaves
/// there, and else left as it is.
#[inline(always)]
fn forward<const WRITES: bool>(
    context: &XdpContext,
    tunnel: TunnelRole,
    counters: &mut Counters,
) -> Result<(u32, FibLookup), Fallback> {
    // SAFETY: the context is the one that the kernel passed to the program.
    let device = unsafe { (*context.ctx).ingress_ifindex };
    let frame = Frame::new(context);
    let to = Mac::destination(&frame).ok_or(Fallback::Scattered)?;
    // In registers, as long as the kernel need not be asked.
    let mut asked = FibLookup::default();
    if let Err(reason) = asked.fill(&frame, device) {
        // First of all it must be for us.
        check_address(device, to)?;
        return Err(reason);
    }
    if !WRITES {
        // Here, for there is no place on the stack to have it wait.
        choice::note(&asked, &asked.ip_start()).ok_or(Fallback::Failed)?;
    }
    // Before the generation is read: what is of a new one never meets records of the one before.
    let matched = matched_bits(&asked);
    // Read before the kernel is asked: what changes meanwhile makes the answer one of the past.
    let trust = trust();
    let now_ns = now_ns();
    let question = Question::new(&asked, tunnel, to, matched);
    let noted = record(question.index(&asked)).ok_or(Fallback::Failed)?;
    let is_trusted = trust.is_given(now_ns);
    // SAFETY: as the counters are. Two records may be the same, so no reference to one is kept.
    let answered = |record: *mut NextHop, question: &Question| unsafe {
        let record = &*record;
        let is_answer = record.answers((question, &asked), &trust, now_ns);
        if is_answer {
            follow::<WRITES>(context, record)
        } else {
            None
        }
    };
    if is_trusted && let Some(slot) = answered(noted, &question) {
        return Ok((slot?, asked));
    }
    // What serves many is not believed yet, or not there: its own may be.
    let of_flow = Question::of_one_flow(&asked, tunnel, to);
    if is_trusted
        && !question.is_of_everything()
        && let Some(own) = record(of_flow.index(&asked))
        && let Some(slot) = answered(own, &of_flow)
    {
        return Ok((slot?, asked));
    }
    check_address(device, to)?;
    counters.fib_lookups += 1;
    // SAFETY: as above, two values.
    let (lookup, kept) = unsafe {
        (
            &mut *FIB_LOOKUP.get_ptr_mut(0).ok_or(Fallback::Failed)?,
            &mut *FIB_LOOKUP.get_ptr_mut(1).ok_or(Fallback::Failed)?,
        )
    };
    (*lookup, *kept) = (asked, asked);
    let slot = ask(context, lookup, tunnel)?;
    if is_trusted {
        // Anew, of what was kept: nothing of it waits on the stack.
        let question = Question::new(kept, tunnel, to, matched);
        let answer = (&*lookup, slot as u16);
        // SAFETY: as above; what yields to another is not that other.
        unsafe {
            *noted = (*noted).followed_by((question, kept), answer, &trust, now_ns);
            if !(*noted).is_believed(&trust) {
                let of_flow = Question::of_one_flow(kept, tunnel, to);
                if let Some(own) = record(of_flow.index(kept))
                    && (*own).yields_to_one_flow(&trust, now_ns)
                {
                    (*own).take_answer((of_flow, kept), &*noted);
                }
            }
        }
        // Where there is no memory the neighbour is kept alive by others.
        let _ = NEIGHBOURS.insert(&neighbour(lookup.next_hop(), slot), &now_ns, 0);
    }
    if WRITES {
        let forwarded = lookup.forward(&mut Frame::new(context));
        forwarded.ok_or(Fallback::Failed)?;
    }
    Ok((slot, asked))
}

/// One of this CPU's records.
#[inline(always)]
fn record(index: u32) -> Option<*mut NextHop> {
    NEXT_HOPS.get_ptr_mut(index)
}

/// Puts the frame into the device that a record has, and returns its slot; `None`, and nothing is done, when it
/// is not there any more.
#[inline(always)]
fn follow<const WRITES: bool>(
    context: &XdpContext,
    record: &NextHop,
) -> Option<Result<u32, Fallback>> {
    let slot = record.slot();
    // Takes effect only with the program's answer.
    TARGETS.redirect(slot, 0).ok()?;
    let forwarded = match WRITES {
        true => record.forward(&mut Frame::new(context)),
        false => Some(()),
    };
    Some(forwarded.map(|()| slot).ok_or(Fallback::Failed))
}

/// Asks the kernel for the path, and returns the slot of its device, into which the frame is
/// redirected.
#[inline(always)]
fn ask(context: &XdpContext, lookup: &mut FibLookup, tunnel: TunnelRole) -> Result<u32, Fallback> {
    // SAFETY: of the shape and size that the helper wants, and all of it written.
    let answer = unsafe {
        bpf_fib_lookup(
            context.as_ptr(),
            (&raw mut *lookup).cast(),
            size_of::<FibLookup>() as i32,
            0,
        )
    };
    if let Some(reason) = Fallback::from_fib_result(answer) {
        return Err(reason);
    }
    // Kernels before 6.7 find a neighbour that has not answered yet.
    if !lookup.has_next_hop() {
        return Err(Fallback::NoNeighbour);
    }
    // SAFETY: a plain integer, which the agent may replace while it is read.
    let slot = unsafe { TARGET_SLOTS.get(&target(lookup.device, tunnel)).copied() };
    let slot = slot.ok_or(Fallback::OtherDevice)?;
    // Takes effect only with the program's answer.
    match TARGETS.redirect(slot, 0) {
        Ok(_) => Ok(slot),
        Err(_) => Err(Fallback::OtherDevice),
    }
}

/// Counts a frame that is put into a device past the network stack, where no program sees it leave.
#[inline(always)]
fn count(ip: &IpStart, slot: u32) -> Option<()> {
    // Of what comes in by XDP nothing has a mark of the kernel yet.
    const NO_FWMARK: u32 = 0;
    // SAFETY: as the counters are.
    let counts = unsafe { &mut *REDIRECTED.get_ptr_mut(slot)? };
    let marked = Marked::of(&settings().config, NO_FWMARK, ip);
    counts.count(marked, ip.is_v6, 1, ip.frame_bytes());
    Some(())
}

#[inline(always)]
fn check_address(device: u32, to: Mac) -> Result<(), Fallback> {
    // SAFETY: a plain integer, which the agent may replace while it is read.
    let own = unsafe { LAN_ADDRESSES.get(&device).copied() };
    if own == Some(to) {
        Ok(())
    } else {
        Err(Fallback::NotOurs)
    }
}

#[inline(always)]
fn trust() -> NextHopTrust {
    // SAFETY: integers, which the agent may replace at any time: volatile, so that each is read once.
    unsafe {
        NextHopTrust {
            generation: ROUTING_GENERATION.as_ptr().read_volatile(),
            until_ns: VOUCHED_UNTIL.as_ptr().read_volatile(),
        }
    }
}

#[inline(always)]
fn matched_bits(asked: &FibLookup) -> MatchedBits {
    // SAFETY: made of bytes, each of which the agent may replace while it is read.
    asked.matched_bits(unsafe { &*PREFIX_LENGTHS.as_ptr() })
}

#[inline(always)]
fn now_ns() -> u64 {
    KernelClock(&settings().clock).coarse_ns()
}
