//! The simulator next to ns-3: the same fabric, transport and flows in both.
//!
//! Single flows without loss must take as long, and a congested link must take far less processor
//! time; [`cases`] has what figures hang on besides. `netsim/ns3/fabric.cc` is the other side; it is compiled here, against the distribution's
//! ns-3, and where that is missing nothing is compared.

pub mod cases;
mod program;
pub mod replay;

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result, bail};
use flow_report::Table;
use netsim::{Outcome, Overrides, Source};
use serde::Serialize;

use self::program::{Ns3, flags};

/// Sizes of flows that have the fabric to themselves, and how far apart they start.
const ALONE_BYTES: [u64; 5] = [1_460, 14_600, 100_000, 1_000_000, 10_000_000];
const ALONE_EVERY_US: u64 = 100_000;
/// By how much they may take longer or shorter.
const ALONE_PERCENT: f64 = 3.0;
/// How many times as fast the simulator must be.
const LEAST_RATIO: f64 = 100.0;
/// Runs of the simulator, of which the fastest counts: one lasts a few hundredths of a second.
const RUNS: usize = 10;

const GBPS: u32 = 10;
const DELAY_US: u32 = 5;
const BUFFER_PACKETS: u32 = 250;
const MARK_PACKETS: u32 = 65;
const HOSTS_PER_LEAF: u16 = 8;
/// Hosts of the ring are numbered along it, so that all but two steps stay in a leaf.
const RING_PER_LEAF: u16 = 32;
/// With the two bytes of PPP, which ns-3's links have.
const HEADER_BYTES: u32 = 42;
const PACKET_BYTES: u32 = 1_460 + HEADER_BYTES;

/// A choice among the comparisons: all of them, or some of the cases alone.
#[derive(Clone, Debug)]
pub struct Selection {
    /// A part of the names of the cases that are compared, and nothing else then; without it everything is.
    pub case: Option<String>,
    /// Seeds of each case.
    pub seeds: u64,
    /// Things in which ns-3's senders follow the RFCs, by the names of `netsim/ns3/sender.h` with commas between.
    pub mend: String,
}

/// The results of both simulators.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Flows one at a time.
    pub alone: Vec<Alone>,
    /// Flows that share a link; nothing where cases were named.
    pub shared: Option<Many>,
    /// The transfers of an all-reduce in a ring of 64 hosts; nothing where cases were named.
    pub ring: Option<Many>,
    /// Reordering, spraying, flowlets and PIAS, by size of flow.
    pub cases: Vec<cases::Class>,
    /// The first event that senders answer differently, in one long flow of each case.
    pub differences: Vec<replay::Difference>,
}

/// A flow that had the fabric to itself.
#[derive(Debug, Serialize)]
pub struct Alone {
    /// Size of the message.
    pub bytes: u64,
    /// Completion time in the simulator, in microseconds,
    pub netsim_us: f64,
    /// Completion time in ns-3, in microseconds.
    pub ns3_us: f64,
    /// By how much the former is longer.
    pub percent_off: f64,
    /// The results lie in the band.
    pub holds: bool,
}

/// Many flows, and the time that they took both simulators.
#[derive(Debug, Serialize)]
pub struct Many {
    /// Number of flows in it.
    pub flows: usize,
    /// Links passed by packets, in the simulator.
    pub hops: u64,
    /// Mean completion time in the simulator, in microseconds,
    pub netsim_us: f64,
    /// Completion time in ns-3, in microseconds.
    pub ns3_us: f64,
    /// Time of the simulator,
    pub netsim_seconds: f64,
    /// and processor time of ns-3.
    pub ns3_seconds: f64,
    /// How many times as fast the former is.
    pub ratio: f64,
    /// At least as much as it must be.
    pub holds: bool,
}

/// Compares. Nothing when there is no ns-3 to compare with: the text says what is missing. Files go
/// to `directory`.
///
/// # Errors
///
/// When no case is called so, or ns-3 is there and its program cannot be built or fails.
pub fn compare(
    directory: &Path,
    selection: &Selection,
) -> Result<std::result::Result<Comparison, String>> {
    let name = selection.case.as_deref().unwrap_or_default();
    cases::named(name)?;
    let flags = match flags() {
        Ok(flags) => flags,
        Err(missing) => return Ok(Err(missing)),
    };
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let ns3 = Ns3::build(directory, &flags)?;
    let (alone, shared, ring) = match selection.case {
        Some(_) => (Vec::new(), None, None),
        None => (alone(&ns3)?, Some(shared(&ns3)?), Some(ring(&ns3)?)),
    };
    let (cases, differences) = cases::classes(&ns3, name, selection.seeds, &selection.mend)?;
    Ok(Ok(Comparison {
        alone,
        shared,
        ring,
        cases,
        differences,
    }))
}

impl Comparison {
    /// Returns whether all results are in their bands. Of the cases it is said alone: where packets are reordered, both
    /// simulators' loss recovery differs by more (`docs/src/how-to/netsim.md`).
    pub fn holds(&self) -> bool {
        let many = [&self.shared, &self.ring].into_iter().flatten();
        many.map(|it| it.holds)
            .chain(self.alone.iter().map(|it| it.holds))
            .all(|it| it)
    }

    /// Writes the comparison for people.
    pub fn to_text(&self) -> String {
        let mut table = Table::new(["flow", "netsim us", "ns-3 us", "off", ""]);
        let verdict = |holds| if holds { "holds" } else { "outside" };
        for it in &self.alone {
            table.row([
                format!("{} B alone", it.bytes),
                format!("{:.2}", it.netsim_us),
                format!("{:.2}", it.ns3_us),
                format!("{:+.2} %", it.percent_off),
                verdict(it.holds).to_owned(),
            ]);
        }
        let shared = self.shared.iter();
        let shared = shared.map(|it| (format!("mean of {} at load 0.8", it.flows), it));
        let ring = self.ring.iter();
        let ring = ring.map(|it| (format!("mean of {} in a ring", it.flows), it));
        let mut text = String::new();
        for (name, it) in shared.chain(ring) {
            let _ = write!(
                text,
                "\n{name}: ns-3 took {:.2} s, netsim {:.4} s: {:.0} times as fast (at least {LEAST_RATIO}: {}).",
                it.ns3_seconds,
                it.netsim_seconds,
                it.ratio,
                verdict(it.holds)
            );
            table.row([
                name,
                format!("{:.2}", it.netsim_us),
                format!("{:.2}", it.ns3_us),
                format!("{:+.2} %", 100.0 * (it.netsim_us / it.ns3_us - 1.0)),
                String::new(),
            ]);
        }
        let mut cases = cases::table(&self.cases).to_text();
        for it in &self.differences {
            let _ = write!(cases, "\n{}", it.to_text());
        }
        if self.alone.is_empty() {
            return cases;
        }
        format!("{}\n{cases}{text}", table.to_text())
    }
}

fn alone(ns3: &Ns3) -> Result<Vec<Alone>> {
    let message = |(index, bytes): (usize, &u64)| {
        let at_us = ALONE_EVERY_US * index as u64;
        format!(
            "{{ kind = \"message\", from = 0, to = {HOSTS_PER_LEAF}, bytes = {bytes}, at_us = {at_us} }}"
        )
    };
    let traffic: Vec<String> = ALONE_BYTES.iter().enumerate().map(message).collect();
    let ours = simulate(HOSTS_PER_LEAF, &traffic.join(", "))?;
    if ours.totals.dropped > 0 {
        bail!("a flow that is alone has lost packets in the simulator");
    }
    let theirs = ns3.run(HOSTS_PER_LEAF, &ours, &[])?;
    let pairs = times_us(&ours).into_iter().zip(theirs.times_us);
    let pairs = ALONE_BYTES.into_iter().zip(pairs);
    Ok(pairs
        .map(|(bytes, (netsim_us, ns3_us))| {
            let percent_off = 100.0 * (netsim_us / ns3_us - 1.0);
            Alone {
                bytes,
                netsim_us,
                ns3_us,
                percent_off,
                holds: percent_off.abs() <= ALONE_PERCENT,
            }
        })
        .collect())
}

fn shared(ns3: &Ns3) -> Result<Many> {
    // Eight hosts at a tenth of their links: eight tenths of the one between leaf and spine.
    let traffic = "{ kind = \"poisson\", sizes = 1_000_000, load = 0.1, messages = 200, \
        hosts = { pattern = \"leaves\", from = 0, to = 1 } }";
    many(ns3, HOSTS_PER_LEAF, traffic)
}

/// Twenty kB a step. In ns-3 each transfer starts when it did in the simulator, on a connection of its own.
fn ring(ns3: &Ns3) -> Result<Many> {
    many(
        ns3,
        RING_PER_LEAF,
        "{ kind = \"ring_all_reduce\", bytes = 1_280_000 }",
    )
}

fn many(ns3: &Ns3, hosts_per_leaf: u16, traffic: &str) -> Result<Many> {
    let ours = simulate(hosts_per_leaf, traffic)?;
    let mut netsim_seconds = ours.took.as_secs_f64();
    for _ in 1..RUNS {
        let took = simulate(hosts_per_leaf, traffic)?.took;
        netsim_seconds = netsim_seconds.min(took.as_secs_f64());
    }
    let theirs = ns3.run(hosts_per_leaf, &ours, &[])?;
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let ratio = theirs.seconds / netsim_seconds;
    Ok(Many {
        flows: ours.flows.len(),
        hops: ours.totals.hops,
        netsim_us: mean(&times_us(&ours)),
        ns3_us: mean(&theirs.times_us),
        netsim_seconds,
        ns3_seconds: theirs.seconds,
        ratio,
        holds: ratio >= LEAST_RATIO,
    })
}

fn simulate(hosts_per_leaf: u16, traffic: &str) -> Result<Outcome> {
    let buffer = BUFFER_PACKETS * PACKET_BYTES;
    let mark = MARK_PACKETS * PACKET_BYTES;
    // A host's own queue is long, and does not mark.
    let text = format!(
        "about = \"The simulator next to ns-3\"
         fabric = {{ leaves = 2, spines = 1, hosts_per_leaf = {hosts_per_leaf}, host_gbps = {GBPS},
           uplink_gbps = {GBPS}, link_delay_us = {DELAY_US} }}
         port = {{ buffer_bytes = {buffer}, ecn_bytes = {mark} }}
         host_port = {{ buffer_bytes = 150_000_000, ecn_bytes = 150_000_001 }}
         transport = {{ control = \"dctcp\", header_bytes = {HEADER_BYTES} }}
         traffic = [{traffic}]"
    );
    let experiment = Source::from_text("ns3", &text).experiment(&Overrides::default())?;
    Ok(netsim::run(&experiment))
}

fn times_us(outcome: &Outcome) -> Vec<f64> {
    let times = outcome.flows.iter().filter_map(|it| it.fct_ns);
    times.map(|ns| ns as f64 / 1e3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_alone_loses_nothing_and_takes_as_long_as_its_links() {
        let message = "{ kind = \"message\", from = 0, to = 8, bytes = 1460 }";
        let outcome = simulate(HOSTS_PER_LEAF, message).expect("it is right");
        // Four links of 5 us, and 1,502 bytes at 10 Gbit/s four times.
        assert_eq!(outcome.flows[0].fct_ns, Some(20_000 + 4 * 1_202));
        assert_eq!(outcome.totals.dropped, 0);
    }
}
