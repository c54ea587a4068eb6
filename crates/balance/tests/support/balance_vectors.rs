//! Reads `balance_vectors.txt`: what each policy was given, and what it chose.
//!
//! Whoever hosts the policies replays it. Include this file by path, drive the
//! host with each case, and compare. The file is made of lines of words:
//!
//! ```text
//! case NAME
//! policy KIND key=value ...
//! propagation_ns, weight, bit_per_s and flows: one number for each path, from path 0
//! packet NOW_NS FLOW_HASH BYTES USABLE | LOCAL_BACKLOG_NS ... | FAR_BACKLOG_NS ... | CHOICE
//! ```
//!
//! `FLOW_HASH` and `USABLE` are hexadecimal. Flows and what they share start
//! from nothing with each case; a flow is known by its hash.

use std::collections::HashMap;

use flow_balance::ServiceTime;
use flow_balance::{
    Balancer, Drb, Ecmp, LetFlow, Packet, PathId, PathSet, PathView, Paths, Placement, Presto,
    RoundRobin, Rps, ShortFlows, Snapshot, Tr,
};

/// A policy with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Policy {
    Ecmp(Ecmp),
    Rps(Rps),
    Drb(Drb),
    Presto(Presto),
    LetFlow(LetFlow),
    /// With the time-out of its count of short flows.
    Tr(Tr, u64),
    Placement(Placement),
}

/// A run of packets over one set of paths.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) policy: Policy,
    pub(crate) steps: Vec<Step>,
}

/// One packet, the paths as it found them, and the one it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) packet: Packet,
    pub(crate) paths: Snapshot,
    pub(crate) choice: PathId,
}

impl Case {
    /// What the policy chooses here, packet by packet.
    pub(crate) fn replay(&self) -> Vec<PathId> {
        match self.policy {
            Policy::Ecmp(policy) => self.replay_with(policy, ()),
            Policy::Rps(policy) => self.replay_with(policy, ()),
            Policy::Drb(policy) => self.replay_with(policy, ()),
            Policy::Presto(policy) => self.replay_with(policy, ()),
            Policy::LetFlow(policy) => self.replay_with(policy, ()),
            Policy::Tr(policy, timeout_ns) => self.replay_with(policy, ShortFlows::new(timeout_ns)),
            Policy::Placement(policy) => self.replay_with(policy, RoundRobin::default()),
        }
    }

    fn replay_with<B: Balancer>(&self, policy: B, mut shared: B::Shared) -> Vec<PathId> {
        let mut flows: HashMap<u64, B::Flow> = HashMap::new();
        let choices = self.steps.iter().map(|step| {
            let flow = flows.entry(step.packet.flow_hash).or_default();
            policy.choose(&mut shared, flow, &step.paths, &step.packet)
        });
        choices.collect()
    }
}

/// Reads all cases.
///
/// # Panics
/// If the text is not in the format.
pub(crate) fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut paths: Vec<PathView> = Vec::new();
    let mut name = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((word, rest)) = line.split_once(' ') else {
            continue;
        };
        match word {
            "case" => name = rest,
            "policy" => {
                paths.clear();
                cases.push(Case {
                    name: name.to_owned(),
                    policy: policy(rest),
                    steps: Vec::new(),
                });
            }
            "propagation_ns" => {
                paths = numbers(rest)
                    .map(|propagation_ns| PathView {
                        propagation_ns,
                        ..PathView::default()
                    })
                    .collect();
            }
            "weight" => each(&mut paths, rest, |path, weight| {
                path.weight = weight.try_into().expect("32 bits");
            }),
            "bit_per_s" => each(&mut paths, rest, |path, rate| {
                path.service = ServiceTime::from_bits_per_second(rate);
            }),
            "flows" => each(&mut paths, rest, |path, flows| {
                path.flows = flows.try_into().expect("32 bits");
            }),
            "packet" => {
                let case = cases.last_mut().expect("`policy` comes before `packet`");
                case.steps.push(step(paths.clone(), rest));
            }
            _ => panic!("what is `{line}`?"),
        }
    }
    cases
}

fn policy(words: &str) -> Policy {
    let (kind, settings) = words.split_once(' ').unwrap_or((words, ""));
    let settings: HashMap<_, _> = settings
        .split(' ')
        .filter_map(|setting| setting.split_once('='))
        .map(|(key, value)| (key, number(value)))
        .collect();
    let setting = |key| {
        let value: Option<&u64> = settings.get(key);
        *value.unwrap_or_else(|| panic!("{kind} without {key}"))
    };
    match kind {
        "ecmp" => Policy::Ecmp(Ecmp {
            seed: setting("seed"),
        }),
        "rps" => Policy::Rps(Rps {
            seed: setting("seed"),
        }),
        "drb" => Policy::Drb(Drb {
            seed: setting("seed"),
        }),
        "presto" => Policy::Presto(Presto {
            cell_bytes: setting("cell_bytes").try_into().expect("32 bits"),
            seed: setting("seed"),
        }),
        "letflow" => Policy::LetFlow(LetFlow {
            gap_ns: setting("gap_ns"),
            seed: setting("seed"),
        }),
        "tr" => {
            let tr = Tr {
                threshold_bytes: setting("threshold_bytes"),
                guard_ns: setting("guard_ns"),
                slack_ns: setting("slack_ns"),
                counts_serialisation: setting("counts_serialisation") != 0,
                seed: setting("seed"),
            };
            Policy::Tr(tr, setting("timeout_ns"))
        }
        "placement" => Policy::Placement(Placement {
            tolerance_ns: setting("tolerance_ns"),
        }),
        _ => panic!("no policy is called {kind}"),
    }
}

fn step(mut paths: Vec<PathView>, words: &str) -> Step {
    let mut fields = words.split(" | ");
    let mut field = || fields.next().expect("four fields");
    let packet: Vec<_> = field().split(' ').collect();
    let [now_ns, flow_hash, bytes, usable] = packet[..] else {
        panic!("not a packet: {words}");
    };
    each(&mut paths, field(), |path, ns| path.local_backlog_ns = ns);
    each(&mut paths, field(), |path, ns| path.remote_backlog_ns = ns);
    let mut paths = Snapshot::new(&paths);
    let usable = u16::from_str_radix(usable, 16).expect("hexadecimal");
    paths.usable = PathSet::from_bits(usable);
    let choice = PathId::new(number(field()) as usize).expect("a path");
    assert!(paths.known().contains(choice), "{words}");
    Step {
        packet: Packet {
            now_ns: number(now_ns),
            bytes: number(bytes).try_into().expect("32 bits"),
            flow_hash: u64::from_str_radix(flow_hash, 16).expect("hexadecimal"),
        },
        paths,
        choice,
    }
}

fn each(paths: &mut [PathView], words: &str, set: impl Fn(&mut PathView, u64)) {
    assert_eq!(words.split(' ').count(), paths.len(), "{words}");
    for (path, number) in paths.iter_mut().zip(numbers(words)) {
        set(path, number);
    }
}

fn numbers(words: &str) -> impl Iterator<Item = u64> {
    words.split(' ').map(number)
}

fn number(word: &str) -> u64 {
    word.parse()
        .unwrap_or_else(|error| panic!("`{word}` is no number: {error}"))
}
