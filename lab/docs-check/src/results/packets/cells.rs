//! Which figure of packets stands beside which check.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{FABRICS, LOAD, Packets, SENT_AGAIN, SHORT_MEAN, SHORT_P99, quotients, text};

const NO_QUEUES: &str = "none: no packet of the laboratory is timed in a queue";
const NO_DROPS: &str = "none: queues of 25 ms do overflow, and what they drop is not counted";

pub(super) type Cell = fn(&Packets) -> Result<String>;

/// What is measured on packets of each check of an item.
pub(super) const CELLS: [(&str, &str, Cell); 28] = [
    ("T1", "RPS / ECMP", |_| Ok(NO_QUEUES.to_owned())),
    ("T1", "RPS / LetFlow", |_| Ok(NO_QUEUES.to_owned())),
    ("T2", "RPS at the most asymmetry", |it| {
        it.sent_again("rps", 2)
    }),
    ("T2", "ECMP", |it| it.sent_again("ecmp_flow", 2)),
    ("T2", "LetFlow", |it| it.sent_again("letflow", 2)),
    ("T2", "packets dropped", |_| Ok(NO_DROPS.to_owned())),
    ("T3", "RPS / ECMP at 2.5 times the RTT, load 0.5", |it| {
        it.short("rps", "ecmp_flow", 1)
    }),
    ("T3", "RPS / ECMP at 3.5 times, by load", |it| {
        it.short("rps", "ecmp_flow", 2)
    }),
    ("T3", "RPS / LetFlow at 3.5 times, by load", |it| {
        it.short("rps", "letflow", 2)
    }),
    ("T3", "RPS / ECMP at 1.5 times, by load", |it| {
        it.short("rps", "ecmp_flow", 0)
    }),
    ("T3", "RPS / LetFlow at 1.5 times, by load", |it| {
        it.short("rps", "letflow", 0)
    }),
    ("T3", "growth from 1.5 to 3.5, RPS / ECMP, load 0.5", |it| {
        let ratios = |fabric| it.ratios(SHORT_MEAN, "rps", "ecmp_flow", fabric);
        let growth = quotients(&ratios(2)?, &ratios(0)?)?;
        Ok(format!("{} at {LOAD}", text(growth, 2)?))
    }),
    ("T7", "TR at 3.5 / at 1.5 times the RTT", |it| {
        it.both(|tr| {
            let means = |fabric| it.values(SHORT_MEAN, tr, fabric);
            text(quotients(&means(2)?, &means(0)?)?, 2)
        })
    }),
    ("T7", "TR, sent again, worst run", |it| {
        it.both(|tr| {
            let all = (0..FABRICS.len()).map(|fabric| it.values(SENT_AGAIN, tr, fabric));
            let all: Vec<_> = all.collect::<Result<_>>()?;
            let worst = all.iter().flat_map(BTreeMap::values).copied();
            Ok(format!(
                "{:.0} segments",
                worst.reduce(f64::max).unwrap_or(f64::NAN)
            ))
        })
    }),
    ("T7", "mean, TR against LetFlow at 3.5", |it| {
        it.change(SHORT_MEAN, "letflow")
    }),
    ("T7", "p99, TR against RPS at 3.5", |it| {
        it.change(SHORT_P99, "rps")
    }),
    ("T7", "mean, TR / ecmp, all asymmetries", |it| {
        it.all("ecmp_flow")
    }),
    ("T7", "mean, TR / rps, all asymmetries", |it| it.all("rps")),
    ("T7", "mean, TR / drb, all asymmetries", |it| it.all("drb")),
    ("T7", "mean, TR / presto, all asymmetries", |it| {
        it.all("presto")
    }),
    ("T7", "mean, TR / letflow, all asymmetries", |it| {
        it.all("letflow")
    }),
    ("T8", "TR / ecmp at 3.5 times the RTT", |it| {
        let fabric = it.long("ecmp_flow")?;
        Ok(format!("{fabric}; {}", it.bonded("ecmp_flow")?))
    }),
    ("T8", "TR / rps at 3.5 times the RTT", |it| it.long("rps")),
    ("T8", "TR / drb at 3.5 times the RTT", |it| it.long("drb")),
    ("T8", "TR / presto at 3.5 times the RTT", |it| {
        it.long("presto")
    }),
    ("T8", "TR / letflow at 3.5 times the RTT", |it| {
        let fabric = it.long("letflow")?;
        Ok(format!("{fabric}; {}", it.bonded("letflow")?))
    }),
    ("T15", "TR, a decision among ten paths", |it| it.processor()),
    ("T15", "TR, state of a flow", |it| it.memory()),
];
