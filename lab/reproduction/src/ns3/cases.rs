//! Cases beyond lone flows: loss recovery under reordering, sprayed packets, flowlets, and PIAS.
//!
//! Both simulators get the same flows; the paths of packets are drawn by each for itself. So single runs differ, and
//! intervals over seeds say whether more than chance is between them.

use anyhow::{Result, ensure};
use flow_report::{Estimate, Table};
use netsim::{Outcome, Overrides, Source};
use serde::Serialize;

use super::{
    BUFFER_PACKETS, DELAY_US, GBPS, HEADER_BYTES, HOSTS_PER_LEAF, MARK_PACKETS, Ns3, PACKET_BYTES,
};

/// Short flows and long ones, as many of each.
const SIZES: [u64; 2] = [20_000, 1_000_000];
const CLASSES: [&str; 2] = ["20 kB", "1 MB"];
const MESSAGES: u32 = 150;
/// By how much completion times may differ, in percent.
const BOUND_PERCENT: f64 = 5.0;
/// Slow links of the first spine: what its packets are later by, each way, is two of them.
const SLOW_US: u32 = 20;

/// A fabric, its hosts, and how its leaves choose.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    control: &'static str,
    policy: &'static str,
    spines: u32,
    slow_us: u32,
    gap_us: u32,
    pias_bytes: u32,
    load: f64,
}

const PLAIN: Case = Case {
    name: "DCTCP, one spine",
    control: "dctcp",
    policy: "ecmp",
    spines: 1,
    slow_us: 0,
    gap_us: 500,
    pias_bytes: 0,
    load: 0.05,
};

const CASES: [Case; 6] = [
    PLAIN,
    Case {
        name: "NewReno, sprayed over four paths",
        control: "newreno",
        policy: "rps",
        spines: 4,
        ..PLAIN
    },
    Case {
        name: "NewReno, sprayed, one path 40 us longer",
        control: "newreno",
        policy: "rps",
        spines: 4,
        slow_us: SLOW_US,
        ..PLAIN
    },
    Case {
        name: "DCTCP, sprayed, one path 40 us longer",
        policy: "rps",
        spines: 4,
        slow_us: SLOW_US,
        ..PLAIN
    },
    Case {
        name: "DCTCP, LetFlow, one path 40 us longer",
        policy: "letflow",
        spines: 4,
        slow_us: SLOW_US,
        gap_us: 100,
        ..PLAIN
    },
    Case {
        name: "DCTCP, PIAS with 100 kB first",
        pias_bytes: 100_000,
        ..PLAIN
    },
];

/// How a class of a case came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The whole interval is within the bound.
    Holds,
    /// The whole interval is beyond it.
    Outside,
    /// The interval reaches over it.
    NotDecided,
}

/// Completion times of one size in one case.
#[derive(Debug, Serialize)]
pub struct Class {
    /// Name of the case in the table.
    pub case: &'static str,
    /// Size of the flows.
    pub size: &'static str,
    /// Mean completion time in the simulator, in microseconds.
    pub netsim_us: f64,
    /// Mean completion time in ns-3, in microseconds.
    pub ns3_us: f64,
    /// By how much the former is longer, mean over seeds.
    pub percent_off: f64,
    /// Half width of the interval of 95 %; nothing with one seed.
    pub half_width: Option<f64>,
    /// Both of these.
    #[serde(skip)]
    off: Estimate,
    /// How that compares with the bound.
    pub agreement: Agreement,
}

/// Runs all cases in both, with `seeds` seeds each.
pub(super) fn classes(ns3: &Ns3<'_>, seeds: u64) -> Result<Vec<Class>> {
    let progress = crate::progress(CASES.len() * seeds as usize, "ns-3");
    let mut classes = Vec::new();
    for case in CASES {
        let mut means: [Vec<(f64, f64)>; 2] = Default::default();
        for seed in 1..=seeds {
            let ours = case.simulate(seed)?;
            let (theirs_us, _) = ns3.run(HOSTS_PER_LEAF, &ours, &case.arguments(seed))?;
            for (bytes, means) in SIZES.into_iter().zip(&mut means) {
                let mine = ours.flows.iter().zip(&theirs_us);
                let mine = mine.filter(|(flow, _)| flow.bytes == bytes);
                let times =
                    mine.filter_map(|(flow, theirs)| Some((flow.fct_ns? as f64 / 1e3, *theirs)));
                let times: Vec<(f64, f64)> = times.collect();
                ensure!(!times.is_empty(), "no flow of {bytes} bytes");
                let mean = |of: fn(&(f64, f64)) -> f64| {
                    times.iter().map(of).sum::<f64>() / times.len() as f64
                };
                means.push((mean(|it| it.0), mean(|it| it.1)));
            }
            progress.inc(1);
        }
        let of_case = CLASSES.into_iter().zip(&means);
        classes.extend(of_case.filter_map(|(size, means)| class(case.name, size, means)));
    }
    progress.finish_and_clear();
    Ok(classes)
}

fn class(case: &'static str, size: &'static str, means: &[(f64, f64)]) -> Option<Class> {
    let off = Estimate::of(means.iter().map(|(one, other)| 100.0 * (one / other - 1.0)))?;
    let mean = |of: fn(&(f64, f64)) -> f64| means.iter().map(of).sum::<f64>() / means.len() as f64;
    Some(Class {
        case,
        size,
        netsim_us: mean(|it| it.0),
        ns3_us: mean(|it| it.1),
        percent_off: off.mean,
        half_width: off.half_width,
        off,
        agreement: agreement(off),
    })
}

fn agreement(off: Estimate) -> Agreement {
    let half = off.half_width.unwrap_or(f64::INFINITY);
    if off.mean.abs() + half <= BOUND_PERCENT {
        Agreement::Holds
    } else if off.mean.abs() - half > BOUND_PERCENT {
        Agreement::Outside
    } else {
        Agreement::NotDecided
    }
}

/// The comparison for people.
pub(super) fn table(classes: &[Class]) -> Table {
    let mut table = Table::new([
        "case",
        "flows",
        "netsim us",
        "ns-3 us",
        "off, %",
        "within 5 %",
    ]);
    for it in classes {
        let agreement = match it.agreement {
            Agreement::Holds => "holds",
            Agreement::Outside => "outside",
            Agreement::NotDecided => "not decided",
        };
        table.row([
            it.case.to_owned(),
            it.size.to_owned(),
            format!("{:.1}", it.netsim_us),
            format!("{:.1}", it.ns3_us),
            it.off.to_text(1),
            agreement.to_owned(),
        ]);
    }
    table
}

impl Case {
    fn simulate(&self, seed: u64) -> Result<Outcome> {
        let buffer = BUFFER_PACKETS * PACKET_BYTES;
        let mark = MARK_PACKETS * PACKET_BYTES;
        let control = match self.control {
            "newreno" => "reno",
            other => other,
        };
        let (queues, pias) = match self.pias_bytes {
            0 => (String::new(), String::new()),
            bytes => (
                ", discipline = \"priority\", queue = [{}, {}]".to_owned(),
                format!(", pias_bytes = [{bytes}]"),
            ),
        };
        let text = format!(
            "about = \"The simulator next to ns-3\"
             fabric = {{ leaves = 2, spines = {}, hosts_per_leaf = {HOSTS_PER_LEAF}, host_gbps = {GBPS},
               uplink_gbps = {GBPS}, link_delay_us = {DELAY_US}, path = [{{ spine = 0, extra_delay_us = {} }}] }}
             balance = {{ policy = \"{}\", letflow_gap_us = {} }}
             port = {{ buffer_bytes = {buffer}, ecn_bytes = {mark}{queues} }}
             host_port = {{ buffer_bytes = 150_000_000, ecn_bytes = 150_000_001 }}
             transport = {{ control = \"{control}\", recovery = \"newreno\", header_bytes = {HEADER_BYTES}{pias} }}
             traffic = [{{ kind = \"poisson\", sizes = [{}, {}], load = {}, messages = {MESSAGES},
               hosts = {{ pattern = \"leaves\", from = 0, to = 1 }} }}]",
            self.spines, self.slow_us, self.policy, self.gap_us, SIZES[0], SIZES[1], self.load,
        );
        let overrides = Overrides {
            seed: Some(seed),
            ..Overrides::default()
        };
        let experiment = Source::from_text("ns3", &text).experiment(&overrides)?;
        Ok(netsim::run(&experiment))
    }

    fn arguments(&self, seed: u64) -> Vec<String> {
        vec![
            format!("--spines={}", self.spines),
            format!("--slowUs={}", self.slow_us),
            format!("--control={}", self.control),
            format!("--policy={}", self.policy),
            format!("--gapUs={}", self.gap_us),
            format!("--pias={}", self.pias_bytes),
            format!("--seed={seed}"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_scenarios_with_flows_of_both_sizes() {
        for case in CASES {
            let outcome = case.simulate(1).expect(case.name);
            for bytes in SIZES {
                let count = outcome.flows.iter().filter(|it| it.bytes == bytes).count();
                assert!(count > 50, "{}: {count} of {bytes}", case.name);
            }
            let late = outcome.flows.iter().any(|it| it.out_of_order > 0);
            // A flowlet's gap may be shorter than what the other path has queued.
            if case.policy != "letflow" {
                assert_eq!(late, case.policy == "rps", "{}", case.name);
            }
        }
    }

    #[test]
    fn agreement_is_that_of_the_whole_interval() {
        let of = |mean, half| {
            agreement(Estimate {
                mean,
                half_width: half,
                runs: 3,
            })
        };
        assert_eq!(of(-2.0, Some(2.9)), Agreement::Holds);
        assert_eq!(of(2.0, Some(3.1)), Agreement::NotDecided);
        assert_eq!(of(-9.0, Some(3.9)), Agreement::Outside);
        assert_eq!(of(0.0, None), Agreement::NotDecided);
    }
}
