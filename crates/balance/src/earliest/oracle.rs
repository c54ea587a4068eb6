//! The search as it was before it began with the flow's last path: all paths, one after the other, whatever the first of them
//! have shown. What replaced it has to choose the same, bit for bit.

use crate::random::draw;
use crate::{Earliest, EarliestArrival, EarliestFlow, Packet, PathId, PathSet, Paths};

pub(super) fn find<P: Paths>(
    balancer: &EarliestArrival,
    flow: &EarliestFlow,
    paths: &P,
    packet: &Packet,
) -> Earliest {
    let mut order = InOrder {
        after_ns: flow.arrives_ns,
        unbound: match flow.last.get() {
            Some(last) => 1 << last.index(),
            None => u64::MAX,
        },
    };
    let mut best = order.best(paths, packet);
    let costs_ns = best.arrives_ns.wrapping_sub(best.first_ns);
    if best.paths.is_empty() || costs_ns > balancer.patience_ns {
        order.unbound = u64::MAX;
        best = order.best(paths, packet);
    }
    Earliest {
        path: match best.paths.only() {
            Some(path) => path,
            None => best.paths.pick(draw(balancer.seed, packet.flow_hash, 0)),
        },
        arrives_ns: best.arrives_ns,
        first_ns: best.first_ns,
    }
}

struct InOrder {
    after_ns: u64,
    unbound: u64,
}

struct Best {
    arrives_ns: u64,
    paths: PathSet,
    first_ns: u64,
}

impl InOrder {
    fn best<P: Paths>(&self, paths: &P, packet: &Packet) -> Best {
        let (mut arrives_ns, mut first_ns, mut best) = (u64::MAX, u64::MAX, 0);
        let (mut rest, mut unbound) = (u64::from(paths.candidates().bits()), self.unbound);
        for path in PathId::all() {
            if rest & 1 != 0 {
                let arrival_ns = paths.arrival_ns(path, packet);
                first_ns = first_ns.min(arrival_ns);
                let is_in_order = arrival_ns >= self.after_ns || unbound & 1 != 0;
                if is_in_order && arrival_ns <= arrives_ns {
                    if arrival_ns < arrives_ns {
                        best = 0;
                    }
                    arrives_ns = arrival_ns;
                    best += 1 << path.index();
                }
            }
            rest >>= 1;
            unbound >>= 1;
        }
        Best {
            arrives_ns,
            paths: PathSet::from_bits(best),
            first_ns,
        }
    }
}
