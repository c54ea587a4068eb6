//! Pairs of senders and receivers, by traffic pattern.

use crate::{
    engine::random::Random,
    scenario::{HostMap, TrafficPattern},
};

/// Senders, and whom they send to.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    pub(crate) senders: Vec<u16>,
    receivers: Vec<u16>,
    /// Racks of all hosts, if those of the sender's own do not receive.
    other_racks: Option<Vec<u16>>,
}

impl Pairs {
    pub(crate) fn new(map: &HostMap, hosts: TrafficPattern, random: &mut Random) -> Self {
        let count = map.count();
        let (senders, receivers) = match hosts {
            TrafficPattern::Split { senders } => {
                let mut all = random.sample(count, count).into_iter().map(|it| it as u16);
                let mut chosen: Vec<u16> = all.by_ref().take(usize::from(senders)).collect();
                chosen.sort_unstable();
                let mut others: Vec<u16> = all.collect();
                others.sort_unstable();
                (chosen, others)
            }
            TrafficPattern::Leaves { from, to } => (map.rack(from).to_vec(), map.rack(to).to_vec()),
            TrafficPattern::All | TrafficPattern::OtherLeaves => {
                let all: Vec<u16> = (0..count as u16).collect();
                (all.clone(), all)
            }
        };
        Self {
            senders,
            receivers,
            other_racks: (hosts == TrafficPattern::OtherLeaves)
                .then(|| (0..count).map(|it| map.rack_of(it as u16)).collect()),
        }
    }

    /// Counts the hosts that send.
    pub(crate) fn sender_count(map: &HostMap, hosts: TrafficPattern) -> usize {
        match hosts {
            TrafficPattern::Split { senders } => usize::from(senders),
            TrafficPattern::Leaves { from, .. } => map.rack(from).len(),
            TrafficPattern::All | TrafficPattern::OtherLeaves => map.count(),
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
            let is_barred = self
                .other_racks
                .as_ref()
                .is_some_and(|it| it[usize::from(from)] == it[usize::from(to)]);
            if to != from && !is_barred {
                return to;
            }
        }
    }
}

/// All hosts that are not in the rack of `to`, a host of each rack in turn.
pub(crate) fn in_turn_without(map: &HostMap, to: u16) -> Vec<u16> {
    let racks = (0..map.rack_count() as u16).filter(|rack| *rack != map.rack_of(to));
    let racks: Vec<&[u16]> = racks.map(|it| map.rack(it)).collect();
    let most = racks.iter().map(|it| it.len()).max().unwrap_or(0);
    (0..most)
        .flat_map(|index| {
            racks
                .iter()
                .filter_map(move |rack| rack.get(index).copied())
        })
        .collect()
}
