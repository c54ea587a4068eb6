//! The tunnel that a flow starts in, by turns where that is all the same.

use super::crowd::Crowd;
use super::{
    EXPECTED_BYTES, FULL_PACKET_BYTES, HEAD_START_NS, ROUND_TRIPS, SharedQueues, Stage, service,
    usable,
};
use crate::config::PolicyConfig;
use crate::cpu_queues::{EarlyQueue, LateQueue, SharedWord};
use crate::flow::TunnelRole;
use flow_balance::{
    Activity, Balancer as _, Packet, PathId, PathSet, PathView, Paths, PlacedFlow, Placement,
    RoundRobin,
};

impl<W: SharedWord> SharedQueues<W> {
    /// Starts a flow in the tunnel in which its packets will have left the earliest, or nearly so: then
    /// in the one whose turn it is, which [`SharedQueues::take_turn`] tells.
    #[inline(always)]
    pub fn start_near(
        &mut self,
        config: &PolicyConfig,
        next: TunnelRole,
        now_ns: u64,
    ) -> TunnelRole {
        let [of_short, of_long] = TunnelRole::ALL.map(|tunnel| {
            let (index, service) = (tunnel as usize, service(config, tunnel));
            let starts_ns = self.expected[index]
                .next_start_ns(now_ns)
                .max(self.short[index].next_start_ns(now_ns));
            let waits_ns = if self.long[index].backlog_ns(now_ns) > 0 {
                service.of(ROUND_TRIPS * FULL_PACKET_BYTES)
            } else {
                0
            };
            let turn_ns = if tunnel == next { 0 } else { HEAD_START_NS };
            starts_ns + waits_ns + turn_ns + service.of(EXPECTED_BYTES)
        });
        let earliest = if of_long < of_short {
            TunnelRole::Long
        } else {
            TunnelRole::Short
        };
        let tunnel = usable(config, earliest);
        let service = service(config, tunnel);
        self.expected[tunnel as usize].add(service.of(EXPECTED_BYTES), now_ns);
        self.note(tunnel, Stage::Starting, Activity::ENTERS, now_ns);
        tunnel
    }

    /// Returns the tunnel of the next flow by the number of flows; the turn passes on.
    #[inline(always)]
    pub fn take_turn(&mut self, config: &PolicyConfig, now_ns: u64) -> TunnelRole {
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
    ) -> (&'a mut RoundRobin, TwoPaths<'a, W>) {
        let Self {
            short,
            long,
            crowds,
            turns,
            ..
        } = self;
        let paths = TwoPaths {
            short,
            long,
            crowds,
            config,
            now_ns,
        };
        (turns, paths)
    }
}

/// The two tunnels as paths. What is asked of them is worked out when it is: a kernel program's
/// stack is small.
struct TwoPaths<'a, W> {
    short: &'a [LateQueue<W>; 2],
    long: &'a [EarlyQueue<W>; 2],
    crowds: &'a [Crowd; 2],
    config: &'a PolicyConfig,
    now_ns: u64,
}

impl<W: SharedWord> Paths for TwoPaths<'_, W> {
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
        let short_ns = self.short[tunnel as usize].backlog_ns(self.now_ns);
        let long_ns = self.long[tunnel as usize].backlog_ns(self.now_ns);
        let competition = self.crowds[tunnel as usize].competition(self.now_ns);
        PathView {
            local_backlog_ns: short_ns + long_ns,
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
