//! The virtual queues of the tunnels, in maps.
//!
//! Decisions for shared tunnels are functions of their own for the verifier, as
//! [`crate::pipeline`] has them.

use core::mem::MaybeUninit;

use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::macros::btf_map;
use splitter_policy::config::PolicyConfig;
use splitter_policy::dedicated::{DedicatedQueues, OwnShare, SharedModels};
use splitter_policy::egress::Egress;
use splitter_policy::flow::{FlowEntry, TunnelRole};
use splitter_policy::flow_packet::FlowPacket;
use splitter_policy::models::{QueueModels, SharedEgress};
use splitter_policy::share::{CountedPacket, Cpu, OwnQueues, SharedQueues, Stage};

use crate::pipeline::{entry, settings};
use crate::queues::KernelBacklog;
use crate::word::KernelWord;

#[btf_map]
static TUNNELS: Array<SharedModels<KernelWord>, 1> = Array::new();

/// What each CPU has of them for itself.
#[btf_map]
static OWN_SHARE: PerCpuArray<OwnShare, 1> = PerCpuArray::new();

#[btf_map]
static SHARED: Array<SharedQueues<KernelWord>, 1> = Array::new();

/// What each CPU has of those for itself.
#[btf_map]
static OWN_QUEUES: PerCpuArray<OwnQueues, 1> = PerCpuArray::new();

/// A question and its answer, besides the flow's entry. The question is written before it is read.
#[repr(C, align(8))]
struct SharedScratch {
    sent: MaybeUninit<CountedPacket>,
    /// [`Egress::to_bits`].
    egress: u64,
}

/// As plain words, as [`crate::pipeline`] has what its steps pass on.
#[btf_map]
static SHARED_SCRATCH: PerCpuArray<[u64; size_of::<SharedScratch>() / 8], 1> = PerCpuArray::new();

/// The virtual queues as the kernel keeps them: two maps.
pub struct KernelModels;

impl QueueModels for KernelModels {
    type Word = KernelWord;

    #[inline(always)]
    fn dedicated(&mut self) -> Option<DedicatedQueues<'_, KernelWord>> {
        let own = OWN_SHARE.get_ptr_mut(0)?;
        Some(DedicatedQueues {
            shared: TUNNELS.get(0)?,
            // SAFETY: a per-CPU value, and programs that receive packets do not interrupt each other on
            // one CPU; nobody takes it twice at a time.
            own: unsafe { &mut *own },
            slack_ns: slack_ns(),
        })
    }
}

impl SharedEgress for KernelModels {
    #[inline(always)]
    fn start(&mut self, _: &PolicyConfig, now_ns: u64) -> TunnelRole {
        // One after the other, for the stack of both is more than Linux 6.1 has left.
        share_turn(now_ns);
        share_start(answer().tunnel as u64, now_ns);
        answer().tunnel
    }

    #[inline(always)]
    fn choose(
        &mut self,
        _: &PolicyConfig,
        here: TunnelRole,
        was: Stage,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> TunnelRole {
        share_choose(here as u64, was as u64, last_seen_ns, now_ns);
        answer().tunnel
    }

    #[inline(always)]
    fn may_change(
        &self,
        config: &PolicyConfig,
        here: TunnelRole,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> bool {
        shared().is_some_and(|shared| shared.may_change(config, here, last_seen_ns, now_ns))
    }

    /// The entry is the one that [`entry`] has for both.
    #[inline(always)]
    fn send(&mut self, _: &PolicyConfig, _: &mut FlowEntry, sent: &CountedPacket) -> Egress {
        if let Some(scratch) = scratch() {
            scratch.sent.write(*sent);
        }
        // One after the other, as when a flow starts.
        share_hand_over();
        share_send();
        answer()
    }

    #[inline(always)]
    fn send_placed(
        &mut self,
        config: &PolicyConfig,
        tunnel: TunnelRole,
        packet: FlowPacket,
        is_first_of_window: bool,
        now_ns: u64,
    ) -> Egress {
        let (Some(shared), Some(mut cpu)) = (shared(), cpu()) else {
            return NOWHERE;
        };
        shared.send_placed(&mut cpu, config, tunnel, packet, is_first_of_window, now_ns)
    }
}

/// Where everything goes when a map is not there, which the kernel rules out.
const NOWHERE: Egress = Egress::dedicated_to(TunnelRole::Short);

/// Runs [`SharedQueues::take_turn`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn share_turn(now_ns: u64) -> u64 {
    if let Some(shared) = shared() {
        let tunnel = shared.take_turn(&settings().config, now_ns);
        // Looked up here, for Linux 6.1 has no stack left to keep it on meanwhile.
        if let Some(scratch) = scratch() {
            scratch.egress = Egress::dedicated_to(tunnel).to_bits();
        }
    }
    0
}

/// Runs [`SharedQueues::start_near`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn share_start(next: u64, now_ns: u64) -> u64 {
    if let (Some(shared), Some(scratch)) = (shared(), scratch()) {
        let next = TunnelRole::numbered(next);
        let tunnel = shared.start_near(&settings().config, next, now_ns);
        scratch.egress = Egress::dedicated_to(tunnel).to_bits();
    }
    0
}

/// Runs [`SharedEgress::choose`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn share_choose(here: u64, was: u64, last_seen_ns: u64, now_ns: u64) -> u64 {
    if let (Some(shared), Some(scratch)) = (shared(), scratch()) {
        let (here, was) = (TunnelRole::numbered(here), Stage::numbered(was));
        let tunnel = shared.choose(&settings().config, here, was, last_seen_ns, now_ns);
        scratch.egress = Egress::dedicated_to(tunnel).to_bits();
    }
    0
}

/// Runs [`SharedQueues::hand_over`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn share_hand_over() -> u64 {
    if let (Some(shared), Some(scratch), Some(entry)) = (shared(), scratch(), entry()) {
        // SAFETY: the caller has written it.
        let sent = unsafe { scratch.sent.assume_init_ref() };
        let hand_over = shared.hand_over(&settings().config, entry, sent, &KernelBacklog);
        scratch.egress = Egress {
            hand_over,
            ..NOWHERE
        }
        .to_bits();
    }
    0
}

/// Runs [`SharedQueues::send_after`] as a function of its own.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn share_send() -> u64 {
    if let (Some(shared), Some(mut cpu), Some(scratch), Some(entry)) =
        (shared(), cpu(), scratch(), entry())
    {
        // SAFETY: the caller has written it.
        let sent = unsafe { scratch.sent.assume_init_ref() };
        let (hand_over, config) = (answer().hand_over, &settings().config);
        let egress = shared.send_after(hand_over, &mut cpu, config, entry, sent, &KernelBacklog);
        scratch.egress = egress.to_bits();
    }
    0
}

/// The answer of the function that was called last.
#[inline(always)]
fn answer() -> Egress {
    scratch().map_or(NOWHERE, |scratch| {
        // SAFETY: valid, as a reference is. Volatile, because the compiler knows what
        // may have been written and the verifier does not.
        Egress::from_bits(unsafe { (&raw const scratch.egress).read_volatile() })
    })
}

#[inline(always)]
fn scratch() -> Option<&'static mut SharedScratch> {
    // SAFETY: a per-CPU value, and XDP programs do not interrupt each other on one
    // CPU; each function takes it for as long as it calls no other.
    SHARED_SCRATCH
        .get_ptr_mut(0)
        .map(|words| unsafe { &mut *words.cast() })
}

#[inline(always)]
fn shared() -> Option<&'static mut SharedQueues<KernelWord>> {
    // SAFETY: the one value of an array map, made of integers. Another CPU may
    // change it at the same time; a count of flows may be lost then, or a turn.
    SHARED.get_ptr_mut(0).map(|shared| unsafe { &mut *shared })
}

#[inline(always)]
fn cpu() -> Option<Cpu<'static>> {
    let own = OWN_QUEUES.get_ptr_mut(0)?;
    Some(Cpu {
        // SAFETY: as above.
        own: unsafe { &mut *own },
        slack_ns: slack_ns(),
    })
}

/// The most by which coarse time lies behind.
#[inline(always)]
fn slack_ns() -> u64 {
    /// The tick count is written by one CPU, which may be late.
    const TICKS_BEHIND: u64 = 2;
    TICKS_BEHIND * settings().clock.tick_ns
}
