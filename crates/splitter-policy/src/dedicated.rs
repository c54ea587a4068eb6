//! Hand-over between dedicated tunnels: leaky buckets tell when a flow's packets have left the
//! short one.
//!
//! A bucket models a FIFO that drains at the tunnel's rate. It sees only what
//! this border sends. Where it cannot know, each bucket errs to the side that
//! keeps a flow in order: the short tunnel's drains late, the long one's early.

use crate::config::PolicyConfig;
use crate::counters::FlowEvent;
use crate::egress::Egress;
use crate::flow::{Class, FlowEntry, TunnelRole};
use flow_balance::VirtualQueue;

/// The virtual queues of two dedicated tunnels; the one value of the tunnels map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedicatedQueues {
    /// The queue of the short tunnel; it drains never too early.
    pub short: VirtualQueue,
    /// The queue of the long tunnel; it drains never too late.
    pub long: VirtualQueue,
    /// The time until which a long flow is taken to be still in the short tunnel.
    pub long_on_short_until_ns: u64,
}

/// Moves a flow if it may, and puts the packet into the tunnel that it uses.
#[inline(always)]
pub(crate) fn send(
    entry: &mut FlowEntry,
    bytes: u64,
    config: &PolicyConfig,
    tunnels: Option<&mut DedicatedQueues>,
    now_ns: u64,
) -> Egress {
    let mut hand_over = None;
    if let Some(tunnels) = tunnels {
        hand_over = hand_over_event(entry, config, tunnels, now_ns);
        if hand_over.is_some() {
            entry.flags |= FlowEntry::ON_LONG_TUNNEL;
        }
        enqueue(entry, bytes, config, tunnels, now_ns);
    }
    if entry.class() == Class::Long && entry.tunnel() == TunnelRole::Long {
        entry.flags |= FlowEntry::PLACED;
    }
    let tunnel = entry.tunnel();
    Egress {
        hand_over,
        queue_class: tunnel.own_class(),
        tunnel,
    }
}

/// The hand-over event of this packet, if it may be the flow's first in the long tunnel.
#[inline(always)]
fn hand_over_event(
    entry: &FlowEntry,
    config: &PolicyConfig,
    tunnels: &DedicatedQueues,
    now_ns: u64,
) -> Option<FlowEvent> {
    if entry.class() == Class::Short || entry.tunnel() == TunnelRole::Long {
        return None;
    }
    // Without a model of the short tunnel only a silence tells. With one, the
    // packet's own time in the long tunnel is still no argument: a token bucket
    // may let a first packet pass at once.
    let leaves_ns = if config.short_service.is_known() {
        tunnels.long.next_start_ns(now_ns)
    } else {
        now_ns
    };
    if leaves_ns >= entry.drained_ns + config.drain_margin_ns {
        Some(FlowEvent::HandedOverDrained)
    } else if now_ns >= entry.long_since_ns + config.max_wait_ns {
        Some(FlowEvent::HandedOverAtMaxWait)
    } else {
        None
    }
}

/// A new flow had better start in the long tunnel: a long flow is still in the short one, and the
/// wait there is the longer one by a margin.
#[inline(always)]
pub(crate) fn starts_on_long(
    config: &PolicyConfig,
    tunnels: &DedicatedQueues,
    now_ns: u64,
) -> bool {
    /// Less than this is not worth a change: some eight full packets at
    /// 100 Mbit/s.
    const MARGIN_NS: u64 = 1_000_000;
    config.short_service.is_known()
        && config.long_service.is_known()
        && now_ns < tunnels.long_on_short_until_ns
        && tunnels.short.next_start_ns(now_ns) > tunnels.long.next_start_ns(now_ns) + MARGIN_NS
}

/// Puts the packet into the modelled queue of its tunnel.
#[inline(always)]
fn enqueue(
    entry: &mut FlowEntry,
    bytes: u64,
    config: &PolicyConfig,
    tunnels: &mut DedicatedQueues,
    now_ns: u64,
) {
    /// A long flow that sent nothing for so long does not occupy a tunnel.
    const LONG_FLOW_PRESENCE_NS: u64 = 2_000_000;
    match entry.tunnel() {
        TunnelRole::Short if config.short_service.is_known() => {
            entry.drained_ns = enqueue_short(bytes, config, tunnels, now_ns);
            if entry.class() == Class::Long {
                tunnels.long_on_short_until_ns = now_ns + LONG_FLOW_PRESENCE_NS;
            }
        }
        TunnelRole::Short => entry.drained_ns = now_ns,
        TunnelRole::Long => enqueue_long(bytes, config, tunnels, now_ns),
    }
}

/// Puts a packet into the modelled queue of the short tunnel; when it will have
/// left.
#[inline(always)]
pub(crate) fn enqueue_short(
    bytes: u64,
    config: &PolicyConfig,
    tunnels: &mut DedicatedQueues,
    now_ns: u64,
) -> u64 {
    // Beyond the cap a backlog decides nothing, and a sender who makes the
    // model believe in one must not do so for longer.
    let (service, limit_ns) = (config.short_service, config.max_wait_ns);
    tunnels.short.send_within(bytes, now_ns, service, limit_ns)
}

/// Puts a packet into the modelled queue of the long tunnel.
#[inline(always)]
pub(crate) fn enqueue_long(
    bytes: u64,
    config: &PolicyConfig,
    tunnels: &mut DedicatedQueues,
    now_ns: u64,
) {
    if config.long_service.is_known() {
        let limit_ns = config.long_queue_ns;
        let _ = tunnels
            .long
            .send_within(bytes, now_ns, config.long_service, limit_ns);
    }
}
