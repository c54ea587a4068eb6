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

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use flow_balance::{
    Balancer, Drb, Ecmp, LetFlow, Packet, PathId, Paths, Placement, Presto, RoundRobin, Rps,
    ShortFlows, Tr,
};
use reproduction::tr::leaf::{Leaf, PATHS};

const PACKETS: u64 = 10_000;

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
    bench(
        "placement",
        run(Placement::default(), RoundRobin::default()),
    );
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
    let mut leaf = Leaf::<B::Flow>::idle();
    Box::new(move || {
        for _ in 0..PACKETS {
            leaf.pass(&policy, &mut shared);
        }
    })
}

criterion_group!(benches, balance);
criterion_main!(benches);
