//! Forwarding in any topology: each switch chooses among the next hops of all shortest paths.
//!
//! A policy runs at each switch that has a choice, with a state of its own there: in a fat tree at the edge and
//! again at the aggregation switch. What it reads of a path is what a leaf reads: the backlog of the switch's own
//! port, the delay from there on, and what ACKs have reported. An ACK carries the sum of what waits at the ports
//! behind it, each switch that it passes adding its own (TR's spine, hop by hop).

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use flow_balance::{Ageing, Packet, PathId, ServiceTime, ttl::Scale};

use super::{
    Network,
    layout::Layout,
    leaf::backlog_ns,
    load_balancer::PathQuery,
    path_table::{Pair, Path, PathsBetween, Uplinks},
    port::Port,
};
use crate::{engine::packet::EntryKind, scenario::Graph};

/// The forwarding tables of all switches.
#[derive(Debug)]
pub(super) struct GraphRouting {
    graph: Option<Arc<Graph>>,
    racks: usize,
    /// By switch, then rack.
    routes: Vec<Route>,
    choices: Vec<Choice>,
    /// Ports of each set of next hops.
    sets: Vec<Box<[u16]>>,
    /// The first port between switches.
    first: usize,
    /// Of the port that takes longest to empty, so that every backlog has a level.
    scale: Scale,
    ageing: Ageing,
    slowest_rtt_ns: u64,
    slots: HashMap<(u16, u32), u32, BuildHasherDefault<SlotHasher>>,
}

/// A switch's way to a rack.
#[derive(Clone, Copy, Debug)]
enum Route {
    /// The rack is its own.
    Here,
    /// There is one port.
    Port(u16),
    /// There are several: which of the choices.
    Choice(u32),
}

/// The paths of a switch to a rack.
#[derive(Debug)]
struct Choice {
    set: u32,
    pair: Pair,
}

impl Default for GraphRouting {
    /// No switches: a leaf-spine fabric has its own tables.
    fn default() -> Self {
        Self {
            graph: None,
            racks: 0,
            routes: Vec::new(),
            choices: Vec::new(),
            sets: Vec::new(),
            first: 0,
            scale: Scale::new(0),
            ageing: Ageing::Never,
            slowest_rtt_ns: 0,
            slots: HashMap::default(),
        }
    }
}

impl GraphRouting {
    /// `ports` are those of the network, in its order.
    pub(super) fn new(graph: &Arc<Graph>, ports: &[Port], weighted: bool, ageing: Ageing) -> Self {
        let Graph { topology, routes } = &**graph;
        let first = 2 * topology.hosts().len();
        let number = |port: &flow_topology::Port| first as u16 + port.0;
        let racks = topology.racks().len();
        let mut choices = Vec::new();
        let mut table = Vec::with_capacity(topology.switches().len() * racks);
        for (switch, rack) in
            (0..topology.switches().len()).flat_map(|it| (0..racks).map(move |rack| (it, rack)))
        {
            let hops = routes.next_hops(switch, rack);
            table.push(match (hops, routes.set(switch, rack)) {
                ([], _) | (_, None) => Route::Here,
                ([port], _) => Route::Port(number(port)),
                (_, Some(set)) => {
                    let path = |index: usize| path(graph, hops[index], rack, weighted);
                    choices.push(Choice {
                        set: set as u32,
                        pair: Pair::new(hops.len(), path),
                    });
                    Route::Choice(choices.len() as u32 - 1)
                }
            });
        }
        let slowest = |ports: &[Port]| ports.iter().map(|it| it.propagation_ns).max().unwrap_or(0);
        let to_hosts = u64::from(slowest(&ports[..first]));
        let between = (routes.longest_delay_us() * 1000.0) as u64;
        let buffers = ports[first..].iter().map(Port::buffer_ns);
        Self {
            graph: Some(Arc::clone(graph)),
            racks,
            routes: table,
            choices,
            sets: routes
                .sets()
                .iter()
                .map(|it| it.iter().map(number).collect())
                .collect(),
            first,
            scale: Scale::new(buffers.max().unwrap_or(0)),
            ageing,
            slowest_rtt_ns: 2 * (2 * to_hosts + between),
            slots: HashMap::default(),
        }
    }

    /// How many sets of next hops share a state of the policy.
    pub(super) fn set_count(&self) -> usize {
        self.sets.len()
    }

    /// The longest round trip between hosts in an idle network.
    pub(super) fn slowest_rtt_ns(&self) -> u64 {
        self.slowest_rtt_ns
    }

    /// Names a link for people; none of a leaf-spine fabric.
    pub(super) fn link_name(&self, port: usize, layout: &Layout) -> Option<String> {
        let topology = &self.graph.as_ref()?.topology;
        let host = port % layout.hosts();
        let switch = |host: usize| &topology.switches()[usize::from(topology.hosts()[host].switch)];
        Some(if port < layout.hosts() {
            format!("host{port}->{}", switch(port))
        } else if port < self.first {
            format!("{}->host{host}", switch(host))
        } else {
            topology.name(flow_topology::Port((port - self.first) as u16))
        })
    }

    /// Returns whether a port leads from a switch with hosts to another switch.
    pub(super) fn is_uplink(&self, port: usize) -> bool {
        let Some(graph) = self.graph.as_ref().filter(|_| port >= self.first) else {
            return false;
        };
        let port = flow_topology::Port((port - self.first) as u16);
        let [from, _] = graph.topology.ends(port);
        graph.topology.racks().binary_search(&from).is_ok()
    }

    fn route(&self, switch: u16, rack: u16) -> Route {
        self.routes[usize::from(switch) * self.racks + usize::from(rack)]
    }

    /// The state of a flow at a switch has a number: given when its first packet is there.
    fn slot(&mut self, switch: u16, flow: u32) -> usize {
        let next = self.slots.len() as u32;
        *self.slots.entry((switch, flow)).or_insert(next) as usize
    }
}

/// The constants of a path: the port's link and the shortest paths behind it.
fn path(graph: &Graph, port: flow_topology::Port, rack: usize, weighted: bool) -> Path {
    let way = graph.routes.over(&graph.topology, port, rack);
    Path {
        propagation_ns: (way.delay_us * 1000.0) as u32,
        weight: if weighted {
            (way.gbps * 1000.0).clamp(1.0, f64::from(u32::MAX)) as u32
        } else {
            1
        },
        service: ServiceTime::from_bits_per_second((1e9 / way.ns_per_bit) as u64),
        usable: true,
    }
}

impl Network {
    /// The port by which a switch passes a packet on.
    pub(super) fn forward(&mut self, switch: u16, id: u32) -> usize {
        if self.load_balancer.uses_backlog() && self.slab[id].kind() == EntryKind::Ack {
            self.report(switch, id);
        }
        let to = usize::from(self.slab[id].to);
        match self.graph.route(switch, self.leaf_of[to]) {
            Route::Here => self.layout.down_port(to),
            Route::Port(port) => port.into(),
            Route::Choice(choice) => self.choose_next_hop(switch, choice, id),
        }
    }

    fn choose_next_hop(&mut self, switch: u16, choice: u32, id: u32) -> usize {
        let now_ns = self.events.now();
        let packet = &self.slab[id];
        let reverse = packet.kind() == EntryKind::Ack;
        let mut query = PathQuery::new(
            0,
            self.connection(packet.flow),
            reverse,
            packet.bytes,
            now_ns,
        );
        // Switches hash apart: with the same hash all flows of one uplink would choose the same one again.
        query.packet = Packet {
            flow_hash: u64::from(switch) << 33 | query.slot as u64,
            ..query.packet
        };
        query.slot = if self.load_balancer.keeps_flows() {
            self.graph.slot(switch, query.slot as u32)
        } else {
            0
        };
        let choice = &self.graph.choices[choice as usize];
        let set = &self.graph.sets[choice.set as usize];
        query.leaf = choice.set as usize;
        let mut uplinks = Uplinks::IDLE;
        if self.load_balancer.uses_backlog() {
            for (path, port) in PathId::all().zip(set) {
                let port = &self.ports[usize::from(*port)];
                uplinks.set(path, now_ns + backlog_ns(port, &self.schedulers, now_ns));
            }
        }
        let paths = PathsBetween::new(&choice.pair, &uplinks, self.graph.ageing, now_ns);
        let path = self.load_balancer.choose(&query, &paths);
        set[path.index()].into()
    }

    /// An ACK brings what waits on the way that it came, for data in the other direction; this switch
    /// learns it, and adds its own port for those before it.
    fn report(&mut self, switch: u16, id: u32) {
        let packet = &self.slab[id];
        let Some(link) = usize::from(packet.link).checked_sub(self.graph.first) else {
            // From a host, behind which nothing waits.
            return;
        };
        let back = self.graph.first + usize::from(flow_topology::Port(link as u16).reverse().0);
        let now_ns = self.events.now();
        let behind_ns = self.graph.scale.backlog_ns(packet.far());
        let from = usize::from(self.flow_info[packet.flow as usize].to);
        let own_ns = backlog_ns(&self.ports[back], &self.schedulers, now_ns);
        self.slab[id].set_far(self.graph.scale.level(behind_ns + own_ns));
        if let Route::Choice(choice) = self.graph.route(switch, self.leaf_of[from]) {
            let choice = &mut self.graph.choices[choice as usize];
            let set = &self.graph.sets[choice.set as usize];
            let path = set.iter().position(|it| usize::from(*it) == back);
            if let Some(path) = path.and_then(PathId::new) {
                choice.pair.learn(path, behind_ns, now_ns);
            }
        }
    }
}

/// A fast hash of two small numbers, which are the simulator's own.
#[derive(Debug, Default)]
struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u32(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        // Fibonacci hashing; the upper half, into which all bits have gone, becomes the lower one.
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed.rotate_left(32);
    }
}
