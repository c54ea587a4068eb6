//! Links, ports and switches: what carries packets between hosts.

mod credit_queue;
mod graph;
pub(crate) mod layout;
mod leaf;
pub(crate) mod load_balancer;
pub(crate) mod outage;
mod path_table;
pub(crate) mod port;
pub(crate) mod scheduler;
mod setup;

use flow_balance::{Balancer as _, Ecmp, Packet, PathId, PathSet, Paths as _, ttl::Scale};

use self::{
    graph::GraphRouting,
    layout::{Layout, Node},
    load_balancer::LoadBalancer,
    path_table::PathTable,
    port::{FIFO, Port, Verdict},
    scheduler::Scheduler,
};
use crate::{
    engine::{
        datagram::Datagrams,
        event_queue::EventQueue,
        packet::{EntryKind, Slab, flag},
    },
    scenario::FarKnowledge,
};

/// Facts about a flow that switches use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowInfo {
    /// The host that sends its data.
    pub(crate) from: u16,
    /// The host that receives them.
    pub(crate) to: u16,
    /// How many segments it has.
    pub(crate) segments: u32,
    /// The flow that it counts as where policies tell flows apart: itself, or the first of its connection.
    pub(crate) connection: u32,
    /// Its message is above the last bound of the scenario's classes.
    pub(crate) is_long: bool,
}

/// Counters of all packets, for the check of conservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Handed to the port of a host.
    pub(crate) injected: u64,
    /// Taken by a host.
    pub(crate) delivered: u64,
    /// Lost at a port.
    pub(crate) dropped: u64,
    /// Credits among these.
    pub(crate) credits_dropped: u64,
    /// Links that packets passed.
    pub(crate) hops: u64,
}

/// The fabric, its packets and its time.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) slab: Slab,
    pub(crate) events: EventQueue,
    /// Contents of packets of the kind `Datagram`.
    pub(crate) datagrams: Datagrams,
    pub(crate) layout: Layout,
    pub(crate) ports: Vec<Port>,
    pub(crate) counters: Counters,
    /// Facts about flows, by number.
    pub(crate) flow_info: Vec<FlowInfo>,
    behind: Vec<Node>,
    /// By host: its leaf, or its rack.
    leaf_of: Vec<u16>,
    /// By port: the switch that it belongs to; none for hosts' own.
    owner: Vec<Option<u16>>,
    /// Forwarding in another topology than leaf-spine.
    graph: GraphRouting,
    schedulers: Vec<Scheduler>,
    shared: Vec<SharedBuffer>,
    paths: PathTable,
    /// Scales of the levels that ACKs carry: of spines' ports, from the first of these ports on.
    scales: Vec<Scale>,
    load_balancer: LoadBalancer,
    /// Messages of more bytes are long, by the last bound of the scenario's classes.
    pub(crate) long_above_bytes: u64,
    /// By port: bytes of long flows' data that leaves sent up there.
    pub(crate) long_bytes: Vec<u64>,
    /// Flows may be of one connection.
    pub(crate) has_connections: bool,
    /// Leaves know the queues of spines' ports so.
    far: FarKnowledge,
}

/// The shared buffer of a switch.
#[derive(Clone, Debug, Default)]
struct SharedBuffer {
    bytes: u64,
    used: u64,
    /// Factor of the dynamic threshold, in 1024ths.
    alpha: u64,
}

impl SharedBuffer {
    /// Returns what a port may hold: the dynamic threshold (Choudhury and Hahne 1998).
    fn port_limit(&self) -> u64 {
        self.bytes.saturating_sub(self.used) * self.alpha / 1024
    }
}

impl Network {
    /// Returns the simulated time in ns.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.events.now()
    }

    /// The flow that policies take a packet's for: it has the 5-tuple of its connection.
    #[inline]
    fn connection(&self, flow: u32) -> u32 {
        if self.has_connections {
            self.flow_info[flow as usize].connection
        } else {
            flow
        }
    }

    /// A host sends a packet.
    #[inline(never)]
    pub(crate) fn inject(&mut self, host: usize, id: u32) {
        self.counters.injected += 1;
        self.transmit(self.layout.host_port(host), id);
    }

    /// A host holds a packet of a flow back, and sends it at that time.
    pub(crate) fn inject_at(&mut self, at_ns: u64, id: u32) {
        self.counters.injected += 1;
        self.slab[id].link = self.layout.ports() as u16;
        self.schedule(id, at_ns);
    }

    /// The paths between the leaves of two hosts that work; none within a leaf.
    pub(crate) fn usable_paths(&self, from: u16, to: u16) -> PathSet {
        let [leaf, to_leaf] = [from, to].map(|host| usize::from(self.leaf_of[usize::from(host)]));
        if leaf == to_leaf {
            return PathSet::EMPTY;
        }
        self.paths.between(leaf, to_leaf, self.now()).usable()
    }

    /// The path that ECMP would choose between the leaves of two hosts for that hash.
    pub(crate) fn ecmp_path(&self, from: u16, to: u16, ecmp: Ecmp, flow_hash: u64) -> PathId {
        let [leaf, to_leaf] = [from, to].map(|host| usize::from(self.leaf_of[usize::from(host)]));
        let paths = self.paths.between(leaf, to_leaf, self.now());
        let packet = Packet {
            now_ns: self.now(),
            bytes: 0,
            flow_hash,
        };
        ecmp.choose(&mut (), &mut (), &paths, &packet)
    }

    /// Names the link of a port for people.
    pub(crate) fn link_name(&self, port: usize) -> String {
        self.graph
            .link_name(port, &self.layout)
            .unwrap_or_else(|| self.layout.name(port))
    }

    /// Returns whether a port leads from a switch that has hosts to another switch.
    pub(crate) fn is_uplink(&self, port: usize) -> bool {
        matches!(self.behind[port], Node::Spine { .. }) || self.graph.is_uplink(port)
    }

    /// A packet is at the end of its link: a switch passes it on. Returns it when it is at a host,
    /// which takes it.
    #[inline]
    pub(crate) fn arrive(&mut self, id: u32) -> Option<u32> {
        self.counters.hops += 1;
        let packet = &self.slab[id];
        let to = usize::from(packet.to);
        let mut balanced = None;
        let port = match self.behind[usize::from(packet.link)] {
            Node::Host => {
                self.counters.delivered += 1;
                return Some(id);
            }
            Node::OwnPort => {
                self.counters.hops -= 1;
                let from = self.flow_info[packet.flow as usize].from;
                self.layout.host_port(usize::from(from))
            }
            Node::LeafFromSpine { leaf, spine } => {
                if packet.kind() == EntryKind::Ack && self.load_balancer.uses_backlog() {
                    self.learn(usize::from(leaf), usize::from(spine), id);
                }
                self.layout.down_port(to)
            }
            Node::LeafFromHost(leaf) => {
                let to_leaf = self.leaf_of[to];
                if to_leaf == leaf {
                    self.layout.down_port(to)
                } else {
                    let leaf = usize::from(leaf);
                    let spine = self.balance(leaf, usize::from(to_leaf), id);
                    balanced = Some((leaf, spine));
                    let port = self.layout.uplink(leaf, spine);
                    self.count_long(port, id);
                    port
                }
            }
            Node::Spine { spine, from } => {
                if packet.kind() == EntryKind::Ack && self.load_balancer.uses_backlog() {
                    self.stamp(usize::from(spine), usize::from(from), id);
                }
                let to_leaf = usize::from(self.leaf_of[to]);
                self.layout.spine_port(usize::from(spine), to_leaf)
            }
            Node::Switch(switch) => self.forward(switch, id),
        };
        // Once for all of them, so that it becomes part of this.
        self.transmit(port, id);
        if let Some((leaf, spine)) = balanced {
            let free_at_ns = self.ports[port].idle_from_ns();
            self.paths.set_uplink(leaf, spine, free_at_ns);
        }
        None
    }

    /// A leaf sends a packet up there: adds it to the bytes of long flows if it is of one.
    #[inline]
    fn count_long(&mut self, port: usize, id: u32) {
        if self.long_above_bytes == u64::MAX {
            return;
        }
        let packet = &self.slab[id];
        if packet.kind() == EntryKind::Data && self.flow_info[packet.flow as usize].is_long {
            self.long_bytes[port] += u64::from(packet.bytes);
        }
    }

    /// The transmitter of a port with queues has finished a packet while others waited.
    pub(crate) fn port_free(&mut self, id: u32) {
        let port = usize::from(self.slab[id].link);
        let index = self.ports[port].scheduler as usize;
        self.schedulers[index].event_came(id);
        self.send_next(port);
    }

    /// Bytes of credits that a host may send in a second; nothing without a queue for them.
    pub(crate) fn credit_bytes_per_second(&self, host: u16) -> Option<f64> {
        let port = &self.ports[self.layout.host_port(usize::from(host))];
        let scheduler = self.schedulers.get(port.scheduler as usize)?;
        Some(scheduler.credits.as_ref()?.bytes_per_second())
    }

    /// Checks that all packets are accounted for; an error says which are not.
    ///
    /// # Errors
    /// When packets were lost or made up.
    pub(crate) fn check_conservation(&self) -> Result<(), String> {
        let datagrams = self.slab.count(EntryKind::Datagram);
        if datagrams != self.datagrams.count() {
            return Err(format!(
                "{datagrams} datagrams are in flight, but {} are kept",
                self.datagrams.count()
            ));
        }
        let in_flight = self.slab.count_packets();
        let Counters {
            injected,
            delivered,
            dropped,
            ..
        } = self.counters;
        if injected != delivered + dropped + in_flight {
            return Err(format!(
                "{injected} packets were sent, but {delivered} were delivered, {dropped} dropped \
                 and {in_flight} are in flight"
            ));
        }
        let queued: u64 = self.schedulers.iter().map(|it| it.count(&self.slab)).sum();
        if queued > in_flight {
            return Err(format!("{queued} packets wait of {in_flight} in flight"));
        }
        Ok(())
    }

    #[inline(always)]
    fn transmit(&mut self, number: usize, id: u32) {
        let now = self.events.now();
        let port = &mut self.ports[number];
        if port.scheduler != FIFO {
            self.enqueue(number, id);
            return;
        }
        let packet = &mut self.slab[id];
        match port.accept(now, packet.bytes, packet.has(flag::ECT)) {
            Verdict::Dropped => self.drop(id),
            Verdict::Sent {
                arrives_ns,
                waited_ns,
                marked,
            } => {
                if marked {
                    packet.set(flag::CE, true);
                }
                if packet.counts_waiting() {
                    packet.aux = packet.aux.wrapping_add(waited_ns as u32);
                }
                packet.link = number as u16;
                self.schedule(id, arrives_ns);
            }
        }
    }

    #[inline(never)]
    fn enqueue(&mut self, number: usize, id: u32) {
        let port = &mut self.ports[number];
        if port.failed {
            port.drops += 1;
            self.drop(id);
            return;
        }
        let scheduler = &mut self.schedulers[port.scheduler as usize];
        let shared = self.owner[number];
        let shared = shared.and_then(|switch| self.shared.get_mut(usize::from(switch)));
        let shared_limit = shared.as_ref().map_or(u64::MAX, |it| it.port_limit());
        let before = scheduler.bytes();
        let (dropped, marked) =
            scheduler.enqueue(&mut self.slab, &self.flow_info, id, shared_limit);
        if let Some(shared) = shared {
            shared.used = shared.used - before + scheduler.bytes();
        }
        if dropped != Some(id) {
            let packet = &mut self.slab[id];
            if marked {
                packet.set(flag::CE, true);
                port.marks += 1;
            }
            if packet.counts_waiting() && port.is_switch() {
                // Completed when it leaves.
                packet.aux = packet.aux.wrapping_sub(self.events.now() as u32);
            }
        }
        if let Some(dropped) = dropped {
            // Credits are meant to be lost; drops of ports are of everything else.
            if self.slab[dropped].kind() != EntryKind::Credit {
                port.drops += 1;
            }
            self.drop(dropped);
        }
        self.send_next(number);
    }

    /// Sends the next packet if the transmitter is idle, and schedules another look while something
    /// waits.
    fn send_next(&mut self, number: usize) {
        let now = self.events.now();
        let port = &mut self.ports[number];
        let scheduler = &mut self.schedulers[port.scheduler as usize];
        if scheduler.pending {
            return;
        }
        let before = scheduler.bytes();
        if port.free_at_ns() <= now
            && let Some(id) = scheduler.dequeue(&mut self.slab, &self.flow_info, now)
        {
            let packet = &mut self.slab[id];
            packet.link = number as u16;
            if packet.counts_waiting() && port.is_switch() {
                packet.aux = packet.aux.wrapping_add(now as u32);
            }
            let arrives = port.send(now, packet.bytes);
            // Credits have memory of their own.
            let left = before - scheduler.bytes();
            let shared = self.owner[number];
            if let Some(shared) = shared.and_then(|it| self.shared.get_mut(usize::from(it))) {
                shared.used -= left;
            }
            self.schedule(id, arrives);
        }
        let port = &self.ports[number];
        let scheduler = &mut self.schedulers[port.scheduler as usize];
        if let Some((event, at)) = scheduler.next_look(&self.slab, port.free_at_ns()) {
            self.schedule(event, at);
        }
    }

    #[inline(always)]
    fn schedule(&mut self, id: u32, at: u64) {
        // The horizon is 18 minutes, and validation of scenarios ends runs well before.
        let taken = self.events.push(id, at);
        debug_assert!(taken, "an event at {at} ns lies beyond the horizon");
    }

    #[cold]
    fn drop(&mut self, id: u32) {
        self.counters.dropped += 1;
        let packet = &self.slab[id];
        match packet.kind() {
            EntryKind::Datagram => self.datagrams.remove(packet.seq),
            EntryKind::Credit => self.counters.credits_dropped += 1,
            _ => (),
        }
        self.slab.remove(id);
    }
}
