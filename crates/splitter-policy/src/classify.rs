//! Short or long, and when a long flow may change tunnels.
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
//! - when the tunnels' rates are known, leaky buckets ([`crate::drain`]) say
//!   when that is, and how late a packet that enters the long tunnel now would
//!   leave it: it is enough that it leaves later;
//!   [`Config::guard_ns`] is added for what the buckets do not see;
//! - when not, after a silence of [`Config::guard_ns`];
//! - and after [`Config::cap_ns`] in any case, counted apart.
//!
//! The cost is that the first packets of a long flow that follow the threshold
//! still load the short tunnel. With known rates these are a handful while the
//! long tunnel is busy. While that is empty, a flow that never pauses cannot
//! change without overtaking itself; then *new* flows, which have no order to
//! keep yet, start in the long tunnel instead, where nothing delays them.
//!
//! All this is where each class has a tunnel of its own. [`crate::share`] tells
//! what becomes of flows where both tunnels carry both.

mod packet;
mod verdict;

use crate::config::{Config, Unit};
use crate::counters::FlowEvent;
use crate::drain::Tunnels;
use crate::flow::{Class, FlowEntry, Tunnel};
use crate::models::Models;
use crate::packet::TcpFlags;
use crate::share::{Ride, Sent};
use flow_balance::ActiveFlows;
use flow_balance::VirtualQueue;
pub use packet::FlowPacket;
pub use verdict::Verdict;

/// Counts `packet` in `entry`, decides, and notes in `models` where it goes.
///
/// An entry that was never used (no packets) is a new flow. `now_ns` is
/// `CLOCK_MONOTONIC`, as exact as [`precision`] asks for.
#[inline(always)]
pub fn classify(
    entry: &mut FlowEntry,
    packet: FlowPacket,
    config: &Config,
    models: &mut impl Models,
    now_ns: u64,
) -> Verdict {
    let start = fresh_start(entry, packet.flags, config, now_ns);
    if start.is_some() {
        *entry = FlowEntry {
            first_seen_ns: now_ns,
            flags: match first_tunnel(config, models, now_ns) {
                Tunnel::Short => 0,
                Tunnel::Long => FlowEntry::MOVED,
            },
            ..FlowEntry::default()
        };
    }
    let is_first_of_window = ActiveFlows::is_first_of_window(entry.last_seen_ns, now_ns);
    entry.packets += packet.segments;
    entry.bytes += packet.bytes;
    entry.last_seen_ns = now_ns;

    let became_long = entry.class() == Class::Short
        && exceeds_threshold(entry.packets, entry.bytes, config)
        && (packet.carries_data() || !config.is_shared());
    if became_long {
        entry.long_since_ns = now_ns.max(1);
    }
    let ride = if config.is_shared() {
        let sent = Sent {
            packet,
            chosen: became_long.then(|| models.choose(config, now_ns)),
            is_first_of_window,
            now_ns,
        };
        models.send(config, entry, &sent)
    } else {
        send(entry, packet.bytes, config, models, now_ns)
    };
    let Ride {
        moved,
        rides,
        tunnel,
    } = ride;
    Verdict {
        class: entry.class(),
        tunnel,
        rides,
        start,
        became_long,
        moved,
        completed_ns: completion(entry, packet.flags, now_ns),
    }
}

/// How exact the time of a packet has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// A clock tick will do.
    Coarse,
    /// A completion time is the better for a precise one.
    Preferred,
    /// The order of packets depends on a precise one.
    Needed,
}

/// How exact [`classify`] wants `now_ns` for this packet, where a long flow is
/// taken to be in the short tunnel until `occupied_until_ns`.
///
/// Reading a precise clock costs more than the rest of the path, so it is read
/// around a change of tunnel, for full packets into a short tunnel whose drain
/// is modelled and, where that is not too often, for the first and last packet
/// of a flow. The packets of a flow in the long tunnel, the bulk of all, do
/// without.
#[inline(always)]
pub fn precision(
    entry: &FlowEntry,
    packet: FlowPacket,
    config: &Config,
    occupied_until_ns: u64,
    coarse_ns: u64,
) -> Precision {
    let is_rated = config.short_service.is_known();
    let is_full = VirtualQueue::needs_precise_time(packet.bytes);
    if entry.packets == 0 {
        let may_start_aside = coarse_ns < occupied_until_ns;
        if is_rated && (is_full || may_start_aside) {
            return Precision::Needed;
        }
        return Precision::Preferred;
    }
    if !is_settled(entry, config) {
        let is_long = entry.class() == Class::Long;
        if is_long || is_rated && is_full || !is_rated && turns_long(entry, packet, config) {
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

#[inline(always)]
fn turns_long(entry: &FlowEntry, packet: FlowPacket, config: &Config) -> bool {
    let (packets, bytes) = (entry.packets + packet.segments, entry.bytes + packet.bytes);
    exceeds_threshold(packets, bytes, config)
}

/// Moves a flow if it may, and puts the packet into the tunnel that it uses.
#[inline(always)]
fn send(
    entry: &mut FlowEntry,
    bytes: u64,
    config: &Config,
    models: &mut impl Models,
    now_ns: u64,
) -> Ride {
    let mut moved = None;
    if let Some(tunnels) = models.dedicated() {
        moved = may_move(entry, config, tunnels, now_ns);
        if moved.is_some() {
            entry.flags |= FlowEntry::MOVED;
        }
        note_sent(entry, bytes, config, tunnels, now_ns);
    }
    if entry.class() == Class::Long && entry.tunnel() == Tunnel::Long {
        entry.flags |= FlowEntry::PLACED;
    }
    let tunnel = entry.tunnel();
    Ride {
        moved,
        rides: tunnel.own_class(),
        tunnel,
    }
}

#[inline(always)]
fn first_tunnel(config: &Config, models: &mut impl Models, now_ns: u64) -> Tunnel {
    if config.is_shared() {
        return models.start(config, now_ns);
    }
    match models.dedicated() {
        Some(tunnels) if starts_aside(config, tunnels, now_ns) => Tunnel::Long,
        _ => Tunnel::Short,
    }
}

/// Whether the flow stays in its tunnel from now on.
#[inline(always)]
const fn is_settled(entry: &FlowEntry, config: &Config) -> bool {
    if config.is_shared() {
        entry.is_placed()
    } else {
        matches!(entry.tunnel(), Tunnel::Long)
    }
}

#[inline(always)]
fn fresh_start(
    entry: &FlowEntry,
    flags: TcpFlags,
    config: &Config,
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
pub(crate) fn exceeds_threshold(packets: u64, bytes: u64, config: &Config) -> bool {
    let count = if config.unit == Unit::BYTES {
        bytes
    } else {
        packets
    };
    count > config.threshold
}

/// Why this packet may be the flow's first in the long tunnel, if it may.
#[inline(always)]
fn may_move(
    entry: &FlowEntry,
    config: &Config,
    tunnels: &Tunnels,
    now_ns: u64,
) -> Option<FlowEvent> {
    if entry.class() == Class::Short || entry.tunnel() == Tunnel::Long {
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
    if leaves_ns >= entry.drained_ns + config.guard_ns {
        Some(FlowEvent::MovedDrained)
    } else if now_ns >= entry.long_since_ns + config.cap_ns {
        Some(FlowEvent::MovedAtCap)
    } else {
        None
    }
}

/// Whether a new flow had better start in the long tunnel: a long flow is still
/// in the short one, and the wait there is the longer one by a margin.
#[inline(always)]
fn starts_aside(config: &Config, tunnels: &Tunnels, now_ns: u64) -> bool {
    /// Less than this is not worth a change: some eight full packets at
    /// 100 Mbit/s.
    const MARGIN_NS: u64 = 1_000_000;
    config.short_service.is_known()
        && config.long_service.is_known()
        && now_ns < tunnels.occupied_until_ns
        && tunnels.short.next_start_ns(now_ns) > tunnels.long.next_start_ns(now_ns) + MARGIN_NS
}

/// Puts the packet into the modelled queue of its tunnel.
#[inline(always)]
fn note_sent(
    entry: &mut FlowEntry,
    bytes: u64,
    config: &Config,
    tunnels: &mut Tunnels,
    now_ns: u64,
) {
    /// A long flow that sent nothing for so long does not occupy a tunnel.
    const OCCUPATION_NS: u64 = 2_000_000;
    match entry.tunnel() {
        Tunnel::Short if config.short_service.is_known() => {
            entry.drained_ns = note_sent_short(bytes, config, tunnels, now_ns);
            if entry.class() == Class::Long {
                tunnels.occupied_until_ns = now_ns + OCCUPATION_NS;
            }
        }
        Tunnel::Short => entry.drained_ns = now_ns,
        Tunnel::Long => note_sent_long(bytes, config, tunnels, now_ns),
    }
}

/// Puts a packet into the modelled queue of the short tunnel; when it will have
/// left.
#[inline(always)]
pub(crate) fn note_sent_short(
    bytes: u64,
    config: &Config,
    tunnels: &mut Tunnels,
    now_ns: u64,
) -> u64 {
    // Beyond the cap a backlog decides nothing, and a sender who makes the
    // model believe in one must not do so for longer.
    let (service, limit_ns) = (config.short_service, config.cap_ns);
    tunnels.short.send_within(bytes, now_ns, service, limit_ns)
}

/// Puts a packet into the modelled queue of the long tunnel.
#[inline(always)]
pub(crate) fn note_sent_long(bytes: u64, config: &Config, tunnels: &mut Tunnels, now_ns: u64) {
    if config.long_service.is_known() {
        let limit_ns = config.long_queue_ns;
        let _ = tunnels
            .long
            .send_within(bytes, now_ns, config.long_service, limit_ns);
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
