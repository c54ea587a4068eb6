//! Hand-over between dedicated tunnels: leaky buckets tell when a flow's packets have left the
//! short one.
//!
//! A bucket models a FIFO that drains at the tunnel's rate. It sees only what
//! this border sends. Where it cannot know, each bucket errs to the side that
//! keeps a flow in order: the short tunnel's drains late, the long one's early.
//!
//! A sender that never pauses keeps the short tunnel's queue filled by itself, and
//! could leave for an emptier tunnel only by overtaking itself. It is made to pause: after
//! [`PolicyConfig::max_wait_ns`] its packets are dropped until its last one in the short tunnel
//! has left it. To the sender that is a full queue, which it was about to cause; it hears of it within a round trip.

mod queues;

use crate::config::PolicyConfig;
use crate::counters::FlowEvent;
use crate::cpu_queues::SharedWord;
use crate::egress::Egress;
use crate::flow::{Class, FlowEntry, TunnelRole};
use crate::flow_packet::FlowPacket;
pub use queues::{DedicatedQueues, OwnShare, SharedModels};

/// The longest queue that is believed to stand in front of the short tunnel: a sender who makes the
/// model believe in more must not do so for longer.
pub(crate) const MOST_BACKLOG_NS: u64 = 200_000_000;

/// Nobody's packets are dropped for longer to make him pause, whatever the model believes.
const MOST_DROPS_NS: u64 = 100_000_000;

/// Moves a flow if it may, and puts the packet into the tunnel that it uses.
#[inline(always)]
pub(crate) fn send<W: SharedWord>(
    entry: &mut FlowEntry,
    packet: FlowPacket,
    config: &PolicyConfig,
    tunnels: Option<DedicatedQueues<'_, W>>,
    now_ns: u64,
) -> Egress {
    let mut hand_over = None;
    if let Some(mut tunnels) = tunnels {
        let tunnels = &mut tunnels;
        hand_over = hand_over_event(entry, packet, config, tunnels, now_ns);
        match hand_over {
            Some(FlowEvent::DroppedToDrain) => {
                occupy_short(tunnels, now_ns);
                return Egress {
                    hand_over,
                    ..Egress::dedicated_to(TunnelRole::Short)
                };
            }
            Some(_) => entry.flags |= FlowEntry::ON_LONG_TUNNEL,
            None => {}
        }
        enqueue(entry, packet.bytes, config, tunnels, now_ns);
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

/// The hand-over event of this packet, if it may be the flow's first in the long tunnel, or is
/// dropped so that a later one may.
#[inline(always)]
fn hand_over_event<W: SharedWord>(
    entry: &FlowEntry,
    packet: FlowPacket,
    config: &PolicyConfig,
    tunnels: &DedicatedQueues<'_, W>,
    now_ns: u64,
) -> Option<FlowEvent> {
    if entry.class() == Class::Short || entry.tunnel() == TunnelRole::Long {
        return None;
    }
    // Without a model of the short tunnel only a silence tells. With one, the
    // packet's own time in the long tunnel is still no argument: a token bucket
    // may let a first packet pass at once.
    let leaves_ns = if config.short_service.is_known() {
        tunnels.long_start_ns(now_ns)
    } else {
        now_ns
    };
    if leaves_ns >= entry.drained_ns + config.drain_margin_ns {
        return Some(FlowEvent::HandedOverDrained);
    }
    let waits_until_ns = entry.long_since_ns + config.max_wait_ns;
    // Who opens or ends a connection waits for a time-out of seconds where he is dropped, and overtakes
    // the flow's data where he leaves it: with little or nothing behind him he had better stay.
    let is_plain = !packet.flags.opens() && !packet.flags.closes();
    if now_ns < waits_until_ns || !is_plain {
        None
    } else if may_drop(config) && now_ns < waits_until_ns + MOST_DROPS_NS {
        Some(FlowEvent::DroppedToDrain)
    } else {
        Some(FlowEvent::HandedOverAtMaxWait)
    }
}

/// Tells if a packet that comes too early for the long tunnel, and too late for the short one, may
/// be dropped: where it is known when its flow's last one will have left. With several tunnels in
/// a class, of which the long one's rate counts as not known, that is known too late by far. In a
/// shadow nothing is touched.
#[inline(always)]
fn may_drop(config: &PolicyConfig) -> bool {
    let is_known = config.short_service.is_known() && config.long_service.is_known();
    is_known && !config.marking.is_shadow()
}

/// A new flow had better start in the long tunnel: a long flow is still in the short one, and the
/// wait there is the longer one by a margin.
#[inline(always)]
pub(crate) fn starts_on_long<W: SharedWord>(
    config: &PolicyConfig,
    tunnels: &DedicatedQueues<'_, W>,
    now_ns: u64,
) -> bool {
    /// Less than this is not worth a change: some eight full packets at
    /// 100 Mbit/s.
    const MARGIN_NS: u64 = 1_000_000;
    config.short_service.is_known()
        && config.long_service.is_known()
        && now_ns < tunnels.long_on_short_until_ns()
        && tunnels.short_start_ns(now_ns) > tunnels.long_start_ns(now_ns) + MARGIN_NS
}

/// Has new flows look whether the long tunnel is the better one to start in, for a while.
#[inline(always)]
fn occupy_short<W: SharedWord>(tunnels: &mut DedicatedQueues<'_, W>, now_ns: u64) {
    /// A long flow that sent nothing for so long does not occupy a tunnel.
    const LONG_FLOW_PRESENCE_NS: u64 = 2_000_000;
    tunnels.occupy_short(now_ns + LONG_FLOW_PRESENCE_NS);
}

/// Puts the packet into the modelled queue of its tunnel.
#[inline(always)]
fn enqueue<W: SharedWord>(
    entry: &mut FlowEntry,
    bytes: u64,
    config: &PolicyConfig,
    tunnels: &mut DedicatedQueues<'_, W>,
    now_ns: u64,
) {
    match entry.tunnel() {
        TunnelRole::Short if config.short_service.is_known() => {
            entry.drained_ns = enqueue_short(bytes, config, tunnels, now_ns);
            if entry.class() == Class::Long {
                occupy_short(tunnels, now_ns);
            }
        }
        TunnelRole::Short => entry.drained_ns = now_ns,
        TunnelRole::Long => enqueue_long(bytes, config, tunnels, now_ns),
    }
}

/// Puts a packet into the modelled queue of the short tunnel; when it will have
/// left.
#[inline(always)]
pub(crate) fn enqueue_short<W: SharedWord>(
    bytes: u64,
    config: &PolicyConfig,
    tunnels: &mut DedicatedQueues<'_, W>,
    now_ns: u64,
) -> u64 {
    tunnels.send_short(bytes, config.short_service, MOST_BACKLOG_NS, now_ns)
}

/// Puts a packet into the modelled queue of the long tunnel.
#[inline(always)]
pub(crate) fn enqueue_long<W: SharedWord>(
    bytes: u64,
    config: &PolicyConfig,
    tunnels: &mut DedicatedQueues<'_, W>,
    now_ns: u64,
) {
    if config.long_service.is_known() {
        tunnels.send_long(bytes, config.long_service, config.long_queue_ns, now_ns);
    }
}
