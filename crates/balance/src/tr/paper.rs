//! TR to the letter for hosts with a small stack: Algorithm 1 in one pass, without an array of numbers.

use super::{Tr, TrFlow};
use crate::arithmetic::{less, select, unforeseen_zero};
use crate::random::draw;
use crate::{Balancer, Packet, PathId, PathSet, Paths, ShortFlows};

/// Sends each packet as [`Tr::paper`] does, and needs no array on the stack of a kernel program: no guard, a
/// long flow by whatever path has the fewest short ones, and arrivals without the packet's own time.
///
/// So a flow is only in order as far as predictions without a packet's own time say so, which over slow unequal
/// tunnels is not far; it is there to measure what the paper has. See [`Tr::bonding`] for what keeps order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrPaper {
    /// A flow is long once it has sent more than this.
    pub threshold_bytes: u64,
    /// Which of equals a flow takes.
    pub seed: u64,
}

impl TrPaper {
    /// The algorithm with the paper's threshold.
    pub const fn new(seed: u64) -> Self {
        Self {
            threshold_bytes: Tr::DEFAULT_THRESHOLD_BYTES,
            seed,
        }
    }

    /// Counts a packet's bytes, and takes its flow off the short ones if that makes it long. The second of the three
    /// steps of [`choose`](Balancer::choose), for hosts that take them one by one; the first is
    /// [`ShortFlows::advance`].
    #[inline(always)]
    pub fn count(&self, short_flows: &mut ShortFlows, flow: &mut TrFlow, packet: &Packet) {
        flow.bytes = flow.bytes.saturating_add(packet.bytes as u64);
        if flow.bytes > self.threshold_bytes {
            short_flows.leave(&mut flow.presence);
        }
    }

    /// Chooses the path of a packet that was [counted](Self::count): the third step.
    #[inline(always)]
    pub fn choose_counted<P: Paths + ?Sized>(
        &self,
        short_flows: &mut ShortFlows,
        flow: &mut TrFlow,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        let is_long = less(self.threshold_bytes, flow.bytes);
        let best = Search::new(flow, is_long, packet).best(short_flows, paths);
        let path = match best.paths.only() {
            Some(path) => path,
            None => best.paths.pick(draw(self.seed, packet.flow_hash, 0)),
        };
        if is_long == 0 {
            short_flows.renew(&mut flow.presence, path);
        }
        flow.tnl_ns = best.tnl_ns;
        flow.last.set(path)
    }
}

impl Balancer for TrPaper {
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
        self.count(short_flows, flow, packet);
        self.choose_counted(short_flows, flow, paths, packet)
    }
}

/// What a packet asks of the paths.
struct Search {
    /// Without a length, for its own time is not counted.
    packet: Packet,
    /// It must not arrive before.
    after_ns: u64,
    /// The bits of the paths that are not bound to that.
    unbound: u64,
    /// All bits where short flows count, else none.
    counts: u64,
    /// Zero.
    none: u64,
}

/// The paths to choose among, and the arrival by each of them.
struct Best {
    tnl_ns: u64,
    paths: PathSet,
}

/// The bit above every number of short flows: a path that is not in order is worse than any that is, and counts
/// only where none is.
const OUT_OF_ORDER: u32 = 63;

impl Search {
    #[inline(always)]
    fn new(flow: &TrFlow, is_long: u64, packet: &Packet) -> Self {
        let none = unforeseen_zero(packet.now_ns);
        let unbound = match flow.last.get() {
            Some(last) => 1 << last.index(),
            None => u64::MAX,
        };
        Self {
            packet: Packet {
                bytes: 0,
                ..*packet
            },
            after_ns: none.wrapping_add(flow.tnl_ns),
            unbound: none.wrapping_add(unbound),
            counts: none.wrapping_sub(is_long),
            none,
        }
    }

    /// Goes once through the paths there are, without a branch on any of these numbers: the kernel's verifier would
    /// follow both ways of each (see [`arithmetic`](crate::arithmetic)).
    #[inline(always)]
    fn best<P: Paths + ?Sized>(&self, short_flows: &ShortFlows, paths: &P) -> Best {
        let worst = u64::MAX.wrapping_add(self.none);
        let (mut rank, mut tnl_ns, mut best) = (worst, worst, self.none);
        let (mut rest, mut unbound) = (u64::from(paths.candidates().bits()), self.unbound);
        for path in PathId::all() {
            if rest == 0 {
                break;
            }
            let own_ns = paths.arrival_ns(path, &self.packet);
            let is_early = less(own_ns, self.after_ns) & !unbound & 1;
            let own_rank = (short_flows.on(path) & self.counts) | is_early << OUT_OF_ORDER;
            let (less_rank, more_rank) = (less(own_rank, rank), less(rank, own_rank));
            let (less_ns, more_ns) = (less(own_ns, tnl_ns), less(tnl_ns, own_ns));
            let is_same_rank = 1 ^ (less_rank | more_rank);
            let is_better = (less_rank | is_same_rank & less_ns) & rest;
            let is_same = is_same_rank & (1 ^ (less_ns | more_ns)) & rest;
            rank = select(is_better, own_rank, rank);
            tnl_ns = select(is_better, own_ns, tnl_ns);
            best = select(is_better, 0, best) | (is_better | is_same) << path.index();
            rest >>= 1;
            unbound >>= 1;
        }
        Best {
            tnl_ns,
            paths: PathSet::from_bits(best as u16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathView, ServiceTime, Snapshot};
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        /// Whatever the paths are and become, and however long flows are.
        #[test]
        fn chooses_as_tr_does_to_the_letter(
            steps in proptest::collection::vec(
                (
                    proptest::collection::vec((0u64..3_000_000, 0u64..900_000, 0u64..300_000, 0u64..200), 1..7),
                    0u16..128,
                    0u64..3_000_000,
                    40u32..9_000,
                    0usize..6,
                ),
                1..120,
            ),
        ) {
            let (tr, own) = (Tr { threshold_bytes: 30_000, seed: 5, ..Tr::paper() }, TrPaper { threshold_bytes: 30_000, seed: 5 });
            let mut shared = [ShortFlows::new(9_000_000); 2];
            let (mut flows, mut now_ns) = ([[TrFlow::default(); 2]; 6], 1_000);
            for (paths, usable, gap_ns, bytes, number) in steps {
                now_ns += gap_ns;
                let views: Vec<_> = paths.into_iter().map(|(propagation_ns, local_backlog_ns, remote_backlog_ns, mbit)| PathView {
                    // In few steps, so that some are equal.
                    propagation_ns: propagation_ns / 500_000 * 500_000,
                    local_backlog_ns: local_backlog_ns / 500_000 * 500_000,
                    remote_backlog_ns: remote_backlog_ns / 200_000 * 200_000,
                    service: ServiceTime::from_bits_per_second(mbit * 1_000_000),
                    ..PathView::default()
                }).collect();
                let mut paths = Snapshot::new(&views);
                paths.usable = PathSet::from_bits(usable);
                let packet = Packet { now_ns, bytes, flow_hash: number as u64 };
                let [theirs, ours] = &mut flows[number];
                let [expected_shared, own_shared] = &mut shared;
                let expected = tr.choose(expected_shared, theirs, &paths, &packet);
                let chosen = own.choose(own_shared, ours, &paths, &packet);
                prop_assert_eq!(chosen, expected);
                prop_assert_eq!(*ours, *theirs);
                prop_assert_eq!(shared[0], shared[1]);
            }
        }
    }
}
