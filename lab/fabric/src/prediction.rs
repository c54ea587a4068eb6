//! What the simulator has for the same flows: the same fabric, the same sizes at the same times.
//!
//! It is not fitted to anything. Where it differs from the fabric by construction: every segment is acknowledged at
//! once, links of hosts carry 10 Gbit/s, and no machine is ever late.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flow_report::Summary;
use netsim::{Overrides, Source};

use crate::{
    cell::{Cell, SizeClass},
    change::Variation,
    measurement::DRAIN,
    rig::QUEUE_MS,
    schedule::Schedule,
    scheme::{Balancer, Scheme},
};

/// Completion times that the simulator has, and what became of packets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prediction {
    draws: Vec<Draw>,
}

/// One simulation of a run.
#[derive(Clone, Debug, PartialEq)]
struct Draw {
    /// In ms, of the flows that count.
    completions_ms: Vec<(SizeClass, f64)>,
    /// Of the flows that count: segments sent again.
    retransmits: u64,
    /// Of the flows that count: the part of the segments that one with a higher number had overtaken.
    out_of_order: f64,
}

/// More messages than this have no number in the simulator.
const MOST_FLOWS: usize = 65_000;
/// So many simulations of a run, which differ by chance alone: by where flows and packets happen to go. With few long
/// flows a single one says little of the mean.
pub(crate) const DRAWS: u64 = 8;
/// A threshold that no flow reaches: in the leaves' programs none turns long, either.
const NEVER_LONG_BYTES: u64 = 1 << 50;
/// The pause after which the splitter's `letflow` chooses again.
const FLOWLET_GAP_US: f64 = 50_000.0;

/// Simulates a run whose flows count from the end of the warm-up on, as varied; nothing for a
/// scheme that the simulator does not have, with a fault, or for too many flows.
pub(crate) fn of(
    cell: &Cell,
    scheme: Scheme,
    seed: u64,
    (schedule, warm_up): (&Schedule, Duration),
    variation: &Variation,
) -> Result<Option<Prediction>> {
    let (Ok(balance), None) = (balance(scheme), cell.fault) else {
        return Ok(None);
    };
    if schedule.transfers.len() > MOST_FLOWS || schedule.transfers.is_empty() {
        return Ok(None);
    }
    let source = Source::from_text("fabric", &scenario(cell, &balance, schedule, variation));
    let mut draws = Vec::new();
    for draw in 0..DRAWS {
        let overrides = Overrides {
            seed: Some(seed * DRAWS + draw),
            scheme: Some(CHANGED.to_owned()),
            ..Overrides::default()
        };
        let experiment = source.experiment(&overrides);
        let simulated = netsim::run(&experiment.context("cannot simulate the fabric")?);
        draws.push(Draw::of(&simulated, schedule, warm_up)?);
    }
    Ok(Some(Prediction { draws }))
}

impl Prediction {
    /// The mean of a class; nothing without a flow.
    pub(crate) fn mean_ms(&self, class: SizeClass) -> Option<f64> {
        let all = self.draws.iter().flat_map(|it| it.of_class(class));
        let summary = Summary::new(all);
        (summary.count() > 0).then(|| summary.mean())
    }

    /// The 99th percentile of a class in each simulation, which has as many flows as a measurement, and of these the
    /// mean; nothing without a flow.
    pub(crate) fn p99_ms(&self, class: SizeClass) -> Option<f64> {
        let each = self.draws.iter().filter_map(|it| {
            let summary = Summary::new(it.of_class(class));
            (summary.count() > 0).then(|| summary.percentile(99.0))
        });
        let each = Summary::new(each);
        (each.count() > 0).then(|| each.mean())
    }

    /// Flows of a class that count.
    pub(crate) fn flows(&self, class: SizeClass) -> u64 {
        let first = self.draws.first();
        first.map_or(0, |it| it.of_class(class).count() as u64)
    }

    /// Segments of the flows that count which are sent again, in the mean. Those that started in the warm-up are not among
    /// these, where a measurement counts what they send again afterwards.
    pub(crate) fn retransmits(&self) -> f64 {
        Summary::new(self.draws.iter().map(|it| it.retransmits as f64)).mean()
    }

    /// The part of the segments of flows that count which one with a higher number has overtaken, in the mean. Those sent
    /// again are late by no number, where a measurement goes by what was sent when.
    pub(crate) fn out_of_order(&self) -> f64 {
        Summary::new(self.draws.iter().map(|it| it.out_of_order)).mean()
    }
}

impl Draw {
    fn of(simulated: &netsim::Outcome, schedule: &Schedule, warm_up: Duration) -> Result<Self> {
        ensure!(
            simulated.flows.len() == schedule.classes.len(),
            "{} flows were simulated in the place of {}",
            simulated.flows.len(),
            schedule.classes.len()
        );
        let until_ns = (schedule.length + DRAIN).as_nanos() as u64;
        let waited_ns = |start_ns| until_ns.saturating_sub(start_ns);
        let flows = simulated.flows.iter().zip(&schedule.classes);
        let counted = flows.filter(|(flow, _)| Duration::from_nanos(flow.start_ns) >= warm_up);
        let sum = |of: fn(&netsim::FlowRecord) -> u32| -> u64 {
            let counted = counted.clone();
            counted.map(|(flow, _)| u64::from(of(flow))).sum()
        };
        let completions_ms = counted.clone().map(|(flow, class)| {
            let ns = flow.fct_ns.unwrap_or_else(|| waited_ns(flow.start_ns));
            (*class, ns as f64 / 1e6)
        });
        Ok(Self {
            completions_ms: completions_ms.collect(),
            retransmits: sum(|it| it.retransmitted),
            out_of_order: sum(|it| it.out_of_order) as f64 / sum(|it| it.arrived).max(1) as f64,
        })
    }

    fn of_class(&self, class: SizeClass) -> impl Iterator<Item = f64> {
        let own = self.completions_ms.iter().filter(move |it| it.0 == class);
        own.map(|(_, ms)| *ms)
    }
}

/// The simulator's settings for a scheme, or why it has none.
fn balance(scheme: Scheme) -> Result<String, &'static str> {
    let policy = |name: &str| format!("policy = \"{name}\", weighted = true");
    let in_order = |far: &str| {
        format!(
            "{}, tr = {{ {far}, counts_serialisation = true, guard_us = 0.0, \
             threshold_bytes = {NEVER_LONG_BYTES} }}",
            policy("tr")
        )
    };
    Ok(match scheme {
        Scheme::EcmpPacket => return Err("the simulator has no turns by weight"),
        Scheme::Splitter(Balancer::TrMixed) => return Err("in the simulator all spines report"),
        Scheme::EcmpFlow => policy("ecmp"),
        Scheme::Splitter(Balancer::Letflow) => {
            format!("{}, letflow_gap_us = {FLOWLET_GAP_US:?}", policy("letflow"))
        }
        Scheme::Splitter(Balancer::Rps) => policy("rps"),
        Scheme::Splitter(Balancer::Drb) => policy("drb"),
        Scheme::Splitter(Balancer::Presto) => policy("presto"),
        Scheme::Splitter(Balancer::TrPaper) => {
            format!("{}, tr = {{ far = \"nothing\" }}", policy("tr"))
        }
        Scheme::Splitter(Balancer::Tr) => in_order("ageing = \"drains\""),
        Scheme::Splitter(Balancer::TrLocal | Balancer::TrUnreported) => {
            in_order("far = \"nothing\"")
        }
    })
}

/// Why the simulator has nothing for a scheme in a cell, if it has not.
pub(crate) fn obstacle(cell: &Cell, scheme: Scheme) -> Option<&'static str> {
    if cell.fault.is_some() {
        return Some("the simulator predicts nothing of faults");
    }
    balance(scheme).err()
}

/// The name under which the scenario has its changes.
const CHANGED: &str = "changed";

fn scenario(cell: &Cell, balance: &str, schedule: &Schedule, variation: &Variation) -> String {
    let shape = cell.shape;
    let gbps = |mbit: u32| f64::from(mbit) / 1e3;
    let buffer_us = QUEUE_MS * 1_000;
    let (control, recovery) = (shape.tcp.control.name(), shape.tcp.recovery.name());
    let until_ms = (schedule.length + DRAIN).as_secs_f64() * 1e3;
    let mut text = format!(
        "about = \"The same flows as between namespaces\"\nuntil_ms = {until_ms:.3}\n\
         balance = {{ {balance} }}\n\
         port = {{ buffer_us = {buffer_us}.0, burst_bytes = {}, ecn_bytes = {} }}\n\
         [fabric]\nleaves = {}\nspines = {}\nhosts_per_leaf = {}\n\
         host_gbps = 10.0\nuplink_gbps = {}\nlink_delay_us = 10.0\n\
         [transport]\ncontrol = \"{control}\"\nrecovery = \"{recovery}\"\nrto_min_us = 200000\n\
         handshake = true\n\
         mss_bytes = 1448\nheader_bytes = 66\n",
        shape.burst_bytes,
        u32::MAX,
        shape.leaves,
        shape.spines,
        shape.hosts,
        gbps(shape.rate_mbit)
    );
    let _ = write!(text, "[schemes.{CHANGED}]\n{}", variation.lines());
    for (spine, rate) in cell.rates_mbit().into_iter().enumerate() {
        let rate = gbps(rate);
        let _ = writeln!(text, "[[fabric.path]]\nspine = {spine}\ngbps = {rate}");
    }
    for it in schedule.transfers.iter() {
        let at_us = it.at.as_secs_f64() * 1e6;
        let _ = writeln!(
            text,
            "[[traffic]]\nkind = \"message\"\nfrom = {}\nto = {}\nbytes = {}\nat_us = {at_us:.3}",
            it.initiator, it.responder, it.bytes
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cell::{self, tests::SHAPE},
        tcp::Control,
    };

    fn predicted(name: &str, scheme: Scheme) -> Option<Prediction> {
        let cell = cell::chosen(SHAPE, Some(name), false)[0];
        let schedule = Schedule::draw(&cell, Duration::from_secs(2), 1).expect("built in");
        let counted = (&schedule, Duration::from_secs(1));
        of(&cell, scheme, 1, counted, &Variation::default()).expect("it can be simulated")
    }

    #[test]
    fn every_scheme_but_turns_by_weight_is_simulated() {
        for scheme in Scheme::ALL {
            let prediction = predicted("asym2.5-web_search-load0.3", scheme);
            let is_known = scheme != Scheme::EcmpPacket;
            assert_eq!(prediction.is_some(), is_known, "{scheme:?}");
            let cell = cell::chosen(SHAPE, Some("asym2.5-web_search-load0.3"), false)[0];
            assert_eq!(obstacle(&cell, scheme).is_none(), is_known, "{scheme:?}");
            for class in SizeClass::ALL {
                let mean_ms = prediction.as_ref().and_then(|it| it.mean_ms(class));
                assert!(mean_ms.is_none_or(|it| it > 0.1), "{scheme:?}: {mean_ms:?}");
            }
        }
    }

    #[test]
    fn hosts_and_shapers_are_those_of_the_fabric() {
        let mut cell = cell::chosen(SHAPE, Some("asym2.5-web_search-load0.3"), false)[0];
        cell.shape.burst_bytes = 4_700;
        cell.shape.tcp.control = Control::Reno;
        let schedule = Schedule::draw(&cell, Duration::from_secs(1), 1).expect("built in");
        let text = scenario(&cell, "policy = \"ecmp\"", &schedule, &Variation::default());
        let table: toml::Table = text.parse().expect("TOML");
        let (port, transport) = (&table["port"], &table["transport"]);
        // 25 ms in front of each link, whatever its rate.
        assert_eq!(port["buffer_us"].as_float(), Some(25_000.0));
        assert_eq!(port["burst_bytes"].as_integer(), Some(4_700));
        assert_eq!(transport["control"].as_str(), Some("reno"));
        assert_eq!(transport["recovery"].as_str(), Some("rack"));
        assert_eq!(transport["handshake"].as_bool(), Some(true));
    }

    #[test]
    fn other_flows_than_were_drawn_are_no_prediction() {
        let cell = cell::chosen(SHAPE, Some("asym2.5-web_search-load0.3"), false)[0];
        let mut schedule = Schedule::draw(&cell, Duration::from_secs(1), 1).expect("built in");
        schedule.classes.pop();
        let counted = (&schedule, Duration::ZERO);
        let error = of(&cell, Scheme::EcmpFlow, 1, counted, &Variation::default());
        let error = error.expect_err("one has no class").to_string();
        assert!(error.contains("flows were simulated"), "{error}");
    }

    #[test]
    fn only_flows_after_the_warm_up_count_and_load_makes_them_slower() {
        let ecmp = |load: &str| {
            let name = format!("asym2.5-web_search-load{load}");
            predicted(&name, Scheme::EcmpFlow).expect("it is simulated")
        };
        let (low, high) = (ecmp("0.3"), ecmp("0.8"));
        let cell = cell::chosen(SHAPE, Some("asym2.5-web_search-load0.8"), false)[0];
        let schedule = Schedule::draw(&cell, Duration::from_secs(2), 1).expect("built in");
        let late = schedule.transfers.iter();
        let late = late.filter(|it| it.at >= Duration::from_secs(1)).count();
        assert_eq!(high.draws.len(), DRAWS as usize);
        assert!(high.draws.iter().all(|it| it.completions_ms.len() == late));
        let short = |it: &Prediction| it.mean_ms(SizeClass::Short).expect("there are some");
        assert!(short(&low) < short(&high), "{low:?} {high:?}");
    }
}
