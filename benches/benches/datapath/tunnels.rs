//! Rows of packets that choose among the tunnels of a site, beside the same program without
//! that.

use aya::Pod;
use aya::maps::Array;
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use flow_balance::ServiceTime;
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::fwmark::MarkBits;
use splitter_policy::paths::{SitePaths, TunnelPath};

use super::case::{FEWEST_RUNS, thread_time};
use super::loaded::Loaded;
use super::{SHIPPED, full_segment, full_segment_v6, ordinary};

/// One flow is all there is.
const SMALL_TABLE: u32 = 4_096;

/// So many packets make it long.
const WARM_UP: u32 = 1_000;

/// Rows of both families, the program, and how many tunnels it chooses among.
const ROWS: [([&str; 2], &str, usize); 3] = [
    (["mark_known", "mark_known_v6"], "mark", 0),
    (["tr_4_known", "tr_4_known_v6"], "mark_balanced", 4),
    (["tr_16_known", "tr_16_known_v6"], "mark_balanced", 16),
];

/// A value as the kernel program has it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Plain<SitePaths> {}

pub(super) fn measure(group: &mut BenchmarkGroup<'_, WallTime>) {
    for (names, program, tunnels) in ROWS {
        for (name, packet) in names.into_iter().zip([full_segment(), full_segment_v6()]) {
            let mut loaded = Loaded::new(SHIPPED, SMALL_TABLE);
            loaded.load_classifier(program);
            loaded.set(PolicyConfig {
                drain_margin_ns: 0,
                mark_bits: MarkBits::new(0x3f00).expect("one run"),
                ..ordinary()
            });
            let map = loaded.map("SITE_PATHS");
            let mut paths: Array<_, Plain<SitePaths>> = map.try_into().expect("is an array");
            paths
                .set(0, Plain(site(tunnels)), 0)
                .expect("can be written");
            let frame = packet.bytes();
            run(&loaded, program, &frame, WARM_UP);
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|iterations| {
                    let runs = iterations.max(FEWEST_RUNS);
                    let runs = u32::try_from(runs).expect("no sample is so long");
                    let before = counted(&loaded);
                    let started = thread_time();
                    run(&loaded, program, &frame, runs);
                    let elapsed = thread_time() - started;
                    let timed = u64::from(runs);
                    let [long, chosen] = counted(&loaded);
                    assert_eq!(long - before[0], timed, "{name}: long packets");
                    let chose = if tunnels == 0 { 0 } else { timed };
                    assert_eq!(chosen - before[1], chose, "{name}: by the nearest tunnel");
                    elapsed.mul_f64(iterations as f64 / f64::from(runs))
                });
            });
        }
    }
}

/// Packets of long flows, and those that took the nearest tunnel.
fn counted(loaded: &Loaded) -> [u64; 2] {
    let long = loaded.counters().packets(Class::Long, TunnelRole::Long);
    [long, loaded.chosen().long_packets[NEAREST]]
}

const NEAREST: usize = 1;

/// Tunnels that carry more than comes, so that nothing waits in front of any.
fn site(tunnels: usize) -> SitePaths {
    let all = (1 << tunnels) - 1;
    let mut site = SitePaths {
        known: all,
        usable: all,
        mark_mask: 0xf_0000,
        ..SitePaths::default()
    };
    for (number, tunnel) in site.tunnels[..tunnels].iter_mut().enumerate() {
        *tunnel = TunnelPath {
            propagation_ns: if number == NEAREST {
                1_000_000
            } else {
                2_000_000
            },
            service: ServiceTime::from_bits_per_second(10_000_000_000_000),
            own_service: ServiceTime::from_bits_per_second(10_000_000_000_000),
            queue_ns: 5_000_000,
            burst_ns: 0,
            weight: 1,
            mark: (number as u32) << 16,
        };
    }
    site
}

fn run(loaded: &Loaded, name: &str, frame: &[u8], repeat: u32) {
    let program: &SchedClassifier = loaded.program(name).try_into().expect("is a classifier");
    let options = TestRunOptions {
        data_in: Some(frame),
        repeat,
        ..TestRunOptions::default()
    };
    program.test_run(options).expect("the kernel runs it");
}
