//! What a choice among ten paths costs.

use std::time::Duration;

use aya::include_bytes_aligned;
use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use flow_balance::ServiceTime;
use flow_balance::{MAX_PATHS, Packet, PathView, ShortFlows, Snapshot, Tr};

use super::case::{FEWEST_RUNS, thread_time};

#[allow(dead_code, reason = "the test uses the other part of it")]
#[path = "../../../splitter-agent/tests/it/support/balancers.rs"]
mod kernel;

use kernel::{Balancer, Settings, question};

static OBJECT: &[u8] = include_bytes_aligned!("../../bpf/balancers.o");

const PATHS: usize = 10;

/// Of TR's large fabric.
const TIMEOUT_NS: u64 = 48_000;

const XDP_PASS: u32 = 2;

pub(super) fn measure(group: &mut BenchmarkGroup<'_, WallTime>) {
    let short = Settings {
        threshold_bytes: u64::MAX,
        ..settings(Tr::paper())
    };
    let long = settings(Tr::paper());
    let guarded = settings(Tr::guarded());
    for (name, program, settings) in [
        ("balance_nothing", "no_choice", short),
        ("balance_ecmp", "ecmp", short),
        ("balance_rps", "rps", short),
        ("balance_drb", "drb", short),
        ("balance_presto", "presto", short),
        ("balance_letflow", "letflow", short),
        ("balance_tr_short", "tr", short),
        ("balance_tr_long", "tr", long),
        ("balance_tr_long_guarded", "tr", guarded),
    ] {
        let mut balancer = Balancer::load(OBJECT, program);
        balancer.share(ShortFlows::new(TIMEOUT_NS));
        balancer.ask(question(settings, &packet(), &paths()));
        // Until a long flow is one.
        assert_eq!(balancer.run(1_000), XDP_PASS, "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| time(&balancer, iterations));
        });
        assert!(balancer.choice().index() < PATHS, "{name}");
    }
}

/// CPU time of `iterations` choices, taken over more of them if they are few.
fn time(balancer: &Balancer, iterations: u64) -> Duration {
    let runs = u32::try_from(iterations.max(FEWEST_RUNS)).expect("no sample is so long");
    let started = thread_time();
    assert_eq!(balancer.run(runs), XDP_PASS);
    (thread_time() - started).mul_f64(iterations as f64 / f64::from(runs))
}

fn settings(tr: Tr) -> Settings {
    Settings {
        seed: 1,
        cell_bytes: 65_536,
        // So that each flowlet has one packet, which is the dearer case.
        gap_ns: 100,
        threshold_bytes: tr.threshold_bytes,
        guard_ns: tr.guard_ns,
        slack_ns: tr.slack_ns,
        counts_serialisation: 0,
        between_ns: 300,
    }
}

const fn packet() -> Packet {
    Packet {
        now_ns: 1_000_000,
        bytes: 1_500,
        flow_hash: 0x9e37_79b9_7f4a_7c15,
    }
}

/// Of unequal delays and backlogs, some of them equally good.
fn paths() -> Snapshot {
    let views: [PathView; PATHS] = std::array::from_fn(|path| PathView {
        propagation_ns: 8_000 + path as u64 % 2 * 4_000,
        local_backlog_ns: path as u64 * 7 % 5 * 300,
        remote_backlog_ns: path as u64 % 3 * 300,
        service: ServiceTime::from_bits_per_second(40_000_000_000),
        weight: 40_000,
        ..PathView::default()
    });
    const { assert!(PATHS <= MAX_PATHS) };
    Snapshot::new(&views)
}
