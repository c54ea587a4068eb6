//! What the demonstration came to: the modes side by side.

use serde::{Serialize, Serializer};

use super::{DEDICATED, ECMP_FLOW, ECMP_PACKET, NFT_SPLIT, SHARE, SPLITTER};
use crate::{
    experiment::{Completions, Conditions, Measurement},
    scheme::Handovers,
};

/// The result. Serialised it is the object that `splitter-demo --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Tells that the links were the bottleneck all the time, and so that ratios mean something.
    pub valid: bool,
    /// What the machine lacked, where it is not valid.
    pub why: Vec<String>,
    /// The modes in the order in which they are shown.
    #[serde(serialize_with = "as_map")]
    pub modes: Vec<ModeResult>,
    /// How many times faster the splitter's short flows are in the mean; nothing without it, and
    /// where the comparison is not valid.
    pub speedup: Option<Speedup>,
    /// What sharing tunnels comes to, where it was measured with the other policy and the
    /// comparison is valid.
    pub sharing: Option<Sharing>,
    /// How the kernel says the splitter's programs were attached: `native`, `generic`, `none`, or
    /// `mixed` when devices differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_mode: Option<String>,
    /// What it was measured on.
    pub settings: Settings,
}

/// Results of one mode of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ModeResult {
    /// The mode.
    #[serde(skip)]
    pub name: String,
    /// Short flows.
    pub short: Summary,
    /// The background's flows.
    pub long: Summary,
    /// What the hosts' TCP went through.
    pub tcp: Tcp,
    /// CPU seconds that the whole machine was busy while traffic was measured.
    pub cpu_s: f64,
    /// What the machine lacked meanwhile.
    pub machine: Machine,
    /// Flows of both classes that had not finished.
    pub unfinished: usize,
    /// Flows that became long and how they changed tunnels, for the splitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handovers: Option<Handovers>,
    /// The short flows one by one.
    #[serde(skip)]
    pub short_completions: Completions,
    /// The background's flows one by one.
    #[serde(skip)]
    pub long_completions: Completions,
}

/// Completion times of one class of flows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Mean in milliseconds.
    pub mean_ms: f64,
    /// Median in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile in milliseconds.
    pub p99_ms: f64,
    /// How many flows finished.
    pub flows: usize,
    /// How many had not finished at the end; the figures above do not hold them.
    pub unfinished: usize,
}

/// Tells what the machine lacked while a mode was measured, in the worst of its rounds. Shares are
/// 0 to 1; what this kernel or user cannot tell is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The share of the processor time that was used, by whomever.
    pub busy: f64,
    /// The share of the processor time that the host of a virtual machine took away.
    pub stolen: f64,
    /// The share of the time that some task waited for a processor.
    pub pressure: Option<f64>,
    /// Packets for which a processor's input queue had no room.
    pub backlog_dropped: u64,
    /// The longest by which a packet of an emulated link that was watched beside was late, in
    /// milliseconds.
    pub late_ms: Option<f64>,
    /// The share of its rate that such a link lost.
    pub shortfall: Option<f64>,
    /// The share of their rate that the tunnels lost while packets waited.
    pub tunnel_shortfall: Option<f64>,
}

/// Sums over the four hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tcp {
    /// Segments that the receiver dropped for an old timestamp.
    pub paws_estab: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Retransmitted segments.
    pub retrans: u64,
    /// Retransmissions of what was still in the host's own queue.
    pub spurious_host_queue: u64,
}

/// Mean short completion time of a mode, divided by the splitter's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// Against per-flow ECMP.
    pub ecmp_flow_mean: f64,
    /// Against per-packet ECMP.
    pub ecmp_packet_mean: f64,
    /// Against the conntrack split.
    pub nft_split_mean: f64,
}

/// Mean completion times with the policy `share`, divided by those of others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sharing {
    /// Short flows, by those of the policy `dedicated`.
    pub short_by_dedicated: f64,
    /// Short flows, by those of per-flow ECMP.
    pub short_by_ecmp_flow: f64,
    /// Long flows, by those of the policy `dedicated`.
    pub long_by_dedicated: f64,
    /// Long flows, by those of per-flow ECMP.
    pub long_by_ecmp_flow: f64,
}

/// Conditions under which a comparison was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Rate of each tunnel in Mbit/s.
    pub rates_mbit: [u32; 2],
    /// Whether the rates are the highest that emulated links kept here, and were not given.
    pub calibrated: bool,
    /// The background's load in percent of both tunnels.
    pub load_percent: f64,
    /// The first round's seed.
    pub seed: u64,
    /// Packets that still count as short.
    pub threshold: u32,
    /// How often each mode ran.
    pub rounds: u32,
    /// Seconds measured of each mode, over all rounds.
    pub measured_s: f64,
    /// Whether the tunnels' queues lay behind the borders.
    pub queue_behind_border: bool,
}

impl Comparison {
    /// The result of a mode by its name.
    pub fn mode(&self, name: &str) -> Option<&ModeResult> {
        self.modes.iter().find(|mode| mode.name == name)
    }
}

impl From<Measurement> for ModeResult {
    fn from(measurement: Measurement) -> Self {
        let Measurement {
            name,
            short,
            long,
            tcp,
            cpu,
            xdp_mode: _,
            handovers,
            conditions,
        } = measurement;
        Self {
            name,
            short: Summary::of(&short),
            long: Summary::of(&long),
            tcp: Tcp {
                paws_estab: tcp.paws_estab,
                timeouts: tcp.timeouts,
                retrans: tcp.retrans,
                spurious_host_queue: tcp.spurious_host_queue,
            },
            cpu_s: cpu.as_secs_f64(),
            machine: Machine::worst_of(&conditions),
            unfinished: short.unfinished + long.unfinished,
            handovers,
            short_completions: short,
            long_completions: long,
        }
    }
}

impl Machine {
    fn worst_of(rounds: &[Conditions]) -> Self {
        let worst = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        rounds.iter().fold(Self::default(), |all, round| {
            let strain = &round.strain;
            let late_ms = strain.late.map(|it| it.as_secs_f64() * 1e3);
            Self {
                busy: all.busy.max(strain.busy),
                stolen: all.stolen.max(strain.stolen),
                pressure: worst(all.pressure, strain.pressure),
                backlog_dropped: all.backlog_dropped.max(strain.dropped),
                late_ms: worst(all.late_ms, late_ms),
                shortfall: worst(all.shortfall, strain.shortfall),
                tunnel_shortfall: worst(all.tunnel_shortfall, round.delivery.shortfall()),
            }
        })
    }
}

impl Summary {
    fn of(completions: &Completions) -> Self {
        let distribution = completions.distribution_ms();
        Self {
            mean_ms: distribution.mean(),
            p50_ms: distribution.percentile(50.0),
            p99_ms: distribution.percentile(99.0),
            flows: distribution.count(),
            unfinished: completions.unfinished,
        }
    }
}

impl Speedup {
    pub(super) fn of(modes: &[ModeResult]) -> Option<Self> {
        let mean = |name: &str| Some(modes.iter().find(|it| it.name == name)?.short.mean_ms);
        let ours = mean(SPLITTER)?;
        Some(Self {
            ecmp_flow_mean: mean(ECMP_FLOW)? / ours,
            ecmp_packet_mean: mean(ECMP_PACKET)? / ours,
            nft_split_mean: mean(NFT_SPLIT)? / ours,
        })
    }
}

impl Sharing {
    pub(super) fn of(modes: &[ModeResult]) -> Option<Self> {
        let mode = |names: &[&str]| modes.iter().find(|it| names.contains(&it.name.as_str()));
        let (share, dedicated) = (mode(&[SHARE])?, mode(&[DEDICATED, SPLITTER])?);
        let ecmp = mode(&[ECMP_FLOW])?;
        Some(Self {
            short_by_dedicated: share.short.mean_ms / dedicated.short.mean_ms,
            short_by_ecmp_flow: share.short.mean_ms / ecmp.short.mean_ms,
            long_by_dedicated: share.long.mean_ms / dedicated.long.mean_ms,
            long_by_ecmp_flow: share.long.mean_ms / ecmp.long.mean_ms,
        })
    }
}

fn as_map<S: Serializer>(modes: &[ModeResult], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(modes.iter().map(|mode| (&mode.name, mode)))
}
