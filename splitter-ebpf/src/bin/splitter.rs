//! The programs that a border router runs.
#![no_std]
#![no_main]

use core::hint::black_box;

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_REDIRECT};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use splitter_ebpf::frame::DscpContext;
use splitter_ebpf::{balance, clock, egress, pipeline, redirect, tap, verdict_log};
use splitter_policy::clock::ClockReading;
use splitter_policy::split::Outcome;

#[btf_map]
static CLOCK_READING: Array<ClockReading, 1> = Array::new();

// What is returned where a map is not there is hidden from the compiler: it would keep the number on the stack
// from the first such place on, for all others.

/// Marks what arrives from the site for the short or the long tunnel. The
/// packet passes, unless its flow has to pause to change tunnels in order.
#[xdp(frags)]
#[inline(always)]
pub fn split(context: XdpContext) -> u32 {
    let Some(outcome) = pipeline::split(&context) else {
        return black_box(XDP_PASS);
    };
    verdict_log::write_xdp(&context, outcome);
    match outcome {
        Outcome::Dropped => XDP_DROP,
        Outcome::Split { .. } | Outcome::Passed(_) => XDP_PASS,
    }
}

/// Marks what arrives from the site by its fwmark (`skb->mark`), which stays
/// as it came.
#[classifier]
#[inline(always)]
pub fn mark(context: TcContext) -> i32 {
    let Some(outcome) = pipeline::split(&context) else {
        return black_box(NEXT);
    };
    verdict_log::write_skb(&context, outcome);
    match outcome {
        Outcome::Dropped => SHOT,
        Outcome::Split { .. } | Outcome::Passed(_) => NEXT,
    }
}

/// Marks as [`mark`] does, and beside the class the tunnel that each packet is to take, where those of
/// the site are one list.
#[classifier]
#[inline(always)]
pub fn mark_balanced(context: TcContext) -> i32 {
    match pipeline::split(&context) {
        Some(outcome) => choose_after(&context, outcome),
        None => black_box(NEXT),
    }
}

/// Marks the class by the DSCP, as [`split`] does, and the tunnel that each packet is to take by its fwmark, which XDP
/// cannot set.
#[classifier]
#[inline(always)]
pub fn split_balanced(context: TcContext) -> i32 {
    match pipeline::split(&DscpContext(&context)) {
        Some(outcome) => choose_after(&context, outcome),
        None => black_box(NEXT),
    }
}

#[inline(always)]
fn choose_after(context: &TcContext, outcome: Outcome) -> i32 {
    verdict_log::write_skb(context, outcome);
    match outcome {
        Outcome::Dropped => return SHOT,
        Outcome::Split { class, .. } => balance::choose(context, Some(class)),
        Outcome::Passed(_) => balance::choose(context, None),
    }
    NEXT
}

/// Marks as [`split`] does, and puts what was split into its tunnel at once where
/// that is possible. What is not passes.
#[xdp(frags)]
#[inline(always)]
pub fn redirect(context: XdpContext) -> u32 {
    let Some(outcome) = pipeline::split(&context) else {
        return black_box(XDP_PASS);
    };
    verdict_log::write_xdp(&context, outcome);
    match outcome {
        Outcome::Split { tunnel, .. } if redirect::redirect(&context, tunnel) => XDP_REDIRECT,
        Outcome::Dropped => XDP_DROP,
        Outcome::Split { .. } | Outcome::Passed(_) => XDP_PASS,
    }
}

/// Redirects as [`redirect`] does, each packet into the tunnel that it chooses among those of the site.
#[xdp(frags)]
#[inline(always)]
pub fn redir_balanced(context: XdpContext) -> u32 {
    let Some(outcome) = pipeline::split(&context) else {
        return black_box(XDP_PASS);
    };
    verdict_log::write_xdp(&context, outcome);
    match outcome {
        Outcome::Split { class, tunnel } if redirect::redirect_chosen(&context, class, tunnel) => {
            XDP_REDIRECT
        }
        Outcome::Dropped => XDP_DROP,
        Outcome::Split { .. } | Outcome::Passed(_) => XDP_PASS,
    }
}

/// `TC_ACT_SHOT`, and `TCX_DROP`: the packet is dropped.
const SHOT: i32 = 2;
/// `TCX_NEXT`: lets the next program of the chain run.
const NEXT: i32 = -1;

/// Counts what leaves by a tunnel's device, by mark, or by one of the site, by flow. The packet goes
/// on as it is in any case.
#[classifier]
pub fn count_egress(context: TcContext) -> i32 {
    egress::count(&context);
    NEXT
}

/// Notes when each TCP flow's first and last packet pass an interface, at
/// ingress or egress, for completion times as the paper measures them; and when
/// each packet does that is selected.
#[classifier]
pub fn tap(context: TcContext) -> i32 {
    tap::note(&context);
    NEXT
}

/// Reads both clocks at once. Only ever run by the agent, never attached.
#[xdp]
pub fn read_clocks(_: XdpContext) -> u32 {
    if let Some(reading) = CLOCK_READING.get_ptr_mut(0) {
        let both = ClockReading {
            ticks: clock::ticks(),
            monotonic_ns: clock::monotonic_ns(),
        };
        // SAFETY: the one value of an array map; the agent runs one at a time.
        unsafe { *reading = both };
    }
    XDP_PASS
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
