//! A splitter on the host, which runs the policy that the kernel runs.

use std::collections::HashMap;

use splitter_common::config::Config;
use splitter_common::counters::Counters;
use splitter_common::drain::Tunnels;
use splitter_common::flow::{FlowEntry, FlowKey};
use splitter_common::split::{Clock, FlowTable, Outcome, Splitter};

/// A border with a clock that its user moves.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) config: Config,
    pub(crate) flows: Flows,
    pub(crate) counters: Counters,
    pub(crate) now_ns: u64,
    tunnels: Tunnels,
}

/// A table with room for so many flows.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    pub(crate) entries: HashMap<FlowKey, FlowEntry>,
    room: usize,
}

impl Host {
    pub(crate) fn new(config: Config, room: usize) -> Self {
        Self {
            config,
            flows: Flows {
                entries: HashMap::new(),
                room,
            },
            counters: Counters::ZERO,
            now_ns: 1_000_000_000,
            tunnels: Tunnels::default(),
        }
    }

    pub(crate) fn split(&mut self, frame: &mut [u8]) -> Outcome {
        Splitter {
            config: &self.config,
            table: &mut self.flows,
            clock: Now(self.now_ns),
            tunnels: &mut self.tunnels,
            counters: &mut self.counters,
        }
        .split(frame)
    }
}

impl FlowTable for &mut Flows {
    fn find_or_insert(&mut self, key: &FlowKey) -> Option<&mut FlowEntry> {
        if !self.entries.contains_key(key) && self.entries.len() >= self.room {
            return None;
        }
        Some(self.entries.entry(*key).or_default())
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
