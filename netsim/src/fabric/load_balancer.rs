//! Load balancing: a leaf's choice of uplink, or another switch's of next hop. Hosts the policies of `flow_balance`.
//!
//! The policy decides with the very code that a kernel program runs. This is its shell: it knows
//! what belongs to a leaf and what to a flow, and hands both over with the packet.

use std::fmt;

use flow_balance::{
    Balancer, Drb, Ecmp, LetFlow, Packet, PathId, Paths, Presto, Rps, ShortFlows, Tr,
};

use crate::{
    engine::random::{Purpose, Random},
    scenario::{BalanceSettings, BalancingPolicy},
};

/// A query to a policy: over which path does this packet go?
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathQuery {
    /// The leaf that sends the packet up; in another topology the switch's set of next hops.
    pub(crate) leaf: usize,
    /// The index of the flow's state in the policy. Each flow and direction is balanced at one
    /// leaf, so the number names the leaf's entry for it too.
    pub(crate) slot: usize,
    /// The packet to be balanced.
    pub(crate) packet: Packet,
}

impl PathQuery {
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

/// The load balancer of all leaves: a policy and its state. An arm for each policy, so that the
/// compiler sees the policy and its view of the paths as one piece.
#[derive(Debug)]
pub(crate) enum LoadBalancer {
    Ecmp(BalancerState<Ecmp>),
    Rps(BalancerState<Rps>),
    Drb(BalancerState<Drb>),
    Presto(BalancerState<Presto>),
    LetFlow(BalancerState<LetFlow>),
    Tr(BalancerState<Tr>),
    Custom(Box<dyn CustomState>),
}

/// Makes the state of a policy that is not built in: for so many sets of paths, from a seed.
pub(crate) struct CustomBalancer(Box<dyn Fn(usize, u64) -> Box<dyn CustomState>>);

impl CustomBalancer {
    pub(crate) fn new<B>(make: impl Fn(u64) -> B + 'static) -> Self
    where
        B: Balancer + 'static,
        B::Shared: Default,
    {
        Self(Box::new(move |sets, seed| {
            let shared = std::iter::repeat_with(B::Shared::default).take(sets);
            Box::new(BalancerState::new(make(seed), shared.collect()))
        }))
    }
}

/// A policy whose type only its maker knows.
pub(crate) trait CustomState {
    fn choose(&mut self, query: &PathQuery, paths: &dyn Paths) -> PathId;
}

impl<B: Balancer> CustomState for BalancerState<B> {
    fn choose(&mut self, query: &PathQuery, paths: &dyn Paths) -> PathId {
        BalancerState::choose(self, query, paths)
    }
}

impl fmt::Debug for dyn CustomState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy that is not built in")
    }
}

impl LoadBalancer {
    /// `slowest_rtt_ns` is the round trip between hosts over the slowest path, idle.
    pub(crate) fn new(
        balance: &BalanceSettings,
        custom: Option<&CustomBalancer>,
        leaves: usize,
        slowest_rtt_ns: u64,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed, Purpose::Policy, 0);
        let seed = u64::from(random.bits()) << 32 | u64::from(random.bits());
        if let Some(custom) = custom {
            return Self::Custom(custom.0(leaves, seed));
        }
        match balance.policy {
            BalancingPolicy::Ecmp => {
                Self::Ecmp(BalancerState::new(Ecmp { seed }, vec![(); leaves]))
            }
            BalancingPolicy::Rps => Self::Rps(BalancerState::new(Rps { seed }, vec![(); leaves])),
            BalancingPolicy::Drb => Self::Drb(BalancerState::new(Drb { seed }, vec![(); leaves])),
            BalancingPolicy::Presto => {
                let cell_bytes = balance.presto_cell_bytes;
                Self::Presto(BalancerState::new(
                    Presto { cell_bytes, seed },
                    vec![(); leaves],
                ))
            }
            BalancingPolicy::LetFlow => {
                let gap_ns = ns(balance.letflow_gap_us);
                Self::LetFlow(BalancerState::new(
                    LetFlow { gap_ns, seed },
                    vec![(); leaves],
                ))
            }
            BalancingPolicy::Tr | BalancingPolicy::TrGuarded => {
                // Of the slowest path, lest flows there seem to pause between windows (A-T7).
                let timeout_ns = balance.tr.timeout_us.map_or(slowest_rtt_ns, ns);
                let short_flows = vec![ShortFlows::new(timeout_ns); leaves];
                Self::Tr(BalancerState::new(tr(balance, seed), short_flows))
            }
        }
    }

    /// Returns whether the policy looks at queue lengths.
    #[inline]
    pub(crate) fn uses_backlog(&self) -> bool {
        matches!(self, Self::Tr(_) | Self::Custom(_))
    }

    /// Returns whether the policy keeps anything of a flow.
    pub(crate) fn keeps_flows(&self) -> bool {
        !matches!(self, Self::Ecmp(_))
    }

    /// The spine that the packet goes over.
    #[inline]
    pub(crate) fn choose(&mut self, query: &PathQuery, paths: &impl Paths) -> PathId {
        match self {
            Self::Ecmp(it) => it.choose(query, paths),
            Self::Rps(it) => it.choose(query, paths),
            Self::Drb(it) => it.choose(query, paths),
            Self::Presto(it) => it.choose(query, paths),
            Self::LetFlow(it) => it.choose(query, paths),
            Self::Tr(it) => it.choose(query, paths),
            Self::Custom(it) => it.choose(query, paths),
        }
    }
}

/// A policy with what it remembers.
#[derive(Debug)]
pub(crate) struct BalancerState<B: Balancer> {
    policy: B,
    /// By leaf: the flows of a leaf share its uplinks, wherever they go to.
    shared: Vec<B::Shared>,
    /// State of flows, by slot.
    flows: Vec<B::Flow>,
}

impl<B: Balancer> BalancerState<B> {
    fn new(policy: B, shared: Vec<B::Shared>) -> Self {
        Self {
            policy,
            shared,
            flows: Vec::new(),
        }
    }

    #[inline]
    fn choose(&mut self, query: &PathQuery, paths: &(impl Paths + ?Sized)) -> PathId {
        let PathQuery { leaf, slot, packet } = query;
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
