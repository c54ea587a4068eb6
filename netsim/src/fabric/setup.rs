//! Builds a network out of a scenario.

use flow_balance::{Ageing, ServiceTime, ttl::Scale};

use super::{
    Counters, Network, SharedBuffer,
    layout::{Layout, Node},
    load_balancer::LoadBalancer,
    path_table::{Path, PathTable},
    port::{FIFO, Port},
    scheduler::Scheduler,
};
use crate::{
    engine::{
        datagram::Datagrams,
        event_queue::EventQueue,
        packet::{EntryKind, Packet, Slab},
        random::{Purpose, Random},
    },
    scenario::{
        BalanceSettings, BalancingPolicy, Discipline, FabricSettings, FarAgeing, FarKnowledge,
        PortSettings, Scenario,
    },
};

impl Network {
    /// An idle network. The scenario has been checked.
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let layout = Layout::new(&scenario.fabric);
        let paths = Spines::draw(&scenario.fabric, seed);
        let host_settings = scenario.host_port.as_ref().unwrap_or(&scenario.port);
        let mut slab = Slab::new();
        let mut schedulers = Vec::new();
        let mut ports = Vec::with_capacity(layout.ports());
        for number in 0..layout.ports() {
            let is_switch = layout.switch_of(number).is_some();
            let settings = if is_switch {
                &scenario.port
            } else {
                host_settings
            };
            let link = paths.link(&scenario.fabric, layout.node_behind(number));
            let mut port = Port::new(link.bits_per_second, link.delay_ns, settings, is_switch);
            port.failed = link.failed;
            port.scheduler = scheduler_for(settings, number, &mut schedulers, &mut slab);
            ports.push(port);
        }
        let shared = scenario.port.shared.as_ref().map(|shared| SharedBuffer {
            bytes: shared.buffer_bytes,
            used: 0,
            alpha: (shared.alpha * 1024.0) as u64,
        });
        let switches = layout.leaves + layout.spines;
        Self {
            slab,
            events: EventQueue::new(),
            datagrams: Datagrams::default(),
            counters: Counters::default(),
            flow_info: Vec::new(),
            behind: (0..layout.ports())
                .map(|it| layout.node_behind(it))
                .chain([Node::OwnPort])
                .collect(),
            leaf_of: (0..layout.hosts())
                .map(|host| layout.leaf_of(host) as u16)
                .collect(),
            schedulers,
            shared: shared.map_or_else(Vec::new, |it| vec![it; switches]),
            paths: path_table(scenario, &layout, &ports),
            scales: (0..layout.spines * layout.leaves)
                .map(|it| Scale::new(ports[layout.spine_port(0, 0) + it].buffer_ns()))
                .collect(),
            load_balancer: LoadBalancer::new(
                &scenario.balance,
                layout.leaves,
                slowest_rtt_ns(&layout, &ports),
                seed,
            ),
            knows_spine_queues: scenario.balance.tr.far == FarKnowledge::Exact
                && matches!(
                    scenario.balance.policy,
                    BalancingPolicy::Tr | BalancingPolicy::TrGuarded
                ),
            layout,
            ports,
        }
    }

    /// A pair of leaves without a working path, if there is one.
    pub(crate) fn unreachable(&self) -> Option<(usize, usize)> {
        self.paths.unreachable()
    }
}

/// Gives a port queues if it needs them.
fn scheduler_for(
    settings: &PortSettings,
    number: usize,
    schedulers: &mut Vec<Scheduler>,
    slab: &mut Slab,
) -> u32 {
    if settings.discipline == Discipline::Fifo && settings.shared.is_none() {
        return FIFO;
    }
    let mut event = Packet::new(EntryKind::PortFree);
    event.link = number as u16;
    let event = slab.insert(event);
    schedulers.push(Scheduler::new(settings, event));
    schedulers.len() as u32 - 1
}

/// Builds the path table as it is before anything was sent.
fn path_table(scenario: &Scenario, layout: &Layout, ports: &[Port]) -> PathTable {
    let BalanceSettings { weighted, tr, .. } = &scenario.balance;
    let ageing = match tr.ageing {
        FarAgeing::Never => Ageing::Never,
        FarAgeing::Drains => Ageing::Drains,
    };
    PathTable::new(
        layout.leaves,
        layout.spines,
        ageing,
        |leaf, spine, to_leaf| {
            let near = &ports[layout.uplink(leaf, spine)];
            let far = &ports[layout.spine_port(spine, to_leaf)];
            let rates = [near, far].map(Port::bits_per_second);
            let slower = rates[0].min(rates[1]);
            Path {
                propagation_ns: near.propagation_ns.saturating_add(far.propagation_ns),
                weight: if *weighted {
                    (slower / 1_000_000).clamp(1, u32::MAX.into()) as u32
                } else {
                    1
                },
                // One after the other: times add up.
                service: ServiceTime::from_bits_per_second(
                    (u128::from(rates[0]) * u128::from(rates[1]) / u128::from(rates[0] + rates[1]))
                        as u64,
                ),
                usable: !near.failed && !far.failed,
            }
        },
    )
}

/// Computes the longest round trip between hosts of different leaves in an idle fabric.
fn slowest_rtt_ns(layout: &Layout, ports: &[Port]) -> u64 {
    let slowest = |ports: &[Port]| ports.iter().map(|it| it.propagation_ns).max().unwrap_or(0);
    let hosts = 2 * layout.hosts();
    let uplinks = hosts + layout.leaves * layout.spines;
    let links = [
        &ports[..hosts / 2],
        &ports[hosts / 2..hosts],
        &ports[hosts..uplinks],
        &ports[uplinks..],
    ];
    links.map(|it| 2 * u64::from(slowest(it))).iter().sum()
}

/// The spines that were drawn to be slow or failed.
#[derive(Debug)]
pub(crate) struct Spines {
    extra_ns: Vec<u64>,
    failed: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    bits_per_second: u64,
    delay_ns: u32,
    failed: bool,
}

impl Spines {
    /// Slow and failed ones are drawn apart, so that another number of one leaves the other alone.
    pub(crate) fn draw(fabric: &FabricSettings, seed: u64) -> Self {
        let spines = usize::from(fabric.spines);
        let (mut extra_ns, mut failed) = (vec![0; spines], vec![false; spines]);
        if let Some(slow) = &fabric.slow {
            // A round trip passes four links of hosts and four of the spine; the latter bear it.
            let round_trip_ns = 8.0 * fabric.link_delay_us * 1000.0;
            let extra = (slow.rtt_ratio - 1.0) * round_trip_ns / 4.0;
            let mut random = Random::new(seed, Purpose::Paths, 0);
            for spine in random.sample(spines, usize::from(slow.paths)) {
                extra_ns[spine] = extra as u64;
            }
        }
        let mut random = Random::new(seed, Purpose::Paths, 1);
        for spine in random.sample(spines, usize::from(fabric.failed)) {
            failed[spine] = true;
        }
        Self { extra_ns, failed }
    }

    fn link(&self, fabric: &FabricSettings, behind: Node) -> Link {
        let delay_ns = fabric.link_delay_us * 1000.0;
        let (spine, leaf) = match behind {
            Node::Spine { spine, from } => (spine, from),
            Node::LeafFromSpine { leaf, spine } => (spine, leaf),
            Node::Host | Node::LeafFromHost(_) | Node::OwnPort => {
                return Link {
                    bits_per_second: bits(fabric.host_gbps),
                    delay_ns: delay_ns as u32,
                    failed: false,
                };
            }
        };
        let mut link = Link {
            bits_per_second: bits(fabric.uplink_gbps),
            delay_ns: u32::try_from(delay_ns as u64 + self.extra_ns[usize::from(spine)])
                .unwrap_or(u32::MAX),
            failed: self.failed[usize::from(spine)],
        };
        let changes = fabric.path.iter().filter(|it| it.spine == spine);
        for change in changes.filter(|it| it.leaf.is_none_or(|it| it == leaf)) {
            let extra_ns = (change.extra_delay_us * 1000.0) as u32;
            link.delay_ns = link.delay_ns.saturating_add(extra_ns);
            link.failed |= change.failed;
            if let Some(gbps) = change.gbps {
                link.bits_per_second = bits(gbps);
            }
        }
        link
    }
}

fn bits(gbps: f64) -> u64 {
    (gbps * 1e9) as u64
}
