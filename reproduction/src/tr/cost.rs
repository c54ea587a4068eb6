//! What TR costs a switch: `T15`, in place of the processor and memory of a software switch
//! (figure 15).

use std::{hint::black_box, time::Instant};

use flow_report::{Axis, Plot, Series, Table};
use serde_json::json;
use splitter_common::{
    balance::{
        Ageing, Balancer, Drb, Ecmp, FarTable, LetFlow, MAX_PATHS, Packet, PathId, PathSet,
        PathView, Paths, Presto, Rps, ShortFlows, Tr,
    },
    drain::{ServiceTime, VirtualQueue},
};

use crate::figure::{Check, Figure};

const PATHS: usize = 10;
const FLOWS: usize = 1_024;
const DECISIONS: u32 = 100_000;
const ROUNDS: usize = 15;
/// Ten ports of 40 Gbit/s at a load of 0.6.
const GAP_NS: u64 = 50;
const RATE: ServiceTime = ServiceTime::from_bits_per_second(40_000_000_000);

/// What a policy costs.
struct Cost {
    scheme: &'static str,
    ns: f64,
    flow_bytes: usize,
}

/// `T15`: as `cargo bench -p benches --bench balance`, in less time.
pub fn figure() -> Figure {
    let letflow = LetFlow {
        gap_ns: 500_000,
        seed: 0,
    };
    let tr = |threshold_bytes| Tr {
        threshold_bytes,
        ..Tr::paper()
    };
    let short_flows = ShortFlows::new(48_000);
    let costs = [
        cost("ecmp", Ecmp::default(), ()),
        cost("rps", Rps::default(), ()),
        cost("drb", Drb::default(), ()),
        cost("presto", Presto::default(), ()),
        cost("letflow", letflow, ()),
        cost("tr, short flows", tr(u64::MAX), short_flows),
        cost("tr, long flows", tr(0), short_flows),
    ];
    let mut table = Table::new(["policy", "ns a decision", "bytes a flow"]);
    for it in &costs {
        table.row([
            it.scheme.to_owned(),
            format!("{:.0}", it.ns),
            it.flow_bytes.to_string(),
        ]);
    }
    let points = (0..)
        .zip(&costs)
        .map(|(number, it)| (f64::from(number), it.ns));
    let names: Vec<&str> = costs.iter().map(|it| it.scheme).collect();
    let x = Axis::linear(names.join(" · "));
    let plot = Plot::new("A decision among ten paths", x, Axis::linear("ns"))
        .with(Series::points("ns", points.collect()));
    let row = |it: &Cost| json!({"scheme": it.scheme, "ns": it.ns, "flow_bytes": it.flow_bytes});
    Figure {
        id: "T15",
        title: "cost in a switch, in place of figure 15",
        note: "The least of 15 rounds; what a host does around a decision is included, as in \
            `cargo bench -p benches --bench balance`. On a machine that does other things too it is more."
            .to_owned(),
        checks: checks(&costs),
        rows: costs.iter().map(row).collect(),
        columns: vec!["scheme", "ns", "flow_bytes"],
        tables: vec![table],
        plots: vec![plot],
    }
}

fn checks(costs: &[Cost]) -> Vec<Check> {
    let tr = costs.iter().filter(|it| it.scheme.starts_with("tr"));
    let ns = tr.clone().map(|it| it.ns).fold(0.0, f64::max);
    let bytes = tr.map(|it| it.flow_bytes).max().unwrap_or_default();
    let over = |ours: f64, most: f64, unit: &str| {
        (ours > most).then(|| format!("{:.0} {unit} too much", ours - most))
    };
    vec![
        Check::new(
            "TR, a decision among ten paths",
            "not excessive",
            "at most 100 ns",
            format!("{ns:.0} ns"),
            over(ns, 100.0, "ns"),
        ),
        Check::new(
            "TR, state of a flow",
            "about 5 % of memory",
            "at most 128 B",
            format!("{bytes} B"),
            over(bytes as f64, 128.0, "B"),
        ),
    ]
}

fn cost<B: Balancer>(scheme: &'static str, policy: B, mut shared: B::Shared) -> Cost {
    let mut leaf = Leaf::new();
    let mut flows = [B::Flow::default(); FLOWS];
    let mut random = 1u64;
    let rounds = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        for _ in 0..DECISIONS {
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
            leaf.send(black_box(path), random);
        }
        started.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS)
    });
    Cost {
        scheme,
        ns: rounds.fold(f64::INFINITY, f64::min),
        flow_bytes: size_of::<B::Flow>(),
    }
}

/// A leaf's uplinks, and what it heard of the spines' ports to one other leaf.
struct Leaf {
    uplinks: [VirtualQueue; MAX_PATHS],
    far: FarTable,
    now_ns: u64,
}

impl Leaf {
    fn new() -> Self {
        Self {
            uplinks: Default::default(),
            far: FarTable::default(),
            now_ns: 0,
        }
    }

    /// Sends a packet, and now and then hears of what is behind.
    fn send(&mut self, path: PathId, random: u64) {
        self.uplinks[path.index()].send(1_500, self.now_ns, RATE);
        if random >> 40 & 3 == 0 {
            let port = self.far.behind_mut(path);
            port.hear(random >> 20 & 0xfff, self.now_ns);
        }
    }
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
            propagation_ns: 8_000 + 4_000 * (path.index() as u64 % 2),
            local_backlog_ns: self.uplinks[path.index()].backlog_ns(self.now_ns),
            far_backlog_ns: self.far.behind(path).at(self.now_ns, Ageing::Drains),
            service: ServiceTime::UNKNOWN,
            weight: 1,
        }
    }
}
