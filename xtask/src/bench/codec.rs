//! `bench-codec`: what a message costs to encode and decode.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::{Result, bail};
use serde::Serialize;

use super::{Measurement, Medians, rounded};
use crate::project::Project;

#[derive(clap::Args)]
pub(crate) struct CodecArguments {
    #[command(flatten)]
    output: super::Arguments,

    /// Measure one kernel alone, and the peers by the same instructions as far as they can be
    /// made to: avx512-gfni, avx2, ssse3, neon or portable.
    #[arg(long, value_name = "KERNEL")]
    simd: Option<String>,
}

pub(crate) fn task(project: &Project, arguments: &CodecArguments) -> Result<ExitCode> {
    let simd = arguments.simd.as_deref();
    let variable = simd.map(|simd| (SIMD_VARIABLE, simd));
    let measurement = Measurement::run_with(project, "codec", variable)?;
    let groups = GROUPS
        .iter()
        .map(|group| Ok((*group, measurement.medians(&format!("codec_{group}"))?)))
        .collect::<Result<Vec<_>>>()?;
    let mut results = Results::new(&groups, measurement.note(SIMD_NOTE)?)?;
    let peers = measurement.note(PEERS_NOTE)?;
    let peers = peers.lines().filter_map(|line| line.split_once(' '));
    results.peers_simd = peers
        .map(|(peer, simd)| (peer.to_owned(), simd.to_owned()))
        .collect();
    arguments.output.print(&results, table)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Serialize)]
struct Results {
    /// Medians in us by what was measured, by codec.
    #[serde(flatten)]
    codecs: BTreeMap<String, BTreeMap<String, f64>>,
    /// Always null: the registry has no Rust binding of it.
    wirehair: Option<()>,
    /// Copying the message of 64 source symbols.
    memcpy_us: f64,
    /// The kernel of `default` and `mds`: what was asked for, or what this processor's detection selects.
    simd: String,
    /// The instructions that each peer used.
    peers_simd: BTreeMap<String, String>,
}

impl Results {
    /// From the medians in ns of each group.
    fn new(groups: &[(&str, Medians)], simd: String) -> Result<Self> {
        let mut codecs: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
        for (group, medians) in groups {
            for (codec, &ns) in medians {
                let of_codec = codecs.entry(codec.clone()).or_default();
                of_codec.insert(key(group), us(ns));
            }
        }
        let memcpy = codecs.remove(MEMCPY).and_then(|us| us.into_values().next());
        let lacks_codec = OURS
            .iter()
            .chain(&PEERS)
            .find(|codec| !codecs.contains_key(**codec));
        match (memcpy, lacks_codec) {
            (None, _) => bail!("the benchmark measured no {MEMCPY}"),
            (_, Some(codec)) => bail!("the benchmark measured no {codec}"),
            (Some(memcpy_us), None) => Ok(Self {
                codecs,
                wirehair: None,
                memcpy_us,
                simd,
                peers_simd: BTreeMap::new(),
            }),
        }
    }

    fn us(&self, codec: &str, group: &str) -> Option<f64> {
        self.codecs.get(codec)?.get(&key(group)).copied()
    }

    /// How many times as long as `codec` a peer takes.
    fn ratio(&self, peer: &str, codec: &str, group: &str) -> Option<f64> {
        Some(self.us(peer, group)? / self.us(codec, group)?)
    }
}

fn key(group: &str) -> String {
    format!("{group}_us")
}

fn us(ns: f64) -> f64 {
    rounded(ns / 1_000.0, 3)
}

/// One part for each operation: us of each codec, then how many times as long
/// as ours the peers take.
fn table(results: &Results) -> String {
    let operations = ["encode", "decode"].map(|operation| {
        let groups = GROUPS.iter().filter(|group| group.starts_with(operation));
        let groups: Vec<&str> = groups.copied().collect();
        let titles = groups
            .iter()
            .map(|group| group[operation.len() + 1..].to_owned());
        let mut rows = line(&format!("{operation}, us"), titles);
        for codec in results.codecs.keys() {
            let us = groups.iter().map(|group| results.us(codec, group));
            rows += &line(codec, us.map(|us| cell(us, 3)));
        }
        for (ours, peer) in OURS.iter().flat_map(|ours| PEERS.map(|peer| (ours, peer))) {
            let ratios = groups.iter().map(|group| results.ratio(peer, ours, group));
            rows += &line(
                &format!("{peer} / {ours}"),
                ratios.map(|ratio| cell(ratio, 1)),
            );
        }
        rows
    });
    let Results {
        simd,
        memcpy_us,
        peers_simd,
        ..
    } = results;
    let peers: String = peers_simd
        .iter()
        .map(|(peer, simd)| format!("{peer} by {simd}; "))
        .collect();
    format!(
        "kernel {simd}; {peers}memcpy of n64 {memcpy_us} us\n\n{}",
        operations.join("\n")
    )
}

fn line(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("{cell:>10}")).collect();
    format!("{name:<27}{cells}\n")
}

fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Criterion's groups without the prefix `codec_`; the keys of the result
/// without `_us`. The number after *n* is that of source symbols, the last one
/// the percentage of them that is lost.
const GROUPS: [&str; 11] = [
    "encode_n4",
    "encode_n15",
    "encode_n64",
    "encode_n512",
    "decode_n4",
    "decode_n15_5",
    "decode_n15_30",
    "decode_n64_5",
    "decode_n64_30",
    "decode_n512_5",
    "decode_n512_30",
];

const OURS: [&str; 2] = ["default", "mds"];
const PEERS: [&str; 3] = ["raptorq", "reed_solomon_simd", "rlnc"];

/// Measured next to the codecs in one of the groups.
const MEMCPY: &str = "memcpy";

/// The file into which the benchmark writes the kernel's name.
const SIMD_NOTE: &str = "codec-simd";

/// The file into which it writes the instructions of each peer.
const PEERS_NOTE: &str = "codec-simd-of-codecs";

/// By this the benchmark is told which kernel to measure.
const SIMD_VARIABLE: &str = "CODEC_SIMD";

#[cfg(test)]
mod tests {
    use super::*;

    fn medians(of: &[(&str, f64)]) -> Medians {
        of.iter()
            .map(|(codec, ns)| ((*codec).to_owned(), *ns))
            .collect()
    }

    fn measured() -> Vec<(&'static str, Medians)> {
        let ours = [
            ("default", 6_800.4),
            ("mds", 12_500.0),
            ("default_avx2", 9_000.0),
        ];
        let others = [
            ("raptorq", 88_600.0),
            ("reed_solomon_simd", 14_100.0),
            ("rlnc", 40_000.0),
            (MEMCPY, 1_760.0),
        ];
        let small = [("default", 100.0), ("mds", 120.0), ("raptorq", 13_400.0)];
        vec![
            ("encode_n4", medians(&small)),
            ("encode_n64", medians(&[&ours[..], &others[..]].concat())),
        ]
    }

    #[test]
    fn results_are_by_codec_in_us() {
        let results = Results::new(&measured(), "avx2".to_owned()).unwrap();
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["default"]["encode_n4_us"], 0.1);
        assert_eq!(json["default"]["encode_n64_us"], 6.8);
        assert_eq!(json["default_avx2"]["encode_n64_us"], 9.0);
        assert_eq!(json["wirehair"], serde_json::Value::Null);
        assert_eq!(json["memcpy_us"], 1.76);
        assert_eq!(json["simd"], "avx2");
        assert!(json.get(MEMCPY).is_none());
    }

    #[test]
    fn ratios_are_of_what_was_measured() {
        let results = Results::new(&measured(), "avx2".to_owned()).unwrap();
        assert_eq!(
            results.ratio("raptorq", "default", "encode_n4"),
            Some(134.0)
        );
        assert_eq!(
            results.ratio("reed_solomon_simd", "default", "encode_n4"),
            None
        );
        let table = table(&results);
        let row = table
            .lines()
            .find(|line| line.starts_with("raptorq / default"));
        let cells: Vec<_> = row.unwrap().split_whitespace().skip(3).collect();
        assert_eq!(cells, ["134.0", "-", "13.0", "-"]);
    }

    #[test]
    fn names_what_was_not_measured() {
        let mut groups = measured();
        groups[1].1.remove("reed_solomon_simd");
        let message = Results::new(&groups, String::new())
            .unwrap_err()
            .to_string();
        assert!(message.contains("reed_solomon_simd"), "{message}");
    }
}
