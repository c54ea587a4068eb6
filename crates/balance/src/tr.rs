//! TR, traffic-aware rerouting (Zhang et al., Journal of Cloud Computing 10:37, 2021): per-packet
//! path selection with out-of-order prediction.
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

use super::arithmetic::{less, min, saturating_add, select};
use super::random::draw;
use super::{Balancer, LastPath, MAX_PATHS, Packet, PathId, PathSet, Paths, Presence, ShortFlows};

/// The settings of TR, which predicts what would arrive out of order and avoids it.
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
    /// The guard time of [`Tr::guarded`].
    pub const DEFAULT_GUARD_NS: u64 = 30_000;
    /// The slack of [`Tr::guarded`].
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

    /// For few unequal paths that single flows are to fill together, such as the tunnels of a site.
    ///
    /// Every packet, also of a long flow, takes the path on which it arrives first, its own time on
    /// the wire counted. Predicted arrivals of a flow then never decrease: the fastest path is filled
    /// until a slower one is as early. A guard has to be 0 here: a packet by the slow path, and the
    /// guard behind it, forbid the fast one to the flow for longer than its queue lasts, so that the
    /// fast one runs empty (`tests/bonding_model.rs`).
    pub const fn bonding() -> Self {
        Self {
            threshold_bytes: u64::MAX,
            counts_serialisation: true,
            ..Self::paper()
        }
    }
}

/// The state of a flow under [`Tr`], with its last predicted arrival: 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrFlow {
    /// `fs` of Algorithm 1.
    bytes: u64,
    /// `p_TNL` of Algorithm 1.
    tnl_ns: u64,
    presence: Presence,
    last: LastPath,
    reserved: [u8; 7],
}

impl TrFlow {
    /// The predicted arrival of the last packet at the switch before its destination.
    pub const fn tnl_ns(&self) -> u64 {
        self.tnl_ns
    }

    /// The bytes that the flow has sent so far.
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

        let mut tnl_ns = self.in_order(flow, paths, packet);
        let is_long = flow.bytes > self.threshold_bytes;
        if is_long {
            short_flows.leave(&mut flow.presence);
            self.leave_best_for_long(&mut tnl_ns, short_flows);
        }
        let least_ns = least(&tnl_ns);
        let best = those_at_most(least_ns, &tnl_ns);
        let path = match best.only() {
            Some(path) => path,
            None => best.pick(draw(self.seed, packet.flow_hash, 0)),
        };

        if !is_long {
            short_flows.renew(&mut flow.presence, path);
        }
        flow.tnl_ns = least_ns;
        flow.last.set(path)
    }
}

/// The TNL of a path that is left out. Of all others it is less.
const OUT: u64 = u64::MAX;

// Paths are looked at all at once, in one array whose numbers are blotted out where a path does not
// qualify: which of them is the smallest is what nobody can predict, so there is no branch on it,
// and a compiler that may use wide registers has no more than a few instructions for four paths.
// The kernel's verifier could not follow branches either (see `arithmetic`).

impl Tr {
    /// Eq. 1 for those in `S` of Algorithm 1, lines 9 to 12.
    #[inline(always)]
    fn in_order<P: Paths + ?Sized>(
        &self,
        flow: &TrFlow,
        paths: &P,
        packet: &Packet,
    ) -> [u64; MAX_PATHS] {
        let mut tnl_ns = self.of_candidates(paths, packet);
        if let Some(last) = flow.last.get() {
            let earliest_ns = flow.tnl_ns.saturating_add(self.guard_ns);
            let mut left = OUT;
            for (index, tnl_ns) in tnl_ns.iter_mut().enumerate() {
                let is_last = 1u64 << last.index() >> index & 1;
                let is_early = less(*tnl_ns, earliest_ns) & (1 ^ is_last);
                *tnl_ns = select(is_early, OUT, *tnl_ns);
                left &= *tnl_ns;
            }
            if left == OUT {
                return self.of_candidates(paths, packet);
            }
        }
        tnl_ns
    }

    /// Eq. 1 for all that there are to choose among.
    #[inline(always)]
    fn of_candidates<P: Paths + ?Sized>(&self, paths: &P, packet: &Packet) -> [u64; MAX_PATHS] {
        let mut tnl_ns = paths.arrivals_ns(packet.now_ns);
        let candidates = paths.candidates();
        if self.counts_serialisation {
            for path in candidates.iter_loosely() {
                let service_ns = paths.view(path).service.of(packet.bytes as u64);
                let tnl_ns = &mut tnl_ns[path.index()];
                *tnl_ns = min(saturating_add(*tnl_ns, service_ns), OUT - 1);
            }
        }
        for (index, tnl_ns) in tnl_ns.iter_mut().enumerate() {
            *tnl_ns |= ((candidates.bits() >> index & 1) as u64).wrapping_sub(1);
        }
        tnl_ns
    }

    /// Leaves those out that are not `b` of Algorithm 1, lines 19 to 21, within the slack.
    #[inline(always)]
    fn leave_best_for_long(&self, tnl_ns: &mut [u64; MAX_PATHS], short_flows: &ShortFlows) {
        if self.slack_ns < u64::MAX {
            let slowest_ns = least(tnl_ns).saturating_add(self.slack_ns);
            for tnl_ns in tnl_ns.iter_mut() {
                *tnl_ns = select(less(slowest_ns, *tnl_ns), OUT, *tnl_ns);
            }
        }
        let mut flows = *short_flows.counts();
        for (flows, tnl_ns) in flows.iter_mut().zip(&*tnl_ns) {
            *flows = select(less(*tnl_ns, OUT), *flows, u64::MAX);
        }
        let fewest = least(&flows);
        for (flows, tnl_ns) in flows.iter().zip(tnl_ns) {
            *tnl_ns = select(less(fewest, *flows), OUT, *tnl_ns);
        }
    }
}

/// The paths whose numbers are that small.
#[inline(always)]
fn those_at_most(most: u64, numbers: &[u64; MAX_PATHS]) -> PathSet {
    let mut bits = 0;
    for (index, number) in numbers.iter().enumerate() {
        bits |= (1 ^ less(most, *number)) << index;
    }
    PathSet::from_bits(bits as u16)
}

/// The smallest of the numbers.
#[inline(always)]
fn least(numbers: &[u64; MAX_PATHS]) -> u64 {
    // Four at a time: what takes long is that each waits for the one before.
    let mut least = [u64::MAX; 4];
    for (index, number) in numbers.iter().enumerate() {
        least[index % 4] = min(least[index % 4], *number);
    }
    let [a, b, c, d] = least;
    min(min(a, b), min(c, d))
}

mod paper;

pub use paper::TrPaper;

#[cfg(test)]
mod tests;
