//! The tunnel for the next flow, by turns where that is all the same.

use super::crowd::Crowd;
use super::{FULL_PACKET_BYTES, SharedQueues, service};
use crate::config::PolicyConfig;
use crate::flow::TunnelRole;
use flow_balance::{
    Balancer as _, Packet, PathId, PathSet, PathView, Paths, PlacedFlow, Placement, RoundRobin,
    VirtualQueue,
};

impl SharedQueues {
    /// The tunnel of the next flow, as things are; the turn passes on.
    #[inline(always)]
    pub(super) fn next(&mut self, config: &PolicyConfig, now_ns: u64) -> TunnelRole {
        let packet = Packet {
            now_ns,
            bytes: FULL_PACKET_BYTES as u32,
            flow_hash: 0,
        };
        let (turns, paths) = self.turns_and_paths(config, now_ns);
        let flow = &mut PlacedFlow::default();
        tunnel(Placement::default().choose(turns, flow, &paths, &packet))
    }

    #[inline(always)]
    fn turns_and_paths<'a>(
        &'a mut self,
        config: &'a PolicyConfig,
        now_ns: u64,
    ) -> (&'a mut RoundRobin, TwoPaths<'a>) {
        let Self {
            short,
            long,
            crowds,
            turns,
            ..
        } = self;
        let queues = [&*short, &*long];
        let paths = TwoPaths {
            queues,
            crowds,
            config,
            now_ns,
        };
        (turns, paths)
    }
}

/// The two tunnels as paths. What is asked of them is worked out when it is: a kernel program's
/// stack is small.
struct TwoPaths<'a> {
    /// Of either class.
    queues: [&'a [VirtualQueue; 2]; 2],
    crowds: &'a [Crowd; 2],
    config: &'a PolicyConfig,
    now_ns: u64,
}

impl Paths for TwoPaths<'_> {
    #[inline(always)]
    fn known(&self) -> PathSet {
        PathSet::first(TunnelRole::ALL.len())
    }

    #[inline(always)]
    fn usable(&self) -> PathSet {
        PathSet::from_bits(self.config.usable.into())
    }

    #[inline(always)]
    fn view(&self, path: PathId) -> PathView {
        let tunnel = tunnel(path);
        let backlog_ns =
            |queues: &[VirtualQueue; 2]| queues[tunnel as usize].backlog_ns(self.now_ns);
        let [short, long] = self.queues;
        let competition = self.crowds[tunnel as usize].competition(self.now_ns);
        PathView {
            local_backlog_ns: backlog_ns(short) + backlog_ns(long),
            weight: service(self.config, tunnel).speed(),
            // One is added for the flow itself, which is in that number.
            flows: (competition - 1) as u32,
            ..PathView::default()
        }
    }
}

#[inline(always)]
const fn tunnel(path: PathId) -> TunnelRole {
    TunnelRole::numbered(path.index() as u64)
}
