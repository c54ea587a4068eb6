//! Pairs of senders and receivers, by traffic pattern.

use crate::{
    engine::random::Random,
    scenario::{FabricSettings, TrafficPattern},
};

/// Senders, and whom they send to.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    pub(crate) senders: Vec<u16>,
    receivers: Vec<u16>,
    /// Hosts of the sender's own leaf do not receive.
    other_leaves: bool,
    hosts_per_leaf: u16,
}

impl Pairs {
    pub(crate) fn new(fabric: &FabricSettings, hosts: TrafficPattern, random: &mut Random) -> Self {
        let count = host_count(fabric);
        let of_leaf = |leaf: u16| {
            (leaf * fabric.hosts_per_leaf..(leaf + 1) * fabric.hosts_per_leaf).collect()
        };
        let (senders, receivers) = match hosts {
            TrafficPattern::Split { senders } => {
                let mut all = random.sample(count, count).into_iter().map(|it| it as u16);
                let mut chosen: Vec<u16> = all.by_ref().take(usize::from(senders)).collect();
                chosen.sort_unstable();
                let mut others: Vec<u16> = all.collect();
                others.sort_unstable();
                (chosen, others)
            }
            TrafficPattern::Leaves { from, to } => (of_leaf(from), of_leaf(to)),
            TrafficPattern::All | TrafficPattern::OtherLeaves => {
                let all: Vec<u16> = (0..count as u16).collect();
                (all.clone(), all)
            }
        };
        Self {
            senders,
            receivers,
            other_leaves: hosts == TrafficPattern::OtherLeaves,
            hosts_per_leaf: fabric.hosts_per_leaf,
        }
    }

    /// Counts the hosts that send.
    pub(crate) fn sender_count(fabric: &FabricSettings, hosts: TrafficPattern) -> usize {
        match hosts {
            TrafficPattern::Split { senders } => usize::from(senders),
            TrafficPattern::Leaves { .. } => usize::from(fabric.hosts_per_leaf),
            TrafficPattern::All | TrafficPattern::OtherLeaves => host_count(fabric),
        }
    }

    /// Draws one of the senders.
    pub(crate) fn sender(&self, random: &mut Random) -> u16 {
        self.senders[random.below(self.senders.len() as u32) as usize]
    }

    /// Draws a host that `from` may send to. The scenario's check makes sure that there is one.
    pub(crate) fn receiver(&self, from: u16, random: &mut Random) -> u16 {
        loop {
            let to = self.receivers[random.below(self.receivers.len() as u32) as usize];
            let same_leaf = from / self.hosts_per_leaf == to / self.hosts_per_leaf;
            if to != from && !(self.other_leaves && same_leaf) {
                return to;
            }
        }
    }
}

/// All hosts that are not at the leaf of `to`, a host of each leaf in turn.
pub(crate) fn in_turn_without(fabric: &FabricSettings, to: u16) -> Vec<u16> {
    let leaves = (0..fabric.leaves).filter(|leaf| *leaf != to / fabric.hosts_per_leaf);
    let leaves: Vec<u16> = leaves.collect();
    (0..fabric.hosts_per_leaf)
        .flat_map(|index| {
            leaves
                .iter()
                .map(move |leaf| leaf * fabric.hosts_per_leaf + index)
        })
        .collect()
}

fn host_count(fabric: &FabricSettings) -> usize {
    usize::from(fabric.leaves) * usize::from(fabric.hosts_per_leaf)
}
