//! A leaf's choice of uplink: everything that balancing policies see of the simulator, and all
//! that the simulator sees of them.

use crate::{
    core::random::{Purpose, Random, mix},
    scenario::Policy,
};

/// What is asked of a policy: where this packet goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// The leaf that asks.
    pub(crate) leaf: u16,
    /// The leaf that the packet goes to.
    pub(crate) to_leaf: u16,
    /// The flow, from 0; ACKs are a flow of their own (A-T10).
    pub(crate) flow: u32,
    /// The packet is an ACK, and goes against the flow's data.
    pub(crate) reverse: bool,
    /// On the wire.
    #[expect(dead_code, reason = "policies that count bytes need it")]
    pub(crate) bytes: u16,
    /// The time.
    #[expect(dead_code, reason = "policies with flowlets need it")]
    pub(crate) now_ns: u64,
}

/// What a policy may know of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathView {
    /// From this leaf to the destination's.
    pub(crate) propagation_ns: u64,
    /// What waits in this leaf's port.
    pub(crate) local_backlog_ns: u64,
    /// What waited in the spine's port towards the destination's leaf when the last ACK from there
    /// passed it, in steps of a 32nd of its buffer (A-T2, A-T3).
    pub(crate) far_backlog_ns: u64,
    /// Both of its links work.
    pub(crate) usable: bool,
}

/// Shows the paths between two leaves, when a policy looks at them.
pub(crate) trait Paths {
    /// The path over a spine.
    fn view(&self, spine: usize) -> PathView;
    /// The spines whose links to both leaves work, in ascending order; never empty.
    fn usable(&self) -> &[u16];
}

/// The policy of all leaves, and its state.
#[derive(Debug)]
pub(crate) struct Choice {
    policy: Policy,
    salt: u64,
    random: Random,
}

impl Choice {
    pub(crate) fn new(policy: Policy, seed: u64) -> Self {
        let mut random = Random::new(seed, Purpose::Policy, 0);
        let salt = u64::from(random.bits()) << 32;
        Self {
            policy,
            salt,
            random,
        }
    }

    /// Whether ACKs are to bring the backlog of spines.
    pub(crate) fn wants_far_backlog(&self) -> bool {
        false
    }

    /// The spine that the packet goes over.
    #[inline]
    pub(crate) fn choose(&mut self, question: &Question, paths: &impl Paths) -> usize {
        let usable = paths.usable();
        let draw = match self.policy {
            Policy::Ecmp => self.hash(question),
            Policy::Rps => self.random.bits(),
        };
        let index = (u64::from(draw) * usable.len() as u64) >> 32;
        usize::from(usable[index as usize])
    }

    /// As a switch's hash of the 5-tuple: each flow and direction has its own ports, and each leaf
    /// its own salt.
    fn hash(&self, question: &Question) -> u32 {
        let leaf = u64::from(question.leaf) << 33 | u64::from(question.to_leaf) << 49;
        let flow = u64::from(question.flow) << 1 | u64::from(question.reverse);
        (mix(mix(flow ^ leaf) ^ self.salt) >> 32) as u32
    }
}
