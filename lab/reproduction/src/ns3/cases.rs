//! Cases beyond lone flows: loss recovery under reordering, sprayed packets, flowlets, and PIAS.
//!
//! Both simulators get the same flows; the paths of packets are drawn by each for itself. So single runs differ, and
//! intervals over seeds say whether more than chance is between them.

use anyhow::{Context, Result, bail};
use flow_report::{Estimate, Table};
use netsim::{Outcome, Overrides, Source};
use serde::Serialize;

use super::{
    BUFFER_PACKETS, DELAY_US, GBPS, HEADER_BYTES, HOSTS_PER_LEAF, MARK_PACKETS, PACKET_BYTES,
    program::{Ns3, Theirs},
    replay::{self, Difference},
};

/// Short flows and long ones, as many of each.
const SIZES: [u64; 2] = [20_000, 1_000_000];
const CLASSES: [&str; 2] = ["20 kB", "1 MB"];
const MESSAGES: u32 = 150;
/// By how much completion times may differ, in percent.
const BOUND_PERCENT: f64 = 5.0;
/// Times what is free of a shared buffer that a port may hold: as in figures C4 to C9.
const ALPHA: u32 = 8;
/// Slow links of the first spine: what its packets are later by, each way, is two of them.
const SLOW_US: u32 = 20;

/// Packets of hosts at the full rate arrive where one has just left, each time in the same nanosecond, and the order of events
/// decides whose are dropped (Floyd and Jacobson 1992, traffic phase effects). At this rate they do not.
const SLOWER_GBPS: f64 = 9.9;

/// A fabric, its hosts, and how its leaves choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    name: &'static str,
    control: &'static str,
    sack: bool,
    policy: &'static str,
    spines: u32,
    host_gbps: f64,
    slow_us: u32,
    gap_us: u32,
    pias_bytes: u32,
    memory: Memory,
    /// Switches mark, from the threshold on.
    marks: bool,
    load: f64,
}

/// Where a switch's packets wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// In ports that hold 250 packets each.
    Ample,
    /// In so many bytes that a switch's ports share.
    Shared(u32),
    /// In so many bytes that each port has for itself.
    Own(u32),
}

const PLAIN: Case = Case {
    name: "DCTCP, one spine",
    control: "dctcp",
    sack: false,
    policy: "ecmp",
    spines: 1,
    host_gbps: GBPS as f64,
    slow_us: 0,
    gap_us: 500,
    pias_bytes: 0,
    memory: Memory::Ample,
    marks: true,
    load: 0.05,
};

/// The last five differ from the one before them by the marks, by whose the buffer is, by both, and by links of hosts that
/// are no longer as fast as all others, with and without marks: the difference between the simulators goes with what makes it.
const CASES: [Case; 13] = [
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
        name: "Reno with SACK, sprayed, one path 40 us longer",
        control: "newreno",
        sack: true,
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
    Case {
        name: "DCTCP, PIAS, 140 kB shared by a switch's ports",
        pias_bytes: 100_000,
        memory: Memory::Shared(140_000),
        ..PLAIN
    },
    Case {
        name: "DCTCP, PIAS, 140 kB shared, no marks",
        pias_bytes: 100_000,
        memory: Memory::Shared(140_000),
        marks: false,
        ..PLAIN
    },
    Case {
        name: "DCTCP, PIAS, 140 kB in each port",
        pias_bytes: 100_000,
        memory: Memory::Own(140_000),
        ..PLAIN
    },
    Case {
        name: "DCTCP, PIAS, 140 kB in each port, no marks",
        pias_bytes: 100_000,
        memory: Memory::Own(140_000),
        marks: false,
        ..PLAIN
    },
    Case {
        name: "DCTCP, PIAS, shared, hosts 1 % slower",
        pias_bytes: 100_000,
        memory: Memory::Shared(140_000),
        host_gbps: SLOWER_GBPS,
        ..PLAIN
    },
    Case {
        name: "DCTCP, PIAS, shared, hosts 1 % slower, no marks",
        pias_bytes: 100_000,
        memory: Memory::Shared(140_000),
        host_gbps: SLOWER_GBPS,
        marks: false,
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
    /// Name of the case in the table, with what is mended.
    pub case: String,
    /// Size of the flows.
    pub size: &'static str,
    /// Mean completion time in the simulator, in microseconds.
    pub netsim_us: f64,
    /// Mean completion time in ns-3, in microseconds.
    pub ns3_us: f64,
    /// Retransmission timeouts of a flow in the simulator, mean.
    pub netsim_timeouts: f64,
    /// Those in ns-3.
    pub ns3_timeouts: f64,
    /// Packets of all sizes that the simulator's switches dropped in a run of the case, mean over seeds.
    pub netsim_dropped: f64,
    /// Those that ns-3's switches dropped.
    pub ns3_dropped: f64,
    /// By how much the simulator's completion time is longer, mean over seeds.
    pub percent_off: f64,
    /// Half width of the interval of 95 %; nothing with one seed.
    pub half_width: Option<f64>,
    /// Both of these.
    #[serde(skip)]
    off: Estimate,
    /// How that compares with the bound.
    pub agreement: Agreement,
}

/// Runs the cases whose names contain `name` in both, with `seeds` seeds each, and with what is named in `mend` of
/// ns-3's senders following the RFCs. With the first seed the long flow of each that took ns-3 longest is followed event
/// by event.
pub(super) fn classes(
    ns3: &Ns3<'_>,
    name: &str,
    seeds: u64,
    mend: &str,
) -> Result<(Vec<Class>, Vec<Difference>)> {
    let cases = named(name)?;
    let progress = crate::progress(cases.len() * seeds as usize, "ns-3");
    let (mut classes, mut differences) = (Vec::new(), Vec::new());
    for case in cases {
        let title = case.title(mend);
        let mut means: [Vec<Means>; 2] = Default::default();
        let mut dropped = Vec::new();
        for seed in 1..=seeds {
            let ours = case.simulate(seed, mend)?;
            let arguments = case.arguments(seed, mend);
            let theirs = ns3.run(HOSTS_PER_LEAF, &ours, &arguments)?;
            // Of what ACKs with SACK say beside what is missing, a trace has nothing.
            if seed == 1 && !case.sack {
                let trace = trace(ns3, &ours, &theirs, arguments)?;
                let settings = case.sender(mend);
                differences.push(replay::replay(&title, &trace, SIZES[1], &settings));
            }
            dropped.push((ours.totals.dropped as f64, theirs.dropped));
            for (bytes, means) in SIZES.into_iter().zip(&mut means) {
                let of_size = Means::of(&ours, &theirs, bytes);
                means.push(of_size.with_context(|| format!("no flow of {bytes} bytes"))?);
            }
            progress.inc(1);
        }
        let of_case = CLASSES.into_iter().zip(&means);
        let of_case = of_case.filter_map(|(size, means)| class(&title, size, means, &dropped));
        classes.extend(of_case);
    }
    progress.finish_and_clear();
    Ok((classes, differences))
}

/// Runs the flows of a run of ns-3 again, and follows the long one that took longest.
fn trace(
    ns3: &Ns3<'_>,
    ours: &Outcome,
    theirs: &Theirs,
    mut arguments: Vec<String>,
) -> Result<Vec<replay::Step>> {
    let index = slowest(ours, theirs).context("no long flow that could be traced")?;
    // ns-3's program counts from one.
    arguments.push(format!("--trace={}", index + 1));
    let again = ns3.run(HOSTS_PER_LEAF, ours, &arguments)?;
    replay::steps(again.trace.iter().map(String::as_str))
}

/// The index of the long flow that took ns-3 longest.
fn slowest(ours: &Outcome, theirs: &Theirs) -> Option<usize> {
    let times = ours.flows.iter().zip(&theirs.times_us).enumerate();
    let long = times.filter(|(_, (flow, _))| flow.bytes == SIZES[1]);
    let slowest = long.max_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other));
    slowest.map(|(index, _)| index)
}

/// Cases whose names contain this.
///
/// # Errors
///
/// When there is none.
pub(super) fn named(name: &str) -> Result<Vec<Case>> {
    let cases: Vec<Case> = CASES
        .into_iter()
        .filter(|it| it.name.contains(name))
        .collect();
    if cases.is_empty() {
        let names = CASES.map(|it| it.name).join("; ");
        bail!("no case is called like {name:?}; there are: {names}");
    }
    Ok(cases)
}

/// What flows of a size came to in a run of both, the simulator's and then ns-3's.
#[derive(Debug, PartialEq)]
struct Means {
    times_us: (f64, f64),
    timeouts: (f64, f64),
}

impl Means {
    /// Nothing when there is no such flow.
    fn of(ours: &Outcome, theirs: &Theirs, bytes: u64) -> Option<Self> {
        let theirs = theirs.times_us.iter().zip(&theirs.timeouts);
        let pairs = ours.flows.iter().zip(theirs);
        let pairs = pairs.filter(|(flow, _)| flow.bytes == bytes);
        let (mut sum, mut count) = ([0.0; 4], 0);
        for (flow, (us, timeouts)) in pairs {
            let Some(fct_ns) = flow.fct_ns else {
                continue;
            };
            let flow = [fct_ns as f64 / 1e3, *us, flow.timeouts.into(), *timeouts];
            sum.iter_mut().zip(flow).for_each(|(sum, it)| *sum += it);
            count += 1;
        }
        let [netsim_us, ns3_us, netsim_timeouts, ns3_timeouts] =
            sum.map(|it| it / f64::from(count));
        (count > 0).then_some(Self {
            times_us: (netsim_us, ns3_us),
            timeouts: (netsim_timeouts, ns3_timeouts),
        })
    }
}

/// Means are of each seed, and so are the simulator's drops and ns-3's.
fn class(case: &str, size: &'static str, means: &[Means], dropped: &[(f64, f64)]) -> Option<Class> {
    let times: Vec<_> = means.iter().map(|it| it.times_us).collect();
    let timeouts: Vec<_> = means.iter().map(|it| it.timeouts).collect();
    let off = Estimate::of(times.iter().map(|(one, other)| 100.0 * (one / other - 1.0)))?;
    let mean = |pairs: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        pairs.iter().map(of).sum::<f64>() / pairs.len() as f64
    };
    Some(Class {
        case: case.to_owned(),
        size,
        netsim_us: mean(&times, |it| it.0),
        ns3_us: mean(&times, |it| it.1),
        netsim_timeouts: mean(&timeouts, |it| it.0),
        ns3_timeouts: mean(&timeouts, |it| it.1),
        netsim_dropped: mean(dropped, |it| it.0),
        ns3_dropped: mean(dropped, |it| it.1),
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
        "timeouts a flow, both",
        "dropped, both",
    ]);
    for it in classes {
        let agreement = match it.agreement {
            Agreement::Holds => "holds",
            Agreement::Outside => "outside",
            Agreement::NotDecided => "not decided",
        };
        table.row([
            it.case.clone(),
            it.size.to_owned(),
            format!("{:.1}", it.netsim_us),
            format!("{:.1}", it.ns3_us),
            it.off.to_text(1),
            agreement.to_owned(),
            format!("{:.2} / {:.2}", it.netsim_timeouts, it.ns3_timeouts),
            format!("{:.0} / {:.0}", it.netsim_dropped, it.ns3_dropped),
        ]);
    }
    table
}

impl Case {
    fn title(&self, mend: &str) -> String {
        match mend {
            "" => self.name.to_owned(),
            _ => format!("{}; mended: {mend}", self.name),
        }
    }

    /// Settings of the simulator's senders.
    fn sender(&self, mend: &str) -> flow_tcp::Settings {
        flow_tcp::Settings {
            control: match self.control {
                "newreno" => flow_tcp::CongestionControl::Reno,
                _ => flow_tcp::CongestionControl::Dctcp,
            },
            excludes_limited_transmit: excludes_limited_transmit(mend),
            ..flow_tcp::Settings::default()
        }
    }

    fn simulate(&self, seed: u64, mend: &str) -> Result<Outcome> {
        let ample = BUFFER_PACKETS * PACKET_BYTES;
        let (buffer, shared) = match self.memory {
            Memory::Ample => (ample, String::new()),
            Memory::Own(bytes) => (bytes, String::new()),
            Memory::Shared(bytes) => (
                ample,
                format!(", shared = {{ buffer_bytes = {bytes}, alpha = {ALPHA}.0 }}"),
            ),
        };
        let mark = match self.marks {
            true => MARK_PACKETS * PACKET_BYTES,
            false => buffer + 1,
        };
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
             fabric = {{ leaves = 2, spines = {}, hosts_per_leaf = {HOSTS_PER_LEAF}, host_gbps = {},
               uplink_gbps = {GBPS}, link_delay_us = {DELAY_US}, path = [{{ spine = 0, extra_delay_us = {} }}] }}
             balance = {{ policy = \"{}\", letflow_gap_us = {} }}
             port = {{ buffer_bytes = {buffer}, ecn_bytes = {mark}{queues}{shared} }}
             host_port = {{ buffer_bytes = 150_000_000, ecn_bytes = 150_000_001 }}
             transport = {{ control = \"{control}\", recovery = \"{}\", header_bytes = {HEADER_BYTES}, excludes_limited_transmit = {}{pias} }}
             traffic = [{{ kind = \"poisson\", sizes = [{}, {}], load = {}, messages = {MESSAGES},
               hosts = {{ pattern = \"leaves\", from = 0, to = 1 }} }}]",
            self.spines, self.host_gbps, self.slow_us, self.policy, self.gap_us, if self.sack { "sack" } else { "newreno" },
            excludes_limited_transmit(mend), SIZES[0], SIZES[1], self.load,
        );
        let overrides = Overrides {
            seed: Some(seed),
            ..Overrides::default()
        };
        let experiment = Source::from_text("ns3", &text).experiment(&overrides)?;
        Ok(netsim::run(&experiment))
    }

    fn arguments(&self, seed: u64, mend: &str) -> Vec<String> {
        let (shared, own) = match self.memory {
            Memory::Ample => (0, 0),
            Memory::Shared(bytes) => (bytes, 0),
            Memory::Own(bytes) => (0, bytes),
        };
        let mut arguments = vec![
            format!("--spines={}", self.spines),
            format!("--hostGbps={}", self.host_gbps),
            format!("--slowUs={}", self.slow_us),
            format!("--control={}", self.control),
            format!("--sack={}", self.sack),
            format!("--policy={}", self.policy),
            format!("--gapUs={}", self.gap_us),
            format!("--pias={}", self.pias_bytes),
            format!("--shared={shared}"),
            format!("--own={own}"),
            format!("--marks={}", self.marks),
            format!("--alpha={ALPHA}"),
            format!("--seed={seed}"),
        ];
        // ns-3 takes no option without a value.
        if !mend.is_empty() {
            arguments.push(format!("--mend={mend}"));
        }
        arguments
    }
}

/// Both follow RFC 5681 §3.2 step 2 where ns-3 is made to: the simulator by default does not either.
fn excludes_limited_transmit(mend: &str) -> bool {
    mend.split(',').any(|it| ["ssthresh", "all"].contains(&it))
}

#[cfg(test)]
#[path = "cases_tests.rs"]
mod tests;
