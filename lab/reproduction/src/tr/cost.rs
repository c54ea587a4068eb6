//! Cost of TR in a switch: `T15`, in place of the processor and memory of a software switch (figure
//! 15).

use std::time::Instant;

use flow_balance::{Balancer, Drb, Ecmp, LetFlow, Presto, Rps, ShortFlows, Tr};
use flow_report::{Axis, Plot, Series, Table};
use serde_json::json;

use super::leaf::Leaf;
use crate::{check::Check, figure::Figure};

const DECISIONS: u32 = 100_000;
const ROUNDS: usize = 15;

/// Cost of one policy.
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
        time(ns, over(ns, 100.0, "ns")),
        Check::new(
            "TR, state of a flow",
            "about 5 % of memory",
            "at most 128 B",
            format!("{bytes} B"),
            over(bytes as f64, 128.0, "B"),
        )
        .with_numbers((0.0, 128.0), None, bytes as f64),
    ]
}

/// Without optimisation it is the time of another program.
fn time(ns: f64, miss: Option<String>) -> Check {
    let (what, paper, band) = (
        "TR, a decision among ten paths",
        "not excessive",
        "at most 100 ns",
    );
    let ours = format!("{ns:.0} ns");
    if cfg!(debug_assertions) {
        return Check {
            ours,
            ..Check::undecided(what, paper, band, "built without optimisation")
        };
    }
    Check::new(what, paper, band, ours, miss).with_numbers((0.0, 100.0), None, ns)
}

fn cost<B: Balancer>(scheme: &'static str, policy: B, mut shared: B::Shared) -> Cost {
    let mut leaf = Leaf::<B::Flow>::idle();
    let rounds = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        for _ in 0..DECISIONS {
            leaf.pass(&policy, &mut shared);
        }
        started.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS)
    });
    Cost {
        scheme,
        ns: rounds.fold(f64::INFINITY, f64::min),
        flow_bytes: size_of::<B::Flow>(),
    }
}
