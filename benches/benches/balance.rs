//! What choosing a path costs for a packet, by policy: ten paths, 1,024 flows.
//!
//! The host is a leaf switch as the simulator has it: its view of a path is put
//! together from a virtual queue and what was heard of the far one, at each
//! packet, and the packet is sent into the queue. That is included, as is the
//! memory of the flow. `host` is both with no choice at all: the floor.
//!
//! | `balance/` | measures |
//! |---|---|
//! | `host` | the path is the flow's number; queue and flow are updated |
//! | `ecmp`, `rps`, `drb`, `presto`, `letflow`, `placement` | the policy of that name |
//! | `tr_short` | TR, all flows below its threshold |
//! | `tr_long` | TR, all flows above it |
//! | `tr_long_guarded` | the same with a guard and bounded slack |
//!
//! Instructions are counted by callgrind, for `PACKETS` of them at a time:
//!
//! ```sh
//! valgrind --tool=callgrind --toggle-collect='*balance::run*closure*' \
//!     target/release/deps/balance-* --test --exact balance/tr_short
//! ```

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use splitter_common::balance::{
    Ageing, Balancer, Drb, Ecmp, FarTable, LetFlow, MAX_PATHS, Packet, PathId, PathSet, PathView,
    Paths, Placement, Presto, Rps, ShortFlows, Tr, Turns,
};
use splitter_common::drain::{ServiceTime, VirtualQueue};

const PATHS: usize = 10;
const FLOWS: usize = 1_024;
const PACKETS: u64 = 10_000;
/// Ten ports of 40 Gbit/s at a load of 0.6.
const GAP_NS: u64 = 50;
const RATE: ServiceTime = ServiceTime::from_bits_per_second(40_000_000_000);

fn balance(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("balance");
    group.throughput(Throughput::Elements(PACKETS));
    let mut bench = |name: &str, mut run: Box<dyn FnMut()>| {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| (), |()| run(), BatchSize::PerIteration);
        });
    };
    bench("host", run(Fixed, ()));
    bench("ecmp", run(Ecmp::default(), ()));
    bench("rps", run(Rps::default(), ()));
    bench("drb", run(Drb::default(), ()));
    bench("presto", run(Presto::default(), ()));
    let gap_ns = 50_000;
    bench("letflow", run(LetFlow { gap_ns, seed: 0 }, ()));
    bench("placement", run(Placement::default(), Turns::default()));
    for (name, tr) in [
        ("tr_short", with_threshold(u64::MAX, Tr::paper())),
        ("tr_long", with_threshold(0, Tr::paper())),
        ("tr_long_guarded", with_threshold(0, Tr::guarded())),
    ] {
        bench(name, run(tr, ShortFlows::new(48_000)));
    }
}

fn with_threshold(threshold_bytes: u64, tr: Tr) -> Tr {
    Tr {
        threshold_bytes,
        ..tr
    }
}

/// A leaf's uplinks, and what it heard of the spines' ports to one other leaf.
struct Leaf {
    uplinks: [VirtualQueue; MAX_PATHS],
    far: FarTable,
    propagation_ns: [u64; MAX_PATHS],
    rate_mbit: [u32; MAX_PATHS],
    now_ns: u64,
}

impl Paths for Leaf {
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
            far_backlog_ns: self.far.behind(path).at(self.now_ns, Ageing::Drains),
            service: ServiceTime::UNKNOWN,
            weight: self.rate_mbit[path.index()],
        }
    }
}

/// No policy.
struct Fixed;

impl Balancer for Fixed {
    type Flow = ();
    type Shared = ();

    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        (): &mut (),
        _paths: &P,
        packet: &Packet,
    ) -> PathId {
        PathId::new(packet.flow_hash as usize % PATHS).expect("below 16")
    }
}

/// Sends so many packets of random flows through a leaf.
fn run<B: Balancer + 'static>(policy: B, mut shared: B::Shared) -> Box<dyn FnMut()> {
    let mut leaf = Leaf {
        uplinks: Default::default(),
        far: FarTable::default(),
        propagation_ns: std::array::from_fn(|path| 8_000 + 4_000 * (path as u64 % 2)),
        rate_mbit: black_box([40_000; MAX_PATHS]),
        now_ns: 0,
    };
    let mut flows = [B::Flow::default(); FLOWS];
    let mut random = 1u64;
    Box::new(move || {
        for _ in 0..PACKETS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let flow = (random >> 48) as usize % FLOWS;
            leaf.now_ns += GAP_NS;
            let packet = Packet {
                now_ns: leaf.now_ns,
                bytes: 1_500,
                flow_hash: flow as u64,
            };
            let path = policy.choose(&mut shared, &mut flows[flow], &leaf, &packet);
            let uplink = &mut leaf.uplinks[black_box(path).index()];
            uplink.send(packet.bytes as u64, leaf.now_ns, RATE);
            if random >> 40 & 3 == 0 {
                let port = leaf.far.behind_mut(path);
                port.hear(random >> 20 & 0xfff, leaf.now_ns);
            }
        }
    })
}

criterion_group!(benches, balance);
criterion_main!(benches);
