//! Keys of `[balance]`: the load-balancing policy and its settings.

use flow_balance::Tr;
use serde::{Deserialize, Serialize};

/// The load-balancing policy of leaves, and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BalanceSettings {
    /// Policy by which leaves choose.
    pub policy: BalancingPolicy,
    /// Paths get shares by their rate under `ecmp`, `rps` and `letflow`; otherwise equal ones.
    pub weighted: bool,
    /// A longer silence ends a flowlet of `letflow`, in microseconds.
    pub letflow_gap_us: f64,
    /// Bytes that a cell of `presto` holds at most.
    pub presto_cell_bytes: u32,
    /// Settings of `tr` and `tr_guarded`.
    pub tr: TrSettings,
}

impl Default for BalanceSettings {
    /// Returns the settings of the papers.
    fn default() -> Self {
        Self {
            policy: BalancingPolicy::default(),
            weighted: false,
            letflow_gap_us: 500.0,
            presto_cell_bytes: 65_536,
            tr: TrSettings::default(),
        }
    }
}

impl BalanceSettings {
    /// Writes guard and slack of `tr_guarded` out, so that a manifest states them and a result is
    /// not taken for that of other defaults.
    pub(crate) fn resolved(&self) -> Self {
        let mut balance = self.clone();
        if self.policy == BalancingPolicy::TrGuarded {
            let us = |ns: u64| ns as f64 / 1e3;
            let tr = &mut balance.tr;
            tr.guard_us.get_or_insert(us(Tr::DEFAULT_GUARD_NS));
            tr.slack_us.get_or_insert(us(Tr::DEFAULT_SLACK_NS));
        }
        balance
    }
}

/// Load-balancing policies: those of `flow_balance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BalancingPolicy {
    /// A path for each flow, by hash.
    #[default]
    Ecmp,
    /// A path for each packet, at random.
    Rps,
    /// A path for each packet, in turn.
    Drb,
    /// A path for each cell of 64 KB, in turn.
    Presto,
    /// A path for each flowlet, at random.
    #[serde(rename = "letflow")]
    LetFlow,
    /// Traffic-aware rerouting, to the letter of its paper.
    Tr,
    /// TR with guard and slack.
    TrGuarded,
}

/// Settings of `tr` and `tr_guarded`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrSettings {
    /// A flow is long once it has sent more than this.
    pub threshold_bytes: u64,
    /// By how much a packet must be predicted to follow the one before on another path, in
    /// microseconds; without it that of the policy.
    pub guard_us: Option<f64>,
    /// By how much a long flow's path may be slower than the fastest, in microseconds; without it
    /// that of the policy.
    pub slack_us: Option<f64>,
    /// A short flow counts on a path until it is silent for so long, in microseconds; without it
    /// the round-trip time of the slowest path.
    pub timeout_us: Option<f64>,
    /// Ageing of what ACKs have reported of spines' ports.
    pub ageing: FarAgeing,
    /// How leaves know what waits at spines' ports.
    pub far: FarKnowledge,
    /// Predictions include the packet's own time on the wire.
    pub counts_serialisation: bool,
}

impl Default for TrSettings {
    fn default() -> Self {
        Self {
            threshold_bytes: 100_000,
            guard_us: None,
            slack_us: None,
            timeout_us: None,
            ageing: FarAgeing::Never,
            far: FarKnowledge::Acks,
            counts_serialisation: false,
        }
    }
}

/// Ageing of reported backlogs: what becomes of them while nothing new is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FarAgeing {
    /// It stays as it is, as in the paper.
    #[default]
    Never,
    /// It drains at the rate of the line.
    Drains,
}

/// How leaves know what waits at spines' ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FarKnowledge {
    /// By ACKs that come from there, in steps of 1/32 of the buffer.
    #[default]
    Acks,
    /// Exactly, and at once: what no switch can, but what shows how much better knowledge would
    /// help.
    Exact,
    /// Not at all: they go by their own ports, as switches do that nobody reports to.
    Nothing,
}
