//! The choices that every host of a policy has to make: replays
//! `balance_vectors.txt`, and writes it when a policy is meant to change.

#[path = "support/balance_vectors.rs"]
mod vectors;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use flow_balance::Paths as _;
use vectors::{Case, Policy, parse};

#[test]
fn every_policy_chooses_as_it_did() {
    for case in cases() {
        for ((index, step), choice) in case.steps.iter().enumerate().zip(case.replay()) {
            assert_eq!(choice, step.choice, "{}, packet {index}", case.name);
        }
    }
}

/// Vectors that never change paths, or cover no failure, would hold anything.
#[test]
fn the_vectors_exercise_what_they_are_for() {
    let mut policies = HashSet::new();
    for case in cases() {
        policies.insert(std::mem::discriminant(&case.policy));
        let choices: BTreeSet<_> = case.steps.iter().map(|step| step.choice).collect();
        let known = case.steps[0].paths.known();
        assert!(
            choices.len() >= known.len().min(4) as usize,
            "{}: {choices:?}",
            case.name
        );
        let has_failure = case.steps.iter().any(|step| step.paths.usable != known);
        assert!(has_failure, "{}", case.name);
        if let Policy::Tr(tr, _) = case.policy {
            let bytes: u64 = case.steps.iter().map(|step| step.packet.bytes as u64).sum();
            assert!(bytes > 8 * tr.threshold_bytes, "{}", case.name);
        }
    }
    assert_eq!(policies.len(), 7);
}

#[test]
#[ignore = "writes tests/balance_vectors.txt anew instead of testing it"]
fn write_vectors() {
    let mut text = String::from(HEADER);
    for (name, policy, fabric) in SCENARIOS {
        let inputs = fabric.inputs();
        let case = parse(&format!("case {name}\npolicy {policy}\n{inputs}"));
        let choices = case[0].replay();
        writeln!(text, "\ncase {name}\npolicy {policy}").expect("a string");
        let mut choices = choices.iter();
        for line in inputs.lines() {
            match line
                .strip_suffix(" | 0")
                .filter(|line| line.starts_with("packet"))
            {
                Some(packet) => {
                    let choice = choices.next().expect("one a packet").index();
                    writeln!(text, "{packet} | {choice}")
                }
                None => writeln!(text, "{line}"),
            }
            .expect("a string");
        }
    }
    fs::write(file(), text).expect("can be written");
}

const HEADER: &str = "\
# What each policy chooses; the format is told in support/balance_vectors.rs.
# Written by `cargo test -p flow-balance --test balance_vectors -- --ignored`.
";

const SCENARIOS: [(&str, &str, Fabric); 10] = [
    ("ecmp", "ecmp seed=1", Fabric::LEAF),
    ("ecmp over two tunnels", "ecmp seed=2", Fabric::TUNNELS),
    ("rps", "rps seed=1", Fabric::LEAF),
    ("drb", "drb seed=1", Fabric::LEAF),
    ("presto", "presto cell_bytes=6000 seed=1", Fabric::LEAF),
    ("letflow", "letflow gap_ns=100000 seed=1", Fabric::LEAF),
    (
        "tr to the letter",
        "tr threshold_bytes=9000 guard_ns=0 slack_ns=18446744073709551615 counts_serialisation=0 seed=1 timeout_ns=48000",
        Fabric::LEAF,
    ),
    (
        "tr guarded",
        "tr threshold_bytes=9000 guard_ns=2000 slack_ns=2000 counts_serialisation=0 seed=2 timeout_ns=48000",
        Fabric::LEAF,
    ),
    (
        "tr with serialisation",
        "tr threshold_bytes=9000 guard_ns=300 slack_ns=9000 counts_serialisation=1 seed=3 timeout_ns=48000",
        Fabric::LEAF,
    ),
    (
        "placement",
        "placement tolerance_ns=20000000",
        Fabric::TUNNELS,
    ),
];

/// Where the packets of a case come from.
#[derive(Clone, Copy)]
struct Fabric {
    paths: usize,
    flows: u64,
    /// Backlogs are multiples of this, so that paths are often equal.
    frame_ns: u64,
    rate_mbit: [u64; 2],
}

impl Fabric {
    const LEAF: Self = Self {
        paths: 10,
        flows: 5,
        frame_ns: 300,
        rate_mbit: [40_000, 40_000],
    };
    const TUNNELS: Self = Self {
        paths: 2,
        flows: 40,
        frame_ns: 6_000_000,
        rate_mbit: [100, 40],
    };

    /// A case's lines below its policy, with path 0 for each choice.
    fn inputs(self) -> String {
        let mut random = Random(self.frame_ns);
        let rate_mbit = |path| self.rate_mbit[path % 2];
        let per_path = |value: &mut dyn FnMut(usize) -> u64| {
            let values: Vec<_> = (0..self.paths)
                .map(|path| value(path).to_string())
                .collect();
            values.join(" ")
        };
        let mut text = format!(
            "propagation_ns {}\nweight {}\nbit_per_s {}\n",
            per_path(&mut |path| 8_000 + path as u64 % 2 * 4_000),
            per_path(&mut |path| rate_mbit(path)),
            per_path(&mut |path| rate_mbit(path) * 1_000_000),
        );
        let mut now_ns = 1_000;
        for _ in 0..100 {
            now_ns += match random.below(10) {
                0 => random.below(200_000),
                1..4 => 0,
                _ => random.below(2_000),
            };
            let flow_hash = Random(random.below(self.flows)).next();
            let bytes = [1_500, 1_500, 1_500, 40, 9_000][random.below(5) as usize];
            let usable = match random.below(16) {
                0 => random.next() & 0xffff,
                1 => 0,
                _ => (1 << self.paths) - 1,
            };
            let local = per_path(&mut |_| random.below(6) * self.frame_ns);
            let far = per_path(&mut |_| random.below(3) * self.frame_ns);
            if self.paths == 2 {
                let flows = per_path(&mut |path| random.below([10, 4][path]));
                writeln!(text, "flows {flows}").expect("a string");
            }
            writeln!(
                text,
                "packet {now_ns} {flow_hash:x} {bytes} {usable:x} | {local} | {far} | 0"
            )
            .expect("a string");
        }
        text
    }
}

/// SplitMix64, written out so that the vectors hang on no other crate.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn cases() -> Vec<Case> {
    parse(&fs::read_to_string(file()).expect("the vectors are committed"))
}

fn file() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "balance_vectors.txt"]
        .iter()
        .collect()
}
