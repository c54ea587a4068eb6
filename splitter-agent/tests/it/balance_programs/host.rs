//! The choices of the host, by the same policy as the kernel's.

use std::cell::Cell;
use std::collections::HashMap;

use flow_balance::{
    Balancer, Drb, Earliest, EarliestArrival, EarliestFlow, Ecmp, LetFlow, LetFlowFlow, OwnPaths,
    Packet, PathId, PathSet, Paths as _, Presto, PrestoFlow, Rps, RpsFlow, ShortFlows, TrFlow,
    TrPaper,
};
use splitter_policy::flow::Class;
use splitter_policy::paths::{BalancerNumber, LivePaths};

use super::{FLOW_PLACES, GAP_NS, OWN, PATIENCE_NS, SEED, gap_ns};

/// The choice of the host.
pub(super) struct Choice {
    pub(super) path: PathId,
    /// What the flow has noted then, where that is compared.
    pub(super) noted: Option<[u64; 2]>,
    /// 1 if the packet arrives later for the sake of order.
    pub(super) is_held: u64,
}

/// Chooses the path of a packet of a class, and puts it into the queue in front of that.
pub(super) type Choose =
    Box<dyn FnMut(&LivePaths<'_, Cell<u64>>, &Packet, Option<Class>) -> Choice>;

/// A balancer of the host, with flows of its own.
fn hosted<B: Balancer<Shared = (), Flow: 'static> + 'static>(balancer: B) -> Choose {
    let mut flows = HashMap::<u32, B::Flow>::new();
    Box::new(move |paths, packet, _| {
        let flow = flows.entry(place(packet)).or_default();
        let path = balancer.choose(&mut (), flow, paths, packet);
        paths.send(path, packet.bytes);
        Choice {
            path,
            noted: None,
            is_held: 0,
        }
    })
}

pub(super) fn place(packet: &Packet) -> u32 {
    packet.flow_hash as u32 % FLOW_PLACES
}

fn in_order() -> Choose {
    let mut flows = HashMap::<u32, EarliestFlow>::new();
    Box::new(move |paths, packet, _| {
        let flow = flows.entry(place(packet)).or_default();
        let found = EARLIEST.find(flow, paths, packet);
        paths.send_in_order(found, packet.bytes, flow);
        Choice {
            path: found.path,
            noted: Some(order_words(*flow)),
            is_held: found.is_held(),
        }
    })
}

fn order_words(flow: EarliestFlow) -> [u64; 2] {
    // SAFETY: as long, `repr(C)`, and made of integers without padding.
    unsafe { std::mem::transmute::<EarliestFlow, [u64; 2]>(flow) }
}

/// What is noted of a flow whose classes choose differently.
#[derive(Default)]
struct Notes {
    order: EarliestFlow,
    letflow: LetFlowFlow,
    rps: RpsFlow,
    presto: PrestoFlow,
}

/// Short flows choose by the first balancer, and long ones by the second.
pub(super) fn each_for_itself([short, long]: [BalancerNumber; 2]) -> Choose {
    let mut flows = HashMap::<u32, Notes>::new();
    let has = move |number| short == number || long == number;
    let order_counts = has(BalancerNumber::TR) || has(BalancerNumber::PLACEMENT);
    Box::new(move |paths, packet, class| {
        let is_long = class == Some(Class::Long);
        let number = if is_long { long } else { short };
        let notes = flows.entry(place(packet)).or_default();
        let mut is_held = 0;
        let path = match number {
            BalancerNumber::TR => {
                let found = EARLIEST.find(&notes.order, paths, packet);
                paths.send_in_order(found, packet.bytes, &mut notes.order);
                is_held = found.is_held();
                found.path
            }
            _ => {
                let path = notes.choose(number, OWN[usize::from(is_long)], paths, packet);
                let arrives_ns = paths.arrival_ns(path, packet);
                if paths.send(path, packet.bytes) && order_counts {
                    notes.order.note(Earliest {
                        path,
                        arrives_ns,
                        first_ns: arrives_ns,
                    });
                }
                path
            }
        };
        if has(BalancerNumber::LETFLOW) && number != BalancerNumber::LETFLOW {
            notes.letflow.note(path, packet.now_ns);
        }
        Choice {
            path,
            noted: order_counts.then(|| order_words(notes.order)),
            is_held,
        }
    })
}

impl Notes {
    fn choose(
        &mut self,
        number: BalancerNumber,
        own: u64,
        paths: &LivePaths<'_, Cell<u64>>,
        packet: &Packet,
    ) -> PathId {
        match number {
            BalancerNumber::PLACEMENT => {
                let own = OwnPaths {
                    own: PathSet::from_bits(own as u16),
                    patience_ns: PATIENCE_NS,
                    seed: SEED,
                };
                own.find(&self.order, paths, packet).path
            }
            BalancerNumber::LETFLOW => LETFLOW.choose(&mut (), &mut self.letflow, paths, packet),
            BalancerNumber::RPS => Rps { seed: SEED }.choose(&mut (), &mut self.rps, paths, packet),
            BalancerNumber::PRESTO => PRESTO.choose(&mut (), &mut self.presto, paths, packet),
            BalancerNumber::ECMP => Ecmp { seed: SEED }.choose(&mut (), &mut (), paths, packet),
            other => panic!("{other:?} is no balancer of one class here"),
        }
    }
}

fn to_the_letter() -> Choose {
    let (balancer, mut flows) = (TrPaper::new(SEED), HashMap::<u32, TrFlow>::new());
    let mut short_flows = ShortFlows::new(gap_ns(BalancerNumber::TR_PAPER));
    Box::new(move |paths, packet, _| {
        let flow = flows.entry(place(packet)).or_default();
        let path = balancer.choose(&mut short_flows, flow, paths, packet);
        paths.send(path, packet.bytes);
        Choice {
            path,
            noted: Some([flow.bytes(), flow.tnl_ns()]),
            is_held: 0,
        }
    })
}

const EARLIEST: EarliestArrival = EarliestArrival {
    patience_ns: PATIENCE_NS,
    seed: SEED,
};
const PRESTO: Presto = Presto {
    cell_bytes: Presto::DEFAULT_CELL_BYTES,
    seed: SEED,
};
const LETFLOW: LetFlow = LetFlow {
    gap_ns: GAP_NS,
    seed: SEED,
};

pub(super) fn balancers() -> [(BalancerNumber, Choose); 7] {
    [
        (BalancerNumber::ECMP, hosted(Ecmp { seed: SEED })),
        (BalancerNumber::RPS, hosted(Rps { seed: SEED })),
        (BalancerNumber::DRB, hosted(Drb { seed: SEED })),
        (BalancerNumber::PRESTO, hosted(PRESTO)),
        (BalancerNumber::LETFLOW, hosted(LETFLOW)),
        (BalancerNumber::TR, in_order()),
        (BalancerNumber::TR_PAPER, to_the_letter()),
    ]
}
