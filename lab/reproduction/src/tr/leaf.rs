//! A leaf switch, for measuring what choosing a path costs.

use std::hint::black_box;

use flow_balance::{
    Ageing, Balancer, MAX_PATHS, Packet, PathId, PathSet, PathView, Paths, RemoteBacklogs,
    ServiceTime, VirtualQueue,
};

/// Paths of the leaf.
pub const PATHS: usize = 10;
/// Flows that it serves.
pub const FLOWS: usize = 1_024;

/// Ten ports of 40 Gbit/s at a load of 0.6.
const GAP_NS: u64 = 50;
const RATE: ServiceTime = ServiceTime::from_bits_per_second(40_000_000_000);

/// A leaf's uplinks, what it heard of the spines' ports to one other leaf, and its flows.
#[derive(Debug)]
pub struct Leaf<Flow> {
    ports: Ports,
    flows: [Flow; FLOWS],
    random: u64,
}

/// The paths as a leaf knows them.
#[derive(Debug)]
struct Ports {
    uplinks: [VirtualQueue; MAX_PATHS],
    far: RemoteBacklogs,
    propagation_ns: [u64; MAX_PATHS],
    rate_mbit: [u32; MAX_PATHS],
    now_ns: u64,
}

impl<Flow: Copy + Default> Leaf<Flow> {
    /// An idle one, half of whose paths are slower.
    pub fn idle() -> Self {
        Self {
            ports: Ports {
                uplinks: Default::default(),
                far: RemoteBacklogs::default(),
                propagation_ns: std::array::from_fn(|path| 8_000 + 4_000 * (path as u64 % 2)),
                rate_mbit: black_box([40_000; MAX_PATHS]),
                now_ns: 0,
            },
            flows: [Flow::default(); FLOWS],
            random: 1,
        }
    }

    /// The next packet, of a random flow, goes where the policy sends it; now and then the leaf
    /// hears of what is behind.
    #[inline(always)]
    pub fn pass<B: Balancer<Flow = Flow>>(&mut self, policy: &B, shared: &mut B::Shared) {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let flow = (self.random >> 48) as usize % FLOWS;
        let ports = &mut self.ports;
        ports.now_ns += GAP_NS;
        let packet = Packet {
            now_ns: ports.now_ns,
            bytes: 1_500,
            flow_hash: flow as u64,
        };
        let path = black_box(policy.choose(shared, &mut self.flows[flow], &*ports, &packet));
        ports.uplinks[path.index()].send(1_500, ports.now_ns, RATE);
        if self.random >> 40 & 3 == 0 {
            let port = ports.far.behind_mut(path);
            port.report(self.random >> 20 & 0xfff, ports.now_ns);
        }
    }
}

impl Paths for Ports {
    #[inline(always)]
    fn known(&self) -> PathSet {
        PathSet::first(PATHS)
    }

    #[inline(always)]
    fn usable(&self) -> PathSet {
        self.known()
    }

    #[inline(always)]
    fn view(&self, path: PathId) -> PathView {
        PathView {
            propagation_ns: self.propagation_ns[path.index()],
            local_backlog_ns: self.uplinks[path.index()].backlog_ns(self.now_ns),
            remote_backlog_ns: self.far.behind(path).at(self.now_ns, Ageing::Drains),
            service: ServiceTime::UNKNOWN,
            weight: self.rate_mbit[path.index()],
            ..PathView::default()
        }
    }
}
