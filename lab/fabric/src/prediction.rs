//! What the simulator has for the same flows: the same fabric, the same sizes at the same times.
//!
//! It is not fitted to anything. Where it differs from the fabric by construction: its TCP is Reno with SACK and
//! has no handshake, all ports have the buffer of the fastest link, and links of hosts carry 10 Gbit/s.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result};
use flow_report::Summary;
use netsim::{Overrides, Source};

use crate::{
    cell::{Cell, SizeClass},
    measurement::{DRAIN, Outcome},
    rig::QUEUE_MS,
    schedule::Schedule,
    scheme::{Balancer, Scheme},
};

/// Completion times that the simulator has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// In ms, of the flows that count.
    completions_ms: Vec<(SizeClass, f64)>,
}

/// More messages than this have no number in the simulator.
const MOST_FLOWS: usize = 65_000;
/// A threshold that no flow reaches: in the leaves' programs none turns long, either.
const NEVER_LONG_BYTES: u64 = 1 << 50;
/// The pause after which the splitter's `letflow` chooses again.
const FLOWLET_GAP_US: f64 = 50_000.0;

/// Simulates a run; nothing for a scheme that the simulator does not have, with a fault, or for too many flows.
pub(crate) fn of(
    cell: &Cell,
    scheme: Scheme,
    seed: u64,
    outcome: &Outcome,
) -> Result<Option<Prediction>> {
    let schedule = &outcome.schedule;
    let Some(balance) = balance(scheme).filter(|_| cell.fault.is_none()) else {
        return Ok(None);
    };
    if schedule.transfers.len() > MOST_FLOWS || schedule.transfers.is_empty() {
        return Ok(None);
    }
    let source = Source::from_text("fabric", &scenario(cell, &balance, schedule));
    let overrides = Overrides {
        seed: Some(seed),
        ..Overrides::default()
    };
    let experiment = source.experiment(&overrides);
    let simulated = netsim::run(&experiment.context("cannot simulate the fabric")?);
    let flows = simulated.flows.iter().zip(&schedule.classes);
    let counted = flows.filter(|(flow, _)| Duration::from_nanos(flow.start_ns) >= outcome.warm_up);
    let waited = |start_ns| schedule.length.as_nanos() as u64 + DRAIN.as_nanos() as u64 - start_ns;
    let completions_ms = counted.map(|(flow, class)| {
        let ns = flow.fct_ns.unwrap_or_else(|| waited(flow.start_ns));
        (*class, ns as f64 / 1e6)
    });
    Ok(Some(Prediction {
        completions_ms: completions_ms.collect(),
    }))
}

impl Prediction {
    /// The mean of a class; nothing without a flow.
    pub(crate) fn mean_ms(&self, class: SizeClass) -> Option<f64> {
        let own = self.completions_ms.iter().filter(|(own, _)| *own == class);
        let summary = Summary::new(own.map(|(_, ms)| *ms));
        (summary.count() > 0).then(|| summary.mean())
    }
}

/// The simulator's settings for a scheme. It has no turns by weight.
fn balance(scheme: Scheme) -> Option<String> {
    let policy = |name: &str| format!("policy = \"{name}\", weighted = true");
    let in_order = |far: &str| {
        format!(
            "{}, tr = {{ {far}, counts_serialisation = true, guard_us = 0.0, \
             threshold_bytes = {NEVER_LONG_BYTES} }}",
            policy("tr")
        )
    };
    Some(match scheme {
        Scheme::EcmpPacket => return None,
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

fn scenario(cell: &Cell, balance: &str, schedule: &Schedule) -> String {
    let shape = cell.shape;
    let gbps = |mbit: u32| f64::from(mbit) / 1e3;
    // 1 Mbit/s carries 125 bytes in 1 ms.
    let buffer_bytes = shape.rate_mbit * 125 * QUEUE_MS;
    let until_ms = (schedule.length + DRAIN).as_secs_f64() * 1e3;
    let mut text = format!(
        "about = \"The same flows as between namespaces\"\nuntil_ms = {until_ms:.3}\n\
         balance = {{ {balance} }}\n\
         port = {{ buffer_bytes = {buffer_bytes}, ecn_bytes = {} }}\n\
         [fabric]\nleaves = {}\nspines = {}\nhosts_per_leaf = {}\n\
         host_gbps = 10.0\nuplink_gbps = {}\nlink_delay_us = 10.0\n\
         [transport]\ncontrol = \"reno\"\nrecovery = \"sack\"\nrto_min_us = 200000\n\
         mss_bytes = 1448\nheader_bytes = 66\n",
        u32::MAX,
        shape.leaves,
        shape.spines,
        shape.hosts,
        gbps(shape.rate_mbit)
    );
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
    use flow_testbed::order::Arrivals;

    use super::*;
    use crate::cell::{self, tests::SHAPE};

    fn predicted(name: &str, scheme: Scheme) -> Option<Prediction> {
        let cell = cell::chosen(SHAPE, Some(name), false)[0];
        let schedule = Schedule::draw(&cell, Duration::from_secs(2), 1).expect("built in");
        let outcome = Outcome {
            warm_up: Duration::from_secs(1),
            flows: Vec::new(),
            arrivals: Arrivals::default(),
            retransmits: 0,
            path_share: Vec::new(),
            ns_per_packet: None,
            cpu_s: 0.0,
            memory_bytes: None,
            prediction_error_us: None,
            schedule,
        };
        of(&cell, scheme, 1, &outcome).expect("it can be simulated")
    }

    #[test]
    fn every_scheme_but_turns_by_weight_is_simulated() {
        for scheme in Scheme::ALL {
            let prediction = predicted("asym2.5-web_search-load0.3", scheme);
            assert_eq!(
                prediction.is_some(),
                scheme != Scheme::EcmpPacket,
                "{scheme:?}"
            );
            for class in SizeClass::ALL {
                let mean_ms = prediction.as_ref().and_then(|it| it.mean_ms(class));
                assert!(mean_ms.is_none_or(|it| it > 0.1), "{scheme:?}: {mean_ms:?}");
            }
        }
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
        assert_eq!(high.completions_ms.len(), late);
        let short = |it: &Prediction| it.mean_ms(SizeClass::Short).expect("there are some");
        assert!(short(&low) < short(&high), "{low:?} {high:?}");
    }
}
