//! A border: which uplink a packet takes, and which class it is queued in.

use std::cell::Cell;

use flow_balance::{
    Balancer as _, EarliestArrival, EarliestFlow, Ecmp, Packet as Balanced, PathView, ServiceTime,
    Snapshot,
};
use splitter_policy::classify::classify;
use splitter_policy::config::{PolicyConfig, TunnelUse, Unit};
use splitter_policy::counters::FlowEvent;
use splitter_policy::flow::{Class, FlowEntry, TunnelRole};
use splitter_policy::flow_packet::FlowPacket;
use splitter_policy::models::HostQueues;
use splitter_policy::packet::TcpFlags;
use splitter_policy::paths::{LivePaths, SitePaths, TunnelPath, TunnelQueues};
use splitter_policy::thresholds::Thresholds;

use super::port::Port;
use super::scheme::Scheme;
use super::settings::{TwinSettings, Uplink};

/// One end of the uplinks, with what it remembers of all flows.
#[derive(Debug)]
pub(super) struct Border {
    chooser: Chooser,
}

/// State that a border keeps of the flow of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BorderFlow {
    entry: FlowEntry,
    earliest: EarliestFlow,
}

/// A packet that a border is to forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded {
    pub(super) now_ns: u64,
    pub(super) bytes: u32,
    pub(super) payload_bytes: u32,
    /// Hash of the flow, the same for all of its packets.
    pub(super) flow_hash: u64,
}

#[derive(Debug)]
enum Chooser {
    Ecmp(Ecmp, Box<Snapshot>),
    /// The uplink whose turn it is.
    Spray(usize),
    Earliest(Box<Earliest>),
    Splitter(Box<(PolicyConfig, HostQueues)>),
}

/// Tunnels and models of their queues, by which `balance = "tr"` chooses.
#[derive(Debug)]
struct Earliest {
    balancer: EarliestArrival,
    site: SitePaths,
    queues: TunnelQueues<Cell<u64>>,
    config: PolicyConfig,
}

/// The threshold and its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    pub(super) value: u64,
    pub(super) is_bytes: bool,
}

/// An acknowledgement is set in all packets of a connection that is open.
const ACK: TcpFlags = TcpFlags(0x10);

/// The splitter takes the short tunnel to drain a little slower than it is stated to.
const CAUTIOUS_PERCENT: u64 = 97;

impl Border {
    /// `rates` are those at which ports send, shaped or not.
    pub(super) fn new(
        scheme: &Scheme,
        settings: &TwinSettings,
        rates: &[u64],
        threshold: Threshold,
        seed: u64,
    ) -> Self {
        let config = policy(scheme, settings, rates, threshold);
        Self {
            chooser: match scheme {
                Scheme::Ecmp | Scheme::FairQueueing => {
                    let paths = Snapshot::new(&views(&settings.uplinks, rates));
                    Chooser::Ecmp(Ecmp { seed }, Box::new(paths))
                }
                Scheme::Spray => Chooser::Spray(0),
                Scheme::Tr { .. } => Chooser::Earliest(Box::new(Earliest {
                    balancer: EarliestArrival {
                        seed,
                        ..EarliestArrival::default()
                    },
                    site: site(settings, rates),
                    queues: TunnelQueues::default(),
                    config,
                })),
                Scheme::Dedicated { .. } | Scheme::Share { .. } => {
                    Chooser::Splitter(Box::new((config, HostQueues::default())))
                }
            },
        }
    }

    /// Returns the uplink and the class that a packet goes into; nothing where it is to be dropped, so that
    /// its flow can change tunnels in order.
    pub(super) fn forward(
        &mut self,
        flow: &mut BorderFlow,
        packet: &Forwarded,
        ports: &[Port],
    ) -> Option<(usize, Class)> {
        let now_ns = packet.now_ns;
        let balanced = Balanced {
            now_ns,
            bytes: packet.bytes,
            flow_hash: packet.flow_hash,
        };
        match &mut self.chooser {
            Chooser::Ecmp(ecmp, paths) => {
                let path = ecmp.choose(&mut (), &mut (), &**paths, &balanced);
                Some((path.index(), Class::Short))
            }
            Chooser::Spray(next) => {
                let uplink = *next % ports.len();
                *next = uplink + 1;
                Some((uplink, Class::Short))
            }
            Chooser::Earliest(it) => {
                let class = count(&mut flow.entry, packet, &it.config);
                let paths = LivePaths::new(&it.site, &it.queues, Some(class), now_ns);
                let (path, _) = paths.forward_in_order(&it.balancer, &mut flow.earliest, &balanced);
                Some((path.index(), class))
            }
            Chooser::Splitter(splitter) => {
                let (config, queues) = &mut **splitter;
                for (role, port) in TunnelRole::ALL.into_iter().zip(ports) {
                    queues.short_backlog[role as usize] = port.short_bytes();
                }
                let (bytes, payload) = (packet.bytes.into(), packet.payload_bytes.into());
                let counted = FlowPacket::new(bytes, payload, ACK, config);
                let verdict = classify(&mut flow.entry, counted, config, queues, now_ns);
                let is_dropped = verdict.hand_over == Some(FlowEvent::DroppedToDrain);
                (!is_dropped).then_some((verdict.tunnel as usize, verdict.queue_class))
            }
        }
    }
}

/// Counts a packet; flows without a change of tunnels need no more.
fn count(entry: &mut FlowEntry, packet: &Forwarded, config: &PolicyConfig) -> Class {
    if entry.is_idle(packet.now_ns, config.idle_timeout_ns) {
        *entry = FlowEntry::default();
    }
    entry.packets += 1;
    entry.bytes += u64::from(packet.bytes);
    entry.last_seen_ns = packet.now_ns;
    let exceeds = config.exceeds_threshold(entry.threshold(), entry.packets, entry.bytes);
    if exceeds && entry.class() == Class::Short {
        entry.long_since_ns = packet.now_ns.max(1);
    }
    entry.class()
}

fn views(uplinks: &[Uplink], rates: &[u64]) -> Vec<PathView> {
    let view = |(uplink, rate): (&Uplink, &u64)| PathView {
        propagation_ns: uplink.round_trip_ns / 2,
        service: ServiceTime::from_bits_per_second(*rate),
        weight: (uplink.bits_per_second / 100_000).clamp(1, u32::MAX.into()) as u32,
        ..PathView::default()
    };
    uplinks.iter().zip(rates).map(view).collect()
}

/// The uplinks as the agent describes tunnels to the kernel.
fn site(settings: &TwinSettings, rates: &[u64]) -> SitePaths {
    let mut site = SitePaths {
        has_priority: 1,
        ..SitePaths::default()
    };
    let described = settings.uplinks.iter().zip(rates).zip(&mut site.tunnels);
    for (index, ((uplink, rate), tunnel)) in described.enumerate() {
        site.known |= 1 << index;
        *tunnel = TunnelPath {
            propagation_ns: uplink.round_trip_ns / 2,
            service: ServiceTime::from_bits_per_second(*rate),
            own_service: ServiceTime::from_bits_per_second(*rate),
            queue_ns: settings.buffer_ms * 1_000_000,
            burst_ns: 0,
            weight: 1,
            mark: 0,
        };
    }
    site.usable = site.known;
    site
}

/// The splitter's settings where both rates are stated, as its configuration makes them.
fn policy(
    scheme: &Scheme,
    settings: &TwinSettings,
    rates: &[u64],
    threshold: Threshold,
) -> PolicyConfig {
    let is_shared = matches!(scheme, Scheme::Share { .. });
    let rate = |index: usize| rates.get(index).copied().unwrap_or(0);
    let delay_ns = |index: usize| {
        let uplink = settings.uplinks.get(index);
        uplink.map_or(0, |it: &Uplink| it.round_trip_ns / 2)
    };
    // A packet must not arrive by the long tunnel before one that left earlier by the short one.
    let lag_ns = delay_ns(0).saturating_sub(delay_ns(1));
    // A packet that is just leaving and a burst of two (the agent reckons with the same).
    let slowest = rate(0).min(rate(1)).max(1);
    let shaper_ns = if is_shared {
        3 * 1_514 * 8 * 1_000_000_000 / slowest
    } else {
        0
    };
    let percent = if is_shared { 100 } else { CAUTIOUS_PERCENT };
    PolicyConfig {
        thresholds: Thresholds::uniform(threshold.value),
        unit: if threshold.is_bytes {
            Unit::BYTES
        } else {
            Unit::PACKETS
        },
        drain_margin_ns: PolicyConfig::DEFAULT_DRAIN_MARGIN_NS.max(shaper_ns) + lag_ns,
        max_wait_ns: if is_shared {
            PolicyConfig::DEFAULT_SHARED_MAX_WAIT_NS
        } else {
            PolicyConfig::DEFAULT_MAX_WAIT_NS
        } + lag_ns,
        short_service: ServiceTime::from_bits_per_second(rate(0) * percent / 100),
        long_service: ServiceTime::from_bits_per_second(rate(1)),
        long_queue_ns: settings.buffer_ms * 1_000_000,
        tunnel_use: if is_shared {
            TunnelUse::SHARED
        } else {
            TunnelUse::DEDICATED
        },
        ..PolicyConfig::default()
    }
}
