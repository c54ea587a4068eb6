//! How leaves choose paths, and what they know of queues behind them.

use flow_balance::{PathId, ttl::Scale};

use super::{
    Network,
    load_balancer::PathQuery,
    port::{FIFO, Port},
    scheduler::Scheduler,
};
use crate::{engine::packet::EntryKind, scenario::FarKnowledge};

impl Network {
    /// The spine over which a leaf sends a packet to another one.
    #[inline]
    pub(super) fn balance(&mut self, leaf: usize, to_leaf: usize, id: u32) -> usize {
        let now_ns = self.events.now();
        let packet = &self.slab[id];
        if packet.kind() == EntryKind::Datagram {
            return usize::from(self.datagrams.label(packet.seq).spine);
        }
        let reverse = packet.kind() == EntryKind::Ack;
        let query = PathQuery::new(
            leaf,
            self.connection(packet.flow),
            reverse,
            packet.bytes,
            now_ns,
        );
        if !self.schedulers.is_empty() && self.load_balancer.uses_backlog() {
            self.look_at_queues(leaf);
        }
        if self.far == FarKnowledge::Exact {
            self.look_at_spines(leaf, to_leaf);
        }
        let paths = self.paths.between(leaf, to_leaf, now_ns);
        self.load_balancer.choose(&query, &paths).index()
    }

    /// Ports that do not serve in order of arrival know when they are free only as they go.
    fn look_at_queues(&mut self, leaf: usize) {
        let now_ns = self.events.now();
        for path in PathId::all().take(self.layout.spines) {
            let port = &self.ports[self.layout.uplink(leaf, path.index())];
            let backlog_ns = backlog_ns(port, &self.schedulers, now_ns);
            self.paths
                .set_uplink(leaf, path.index(), now_ns + backlog_ns);
        }
    }

    /// Reads the queues of spines' ports as they are now.
    fn look_at_spines(&mut self, leaf: usize, to_leaf: usize) {
        let now_ns = self.events.now();
        for spine in 0..self.layout.spines {
            let port = &self.ports[self.layout.spine_port(spine, to_leaf)];
            let backlog_ns = backlog_ns(port, &self.schedulers, now_ns);
            self.paths.learn([leaf, spine, to_leaf], backlog_ns, now_ns);
        }
    }

    /// The spine writes into an ACK how full its port is towards the leaf that the ACK comes from:
    /// the path of data in the other direction (TR, A-T2).
    pub(super) fn stamp(&mut self, spine: usize, from_leaf: usize, id: u32) {
        let number = self.layout.spine_port(spine, from_leaf);
        let backlog_ns = backlog_ns(&self.ports[number], &self.schedulers, self.events.now());
        let level = self.scale(number).level(backlog_ns);
        self.slab[id].set_far(level);
    }

    /// The leaf takes it out again.
    pub(super) fn learn(&mut self, leaf: usize, spine: usize, id: u32) {
        let packet = &self.slab[id];
        // An ACK goes against its flow, so it comes from where the flow's data go to.
        let from = self.flow_info[packet.flow as usize].to;
        let from_leaf = usize::from(self.leaf_of[usize::from(from)]);
        if self.far != FarKnowledge::Acks {
            return;
        }
        let scale = self.scale(self.layout.spine_port(spine, from_leaf));
        let backlog_ns = scale.backlog_ns(packet.far());
        let now_ns = self.events.now();
        self.paths
            .learn([leaf, spine, from_leaf], backlog_ns, now_ns);
    }

    fn scale(&self, spine_port: usize) -> Scale {
        self.scales[spine_port - self.layout.spine_port(0, 0)]
    }
}

#[inline]
pub(super) fn backlog_ns(port: &Port, schedulers: &[Scheduler], now_ns: u64) -> u64 {
    let backlog = port.backlog_ns(now_ns);
    if port.scheduler == FIFO {
        return backlog;
    }
    backlog + port.time_of_ns(schedulers[port.scheduler as usize].bytes())
}
