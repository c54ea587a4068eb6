//! Figures of real packets beside simulated ones: a column of TR's items, from rows that the laboratories of the fabric
//! and of bonding have printed.
//!
//! `packets` beside the pages has `fabric*.json` and `bond*.json`, what `cargo xtask fabric --json` and `bond --json` print,
//! and in `provenance.csv` the command, the commit, the day and the machine of each.

mod cells;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use flow_report::Median;
use serde::Deserialize;

use self::cells::CELLS;
use super::{PAGES, kept::shown_commit};

/// Directory of the rows, beside the pages.
pub(super) const PACKETS: &str = "packets";
/// Fabrics by how many times slower one of two spines is. The paper's paths differ by delay, these by rate.
const FABRICS: [&str; 3] = [
    "2x2-asym1.5-web_search",
    "2x2-asym2.5-web_search",
    "2x2-asym3.5-web_search",
];
const LOAD: f64 = 0.6;
/// One transfer over a tunnel of 30 Mbit/s and 10 ms, and one of 8 Mbit/s and 30 ms.
const BONDED: &str = "30+8";

/// A row of the fabric's laboratory, which has more than this.
#[derive(Clone, Debug, Deserialize)]
struct Fabric {
    scheme: String,
    seed: u64,
    case: String,
    load: f64,
    size_class: String,
    mean_ms: Option<f64>,
    p99_ms: Option<f64>,
    goodput: Option<f64>,
    retransmits: u64,
    ns_per_packet: Option<f64>,
    cpu_s: f64,
    memory_mb: Option<f64>,
}

/// A row of bonding's laboratory, which has more than this.
#[derive(Clone, Debug, Deserialize)]
struct Bond {
    case: String,
    scheme: String,
    seed: u64,
    flows: u32,
    loss: f64,
    jitter_ms: u32,
    cut: Option<u8>,
    goodput_mbit: f64,
}

/// Provenance of a file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Made {
    pub(crate) file: String,
    pub(crate) command: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: String,
}

/// All rows that are kept.
#[derive(Debug, Default)]
pub(super) struct Packets {
    made: Vec<Made>,
    fabric: Vec<Fabric>,
    bond: Vec<Bond>,
}

type Metric = fn(&Fabric) -> Option<f64>;
const SHORT_MEAN: (&str, Metric) = ("short", |it| it.mean_ms);
const SHORT_P99: (&str, Metric) = ("short", |it| it.p99_ms);
const LONG_GOODPUT: (&str, Metric) = ("long", |it| it.goodput);
// Those are of a whole run, and alike in the rows of all classes.
const SENT_AGAIN: (&str, Metric) = ("short", |it| Some(it.retransmits as f64));
const NS: (&str, Metric) = ("short", |it| it.ns_per_packet);
const CPU: (&str, Metric) = ("short", |it| Some(it.cpu_s));
const MEMORY: (&str, Metric) = ("short", |it| it.memory_mb);

/// How TR is called to the letter of the paper, and as one sets it up.
const TRS: [(&str, &str); 2] = [("tr_paper", "`tr-paper`"), ("tr", "`tr`")];
const LETFLOW: (&str, &str) = ("letflow", "`letflow`");
const RPS: (&str, &str) = ("rps", "`rps`");

impl Packets {
    /// Reads what is kept beside the pages; nothing without the directory.
    pub(super) fn read(root: &Path) -> Result<Option<Self>> {
        let directory = root.join(PAGES).join(PACKETS);
        if !directory.is_dir() {
            return Ok(None);
        }
        let mut packets = Self::default();
        let provenance = directory.join("provenance.csv");
        let mut csv = csv::Reader::from_path(&provenance)
            .with_context(|| format!("cannot read {}", provenance.display()))?;
        for row in csv.deserialize() {
            packets.made.push(row.context("in packets/provenance.csv")?);
        }
        let mut missing: BTreeSet<String> = packets.made.iter().map(|it| it.file.clone()).collect();
        for entry in fs::read_dir(&directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name == "provenance.csv" {
                continue;
            }
            let place = || format!("in {PAGES}/{PACKETS}/{name}");
            let file = fs::read_to_string(directory.join(&name)).with_context(place)?;
            if name.starts_with("fabric") {
                let rows: Vec<Fabric> = serde_json::from_str(&file).with_context(place)?;
                packets.fabric.extend(rows);
            } else if name.starts_with("bond") {
                let rows: Vec<Bond> = serde_json::from_str(&file).with_context(place)?;
                packets.bond.extend(rows);
            } else {
                bail!("{PAGES}/{PACKETS}/{name} is of no laboratory that is known");
            }
            ensure!(
                missing.remove(&name),
                "{PAGES}/{PACKETS}/provenance.csv does not say where {name} is from"
            );
        }
        if let Some(file) = missing.first() {
            bail!("{PAGES}/{PACKETS}/provenance.csv has {file}, which is not there");
        }
        Ok(Some(packets))
    }

    /// The column of an item: a cell for each of its checks. Nothing for items that have no such column.
    pub(super) fn column(&self, item: &str, checks: &[&str]) -> Result<Option<Vec<String>>> {
        if !CELLS.iter().any(|it| it.0 == item) {
            return Ok(None);
        }
        let cell = |check: &&str| {
            let known = CELLS.iter().find(|it| it.0 == item && it.1 == *check);
            let (.., cell) = known
                .with_context(|| format!("nothing says what {check:?} of {item} is on packets"))?;
            cell(self).with_context(|| format!("{check:?} of {item} on packets"))
        };
        checks.iter().map(cell).collect::<Result<_>>().map(Some)
    }

    /// A table of where the rows come from.
    pub(super) fn table(&self) -> String {
        let mut text =
            "\n| rows | command | commit | day | machine |\n|---|---|---|---|---|\n".to_owned();
        for Made {
            file,
            command,
            commit,
            date,
            machine,
        } in &self.made
        {
            let commit = shown_commit(commit);
            let _ = writeln!(
                text,
                "| [{file}]({PACKETS}/{file}) | `{command}` | `{commit}` | {date} | {machine} |"
            );
        }
        text + "\n"
    }

    /// A figure of a scheme in one of the fabrics, by seed.
    fn values(
        &self,
        (class, metric): (&str, Metric),
        scheme: &str,
        fabric: usize,
    ) -> Result<BTreeMap<u64, f64>> {
        let case = FABRICS[fabric];
        let mut values = BTreeMap::new();
        let is_meant = |it: &&Fabric| {
            it.case == case && it.load == LOAD && it.scheme == scheme && it.size_class == class
        };
        for row in self.fabric.iter().filter(is_meant) {
            let Some(value) = metric(row) else { continue };
            let twice = values.insert(row.seed, value).is_some();
            ensure!(!twice, "{scheme} in {case} has seed {} twice", row.seed);
        }
        ensure!(
            !values.is_empty(),
            "no row has {scheme} in {case} at load {LOAD}"
        );
        Ok(values)
    }

    /// How many times as large a figure is with one scheme as with another, by seed: they meet the same flows.
    fn ratios(
        &self,
        of: (&str, Metric),
        one: &str,
        other: &str,
        fabric: usize,
    ) -> Result<BTreeMap<u64, f64>> {
        let values = |scheme| self.values(of, scheme, fabric);
        quotients(&values(one)?, &values(other)?)
    }

    /// A cell of both ways to set up TR.
    fn both(&self, cell: impl Fn(&str) -> Result<String>) -> Result<String> {
        let each = TRS
            .iter()
            .map(|(scheme, name)| Ok(format!("{name} {}", cell(scheme)?)));
        Ok(each.collect::<Result<Vec<_>>>()?.join(", "))
    }

    fn sent_again(&self, scheme: &str, fabric: usize) -> Result<String> {
        let segments = text(self.values(SENT_AGAIN, scheme, fabric)?, 0)?;
        Ok(format!("{segments} segments of all flows"))
    }

    fn short(&self, one: &str, other: &str, fabric: usize) -> Result<String> {
        let ratio = text(self.ratios(SHORT_MEAN, one, other, fabric)?, 2)?;
        Ok(format!("{ratio} at {LOAD}"))
    }

    /// A change against another scheme at the most asymmetry.
    fn change(&self, of: (&str, Metric), other: &str) -> Result<String> {
        self.both(|tr| {
            let ratios = self.ratios(of, tr, other, 2)?;
            let percent = ratios
                .into_iter()
                .map(|(seed, it)| (seed, 100.0 * (it - 1.0)));
            Ok(format!("{} %", text(percent.collect(), 0)?))
        })
    }

    /// Short flows' mean by that of another scheme, in the mean of all fabrics.
    fn all(&self, other: &str) -> Result<String> {
        self.both(|tr| {
            let fabrics = 0..FABRICS.len();
            let each = fabrics.map(|fabric| self.ratios(SHORT_MEAN, tr, other, fabric));
            let each: Vec<BTreeMap<u64, f64>> = each.collect::<Result<_>>()?;
            let mean = |seed: &u64| {
                let of_seed = each.iter().map(|it| it.get(seed).copied());
                let sum: Option<f64> = of_seed.sum();
                let sum = sum.with_context(|| format!("a fabric has no seed {seed}"))?;
                Ok((*seed, sum / each.len() as f64))
            };
            let means: Result<_> = each[0].keys().map(mean).collect();
            text(means?, 2)
        })
    }

    fn long(&self, other: &str) -> Result<String> {
        self.both(|tr| text(self.ratios(LONG_GOODPUT, tr, other, 2)?, 2))
    }

    /// What one transfer has over two unequal tunnels, by what it has with another scheme.
    fn bonded(&self, other: &str) -> Result<String> {
        let values = |scheme: &str| -> Result<BTreeMap<u64, f64>> {
            let is_meant = |it: &&Bond| {
                let is_plain = it.flows == 1 && it.loss == 0.0 && it.jitter_ms == 0;
                it.case == BONDED && is_plain && it.cut.is_none() && it.scheme == scheme
            };
            let mut values = BTreeMap::new();
            for row in self.bond.iter().filter(is_meant) {
                let twice = values.insert(row.seed, row.goodput_mbit).is_some();
                ensure!(!twice, "{scheme} over {BONDED} has seed {} twice", row.seed);
            }
            ensure!(!values.is_empty(), "no row has {scheme} over {BONDED}");
            Ok(values)
        };
        let ratio = text(quotients(&values("tr")?, &values(other)?)?, 2)?;
        Ok(format!("one flow over {BONDED} Mbit/s: `tr` {ratio}"))
    }

    /// Time of a packet and of the machine, of two paths.
    fn processor(&self) -> Result<String> {
        let ours = [TRS[1], TRS[0], LETFLOW, RPS];
        let all = [
            TRS[1],
            TRS[0],
            LETFLOW,
            RPS,
            ("ecmp_flow", "the kernel's ECMP"),
        ];
        Ok(format!(
            "the programs at hosts' links, two paths, ns a packet: {}; CPU seconds of the whole machine in a run: {}",
            self.list(NS, &ours, 0)?,
            self.list(CPU, &all, 1)?
        ))
    }

    fn memory(&self) -> Result<String> {
        let ours = [TRS[1], TRS[0], LETFLOW, RPS];
        let megabytes = self.list(MEMORY, &ours, 1)?;
        Ok(format!("both leaves' daemons and maps, MB: {megabytes}"))
    }

    /// A figure of several schemes over links of which one is 2.5 times slower.
    fn list(&self, of: (&str, Metric), schemes: &[(&str, &str)], digits: usize) -> Result<String> {
        let each = schemes.iter().map(|(scheme, name)| {
            let figure = text(self.values(of, scheme, 1)?, digits)?;
            Ok(format!("{name} {figure}"))
        });
        Ok(each.collect::<Result<Vec<_>>>()?.join(", "))
    }
}

/// Seed by seed one by the other.
fn quotients(ones: &BTreeMap<u64, f64>, others: &BTreeMap<u64, f64>) -> Result<BTreeMap<u64, f64>> {
    let quotient = |(seed, one): (&u64, &f64)| {
        let other = others.get(seed);
        let other =
            other.with_context(|| format!("one scheme has seed {seed}, and the other has not"))?;
        Ok((*seed, one / other))
    };
    ones.iter().map(quotient).collect()
}

/// The median over seeds, with the least and the greatest.
fn text(values: BTreeMap<u64, f64>, digits: usize) -> Result<String> {
    let median = Median::of(values.into_values()).context("no seed has a value")?;
    Ok(median.to_text(digits))
}

#[cfg(test)]
mod tests;
