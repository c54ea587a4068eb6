//! Builds a network out of a scenario.

use super::{
    Counters, Network, SharedBuffer,
    choice::Choice,
    layout::{Layout, Node},
    port::{FIFO, Port},
    scheduler::Scheduler,
    table::PathTable,
};
use crate::{
    core::{
        packet::{Kind, Packet, Slab},
        random::{Purpose, Random},
        wheel::Wheel,
    },
    scenario::{Discipline, Fabric, Port as PortSettings, Scenario},
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
            wheel: Wheel::new(),
            counters: Counters::default(),
            ends: Vec::new(),
            behind: (0..layout.ports())
                .map(|it| layout.node_behind(it))
                .collect(),
            leaf_of: (0..layout.hosts())
                .map(|host| layout.leaf_of(host) as u16)
                .collect(),
            schedulers,
            shared: shared.map_or_else(Vec::new, |it| vec![it; switches]),
            usable: usable(&layout, &ports),
            paths: PathTable::new(layout.leaves, layout.spines, |leaf, spine, to_leaf| {
                let near = &ports[layout.uplink(leaf, spine)];
                let far = &ports[layout.spine_port(spine, to_leaf)];
                near.propagation_ns.saturating_add(far.propagation_ns)
            }),
            choice: Choice::new(scenario.balance.policy, seed),
            layout,
            ports,
        }
    }

    /// A pair of leaves without a working path, if there is one.
    pub(crate) fn unreachable(&self) -> Option<(usize, usize)> {
        let leaves = self.layout.leaves;
        let apart = |pair: &usize| pair / leaves != pair % leaves;
        let mut pairs = (0..self.usable.len()).filter(apart);
        let pair = pairs.find(|pair| self.usable[*pair].is_empty())?;
        Some((pair / leaves, pair % leaves))
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
    let mut event = Packet::new(Kind::PortFree);
    event.link = number as u16;
    let event = slab.insert(event);
    schedulers.push(Scheduler::new(settings, event));
    schedulers.len() as u32 - 1
}

/// The spines that work between each two leaves.
fn usable(layout: &Layout, ports: &[Port]) -> Vec<Vec<u16>> {
    let works = |leaf, to_leaf, spine| {
        !ports[layout.uplink(leaf, spine)].failed
            && !ports[layout.spine_port(spine, to_leaf)].failed
    };
    let mut all = Vec::with_capacity(layout.leaves * layout.leaves);
    for leaf in 0..layout.leaves {
        for to_leaf in 0..layout.leaves {
            let spines = (0..layout.spines).filter(|spine| works(leaf, to_leaf, *spine));
            all.push(spines.map(|spine| spine as u16).collect());
        }
    }
    all
}

/// What was drawn for the spines.
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
    pub(crate) fn draw(fabric: &Fabric, seed: u64) -> Self {
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

    fn link(&self, fabric: &Fabric, behind: Node) -> Link {
        let delay_ns = fabric.link_delay_us * 1000.0;
        let (spine, leaf) = match behind {
            Node::Spine { spine, from } => (spine, from),
            Node::LeafFromSpine { leaf, spine } => (spine, leaf),
            Node::Host | Node::LeafFromHost(_) => {
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
