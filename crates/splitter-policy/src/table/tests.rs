//! What the tests of the table share: its memory on the host, and flows.

mod aimed;
mod eviction;
mod flood;
mod inherit;
mod line_key;
mod model;
pub(crate) mod record;

use super::owner::Owner;
use super::*;
use crate::flow::{FlowKeyV4, FlowKeyV6, Seeds};
use crate::fragments::FragmentStore;
use crate::packet::protocol;
use crate::sites::SiteThresholds;
use crate::thresholds::ThresholdIndex;
use std::collections::HashMap;
use std::sync::Mutex;
use std::vec::Vec;

const SECOND: u64 = 1_000_000_000;
const IDLE_TIMEOUT_NS: u64 = 30 * SECOND;

/// The tables' memory on the host.
pub(crate) struct Groups {
    v4: Vec<GroupV4>,
    v6: Vec<GroupV6>,
    tags: Vec<Tags>,
    fragmented: Mutex<HashMap<u64, u64>>,
    pub(crate) threshold_of: fn(&FlowKey) -> ThresholdIndex,
}

impl Groups {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            v4: (0..layout.groups_v4).map(|_| Group::default()).collect(),
            v6: (0..layout.groups_v6).map(|_| Group::default()).collect(),
            tags: (0..layout.groups_v4 + layout.groups_v6)
                .map(|_| Tags::default())
                .collect(),
            fragmented: Mutex::default(),
            threshold_of: |_| ThresholdIndex::UNKNOWN,
        }
    }
}

impl SiteThresholds for Groups {
    fn threshold_of(&self, key: &FlowKey) -> ThresholdIndex {
        (self.threshold_of)(key)
    }
}

impl FragmentStore for Groups {
    fn insert(&self, packet: u64, origin: u64) {
        self.fragmented
            .lock()
            .expect("whole")
            .insert(packet, origin);
    }

    fn lookup(&self, packet: u64) -> Option<u64> {
        self.fragmented.lock().expect("whole").get(&packet).copied()
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

/// A table that only counts packets.
struct Bench {
    layout: Layout,
    groups: Groups,
    idle_timeout_ns: u64,
    now_ns: u64,
    is_hurried: bool,
    untracked: u64,
    evicted: u64,
}

impl Bench {
    fn new(flows: u32, seed: u64) -> Self {
        let layout = Layout::for_flows(flows, seeds(seed));
        Self {
            groups: Groups::new(&layout),
            layout,
            idle_timeout_ns: IDLE_TIMEOUT_NS,
            now_ns: 1_000 * SECOND,
            is_hurried: false,
            untracked: 0,
            evicted: 0,
        }
    }

    /// Counts a packet; how many of its flow were counted, 0 when it has no slot.
    fn packet(&mut self, key: &FlowKey) -> u64 {
        let table = Table {
            memory: &self.groups,
            layout: &self.layout,
        };
        let claim = || table.insert(key, self.now_ns, self.idle_timeout_ns, || self.is_hurried);
        let Some(slot) = table.lookup(key).or_else(claim) else {
            self.untracked += 1;
            return 0;
        };
        self.evicted += u64::from(slot.has_evicted);
        let mut entry = slot.entry(self.now_ns);
        entry.packets += 1;
        slot.commit(&entry, self.now_ns);
        entry.packets
    }

    fn packets(&mut self, key: &FlowKey, count: u64) {
        for _ in 0..count {
            self.packet(key);
        }
    }

    fn known(&self) -> HashMap<FlowKey, u64> {
        let mut known = HashMap::new();
        collect(&self.groups.v4, self.now_ns, &mut known);
        collect(&self.groups.v6, self.now_ns, &mut known);
        known
    }

    fn clear_overflow(&self) {
        for group in &self.groups.v4 {
            group.clear_overflow(&self.layout);
        }
    }
}

fn collect<S: Slot>(groups: &[Group<S>], now_ns: u64, known: &mut HashMap<FlowKey, u64>) {
    for group in groups {
        for index in 0..GROUP_SLOTS {
            if let Some(found) = group.read(index, now_ns) {
                let double = known.insert(found.key, found.entry.packets);
                assert!(double.is_none(), "{:?} has two slots", found.key);
            }
        }
    }
}

fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn seeds(seed: u64) -> Seeds {
    core::array::from_fn(|index| mixed(seed ^ (index as u64 + 1) << 32))
}

/// A flow of chance.
fn random_v4(number: u64) -> FlowKey {
    let (one, other) = (mixed(number), mixed(!number));
    v4(one as u32, (one >> 32) as u32, other as u32)
}

fn v4(source: u32, destination: u32, ports: u32) -> FlowKey {
    FlowKey::V4(FlowKeyV4 {
        source,
        destination,
        ports,
        protocol: protocol::TCP.into(),
    })
}

fn v6(host: u32, ports: u32) -> FlowKey {
    let address = |last: u32| {
        let mut bytes = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[12..].copy_from_slice(&last.to_be_bytes());
        let half = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
        [half(0), half(8)]
    };
    FlowKey::V6(FlowKeyV6 {
        source: address(host),
        destination: address(1),
        ports,
        protocol: protocol::TCP.into(),
    })
}

/// Clients one after the other to one server, as a site has them: the worst for
/// a weak hash.
fn sequential_v4(number: u32) -> FlowKey {
    let source = (10 << 24 | number >> 6).to_be();
    let port = 40_000 + (number & 63) * 2;
    v4(source, 0x0a01_0001_u32.to_be(), (port << 16 | 443).to_be())
}
