//! The programs of a leaf and of a spine in a fabric, at the devices that connect them.
//!
//! They share nothing with those of a border router: what a machine does as one of both it does by an
//! object of its own.
#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    allow(
        internal_features,
        reason = "the one way to compare and exchange on this target"
    )
)]

#[allow(dead_code, reason = "the coarse clock is for programs that split")]
#[path = "../clock.rs"]
mod clock;
#[path = "../frame.rs"]
mod frame;
#[path = "../word.rs"]
mod word;

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_F_RECOMPUTE_CSUM};
use aya_ebpf::btf_maps::lpm_trie::Key;
use aya_ebpf::btf_maps::{Array, HashMap, LpmTrie, PerCpuArray};
use aya_ebpf::macros::{btf_map, classifier};
use aya_ebpf::programs::TcContext;
use flow_balance::{PathId, Paths as _, RemoteBacklogs};
use splitter_policy::buffer::{Buffer, BufferMut};
use splitter_policy::fabric::{
    self, Agreement, FabricCounters, FabricPass, FabricStep, Heard, MAX_LEAVES, Report, VlanTag,
};
use splitter_policy::paths::{LivePaths, SitePaths, TunnelQueues, wire_bytes};
use splitter_policy::sites::SiteKey;

use frame::Frame;
use word::KernelWord;

/// What all leaves and spines have agreed on; zeros before the agent has written it.
#[btf_map]
static AGREEMENT: Array<Agreement, 1> = Array::new();

/// The numbers of leaves, by the prefixes of the hosts behind them.
#[btf_map]
static LEAVES: LpmTrie<[u32; 5], u32, 4_096> = LpmTrie::new();

/// The numbers of the ports, by their devices.
#[btf_map]
static PORT_NUMBERS: HashMap<u32, u32, 64, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The ports of a spine, with their rates.
#[btf_map]
static PORTS: Array<SitePaths, 1> = Array::new();

/// The agent maps it, and mends it by what the queues themselves say.
#[btf_map]
static PORT_QUEUES: Array<TunnelQueues<KernelWord>, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// What spines have reported, by the number of the leaf that their ports lead to.
#[btf_map]
static REMOTE: Array<RemoteBacklogs, MAX_LEAVES> = Array::new();

#[btf_map]
static FABRIC_COUNTERS: PerCpuArray<FabricCounters, 1> = PerCpuArray::new();

/// `TCX_NEXT`: lets the next program of the chain run.
const NEXT: i32 = -1;

/// Writes ACKs that leave a leaf by an uplink.
#[classifier]
pub fn leaf_egress(context: TcContext) -> i32 {
    count(leave(&context));
    NEXT
}

/// Restores ACKs that come in at a leaf by an uplink, and notes what spines have reported in them.
#[classifier]
pub fn leaf_ingress(context: TcContext) -> i32 {
    count(enter(&context));
    NEXT
}

/// Reports in ACKs that come in at a spine how full the port is that they come in by.
#[classifier]
pub fn spine_ingress(context: TcContext) -> i32 {
    count(report(&context));
    NEXT
}

/// Puts what leaves a spine by a port into the model of the queue there.
#[classifier]
pub fn spine_egress(context: TcContext) -> i32 {
    send(&context);
    NEXT
}

#[inline(always)]
fn leave(context: &TcContext) -> Result<FabricStep, FabricPass> {
    let is_from_host = || came_by(context).is_none();
    let mut ack = ack(context)?;
    fabric::leave_leaf(
        &mut ack,
        agreement()?,
        tag_of(context),
        is_from_host,
        leaf_at,
    )
}

#[inline(always)]
fn enter(context: &TcContext) -> Result<FabricStep, FabricPass> {
    let heard = fabric::enter_leaf(&mut ack(context)?, agreement()?, tag_of(context), leaf_at)?;
    if let Heard::Report(report) = heard
        && note(context, &report).is_none()
    {
        return Ok(FabricStep::Unread);
    }
    Ok(heard.step())
}

/// Notes what a spine has reported; `None` where it cannot be told of which port.
#[inline(always)]
fn note(context: &TcContext, report: &Report) -> Option<()> {
    let path = port_of(context)?;
    // SAFETY: the value stays mapped while the program runs, and is made of integers. Of two reports at a
    // time either may stay.
    let remote = unsafe { &mut *REMOTE.get_ptr_mut(report.leaf)? };
    remote
        .behind_mut(path)
        .report(report.backlog_ns, clock::monotonic_ns());
    Some(())
}

#[inline(always)]
fn report(context: &TcContext) -> Result<FabricStep, FabricPass> {
    let mut ack = ack(context)?;
    fabric::pass_spine(&mut ack, agreement()?, tag_of(context), || {
        backlog_ns(context)
    })
}

#[inline(always)]
fn send(context: &TcContext) -> Option<()> {
    const ETH_P_IPV6: u32 = 0x86ddu16.to_be() as u32;
    let path = port_of(context)?;
    // SAFETY: the context is the one that the kernel passed to the program.
    let skb = unsafe { &*context.skb.skb };
    let bytes = wire_bytes(skb.len, skb.gso_segs, skb.protocol == ETH_P_IPV6, 0);
    ports()?.send(path, bytes);
    Some(())
}

#[inline(always)]
fn tag_of(context: &TcContext) -> VlanTag {
    // SAFETY: the context is the one that the kernel passed to the program.
    match unsafe { (*context.skb.skb).vlan_present } {
        0 => VlanTag::None,
        _ => VlanTag::Beside,
    }
}

/// How long the port takes to drain by which a packet came in; `None` for a device that is none.
#[inline(always)]
fn backlog_ns(context: &TcContext) -> Option<u64> {
    let path = port_of(context)?;
    Some(ports()?.view(path).local_backlog_ns)
}

#[inline(always)]
fn ports() -> Option<LivePaths<'static, KernelWord>> {
    let (ports, queues) = (PORTS.get(0)?, PORT_QUEUES.get(0)?);
    Some(LivePaths::of_short(ports, queues, 0, clock::monotonic_ns()))
}

#[inline(always)]
fn port_of(context: &TcContext) -> Option<PathId> {
    // SAFETY: the context is the one that the kernel passed to the program.
    port_at(unsafe { (*context.skb.skb).ifindex })
}

/// The port of the fabric by which a packet has come in that leaves now; `None` of what hosts have sent.
#[inline(always)]
fn came_by(context: &TcContext) -> Option<PathId> {
    // SAFETY: the context is the one that the kernel passed to the program.
    port_at(unsafe { (*context.skb.skb).ingress_ifindex })
}

#[inline(always)]
fn port_at(device: u32) -> Option<PathId> {
    // SAFETY: a plain integer, which the agent may replace while it is read.
    let number = unsafe { PORT_NUMBERS.get(&device).copied() }?;
    Some(PathId::from_low_bits(number.into()))
}

#[inline(always)]
fn leaf_at(key: &SiteKey) -> Option<u32> {
    LEAVES.get(&Key::new(key.bits, key.words)).copied()
}

#[inline(always)]
fn agreement() -> Result<&'static Agreement, FabricPass> {
    AGREEMENT.get(0).ok_or(FabricPass::Hops)
}

#[inline(always)]
fn count(outcome: Result<FabricStep, FabricPass>) {
    if let Some(counters) = FABRIC_COUNTERS.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, made of integers. Where a device's egress interrupts another's ingress
        // a count may be lost.
        unsafe { &mut *counters }.count(outcome);
    }
}

/// A packet that may be a pure ACK, all of it at hand.
struct Packet<'a> {
    frame: Frame<'a, TcContext>,
    context: &'a TcContext,
}

/// A pure ACK has no more: Ethernet, IPv6, and TCP with all its options.
const LONGEST_ACK: u32 = 14 + 40 + 60;

#[inline(always)]
fn ack(context: &TcContext) -> Result<Packet<'_>, FabricPass> {
    let bytes = context.len();
    if bytes > LONGEST_ACK {
        return Err(FabricPass::NotPureAck);
    }
    // Headers may lie in the packet's pages. However it ends, they have moved then.
    if Frame::new(context).available() < bytes as usize {
        let _ = context.pull_data(bytes);
    }
    let frame = Frame::new(context);
    Ok(Packet { frame, context })
}

impl Buffer for Packet<'_> {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.frame.read(offset)
    }

    #[inline(always)]
    fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.frame.head()
    }

    #[inline(always)]
    fn available(&self) -> usize {
        self.frame.available()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.frame.length()
    }
}

/// By the kernel, which makes the bytes the packet's own first, and renews what a device has summed up.
/// Nothing is read any more then.
impl BufferMut for Packet<'_> {
    #[inline(always)]
    fn write<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        let flags = u64::from(BPF_F_RECOMPUTE_CSUM);
        self.context.skb.store(offset, &bytes, flags).ok()
    }
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Never reached: the verifier refuses programs that could end up here.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
