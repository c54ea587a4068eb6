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
    pub(crate) now_ns: u64,
}

impl Question {
    /// Where a policy keeps what it knows of the flow: each flow and direction is balanced at one
    /// leaf, so the number names the leaf's entry for it too.
    pub(crate) fn slot(&self) -> usize {
        (self.flow as usize) << 1 | usize::from(self.reverse)
    }
}

/// What a policy may know of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathView {
    /// From this leaf to the destination's.
    pub(crate) propagation_ns: u64,
    /// What waits in this leaf's port.
    pub(crate) local_backlog_ns: u64,
    /// What waited in the spine's port towards the destination's leaf when the last ACK from there
    /// passed it, in steps of a 32nd of its buffer (A-T2, A-T3).
    pub(crate) far_backlog_ns: u64,
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
        self.policy == Policy::LeastDelay
    }

    /// The spine that the packet goes over.
    #[inline]
    pub(crate) fn choose(&mut self, question: &Question, paths: &impl Paths) -> usize {
        let usable = paths.usable();
        let draw = match self.policy {
            Policy::Ecmp => self.hash(question),
            Policy::Rps | Policy::LeastDelay => self.random.bits(),
        };
        let index = ((u64::from(draw) * usable.len() as u64) >> 32) as usize;
        if self.policy == Policy::LeastDelay {
            return least_delay(paths, index);
        }
        usize::from(usable[index])
    }

    /// As a switch's hash of the 5-tuple: each flow and direction has its own ports, and each leaf
    /// its own salt.
    fn hash(&self, question: &Question) -> u32 {
        let leaf = u64::from(question.leaf) << 33 | u64::from(question.to_leaf) << 49;
        (mix(mix(question.slot() as u64 ^ leaf) ^ self.salt) >> 32) as u32
    }
}

/// The path that is the fastest as far as the leaf knows; among equals the first from a random one
/// on, lest all leaves take the same.
fn least_delay(paths: &impl Paths, start: usize) -> usize {
    let usable = paths.usable();
    let (before, after) = usable.split_at(start);
    let in_turn = after.iter().chain(before).map(|it| usize::from(*it));
    let delay_ns = |spine: &usize| {
        let view = paths.view(*spine);
        view.propagation_ns + view.local_backlog_ns + view.far_backlog_ns
    };
    in_turn.min_by_key(delay_ns).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<PathView>, Vec<u16>);

    impl Paths for Fixed {
        fn view(&self, spine: usize) -> PathView {
            self.0[spine]
        }
        fn usable(&self) -> &[u16] {
            &self.1
        }
    }

    fn paths() -> Fixed {
        let view = |propagation_ns, local_backlog_ns, far_backlog_ns| PathView {
            propagation_ns,
            local_backlog_ns,
            far_backlog_ns,
        };
        let views = vec![view(9, 0, 0), view(0, 0, 8), view(1, 1, 0), view(1, 0, 1)];
        Fixed(views, vec![0, 1, 3])
    }

    fn question(flow: u32, reverse: bool) -> Question {
        Question {
            leaf: 0,
            to_leaf: 1,
            flow,
            reverse,
            bytes: 1500,
            now_ns: 0,
        }
    }

    #[test]
    fn a_flow_keeps_its_path_and_flows_spread_over_what_works() {
        let mut choice = Choice::new(Policy::Ecmp, 1);
        let mut counts = [0; 4];
        for flow in 0..3000 {
            let first = choice.choose(&question(flow, false), &paths());
            assert_eq!(choice.choose(&question(flow, false), &paths()), first);
            counts[first] += 1;
        }
        assert_eq!(counts[2], 0, "{counts:?}");
        assert!(
            counts.iter().all(|it| *it == 0 || (900..1100).contains(it)),
            "{counts:?}"
        );
    }

    #[test]
    fn packets_are_spread_at_random() {
        let mut choice = Choice::new(Policy::Rps, 1);
        let mut counts = [0; 4];
        for _ in 0..3000 {
            counts[choice.choose(&question(0, false), &paths())] += 1;
        }
        assert!(
            counts.iter().all(|it| *it == 0 || (900..1100).contains(it)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_least_delay_counts_all_there_is_to_know() {
        let mut choice = Choice::new(Policy::LeastDelay, 1);
        for _ in 0..20 {
            assert_eq!(choice.choose(&question(0, false), &paths()), 3);
        }
    }
}
