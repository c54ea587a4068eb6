//! Puts packets that were split into their tunnel without the network stack.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::btf_maps::{DevMapHash, HashMap, PerCpuArray};
use aya_ebpf::helpers::bpf_fib_lookup;
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::XdpContext;
use splitter_policy::flow::TunnelRole;
use splitter_policy::forward::{Fallback, FibLookup, Mac, target};

use crate::egress;
use crate::frame::Frame;
use crate::pipeline::{counters, is_shadow};

/// Devices of tunnels that packets can be put into, as [`target`] numbers them; the
/// agent fills it.
#[btf_map]
static TARGETS: DevMapHash<64> = DevMapHash::new();

/// The link address of each device that packets come in by.
#[btf_map]
static LAN_ADDRESSES: HashMap<u32, Mac, 64> = HashMap::new();

/// What the kernel is asked and answers. Not on the stack, where the verifier wants
/// words to be aligned and the compiler does not care.
#[btf_map]
static FIB_LOOKUP: PerCpuArray<FibLookup, 1> = PerCpuArray::new();

/// Redirects the frame into its tunnel; false when the stack is to forward it.
#[inline(always)]
pub fn redirect(context: &XdpContext, tunnel: TunnelRole) -> bool {
    !is_shadow() && redirect_frame(context.as_ptr().cast(), tunnel as u64) == REDIRECTED
}

const REDIRECTED: u64 = 1;

/// Looks up the path of a frame and sends it there. A function of its own for the
/// verifier, which checks it once, and for its own stack frame.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn redirect_frame(context: *mut xdp_md, tunnel: u64) -> u64 {
    let context = XdpContext::new(context);
    let Some(counters) = counters() else {
        return 0;
    };
    match forward(&context, TunnelRole::numbered(tunnel)) {
        Ok(device) => {
            counters.redirected += 1;
            egress::count_redirected(&context, device);
            REDIRECTED
        }
        Err(reason) => {
            counters.count_fallback(reason);
            0
        }
    }
}

/// Returns the number of the device that the frame is put into.
#[inline(always)]
fn forward(context: &XdpContext, tunnel: TunnelRole) -> Result<u32, Fallback> {
    // SAFETY: the context is the one that the kernel passed to the program.
    let device = unsafe { (*context.ctx).ingress_ifindex };
    let own = own_address(device).ok_or(Fallback::NotOurs)?;
    // SAFETY: a per-CPU value, as the counters are.
    let lookup = unsafe { &mut *FIB_LOOKUP.get_ptr_mut(0).ok_or(Fallback::Failed)? };
    *lookup = FibLookup::default();
    lookup.fill(&Frame::new(context), device, own)?;
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
    // Takes effect only with the program's answer.
    let device = lookup.device;
    if TARGETS.redirect(target(device, tunnel), 0).is_err() {
        return Err(Fallback::OtherDevice);
    }
    lookup
        .forward(&mut Frame::new(context))
        .map(|()| device)
        .ok_or(Fallback::Failed)
}

#[inline(always)]
fn own_address(device: u32) -> Option<Mac> {
    // SAFETY: a plain integer, which the agent may replace while it is read.
    unsafe { LAN_ADDRESSES.get(&device).copied() }
}
