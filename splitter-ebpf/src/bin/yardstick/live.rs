//! Programs for frames that really travel: what draws them, what they meet, and what counts them.
//!
//! The kernel's generator (`BPF_F_TEST_XDP_LIVE_FRAMES`) runs a program on frames of which it has a
//! few, and uses their memory again and again. [`generate`] therefore writes all of a frame that
//! somebody behind it may have changed, for the flow and the length that come next in a list.

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP};
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::helpers::{bpf_redirect, bpf_xdp_adjust_tail};
use aya_ebpf::macros::{btf_map, classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use splitter_ebpf::frame::{Context, Frame};
use splitter_ebpf::{clock, pipeline};
use splitter_policy::buffer::{Buffer as _, BufferMut as _};

/// Packets of the list, which is read in circles.
pub(crate) const LISTED: u32 = 1 << 20;

/// The flows' numbers, packet by packet; bits 30 and 31 choose one of [`Template::bytes`].
#[btf_map]
static LIST: Array<u32, { LISTED as usize }> = Array::new();

/// How far this CPU has come in its part of the list.
#[btf_map]
static POSITION: PerCpuArray<Position, 1> = PerCpuArray::new();

/// Gaps between frames in nanoseconds, read in circles.
#[btf_map]
static GAPS: Array<u32, { GAP_COUNT as usize }> = Array::new();

const GAP_COUNT: u32 = 1 << 16;

/// When this CPU's next frame is due, and how far it has come in the gaps.
#[btf_map]
static SCHEDULE: PerCpuArray<Schedule, 1> = PerCpuArray::new();

/// Frames by how long after they were due they arrived: [`bucket`] has the scale.
#[btf_map]
static LATENCIES: PerCpuArray<u64, { BUCKETS as usize }> = PerCpuArray::new();

/// Up to more than an hour.
const BUCKETS: u32 = 640;

/// Frames that arrived, and were not lost on the way.
#[btf_map]
static ARRIVED: PerCpuArray<u64, 1> = PerCpuArray::new();

#[btf_map]
static TEMPLATE: Array<Template, 1> = Array::new();

/// A place in the list: where the CPU's part begins, and what of a place lies outside of it. All zeros
/// mean the whole list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Position {
    next: u32,
    first: u32,
    /// Bits of an index that are not the part's; its length is a power of two.
    outside: u32,
}

/// When frames come: times of `CLOCK_MONOTONIC`, drawn beforehand.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Schedule {
    due_ns: u64,
    next: u64,
}

/// What generated frames have in common.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Template {
    /// Ethernet and IPv4 header, and the ports, as they are written but for the addresses, the
    /// total length and the checksum.
    head: [u8; HEAD],
    /// The ones' complement sum of the header's words without these.
    sum: u32,
    /// The lengths of frames.
    bytes: [u32; 4],
    /// The device that frames are put into.
    device: u32,
    /// The one that [`live_redirect`] puts them into.
    redirected_to: u32,
}

const HEAD: usize = 38;
const ETHERNET: usize = 14;
const TOTAL_LENGTH: usize = ETHERNET + 2;
const CHECKSUM: usize = ETHERNET + 10;
/// Source and destination.
const ADDRESSES: usize = ETHERNET + 12;
/// Sequence and acknowledgement number, at which neither splitter nor peers look.
const SEQUENCE: usize = HEAD;

/// The number of the flow that comes next in the list, and the index of its frame's length.
#[inline(always)]
pub(crate) fn next_listed() -> Option<(u32, usize)> {
    let position = POSITION.get_ptr_mut(0)?;
    // SAFETY: a per-CPU value; nothing else runs a generator on this CPU.
    let position = unsafe { &mut *position };
    let place = position.first + (position.next & !position.outside);
    position.next = position.next.wrapping_add(1);
    let listed = *LIST.get(place & (LISTED - 1))?;
    Some((listed & 0x3fff_ffff, (listed >> 30) as usize & 3))
}

/// Writes the next frame and puts it into the device.
#[xdp]
pub fn generate(context: XdpContext) -> u32 {
    match draw(&context) {
        // SAFETY: the helper has no preconditions.
        Some(template) => unsafe { bpf_redirect(template.device, 0) as u32 },
        None => XDP_ABORTED,
    }
}

/// Does the same once the next frame is due, and writes into it when that was; before that it drops the
/// empty frame. A core that is late catches up: frames come as they were drawn, not as it has time.
#[xdp]
pub fn generate_paced(context: XdpContext) -> u32 {
    draw_due(&context).unwrap_or(XDP_ABORTED)
}

#[inline(always)]
fn draw_due(context: &XdpContext) -> Option<u32> {
    let schedule = SCHEDULE.get_ptr_mut(0)?;
    // SAFETY: a per-CPU value; nothing else runs a generator on this CPU.
    let schedule = unsafe { &mut *schedule };
    let due_ns = schedule.due_ns;
    if clock::monotonic_ns() < due_ns {
        return Some(XDP_DROP);
    }
    let gap_ns = *GAPS.get(schedule.next as u32 & (GAP_COUNT - 1))?;
    schedule.next += 1;
    schedule.due_ns = due_ns + u64::from(gap_ns);
    let template = draw(context)?;
    Frame::new(context).write(SEQUENCE, due_ns.to_ne_bytes())?;
    // SAFETY: the helper has no preconditions.
    Some(unsafe { bpf_redirect(template.device, 0) as u32 })
}

/// Writes the next frame and drops it: what the generator itself costs.
#[xdp]
pub fn generate_alone(context: XdpContext) -> u32 {
    match draw(&context) {
        Some(_) => drop_arrived(),
        None => XDP_ABORTED,
    }
}

#[inline(always)]
fn draw(context: &XdpContext) -> Option<&'static Template> {
    let (flow, length) = next_listed()?;
    let template = TEMPLATE.get(0)?;
    let wanted = template.bytes[length];
    let (start, end) = context.bounds();
    let missing = wanted as i32 - (end - start) as i32;
    if missing != 0 {
        // SAFETY: the context is the one that the kernel passed to the program.
        let adjusted = unsafe { bpf_xdp_adjust_tail(context.ctx, missing) };
        if adjusted != 0 {
            return None;
        }
    }
    let packet_bytes = wanted - ETHERNET as u32;
    // Beside the addresses of the router and of the network; each flow has both of its own.
    let source = (10 << 24 | 64 << 16) + flow;
    let destination = (172 << 24 | 16 << 16) + flow;
    let sum = template.sum + packet_bytes + (source >> 16) + (source & 0xffff);
    let sum = sum + (destination >> 16) + (destination & 0xffff);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let mut frame = Frame::new(context);
    frame.write(0, template.head)?;
    frame.write(TOTAL_LENGTH, (packet_bytes as u16).to_be_bytes())?;
    frame.write(CHECKSUM, (!sum as u16).to_be_bytes())?;
    let addresses = u64::from(source) << 32 | u64::from(destination);
    frame.write(ADDRESSES, addresses.to_be_bytes())?;
    Some(template)
}

/// Counts a frame that arrived, and drops it.
#[xdp(frags)]
pub fn live_drop(_: XdpContext) -> u32 {
    drop_arrived()
}

/// The same in traffic control, for what the network stack sends.
#[classifier]
pub fn live_drop_skb(_: TcContext) -> i32 {
    count_arrival();
    SHOT
}

/// `TC_ACT_SHOT`: the packet is dropped.
const SHOT: i32 = 2;

/// Counts a frame by the time since it was due, and drops it.
#[xdp(frags)]
pub fn live_late(context: XdpContext) -> u32 {
    count_latency(&context);
    drop_arrived()
}

/// The same in traffic control, for what the network stack sends.
#[classifier]
pub fn live_late_skb(context: TcContext) -> i32 {
    count_latency(&context);
    count_arrival();
    SHOT
}

#[inline(always)]
fn count_latency<C: Context>(context: &C) -> Option<()> {
    let due_ns = u64::from_ne_bytes(Frame::new(context).read::<8>(SEQUENCE)?);
    let late_ns = clock::monotonic_ns().wrapping_sub(due_ns);
    let count = LATENCIES.get_ptr_mut(bucket(late_ns))?;
    // SAFETY: a per-CPU value, as that of arrivals.
    unsafe { *count += 1 };
    Some(())
}

/// Sixteen buckets for each doubling: the index is the exponent and the four bits below the first.
#[inline(always)]
const fn bucket(ns: u64) -> u32 {
    if ns < 16 {
        return ns as u32;
    }
    let exponent = 63 - ns.leading_zeros();
    let mantissa = (ns >> (exponent - 4)) as u32 & 15;
    let bucket = (exponent - 3) * 16 + mantissa;
    if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    }
}

/// Puts a frame into another device, as it is.
#[xdp(frags)]
pub fn live_redirect(_: XdpContext) -> u32 {
    match TEMPLATE.get(0) {
        // SAFETY: the helper has no preconditions.
        Some(template) => unsafe { bpf_redirect(template.redirected_to, 0) as u32 },
        None => XDP_ABORTED,
    }
}

/// Splits a frame, and drops it.
#[xdp(frags)]
#[inline(always)]
pub fn live_split_drop(context: XdpContext) -> u32 {
    pipeline::split(&context);
    drop_arrived()
}

/// Counts a frame's flow in an LRU hash with the time of its last packet, and drops it.
#[xdp(frags)]
pub fn live_lru_conntrack(context: XdpContext) -> u32 {
    super::count(&context, clock::monotonic_ns);
    drop_arrived()
}

#[inline(always)]
fn drop_arrived() -> u32 {
    count_arrival();
    XDP_DROP
}

#[inline(always)]
fn count_arrival() {
    if let Some(arrived) = ARRIVED.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, and programs that receive packets do not interrupt each other on
        // one CPU.
        unsafe { *arrived += 1 };
    }
}
