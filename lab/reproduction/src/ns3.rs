//! The simulator next to ns-3: the same fabric, transport and flows in both.
//!
//! Single flows without loss must take as long, and a congested link must take far less processor
//! time; [`cases`] has what figures hang on besides. `netsim/ns3/fabric.cc` is the other side; it is compiled here, against the distribution's
//! ns-3, and where that is missing nothing is compared.

pub mod cases;

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use flow_report::Table;
use netsim::{Outcome, Overrides, Source};
use serde::Serialize;

const PROGRAM: &str = include_str!("../../../netsim/ns3/fabric.cc");
const LIBRARIES: [&str; 6] = [
    "ns3-core",
    "ns3-network",
    "ns3-internet",
    "ns3-point-to-point",
    "ns3-traffic-control",
    "ns3-applications",
];

/// Sizes of flows that have the fabric to themselves, and how far apart they start.
const ALONE_BYTES: [u64; 5] = [1_460, 14_600, 100_000, 1_000_000, 10_000_000];
const ALONE_EVERY_US: u64 = 100_000;
/// By how much they may take longer or shorter.
const ALONE_PERCENT: f64 = 3.0;
/// How many times as fast the simulator must be.
const LEAST_RATIO: f64 = 100.0;
/// Runs of the simulator, of which the fastest counts: one lasts a few hundredths of a second.
const RUNS: usize = 10;
/// Seeds of each of the cases.
const SEEDS: u64 = 3;

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

/// The results of both simulators.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Flows one at a time.
    pub alone: Vec<Alone>,
    /// Flows that share a link.
    pub shared: Many,
    /// The transfers of an all-reduce in a ring of 64 hosts.
    pub ring: Many,
    /// Reordering, spraying, flowlets and PIAS, by size of flow.
    pub cases: Vec<cases::Class>,
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
/// When ns-3 is there and its program cannot be built or fails.
pub fn compare(directory: &Path) -> Result<std::result::Result<Comparison, String>> {
    let flags = match flags() {
        Ok(flags) => flags,
        Err(missing) => return Ok(Err(missing)),
    };
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let ns3 = Ns3::build(directory, &flags)?;
    Ok(Ok(Comparison {
        alone: alone(&ns3)?,
        shared: shared(&ns3)?,
        ring: ring(&ns3)?,
        cases: cases::classes(&ns3, SEEDS)?,
    }))
}

impl Comparison {
    /// Returns whether all results are in their bands. Of the cases it is said alone: where packets are reordered, both
    /// simulators' loss recovery differs by more (`docs/src/how-to/netsim.md`).
    pub fn holds(&self) -> bool {
        self.shared.holds && self.ring.holds && self.alone.iter().all(|it| it.holds)
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
        let many = [
            (
                format!("mean of {} at load 0.8", self.shared.flows),
                &self.shared,
            ),
            (format!("mean of {} in a ring", self.ring.flows), &self.ring),
        ];
        let mut text = String::new();
        for (name, it) in many {
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
        format!(
            "{}\n{}{text}",
            table.to_text(),
            cases::table(&self.cases).to_text()
        )
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
    let (theirs_us, _) = ns3.run(HOSTS_PER_LEAF, &ours, &[])?;
    let pairs = times_us(&ours).into_iter().zip(theirs_us);
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
    let (theirs_us, ns3_seconds) = ns3.run(hosts_per_leaf, &ours, &[])?;
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let ratio = ns3_seconds / netsim_seconds;
    Ok(Many {
        flows: ours.flows.len(),
        hops: ours.totals.hops,
        netsim_us: mean(&times_us(&ours)),
        ns3_us: mean(&theirs_us),
        netsim_seconds,
        ns3_seconds,
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

/// Returns the compiler's arguments, or says what is missing.
fn flags() -> std::result::Result<Vec<String>, String> {
    let missing =
        "ns-3 is not here; on Debian and Ubuntu `cargo xtask setup --only ns3` installs it";
    let found = Command::new("pkg-config")
        .args(["--cflags", "--libs"])
        .args(LIBRARIES)
        .output();
    match found {
        Ok(found) if found.status.success() => {
            let text = String::from_utf8_lossy(&found.stdout);
            Ok(text.split_whitespace().map(str::to_owned).collect())
        }
        Ok(found) => {
            let stderr = String::from_utf8_lossy(&found.stderr);
            let first = stderr.lines().next().unwrap_or_default();
            Err(format!("{missing} (pkg-config: {first})"))
        }
        Err(error) => Err(format!("{missing} (pkg-config: {error})")),
    }
}

/// The program on the other side.
struct Ns3<'a> {
    directory: &'a Path,
}

impl<'a> Ns3<'a> {
    fn build(directory: &'a Path, flags: &[String]) -> Result<Self> {
        let source = directory.join("fabric.cc");
        let program = directory.join("fabric");
        let is_there =
            program.is_file() && fs::read_to_string(&source).is_ok_and(|text| text == PROGRAM);
        if !is_there {
            fs::write(&source, PROGRAM)
                .with_context(|| format!("cannot write {}", source.display()))?;
            let status = Command::new("c++")
                .args(["-std=c++17", "-O2", "-o"])
                .args([&program, &source])
                .args(flags)
                .status()
                .context("cannot call c++; install a C++ compiler")?;
            if !status.success() {
                // Lest the next time it counts as built.
                let _ = fs::remove_file(&source);
                bail!("c++ cannot build {}", source.display());
            }
        }
        Ok(Self { directory })
    }

    /// Runs the flows of an outcome, with options of the program. Returns their completion times in microseconds, and the
    /// processor time that it took, in seconds.
    fn run(
        &self,
        hosts_per_leaf: u16,
        ours: &Outcome,
        options: &[String],
    ) -> Result<(Vec<f64>, f64)> {
        let file = self.directory.join("flows");
        let mut text = String::new();
        for it in &ours.flows {
            writeln!(text, "{} {} {} {}", it.from, it.to, it.bytes, it.start_ns)?;
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let program = self.directory.join("fabric");
        let program = program
            .canonicalize()
            .with_context(|| format!("{} is gone", program.display()))?;
        let ran = Command::new(&program)
            .args(
                [
                    u32::from(hosts_per_leaf),
                    GBPS,
                    DELAY_US,
                    BUFFER_PACKETS,
                    MARK_PACKETS,
                ]
                .map(|it| it.to_string()),
            )
            .arg(&file)
            .args(options)
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        if !ran.status.success() {
            let stderr = String::from_utf8_lossy(&ran.stderr);
            bail!("ns-3 failed ({}): {}", ran.status, stderr.trim());
        }
        parse(&String::from_utf8_lossy(&ran.stdout), ours.flows.len())
    }
}

/// A completion time in ns a line, and at the end the seconds.
fn parse(text: &str, flows: usize) -> Result<(Vec<f64>, f64)> {
    let mut times_us = Vec::new();
    let mut seconds = None;
    for line in text.lines() {
        let number = |text: &str| {
            let number = text.parse::<f64>();
            number.with_context(|| format!("ns-3 printed {line:?} where a number belongs"))
        };
        match line.strip_prefix("seconds ") {
            Some(rest) => seconds = Some(number(rest)?),
            None => times_us.push(number(line)? / 1e3),
        }
    }
    if times_us.len() != flows {
        bail!("ns-3 reported {} flows instead of {flows}", times_us.len());
    }
    Ok((times_us, seconds.context("ns-3 did not report its time")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ns3_prints_is_read_and_checked() {
        let (times, seconds) = parse("8800\n1500\nseconds 0.25\n", 2).expect("it is right");
        assert_eq!((times, seconds), (vec![8.8, 1.5], 0.25));
        for (wrong, flows) in [
            ("8800\nseconds 1\n", 2),
            ("8800\n", 1),
            ("x\nseconds 1\n", 1),
        ] {
            assert!(parse(wrong, flows).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_flow_alone_loses_nothing_and_takes_as_long_as_its_links() {
        let message = "{ kind = \"message\", from = 0, to = 8, bytes = 1460 }";
        let outcome = simulate(HOSTS_PER_LEAF, message).expect("it is right");
        // Four links of 5 us, and 1,502 bytes at 10 Gbit/s four times.
        assert_eq!(outcome.flows[0].fct_ns, Some(20_000 + 4 * 1_202));
        assert_eq!(outcome.totals.dropped, 0);
    }
}
