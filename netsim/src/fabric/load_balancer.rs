//! A leaf's choice of uplink: hosts the policies of `splitter_policy::balance`.
//!
//! The policy decides with the very code that a kernel program runs. This is its shell: it knows
//! what belongs to a leaf and what to a flow, and hands both over with the packet.

use splitter_policy::balance::{
    Balancer, Drb, Ecmp, LetFlow, Packet, PathId, Paths, Presto, Rps, ShortFlows, Tr,
};

use crate::{
    engine::random::{Purpose, Random},
    scenario::{BalanceSettings, BalancingPolicy},
};

/// What is asked of a policy: where this packet goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// The leaf that asks.
    pub(crate) leaf: usize,
    /// Where the policy keeps what it knows of the flow. Each flow and direction is balanced at one
    /// leaf, so the number names the leaf's entry for it too.
    pub(crate) slot: usize,
    /// The packet.
    pub(crate) packet: Packet,
}

impl Question {
    /// About a packet of a flow; `reverse` is an ACK, which is of a flow of its own (A-T10).
    #[inline]
    pub(crate) fn new(leaf: usize, flow: u32, reverse: bool, bytes: u16, now_ns: u64) -> Self {
        let slot = (flow as usize) << 1 | usize::from(reverse);
        Self {
            leaf,
            slot,
            packet: Packet {
                now_ns,
                bytes: bytes.into(),
                // Policies mix it with their seed.
                flow_hash: slot as u64,
            },
        }
    }
}

/// The policy of all leaves, and its state. An arm for each, so that the compiler sees the policy
/// and what it asks of the paths as one piece.
#[derive(Debug)]
pub(crate) enum Choice {
    Ecmp(Hosted<Ecmp>),
    Rps(Hosted<Rps>),
    Drb(Hosted<Drb>),
    Presto(Hosted<Presto>),
    LetFlow(Hosted<LetFlow>),
    Tr(Hosted<Tr>),
}

impl Choice {
    /// `slowest_rtt_ns` is the round trip between hosts over the slowest path, idle.
    pub(crate) fn new(
        balance: &BalanceSettings,
        leaves: usize,
        slowest_rtt_ns: u64,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed, Purpose::Policy, 0);
        let seed = u64::from(random.bits()) << 32 | u64::from(random.bits());
        match balance.policy {
            BalancingPolicy::Ecmp => Self::Ecmp(Hosted::new(Ecmp { seed }, vec![(); leaves])),
            BalancingPolicy::Rps => Self::Rps(Hosted::new(Rps { seed }, vec![(); leaves])),
            BalancingPolicy::Drb => Self::Drb(Hosted::new(Drb { seed }, vec![(); leaves])),
            BalancingPolicy::Presto => {
                let cell_bytes = balance.presto_cell_bytes;
                Self::Presto(Hosted::new(Presto { cell_bytes, seed }, vec![(); leaves]))
            }
            BalancingPolicy::LetFlow => {
                let gap_ns = ns(balance.letflow_gap_us);
                Self::LetFlow(Hosted::new(LetFlow { gap_ns, seed }, vec![(); leaves]))
            }
            BalancingPolicy::Tr | BalancingPolicy::TrGuarded => {
                // Of the slowest path, lest flows there seem to pause between windows (A-T7).
                let timeout_ns = balance.tr.timeout_us.map_or(slowest_rtt_ns, ns);
                let short_flows = vec![ShortFlows::new(timeout_ns); leaves];
                Self::Tr(Hosted::new(tr(balance, seed), short_flows))
            }
        }
    }

    /// Whether it matters what waits at ports.
    #[inline]
    pub(crate) fn looks_at_backlog(&self) -> bool {
        matches!(self, Self::Tr(_))
    }

    /// The spine that the packet goes over.
    #[inline]
    pub(crate) fn choose(&mut self, question: &Question, paths: &impl Paths) -> PathId {
        match self {
            Self::Ecmp(it) => it.choose(question, paths),
            Self::Rps(it) => it.choose(question, paths),
            Self::Drb(it) => it.choose(question, paths),
            Self::Presto(it) => it.choose(question, paths),
            Self::LetFlow(it) => it.choose(question, paths),
            Self::Tr(it) => it.choose(question, paths),
        }
    }
}

/// A policy with what it remembers.
#[derive(Debug)]
pub(crate) struct Hosted<B: Balancer> {
    policy: B,
    /// By leaf: the flows of a leaf share its uplinks, wherever they go to.
    shared: Vec<B::Shared>,
    /// By slot.
    flows: Vec<B::Flow>,
}

impl<B: Balancer> Hosted<B> {
    fn new(policy: B, shared: Vec<B::Shared>) -> Self {
        Self {
            policy,
            shared,
            flows: Vec::new(),
        }
    }

    #[inline]
    fn choose(&mut self, question: &Question, paths: &impl Paths) -> PathId {
        let Question { leaf, slot, packet } = question;
        if *slot >= self.flows.len() {
            self.flows.resize(slot + 1, B::Flow::default());
        }
        let flow = &mut self.flows[*slot];
        let shared = &mut self.shared[*leaf];
        self.policy.choose(shared, flow, paths, packet)
    }
}

fn tr(balance: &BalanceSettings, seed: u64) -> Tr {
    let balance = balance.resolved();
    let settings = &balance.tr;
    let letter = Tr::paper();
    Tr {
        threshold_bytes: settings.threshold_bytes,
        guard_ns: settings.guard_us.map_or(letter.guard_ns, ns),
        slack_ns: settings.slack_us.map_or(letter.slack_ns, ns),
        counts_serialisation: settings.counts_serialisation,
        seed,
    }
}

fn ns(us: f64) -> u64 {
    (us * 1000.0) as u64
}

#[cfg(test)]
#[path = "load_balancer_tests.rs"]
mod tests;
