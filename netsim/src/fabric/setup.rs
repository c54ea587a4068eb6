//! Builds a network out of a scenario.

use flow_balance::{Ageing, ServiceTime, ttl::Scale};

use super::{
    Counters, Network, SharedBuffer,
    credit_queue::CreditQueue,
    graph::GraphRouting,
    layout::{Layout, Node},
    load_balancer::{CustomBalancer, LoadBalancer},
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
        BalanceSettings, BalancingPolicy, Discipline, Experiment, FabricSettings, FarAgeing,
        FarKnowledge, Graph, PortSettings, Scenario,
    },
};

/// Parts of a network, of one kind or the other.
struct Plan {
    layout: Layout,
    /// By port.
    links: Vec<Link>,
    behind: Vec<Node>,
    owner: Vec<Option<u16>>,
    leaf_of: Vec<u16>,
}

impl Network {
    /// An idle network. The experiment has been checked.
    pub(crate) fn new(experiment: &Experiment, balancer: Option<&CustomBalancer>) -> Self {
        match &experiment.graph {
            Some(graph) => {
                let plan = Plan::of_graph(graph, experiment);
                let ageing = ageing(&experiment.scenario);
                let weighted = experiment.scenario.balance.weighted;
                let mut network = Self::build(experiment, plan);
                network.graph = GraphRouting::new(graph, &network.ports, weighted, ageing);
                network.load_balancer = LoadBalancer::new(
                    &experiment.scenario.balance,
                    balancer,
                    network.graph.set_count(),
                    network.graph.slowest_rtt_ns(),
                    experiment.seed,
                );
                network
            }
            None => Self::leaf_spine(experiment, balancer),
        }
    }

    fn leaf_spine(experiment: &Experiment, balancer: Option<&CustomBalancer>) -> Self {
        let (scenario, seed) = (&experiment.scenario, experiment.seed);
        let mut network = Self::build(experiment, Plan::of_fabric(scenario, seed));
        let layout = network.layout;
        network.paths = path_table(scenario, &layout, &network.ports);
        network.scales = (0..layout.spines * layout.leaves)
            .map(|it| Scale::new(network.ports[layout.spine_port(0, 0) + it].buffer_ns()))
            .collect();
        let slowest_rtt_ns = slowest_rtt_ns(&layout, &network.ports);
        network.load_balancer = LoadBalancer::new(
            &scenario.balance,
            balancer,
            layout.leaves,
            slowest_rtt_ns,
            seed,
        );
        network
    }

    /// Ports, without what chooses among them.
    fn build(experiment: &Experiment, plan: Plan) -> Self {
        let scenario = &experiment.scenario;
        let host_settings = scenario.host_port.as_ref().unwrap_or(&scenario.port);
        let mut slab = Slab::new();
        let mut schedulers = Vec::new();
        let mut ports = Vec::with_capacity(plan.links.len());
        for (number, (link, owner)) in plan.links.iter().zip(&plan.owner).enumerate() {
            let is_switch = owner.is_some();
            let settings = if is_switch {
                &scenario.port
            } else {
                host_settings
            };
            let settings = &*settings.at_rate(link.bits_per_second);
            let mut port = Port::new(link.bits_per_second, link.delay_ns, settings, is_switch);
            port.failed = link.failed;
            let bits_per_second = link.bits_per_second;
            port.scheduler = scheduler_for(
                settings,
                number,
                bits_per_second,
                &mut schedulers,
                &mut slab,
            );
            ports.push(port);
        }
        let shared = scenario.port.shared.as_ref().map(|shared| SharedBuffer {
            bytes: shared.buffer_bytes,
            used: 0,
            alpha: (shared.alpha * 1024.0) as u64,
        });
        let switches = plan.owner.iter().flatten().max();
        let switches = switches.map_or(0, |it| usize::from(*it) + 1);
        Self {
            slab,
            events: EventQueue::new(),
            datagrams: Datagrams::default(),
            counters: Counters::default(),
            flow_info: Vec::new(),
            long_above_bytes: scenario.classes_bytes.last().copied().unwrap_or(u64::MAX),
            long_bytes: vec![0; ports.len()],
            has_connections: false,
            behind: plan.behind,
            leaf_of: plan.leaf_of,
            owner: plan.owner,
            schedulers,
            shared: shared.map_or_else(Vec::new, |it| vec![it; switches]),
            paths: PathTable::none(),
            scales: Vec::new(),
            load_balancer: LoadBalancer::new(&scenario.balance, None, 0, 0, experiment.seed),
            far: match scenario.balance.policy {
                BalancingPolicy::Tr | BalancingPolicy::TrGuarded => scenario.balance.tr.far,
                _ => FarKnowledge::Acks,
            },
            graph: GraphRouting::default(),
            layout: plan.layout,
            ports,
        }
    }

    /// A pair of leaves without a working path, if there is one.
    pub(crate) fn unreachable(&self) -> Option<(usize, usize)> {
        self.paths.unreachable()
    }
}

impl Plan {
    fn of_fabric(scenario: &Scenario, seed: u64) -> Self {
        // Checked: it is there where there is no other topology.
        let Some(fabric) = &scenario.fabric else {
            unreachable!("a network without a fabric and without a topology")
        };
        let layout = Layout::new(fabric);
        let paths = Spines::draw(fabric, seed);
        let numbers = 0..layout.ports();
        let owner = numbers
            .clone()
            .map(|it| layout.switch_of(it).map(|it| it as u16));
        Self {
            links: numbers
                .clone()
                .map(|it| paths.link(fabric, layout.node_behind(it)))
                .collect(),
            behind: numbers
                .clone()
                .map(|it| layout.node_behind(it))
                .chain([Node::OwnPort])
                .collect(),
            owner: owner.collect(),
            leaf_of: (0..layout.hosts())
                .map(|host| layout.leaf_of(host) as u16)
                .collect(),
            layout,
        }
    }

    /// Hosts' own ports, switches' ports to hosts, and both directions of each link.
    fn of_graph(graph: &Graph, experiment: &Experiment) -> Self {
        let topology = &graph.topology;
        let hosts = topology.hosts();
        let layout = Layout::of_graph(hosts.len(), topology.links().len());
        let of_hosts = || hosts.iter().map(|it| link(it.gbps, it.delay_us));
        let ports = (0..2 * topology.links().len()).map(|it| flow_topology::Port(it as u16));
        let of_links = ports.clone().map(|it| {
            let it = &topology.links()[it.link()];
            link(it.gbps, it.delay_us)
        });
        let ends = ports.map(|it| topology.ends(it));
        let switches = hosts.iter().map(|it| it.switch);
        Self {
            layout,
            links: of_hosts().chain(of_hosts()).chain(of_links).collect(),
            behind: switches
                .clone()
                .map(Node::Switch)
                .chain(hosts.iter().map(|_| Node::Host))
                .chain(ends.clone().map(|[_, to]| Node::Switch(to)))
                .chain([Node::OwnPort])
                .collect(),
            owner: hosts
                .iter()
                .map(|_| None)
                .chain(switches.map(Some))
                .chain(ends.map(|[from, _]| Some(from)))
                .collect(),
            leaf_of: (0..hosts.len())
                .map(|it| experiment.hosts.rack_of(it as u16))
                .collect(),
        }
    }
}

fn link(gbps: f64, delay_us: f64) -> Link {
    Link {
        bits_per_second: bits(gbps),
        delay_ns: (delay_us * 1000.0) as u32,
        failed: false,
    }
}

fn ageing(scenario: &Scenario) -> Ageing {
    match scenario.balance.tr.ageing {
        FarAgeing::Never => Ageing::Never,
        FarAgeing::Drains => Ageing::Drains,
    }
}

/// Gives a port queues if it needs them.
fn scheduler_for(
    settings: &PortSettings,
    number: usize,
    bits_per_second: u64,
    schedulers: &mut Vec<Scheduler>,
    slab: &mut Slab,
) -> u32 {
    let PortSettings {
        discipline,
        shared,
        credit,
        ..
    } = settings;
    if *discipline == Discipline::Fifo && shared.is_none() && credit.is_none() {
        return FIFO;
    }
    let mut event = Packet::new(EntryKind::PortFree);
    event.link = number as u16;
    let credits = credit.map(|it| CreditQueue::new(&it, bits_per_second, slab.insert(event)));
    let event = slab.insert(event);
    schedulers.push(Scheduler::new(settings, event, credits));
    schedulers.len() as u32 - 1
}

/// Builds the path table as it is before anything was sent.
fn path_table(scenario: &Scenario, layout: &Layout, ports: &[Port]) -> PathTable {
    let BalanceSettings { weighted, .. } = &scenario.balance;
    PathTable::new(
        layout.leaves,
        layout.spines,
        ageing(scenario),
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
            Node::Host | Node::LeafFromHost(_) | Node::OwnPort | Node::Switch(_) => {
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
