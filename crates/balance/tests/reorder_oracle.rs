//! What TR predicts against what happens, in a fabric small enough to know.
//!
//! Two levels: each source leaf has a port to each spine, and each spine one
//! port to the destination's leaf. All ports are FIFOs of one rate that store a
//! packet before they forward it. With one source leaf this is the topology of
//! the paper's motivation, where TR promises order; with more of them it does
//! not (A-T4), and a guard is what helps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use flow_balance::ttl::{Initial, Scale};
use flow_balance::{
    Ageing, Balancer, MAX_PATHS, Packet, PathId, PathSet, PathView, Paths, RemoteBacklogs,
    ShortFlows, Tr, TrFlow,
};
use flow_balance::{ServiceTime, VirtualQueue};
use proptest::prelude::*;

const SPINES: usize = 10;
const LINK_BIT_PER_S: u64 = 1_000_000_000;
const BYTE_NS: u64 = 8;
const FULL_FRAME: u32 = 1_500;
const BUFFER_NS: u64 = 250 * FULL_FRAME as u64 * BYTE_NS;
const GOOD_LINK_NS: u64 = 25_000;

/// A packet that a host hands to its leaf.
#[derive(Clone, Copy, Debug)]
struct Send {
    now_ns: u64,
    leaf: usize,
    flow: u64,
    bytes: u32,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    predicted_ns: u64,
    arrived_ns: u64,
}

/// A leaf that balances: how a host keeps what a policy asks for.
struct Leaf {
    uplinks: [VirtualQueue; SPINES],
    far: RemoteBacklogs,
    short_flows: ShortFlows,
    flows: HashMap<u64, TrFlow>,
}

/// The paths of a leaf to the one destination there is, now.
struct View<'a> {
    leaf: &'a Leaf,
    link_ns: &'a [u64; SPINES],
    now_ns: u64,
}

impl Paths for View<'_> {
    fn known(&self) -> PathSet {
        PathSet::first(SPINES)
    }

    fn usable(&self) -> PathSet {
        self.known()
    }

    fn view(&self, path: PathId) -> PathView {
        PathView {
            propagation_ns: 2 * self.link_ns[path.index()],
            local_backlog_ns: self.leaf.uplinks[path.index()].backlog_ns(self.now_ns),
            remote_backlog_ns: self.leaf.far.behind(path).at(self.now_ns, Ageing::Never),
            // Both hops have the same rate.
            service: ServiceTime::from_bits_per_second(LINK_BIT_PER_S / 2),
            weight: 1,
            ..PathView::default()
        }
    }
}

/// The same, but for the ports at the spines, which are known to the oracle alone.
struct Fabric {
    tr: Tr,
    link_ns: [u64; SPINES],
    leaves: Vec<Leaf>,
    /// When each spine's port to the destination leaf is free.
    spines_free_ns: [u64; SPINES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    AtLeaf {
        packet: usize,
    },
    AtSpine {
        packet: usize,
        path: usize,
    },
    /// An ACK of what `path` carried passes its spine on the way back.
    AckAtSpine {
        leaf: usize,
        path: usize,
    },
    AckAtLeaf {
        leaf: usize,
        path: usize,
        ttl: u8,
    },
}

impl Fabric {
    fn new(tr: Tr, link_ns: [u64; SPINES], leaves: usize) -> Self {
        let rtt_ns = 4 * link_ns.iter().max().expect("ten of them");
        let leaves = (0..leaves).map(|_| Leaf {
            uplinks: Default::default(),
            far: RemoteBacklogs::default(),
            short_flows: ShortFlows::new(rtt_ns),
            flows: HashMap::new(),
        });
        Self {
            tr,
            link_ns,
            leaves: leaves.collect(),
            spines_free_ns: [0; SPINES],
        }
    }

    /// Sends everything, and tells of each packet when it reached the last leaf.
    fn run(mut self, sends: &[Send]) -> Vec<Delivery> {
        let scale = Scale::new(BUFFER_NS);
        let mut deliveries = vec![Delivery::default(); sends.len()];
        // Packets of the same nanosecond go in the order in which they were sent.
        let mut events: BinaryHeap<_> = sends
            .iter()
            .enumerate()
            .map(|(packet, send)| Reverse((send.now_ns, Event::AtLeaf { packet })))
            .collect();
        while let Some(Reverse((now_ns, event))) = events.pop() {
            match event {
                Event::AtLeaf { packet } => {
                    let send = sends[packet];
                    let (path, predicted_ns) = self.choose(send);
                    deliveries[packet].predicted_ns = predicted_ns;
                    let sent_ns = self.leaves[send.leaf].uplinks[path].send(
                        send.bytes as u64,
                        now_ns,
                        ServiceTime::from_bits_per_second(LINK_BIT_PER_S),
                    );
                    let at_ns = sent_ns + self.link_ns[path];
                    events.push(Reverse((at_ns, Event::AtSpine { packet, path })));
                }
                Event::AtSpine { packet, path } => {
                    let Send { leaf, bytes, .. } = sends[packet];
                    let free_ns = &mut self.spines_free_ns[path];
                    *free_ns = now_ns.max(*free_ns) + bytes as u64 * BYTE_NS;
                    let arrived_ns = *free_ns + self.link_ns[path];
                    deliveries[packet].arrived_ns = arrived_ns;
                    let ack_ns = arrived_ns + self.link_ns[path];
                    events.push(Reverse((ack_ns, Event::AckAtSpine { leaf, path })));
                }
                Event::AckAtSpine { leaf, path } => {
                    let backlog_ns = self.spines_free_ns[path].saturating_sub(now_ns);
                    // Its host's and the destination leaf's hop lie behind it.
                    let ttl = Initial::COMMON.encode(62, scale.level(backlog_ns));
                    let ttl = ttl.expect("two hops") - 1;
                    let at_ns = now_ns + self.link_ns[path];
                    events.push(Reverse((at_ns, Event::AckAtLeaf { leaf, path, ttl })));
                }
                Event::AckAtLeaf { leaf, path, ttl } => {
                    let (level, restored) = Initial::COMMON.decode(ttl);
                    assert_eq!(restored, Some(61));
                    let port = self.leaves[leaf].far.behind_mut(path_id(path));
                    port.report(scale.backlog_ns(level), now_ns);
                }
            }
        }
        deliveries
    }

    fn choose(&mut self, send: Send) -> (usize, u64) {
        let leaf = &mut self.leaves[send.leaf];
        let mut flow = leaf.flows.get(&send.flow).copied().unwrap_or_default();
        let mut short_flows = leaf.short_flows;
        let view = View {
            leaf,
            link_ns: &self.link_ns,
            now_ns: send.now_ns,
        };
        let packet = Packet {
            now_ns: send.now_ns,
            bytes: send.bytes,
            flow_hash: send.flow,
        };
        let path = self.tr.choose(&mut short_flows, &mut flow, &view, &packet);
        leaf.short_flows = short_flows;
        leaf.flows.insert(send.flow, flow);
        (path.index(), flow.tnl_ns())
    }
}

fn path_id(path: usize) -> PathId {
    const { assert!(SPINES <= MAX_PATHS) };
    PathId::new(path).expect("below 16")
}

/// How many packets arrived before one that their flow had sent earlier.
fn reordered(sends: &[Send], deliveries: &[Delivery]) -> usize {
    let mut latest_ns = HashMap::new();
    let mut reordered = 0;
    for (send, delivery) in sends.iter().zip(deliveries) {
        let latest_ns = latest_ns.entry((send.leaf, send.flow)).or_insert(0);
        reordered += usize::from(delivery.arrived_ns < *latest_ns);
        *latest_ns = delivery.arrived_ns.max(*latest_ns);
    }
    reordered
}

/// Half of the paths are slower, by 1.5 to 3.5 times, as in the paper.
fn asymmetric() -> impl Strategy<Value = [u64; SPINES]> {
    (1_500u64..=3_500).prop_map(|permille| {
        std::array::from_fn(|spine| {
            GOOD_LINK_NS * if spine % 2 == 0 { 1_000 } else { permille } / 1_000
        })
    })
}

/// Bursts and pauses of a few flows at one leaf, up to more than its uplinks carry.
fn sends(bytes: impl Strategy<Value = u32>) -> impl Strategy<Value = Vec<Send>> {
    let gap_ns = prop_oneof![8 => 0u64..2_000, 2 => 0u64..30_000, 1 => 0u64..500_000];
    proptest::collection::vec((gap_ns, 0u64..6, bytes), 1..400).prop_map(|packets| {
        let mut now_ns = 0;
        let send = |(gap_ns, flow, bytes)| {
            now_ns += gap_ns;
            Send {
                now_ns,
                leaf: 0,
                flow,
                bytes,
            }
        };
        packets.into_iter().map(send).collect()
    })
}

/// Flows turn long after ten packets, so that runs of both kinds are short.
const PAPER: Tr = Tr {
    threshold_bytes: 15_000,
    ..Tr::paper()
};

proptest! {
    #[test]
    fn with_one_source_leaf_packets_of_a_size_arrive_as_predicted_and_in_order(
        link_ns in asymmetric(),
        sends in sends(Just(FULL_FRAME)),
    ) {
        let deliveries = Fabric::new(PAPER, link_ns, 1).run(&sends);
        for delivery in &deliveries {
            // TNL leaves out the packet's own serialisation, on two hops.
            let own_ns = 2 * FULL_FRAME as u64 * BYTE_NS;
            prop_assert_eq!(delivery.arrived_ns, delivery.predicted_ns + own_ns);
        }
        prop_assert_eq!(reordered(&sends, &deliveries), 0);
    }

    /// Of sizes that differ, a small packet may wait at the spine for a large
    /// one in front of it. That is less than the time of a full frame.
    #[test]
    fn packets_of_any_size_stay_in_order_with_a_guard_of_a_full_frame(
        link_ns in asymmetric(),
        sends in sends(40..=FULL_FRAME),
    ) {
        let frame_ns = FULL_FRAME as u64 * BYTE_NS;
        let tr = Tr { counts_serialisation: true, guard_ns: frame_ns, ..PAPER };
        let deliveries = Fabric::new(tr, link_ns, 1).run(&sends);
        for delivery in &deliveries {
            let late_ns = delivery.arrived_ns.checked_sub(delivery.predicted_ns);
            prop_assert!(late_ns.is_some_and(|late_ns| late_ns < frame_ns), "{delivery:?}");
        }
        prop_assert_eq!(reordered(&sends, &deliveries), 0);
    }
}

/// A-T11: what the paper's prediction leaves out.
#[test]
fn to_the_letter_a_small_packet_passes_a_large_one() {
    let send = |bytes| Send {
        now_ns: 0,
        leaf: 0,
        flow: 1,
        bytes,
    };
    let sends = [send(FULL_FRAME), send(40)];
    let links = [GOOD_LINK_NS; SPINES];
    let deliveries = Fabric::new(Tr::paper(), links, 1).run(&sends);
    assert_eq!(reordered(&sends, &deliveries), 1);
    let tr = Tr {
        counts_serialisation: true,
        ..Tr::paper()
    };
    let deliveries = Fabric::new(tr, links, 1).run(&sends);
    assert_eq!(reordered(&sends, &deliveries), 0);
}

/// A-T4: three leaves that send to a fourth. What the others send is seen late.
#[test]
fn with_more_source_leaves_a_guard_is_what_keeps_order() {
    let sends = crossing_traffic();
    let links = std::array::from_fn(|spine| GOOD_LINK_NS * if spine % 2 == 0 { 2 } else { 3 } / 2);
    let count = |guard_ns| {
        let tr = Tr { guard_ns, ..PAPER };
        reordered(&sends, &Fabric::new(tr, links, 3).run(&sends))
    };
    let (paper, guarded) = (count(0), count(200_000));
    println!(
        "{paper} of {} reordered, {guarded} with a guard",
        sends.len()
    );
    assert!(paper > sends.len() / 100, "{paper}");
    assert!(guarded < paper / 10, "{guarded} of {paper}");
}

/// 20,000 packets of bursty flows from three leaves, 0.8 of what the spines carry.
fn crossing_traffic() -> Vec<Send> {
    let mut state = 1u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut sends = Vec::new();
    let mut now_ns = 0;
    while sends.len() < 20_000 {
        let (leaf, flow) = (draw(3) as usize, draw(20));
        let burst = 1 + draw(12);
        for _ in 0..burst {
            sends.push(Send {
                now_ns,
                leaf,
                flow,
                bytes: FULL_FRAME,
            });
        }
        let frame_ns = FULL_FRAME as u64 * BYTE_NS;
        now_ns += burst * frame_ns * 10 / 8 / SPINES as u64;
    }
    sends
}
