//! A splitter on the host, which runs the policy that the kernel runs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

use splitter_policy::clock::Clock;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::Counters;
use splitter_policy::flow::{FlowEntry, FlowKey};
use splitter_policy::fragments::FragmentStore;
use splitter_policy::models::HostQueues;
use splitter_policy::sites::SiteThresholds;
use splitter_policy::split::{Outcome, Splitter};
use splitter_policy::steer::Steer;
use splitter_policy::table::{
    GROUP_SLOTS, Group, GroupV4, GroupV6, Layout, Memory, Slot, Table, Tags, Word,
};
use splitter_policy::thresholds::ThresholdIndex;

/// A border with a clock that its user moves.
pub(crate) struct Host {
    pub(crate) config: PolicyConfig,
    pub(crate) counters: Counters,
    pub(crate) now_ns: u64,
    models: HostQueues,
    layout: Layout,
    groups: Groups,
}

/// The tables' memory.
struct Groups {
    v4: Vec<GroupV4>,
    v6: Vec<GroupV6>,
    tags: Vec<Tags>,
    fragmented: RefCell<HashMap<u64, u64>>,
    sites: HashMap<IpAddr, ThresholdIndex>,
}

impl Host {
    /// A border whose tables are made for so many flows.
    pub(crate) fn new(config: PolicyConfig, flows: u32) -> Self {
        let layout = Layout::for_flows(
            flows,
            [3, 5, 7, 11, 13, 17, 19, 23, 29, 31]
                .map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        );
        Self {
            config,
            counters: Counters::ZERO,
            now_ns: 1_000_000_000,
            models: HostQueues::default(),
            layout,
            groups: Groups {
                v4: (0..layout.groups_v4).map(|_| Group::default()).collect(),
                v6: (0..layout.groups_v6).map(|_| Group::default()).collect(),
                tags: (0..layout.groups_v4 + layout.groups_v6)
                    .map(|_| Tags::default())
                    .collect(),
                fragmented: RefCell::default(),
                sites: HashMap::new(),
            },
        }
    }

    /// Has flows to an address go by the threshold at an index.
    pub(crate) fn set_threshold_of(&mut self, address: IpAddr, index: ThresholdIndex) {
        self.groups.sites.insert(address, index);
    }

    pub(crate) fn split(&mut self, frame: &mut [u8]) -> Outcome {
        self.split_beside(frame)
    }

    /// The same of a frame that may be marked elsewhere than in its bytes.
    pub(crate) fn split_beside(&mut self, frame: &mut (impl Steer + ?Sized)) -> Outcome {
        let mut splitter = Splitter {
            config: &self.config,
            table: Table {
                memory: &self.groups,
                layout: &self.layout,
            },
            clock: Now(self.now_ns),
            models: &mut self.models,
            counters: &mut self.counters,
        };
        splitter.split(frame)
    }

    /// All that is known.
    pub(crate) fn flows(&self) -> Vec<(FlowKey, FlowEntry)> {
        let mut flows = flows_of(&self.groups.v4, self.now_ns);
        flows.extend(flows_of(&self.groups.v6, self.now_ns));
        flows
    }
}

fn flows_of<S: Slot>(groups: &[Group<S>], now_ns: u64) -> Vec<(FlowKey, FlowEntry)> {
    let slots = groups
        .iter()
        .flat_map(|group| (0..GROUP_SLOTS).map(move |index| (group, index)));
    slots
        .filter_map(|(group, index)| group.read(index, now_ns))
        .map(|found| (found.key, found.entry))
        .collect()
}

impl SiteThresholds for Groups {
    fn threshold_of(&self, key: &FlowKey) -> ThresholdIndex {
        let (_, destination) = key.addresses();
        let known = self.sites.get(&destination).copied();
        known.unwrap_or(ThresholdIndex::UNKNOWN)
    }
}

impl FragmentStore for Groups {
    fn insert(&self, packet: u64, origin: u64) {
        self.fragmented.borrow_mut().insert(packet, origin);
    }

    fn lookup(&self, packet: u64) -> Option<u64> {
        self.fragmented.borrow().get(&packet).copied()
    }
}

impl Memory for Groups {
    fn group_v4(&self, index: u32) -> Option<&GroupV4> {
        self.v4.get(index as usize)
    }

    fn group_v6(&self, index: u32) -> Option<&GroupV6> {
        self.v6.get(index as usize)
    }

    fn tags(&self, index: u32) -> Option<&Tags> {
        self.tags.get(index as usize)
    }

    fn exchange(word: &Word, old: u64, new: u64) -> bool {
        word.exchange(old, new)
    }
}

struct Now(u64);

impl Clock for Now {
    fn coarse_ns(&self) -> u64 {
        self.0
    }

    fn precise_ns(&self) -> u64 {
        self.0
    }
}
