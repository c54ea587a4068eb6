//! TR, traffic-aware rerouting (Zhang et al., Journal of Cloud Computing 10:37,
//! 2021): per-packet choice that keeps flows in order.
//!
//! For each path TR predicts when the packet would reach the switch before its
//! destination (time to next leaf, Eq. 1):
//!
//! ```text
//! TNL = now + propagation + local backlog + far backlog
//! ```
//!
//! A path is in order if that is not before the prediction for the flow's last
//! packet. Among those a short flow takes the fastest, and a long flow the one
//! with the fewest short flows.
//!
//! Where the paper leaves something open:
//!
//! - The path of the last packet is always in order, being a FIFO (A-T5). If it
//!   has failed and no other is in order, all are.
//! - Of equals the flow's hash takes one, else all switches would crowd onto the
//!   first (A-T6). Equals for long flows are those with as few short flows and
//!   the same TNL.
//! - A flow is long from the packet that brings it above the threshold, its
//!   headers and whatever was sent twice counted (A-T9).
//! - Short flows are counted as in [`ShortFlows`] (A-T7).
//! - A flow is one direction: ACKs are flows of their own (A-T10).

use super::random::draw;
use super::{
    Balancer, LastPath, MAX_PATHS, Packet, PathId, PathSet, PathView, Paths, Presence, ShortFlows,
};

/// TR's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tr {
    /// A flow is long once it has sent more than this.
    pub threshold_bytes: u64,
    /// By how much a packet must be predicted to follow the flow's last one on
    /// another path. The prediction does not see what others send to the far
    /// switch meanwhile (A-T4); this is the margin for it. More of it means less
    /// reordering, and flows that change paths more seldom.
    pub guard_ns: u64,
    /// By how much a long flow's path may be slower than the fastest that is in
    /// order. Without bound, long flows drift to slow paths, where no short flow
    /// ever is, and cannot leave them in order (A-T8).
    pub slack_ns: u64,
    /// Whether a TNL includes the packet's own time on the wire. The paper's
    /// does not, so that a small packet can pass a large one (A-T11).
    pub counts_serialisation: bool,
    /// Which of equals a flow takes.
    pub seed: u64,
}

impl Tr {
    /// 100 KB, as in the paper.
    pub const DEFAULT_THRESHOLD_BYTES: u64 = 100_000;
    /// Of [`Tr::guarded`].
    pub const DEFAULT_GUARD_NS: u64 = 30_000;
    /// Of [`Tr::guarded`].
    pub const DEFAULT_SLACK_NS: u64 = 8_000;

    /// Algorithm 1 to the letter: no guard, any slack.
    ///
    /// It keeps flows in order as long as no queue builds up where other
    /// switches' traffic joins.
    pub const fn paper() -> Self {
        Self {
            threshold_bytes: Self::DEFAULT_THRESHOLD_BYTES,
            guard_ns: 0,
            slack_ns: u64::MAX,
            counts_serialisation: false,
            seed: 0,
        }
    }

    /// With a guard and bounded slack, for fabrics with more than two leaves.
    pub const fn guarded() -> Self {
        Self {
            guard_ns: Self::DEFAULT_GUARD_NS,
            slack_ns: Self::DEFAULT_SLACK_NS,
            ..Self::paper()
        }
    }
}

/// What [`Tr`] remembers of a flow: 88 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrFlow {
    /// `fs` of Algorithm 1.
    bytes: u64,
    /// `p_TNL` of Algorithm 1.
    tnl_ns: u64,
    presence: Presence,
    last: LastPath,
    reserved: [u8; 3],
}

impl TrFlow {
    /// When the last packet was predicted to reach the switch before its destination.
    pub const fn tnl_ns(&self) -> u64 {
        self.tnl_ns
    }

    /// What the flow has sent so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Balancer for Tr {
    type Flow = TrFlow;
    type Shared = ShortFlows;

    /// Algorithm 1, lines 6 to 23.
    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        short_flows: &mut ShortFlows,
        flow: &mut TrFlow,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        short_flows.advance(packet.now_ns);
        flow.bytes = flow.bytes.saturating_add(packet.bytes as u64);

        let in_order = self.in_order(flow, paths, packet);
        let is_long = flow.bytes > self.threshold_bytes;
        let best = if is_long {
            short_flows.leave(&mut flow.presence);
            self.best_for_long(&in_order, short_flows)
        } else {
            in_order.fastest
        };
        let path = best.pick(draw(self.seed, packet.flow_hash, 0));

        if !is_long {
            short_flows.renew(&mut flow.presence, path);
        }
        flow.tnl_ns = in_order.tnl_ns[path.index()];
        flow.last.set(path)
    }
}

impl Tr {
    /// Eq. 1.
    #[inline(always)]
    fn tnl_ns(&self, path: &PathView, packet: &Packet) -> u64 {
        let tnl_ns = packet
            .now_ns
            .saturating_add(path.propagation_ns)
            .saturating_add(path.local_backlog_ns)
            .saturating_add(path.far_backlog_ns);
        if self.counts_serialisation {
            tnl_ns.saturating_add(path.service.of(packet.bytes as u64))
        } else {
            tnl_ns
        }
    }

    /// `S` of Algorithm 1, lines 9 to 12.
    ///
    /// One pass over the paths, without a branch that depends on how long they are: which of them
    /// is the shortest is what nobody can predict.
    #[inline(always)]
    fn in_order<P: Paths + ?Sized>(&self, flow: &TrFlow, paths: &P, packet: &Packet) -> InOrder {
        let candidates = paths.candidates();
        let last = flow.last.get();
        let earliest_ns = match last {
            Some(_) => flow.tnl_ns.saturating_add(self.guard_ns),
            None => 0,
        };
        let mut always = PathSet::EMPTY;
        if let Some(last) = last {
            always.insert(last);
        }
        let mut tnl_ns = [u64::MAX; MAX_PATHS];
        let mut in_order = PathSet::EMPTY;
        let mut least = Least::default();
        for path in candidates.iter() {
            let tnl = self.tnl_ns(&paths.view(path), packet);
            tnl_ns[path.index()] = tnl;
            let holds = (tnl >= earliest_ns) | always.contains(path);
            in_order.insert_if(path, holds);
            least.see(path, holds, 0, tnl);
        }
        if in_order.is_empty() {
            return InOrder {
                paths: candidates,
                fastest: candidates.smallest(&tnl_ns),
                least_ns: candidates.least(&tnl_ns),
                tnl_ns,
            };
        }
        InOrder {
            paths: in_order,
            fastest: least.paths,
            least_ns: least.second,
            tnl_ns,
        }
    }

    /// `b` of Algorithm 1, lines 19 to 21, within the slack.
    #[inline(always)]
    fn best_for_long(&self, in_order: &InOrder, short_flows: &ShortFlows) -> PathSet {
        let slowest_ns = in_order.least_ns.saturating_add(self.slack_ns);
        let mut least = Least::default();
        for path in in_order.paths.iter() {
            let tnl_ns = in_order.tnl_ns[path.index()];
            least.see(path, tnl_ns <= slowest_ns, short_flows.on(path), tnl_ns);
        }
        least.paths
    }
}

/// The paths that keep a flow in order.
struct InOrder {
    paths: PathSet,
    /// Those of them with the least TNL.
    fastest: PathSet,
    least_ns: u64,
    /// Of all candidates.
    tnl_ns: [u64; MAX_PATHS],
}

/// The paths with the least pair of numbers, the first one first.
struct Least {
    paths: PathSet,
    first: u64,
    second: u64,
}

impl Default for Least {
    #[inline(always)]
    fn default() -> Self {
        Self {
            paths: PathSet::EMPTY,
            first: u64::MAX,
            second: u64::MAX,
        }
    }
}

impl Least {
    /// Looks at a path, if it counts.
    #[inline(always)]
    fn see(&mut self, path: PathId, counts: bool, first: u64, second: u64) {
        let same_first = first == self.first;
        let less = counts & ((first < self.first) | (same_first & (second < self.second)));
        let same = counts & same_first & (second == self.second);
        self.first = if less { first } else { self.first };
        self.second = if less { second } else { self.second };
        self.paths = if less { PathSet::EMPTY } else { self.paths };
        self.paths.insert_if(path, less | same);
    }
}

#[cfg(test)]
mod tests;
