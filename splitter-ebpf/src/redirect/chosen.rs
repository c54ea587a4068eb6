//! Puts packets into the tunnels that they choose, where routing leaves the choice to the tunnels' rules.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::programs::XdpContext;
use splitter_policy::dscp::rewrite_untagged;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::forward::Fallback;
use splitter_policy::next_hop::{TunnelHop, forward_plain};

use super::{DONE, KernelNextHops, TARGETS, count, forward, now_ns, redirect, trust};
use crate::balance::redirected as choice;
use crate::frame::Frame;
use crate::pipeline::{counters, is_shadow, settings};

/// Redirects the frame into the tunnel that its packet chooses; false when the stack is to forward it.
///
/// It is for the tunnels if routing has other answers for the short class and for the long one. What other routes lead
/// somewhere, by a tunnel's device even, has one answer whatever its class, and goes there; as does what is for the tunnels
/// while nobody vouches for next hops, where packets do not choose yet, or while one class has no tunnel of its own left.
#[inline(always)]
pub fn redirect_chosen(context: &XdpContext, class: Class, tunnel: TunnelRole) -> bool {
    let frame = context.as_ptr().cast();
    if may_choose() == DONE {
        let own = look_up(frame, tunnel);
        if is_nowhere(own) {
            return left_for(own) == DONE;
        }
        // Rules look at the mark.
        let mut other = own;
        if remark(frame, tunnel.other() as u64) == DONE {
            other = look_up(frame, tunnel.other());
        }
        if remark(frame, tunnel as u64) != DONE {
            return false;
        }
        if other != own && !is_nowhere(other) {
            match compare_length() {
                FITS => return choice::choose(class) && put_into_chosen(frame) == DONE,
                UNKNOWN => {}
                _ => return false,
            }
        }
    }
    redirect(context, tunnel)
}

/// Returns where routing leads a packet of a class: the slot of a device, or that it is [nowhere](is_nowhere).
#[inline(always)]
fn look_up(frame: *mut xdp_md, tunnel: TunnelRole) -> u64 {
    match look_up_plain(frame, tunnel as u64) {
        NOWHERE => look_up_frame(frame, tunnel as u64),
        slot => slot,
    }
}

/// Tells if routing leads a packet to no device that it could be put into; the rest of the number is the reason.
#[inline(always)]
const fn is_nowhere(answer: u64) -> bool {
    answer & NOWHERE != 0
}

/// Counts why a packet is left to the stack.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn left_for(answer: u64) -> u64 {
    let reason = Fallback::ALL.get((answer & !NOWHERE) as usize).copied();
    left_to_stack(reason.unwrap_or(Fallback::Failed))
}

/// Gives a frame that was noted the mark of the class whose own tunnel this is.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn remark(context: *mut xdp_md, tunnel: u64) -> u64 {
    let context = XdpContext::new(context);
    let tunnel = TunnelRole::numbered(tunnel);
    let mark = settings().config.mark(tunnel.own_class(), tunnel);
    let marked = rewrite_untagged(&mut Frame::new(&context), choice::is_v6(), mark);
    // What was looked up meanwhile has noted another one.
    let marked = marked.and_then(|()| choice::note_mark(mark));
    marked.map_or(0, |()| DONE)
}

const NOWHERE: u64 = 1 << 32;
const FITS: u64 = 1;
const UNKNOWN: u64 = 2;

/// Notes a plain segment for which there is a record for those who choose, and leaves it as it is.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn look_up_plain(context: *mut xdp_md, tunnel: u64) -> u64 {
    let context = XdpContext::new(context);
    // SAFETY: the context is the one that the kernel passed to the program.
    let device = unsafe { (*context.ctx).ingress_ifindex };
    let tunnel = TunnelRole::numbered(tunnel);
    let records = KernelNextHops::<false>;
    let found = forward_plain(&mut Frame::new(&context), device, tunnel, &records);
    found.map_or(NOWHERE, |(slot, _)| slot.into())
}

/// Notes a frame that routing leads into the tunnels for those who choose, and leaves it as it is.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn look_up_frame(context: *mut xdp_md, tunnel: u64) -> u64 {
    let context = XdpContext::new(context);
    let Some(counters) = counters() else {
        return NOWHERE;
    };
    match forward::<false>(&context, TunnelRole::numbered(tunnel), counters) {
        Ok((slot, _)) => slot.into(),
        Err(reason) => NOWHERE | reason as u64,
    }
}

/// Tells if packets choose now. By itself, as the verifier would follow each way to the answer through all that comes after.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn may_choose() -> u64 {
    let is_vouched_for = trust().is_given(now_ns());
    u64::from(!is_shadow() && is_vouched_for && choice::is_choosing())
}

/// Compares the length of a packet that was noted with the tunnels.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn compare_length() -> u64 {
    match choice::fit() {
        choice::Fit::Fits => FITS,
        choice::Fit::Unknown => UNKNOWN,
        choice::Fit::TooLarge => left_to_stack(Fallback::TooLarge),
    }
}

/// Puts the frame into the tunnel that was chosen, by the next hop that the agent keeps of it.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn put_into_chosen(context: *mut xdp_md) -> u64 {
    let context = XdpContext::new(context);
    let Some((hop, ip)) = choice::chosen() else {
        return left_to_stack(Fallback::Failed);
    };
    // Another device may have taken the slot since, and another tunnel the number.
    let is_right = |hop: &&TunnelHop| {
        choice::is_of_chosen(hop.device) && TARGETS.get_ifindex(hop.slot) == Some(hop.device)
    };
    let Some(hop) = hop.filter(is_right) else {
        return left_to_stack(Fallback::NoNeighbour);
    };
    // Takes effect only with the program's answer.
    if TARGETS.redirect(hop.slot, 0).is_err() || hop.forward(&mut Frame::new(&context)).is_none() {
        return left_to_stack(Fallback::Failed);
    }
    if let Some(counters) = counters() {
        counters.redirected += 1;
    }
    choice::count_chosen();
    count(&ip, hop.slot);
    DONE
}

#[inline(always)]
fn left_to_stack(reason: Fallback) -> u64 {
    if let Some(counters) = counters() {
        counters.count_fallback(reason);
    }
    0
}
