//! What the simulator takes for small runs of TR's large fabric, by policy: 200 Web Search flows at
//! load 0.6. Throughput is in links passed by packets.
//!
//! | `netsim/` | measures |
//! |---|---|
//! | `ecmp`, `rps`, `letflow` | mostly events, ports and hosts |
//! | `tr`, `tr_guarded` | that, and decisions among ten paths |
//!
//! A run is short enough to fit into caches; `netsim bench` measures a long one.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use netsim::{Experiment, Overrides, Source};

fn netsim(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("netsim");
    group.sample_size(10);
    for scheme in ["ecmp", "rps", "letflow", "tr", "tr_guarded"] {
        let experiment = experiment(scheme);
        let hops = netsim::run(&experiment).totals.hops;
        group.throughput(Throughput::Elements(hops));
        group.bench_function(scheme, |bencher| {
            bencher.iter(|| netsim::run(black_box(&experiment)));
        });
    }
}

fn experiment(scheme: &str) -> Experiment {
    let overrides = Overrides {
        scheme: Some(scheme.to_owned()),
        messages: Some(200),
        load: Some(0.6),
        ..Overrides::default()
    };
    let source = Source::find("tr-large").expect("it is built in");
    source.experiment(&overrides).expect("it is right")
}

criterion_group!(benches, netsim);
criterion_main!(benches);
