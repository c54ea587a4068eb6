//! Classification of flows: short or long by Algorithm 1 of the paper, and the hand-over of long
//! ones.
//!
//! A flow's *class* follows Algorithm 1 of the splitter paper: the count is
//! raised, then compared, so packet `threshold + 1` is the first long one.
//!
//! Its *tunnel* follows later. A packet in the long tunnel can overtake those
//! of its flow that still wait in the short one; the receiver then asks for
//! retransmissions, and with timestamps (PAWS) may drop the originals and stall
//! for a whole retransmission time-out. So a long flow stays in the short
//! tunnel until its last packet there must have drained:
//!
//! - when the tunnels' rates are known, leaky buckets ([`crate::dedicated`]) say
//!   when that is, and how late a packet that enters the long tunnel now would
//!   leave it: it is enough that it leaves later;
//!   [`PolicyConfig::drain_margin_ns`] is added for what the buckets do not see;
//! - when not, after a silence of [`PolicyConfig::drain_margin_ns`];
//! - after [`PolicyConfig::max_wait_ns`] it is made to pause, where the short tunnel's rate is known:
//!   its packets are dropped until then. Where it is not, it changes all the same, counted apart.
//!
//! The cost is that the first packets of a long flow that follow the threshold
//! still load the short tunnel. With known rates these are a handful while the
//! long tunnel is busy. While that is empty, a flow that never pauses waits for the longest;
//! *new* flows, which have no order to
//! keep yet, start in the long tunnel meanwhile, where nothing delays them.
//!
//! All this is where each class has a tunnel of its own. [`crate::share`] tells
//! what becomes of flows where both tunnels carry both.

mod verdict;

use crate::config::PolicyConfig;
use crate::counters::FlowEvent;
use crate::dedicated;
use crate::egress::Egress;
use crate::flow::{Class, FlowEntry, TunnelRole};
use crate::flow_packet::FlowPacket;
use crate::models::QueueModels;
use crate::packet::TcpFlags;
use crate::share::{CountedPacket, Stage};
use crate::thresholds::ThresholdIndex;
use flow_balance::VirtualQueue;
pub use verdict::Verdict;

/// Classifies the flow of `packet`, counts it in `entry`, and puts it into the virtual queue of its
/// egress.
///
/// An entry that was never used (no packets) is a new flow. `now_ns` is
/// `CLOCK_MONOTONIC`, as exact as [`precision`] asks for.
#[inline(always)]
pub fn classify(
    entry: &mut FlowEntry,
    packet: FlowPacket,
    config: &PolicyConfig,
    models: &mut impl QueueModels,
    now_ns: u64,
) -> Verdict {
    let find_threshold = || ThresholdIndex::UNKNOWN;
    classify_by_site(entry, packet, config, models, find_threshold, now_ns)
}

/// Classifies as [`classify`] does a flow whose site may have a threshold of its own:
/// `find_threshold` looks it up. It is called at most once, and not where all have one threshold.
#[inline(always)]
pub fn classify_by_site(
    entry: &mut FlowEntry,
    packet: FlowPacket,
    config: &PolicyConfig,
    models: &mut impl QueueModels,
    find_threshold: impl FnOnce() -> ThresholdIndex,
    now_ns: u64,
) -> Verdict {
    let start = fresh_start(entry, packet.flags, config, now_ns);
    if start.is_some() {
        *entry = FlowEntry {
            first_seen_ns: now_ns,
            flags: match first_tunnel(config, models, now_ns) {
                TunnelRole::Short => 0,
                TunnelRole::Long => FlowEntry::ON_LONG_TUNNEL,
            },
            ..FlowEntry::default()
        };
        if config.is_shared() {
            entry.set_stage(Stage::Starting);
            entry.last_seen_ns = now_ns;
        }
    }
    let (last_seen_ns, was) = (entry.last_seen_ns, entry.stage());
    entry.packets += packet.segments;
    entry.bytes += packet.bytes;
    entry.last_seen_ns = now_ns;

    let became_long = entry.class() == Class::Short
        && (packet.carries_data() || !config.is_shared())
        && exceeds_threshold(entry, config, find_threshold);
    if became_long {
        entry.long_since_ns = now_ns.max(1);
    }
    let egress = if config.is_shared() {
        let sent = CountedPacket {
            packet,
            chosen: became_long
                .then(|| models.choose(config, entry.tunnel(), was, last_seen_ns, now_ns)),
            last_seen_ns,
            now_ns,
        };
        models.send(config, entry, &sent)
    } else {
        dedicated::send(entry, packet, config, models.dedicated(), now_ns)
    };
    let Egress {
        hand_over,
        queue_class,
        tunnel,
    } = egress;
    Verdict {
        class: entry.class(),
        tunnel,
        queue_class,
        start,
        became_long,
        hand_over,
        completed_ns: completion(entry, packet.flags, now_ns),
    }
}

/// The precision that a packet's time has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// A clock tick will do.
    Coarse,
    /// A completion time is the better for a precise one.
    Preferred,
    /// The order of packets depends on a precise one.
    Needed,
}

/// The short tunnel, as far as the precision of a packet's time depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortTunnel {
    /// A long flow is taken to be in it now.
    pub may_have_long: bool,
    /// Its queue holds packets beyond now, by the coarse clock: what comes next is modelled without
    /// another.
    pub is_busy: bool,
}

/// The precision of `now_ns` that [`classify`] wants for this packet.
///
/// Reading a precise clock costs more than the rest of the path, so it is read
/// around a change of tunnel, for full packets into a short tunnel whose drain
/// is modelled unless its queue is busy anyway, and, where that is not too often, for the first and last packet
/// of a flow. The packets of a flow in the long tunnel, the bulk of all, do
/// without.
#[inline(always)]
pub fn precision(
    entry: &FlowEntry,
    packet: FlowPacket,
    config: &PolicyConfig,
    short_tunnel: ShortTunnel,
) -> Precision {
    let is_rated = config.short_service.is_known();
    let is_full = VirtualQueue::needs_precise_time(packet.bytes);
    if entry.packets == 0 {
        if is_rated && (is_full || short_tunnel.may_have_long) {
            return Precision::Needed;
        }
        return Precision::Preferred;
    }
    if !is_settled(entry, config) {
        // It may change tunnels with its next packet.
        if config.is_shared() && packet.carries_data() {
            return Precision::Needed;
        }
        let is_long = entry.class() == Class::Long;
        let is_timed = is_rated && is_full && !short_tunnel.is_busy;
        let may_turn_long = !is_rated || is_full;
        if is_long || is_timed || may_turn_long && becomes_long(entry, packet, config) {
            return Precision::Needed;
        }
    }
    let ends = packet.flags.closes() && !entry.is_finished();
    let starts_again = packet.flags.opens() && entry.is_finished();
    if ends || starts_again {
        Precision::Preferred
    } else {
        Precision::Coarse
    }
}

/// Holds the counts of a short flow against the threshold that it goes by, and once they are above that
/// against the one of its site.
#[inline(always)]
fn exceeds_threshold(
    entry: &mut FlowEntry,
    config: &PolicyConfig,
    find_threshold: impl FnOnce() -> ThresholdIndex,
) -> bool {
    if !config.exceeds_threshold(entry.threshold(), entry.packets, entry.bytes) {
        return false;
    }
    if config.thresholds.are_uniform() {
        return true;
    }
    let mut found = find_threshold();
    if found.is_unknown() {
        found = config.thresholds.common_index();
    }
    entry.set_threshold(found);
    config.exceeds_threshold(found, entry.packets, entry.bytes)
}

#[inline(always)]
fn becomes_long(entry: &FlowEntry, packet: FlowPacket, config: &PolicyConfig) -> bool {
    let (packets, bytes) = (entry.packets + packet.segments, entry.bytes + packet.bytes);
    config.exceeds_threshold(entry.threshold(), packets, bytes)
}

#[inline(always)]
fn first_tunnel(config: &PolicyConfig, models: &mut impl QueueModels, now_ns: u64) -> TunnelRole {
    if config.is_shared() {
        return models.start(config, now_ns);
    }
    match models.dedicated() {
        Some(tunnels) if dedicated::starts_on_long(config, &tunnels, now_ns) => TunnelRole::Long,
        _ => TunnelRole::Short,
    }
}

/// The flow stays in its tunnel from now on.
#[inline(always)]
const fn is_settled(entry: &FlowEntry, config: &PolicyConfig) -> bool {
    if config.is_shared() {
        entry.is_placed()
    } else {
        matches!(entry.tunnel(), TunnelRole::Long)
    }
}

#[inline(always)]
fn fresh_start(
    entry: &FlowEntry,
    flags: TcpFlags,
    config: &PolicyConfig,
    now_ns: u64,
) -> Option<FlowEvent> {
    if entry.packets == 0 {
        Some(FlowEvent::Started)
    } else if entry.is_idle(now_ns, config.idle_timeout_ns) {
        Some(FlowEvent::RestartedIdle)
    } else if entry.is_finished() && flags.opens() {
        Some(FlowEvent::RestartedSyn)
    } else {
        None
    }
}

#[inline(always)]
fn completion(entry: &mut FlowEntry, flags: TcpFlags, now_ns: u64) -> Option<u64> {
    if !flags.closes() || entry.is_finished() {
        return None;
    }
    entry.flags |= FlowEntry::FINISHED;
    Some(now_ns.saturating_sub(entry.first_seen_ns))
}

#[cfg(test)]
mod tests;
