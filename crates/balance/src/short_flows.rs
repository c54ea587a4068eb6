//! How many short flows use each path (TR, "Counting the number of short flows").
//!
//! A short flow counts on every path that one of its packets took within the
//! last round-trip time, until it turns long. Taking it off again needs no timer
//! and no list of flows: time is cut into ticks of a sixteenth of that, and each
//! path keeps one count for each of the last sixteen ticks. A flow stands in the
//! count of the tick of its last packet on that path, which it remembers, and a
//! packet moves it to the present one. A count whose tick has passed out of
//! sight is dropped as a whole, and with it all flows that were silent so long.
//!
//! So the numbers are exact for a time-out between 15 and 16 sixteenths of what
//! is set, at one comparison a packet, whatever the number of flows, and flows
//! that are forgotten or end without a word cost nothing.

use super::{MAX_PATHS, PathId, PathSet};

const TICKS: usize = 16;

/// The short flows on each path of one set of paths: 1.2 kB.
///
/// CPUs that share it may overwrite each other's updates. What they miscount by
/// that is gone as soon as no packet has come for one time-out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortFlows {
    /// When the present tick ends.
    ends_ns: u64,
    tick_ns: u64,
    /// Sums of `recent`, path by path.
    flows: [u64; MAX_PATHS],
    /// By tick, then path; the present tick's is at `tick` modulo their number.
    recent: [[u32; MAX_PATHS]; TICKS],
    tick: u32,
    reserved: u32,
}

/// On which paths a flow counts as short: what it has to remember, 68 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// The tick of its last packet on each path.
    ticks: [u32; MAX_PATHS],
    /// The paths where it was counted; it may have been dropped since.
    counted: PathSet,
    reserved: u16,
}

impl ShortFlows {
    /// None yet. A flow is taken off a path after a silence of `timeout_ns`,
    /// which is the round-trip time in the paper: of the slowest path, lest
    /// flows there seem to pause between two windows (A-T7).
    pub const fn new(timeout_ns: u64) -> Self {
        let tick_ns = timeout_ns / TICKS as u64;
        Self {
            ends_ns: 0,
            tick_ns: if tick_ns == 0 { 1 } else { tick_ns },
            flows: [0; MAX_PATHS],
            recent: [[0; MAX_PATHS]; TICKS],
            tick: 0,
            reserved: 0,
        }
    }

    /// How many use `path`, as of the last [`advance`](Self::advance).
    #[inline(always)]
    pub const fn on(&self, path: PathId) -> u64 {
        self.flows[path.index()]
    }

    /// The number of short flows on each path.
    #[inline(always)]
    pub const fn counts(&self) -> &[u64; MAX_PATHS] {
        &self.flows
    }

    /// Takes off what has been silent for too long by `now_ns`.
    #[inline(always)]
    pub fn advance(&mut self, now_ns: u64) {
        if now_ns >= self.ends_ns {
            self.turn(now_ns);
        }
    }

    /// Notes a packet of a short flow on `path`, at the time of the last
    /// [`advance`](Self::advance).
    #[inline(always)]
    pub fn renew(&mut self, presence: &mut Presence, path: PathId) {
        let tick = self.tick;
        if self.is_counted(presence, path) {
            if presence.ticks[path.index()] == tick {
                return;
            }
            self.take_off(presence, path);
        }
        presence.counted.insert(path);
        presence.ticks[path.index()] = tick;
        self.flows[path.index()] = self.flows[path.index()].wrapping_add(1);
        let count = &mut self.recent[slot(tick)][path.index()];
        *count = count.wrapping_add(1);
    }

    /// Takes a flow off all paths: it has turned long.
    #[inline(always)]
    pub fn leave(&mut self, presence: &mut Presence) {
        // As for each packet of a long flow but the first.
        if presence.counted.is_empty() {
            return;
        }
        for path in presence.counted.iter() {
            if self.is_counted(presence, path) {
                self.take_off(presence, path);
            }
        }
        presence.counted = PathSet::EMPTY;
    }

    #[inline(always)]
    fn turn(&mut self, now_ns: u64) {
        for _ in 0..TICKS {
            if now_ns < self.ends_ns {
                return;
            }
            self.tick = self.tick.wrapping_add(1);
            self.ends_ns = self.ends_ns.saturating_add(self.tick_ns);
            let dropped = &mut self.recent[slot(self.tick)];
            for (flows, dropped) in self.flows.iter_mut().zip(dropped) {
                *flows = flows.saturating_sub(*dropped as u64);
                *dropped = 0;
            }
        }
        if now_ns >= self.ends_ns {
            // All counts were dropped: nothing is left to be off by.
            self.flows = [0; MAX_PATHS];
            self.ends_ns = now_ns.saturating_add(self.tick_ns);
        }
    }

    #[inline(always)]
    fn is_counted(&self, presence: &Presence, path: PathId) -> bool {
        let age = self.tick.wrapping_sub(presence.ticks[path.index()]);
        presence.counted.contains(path) && age < TICKS as u32
    }

    #[inline(always)]
    fn take_off(&mut self, presence: &Presence, path: PathId) {
        let count = &mut self.recent[slot(presence.ticks[path.index()])][path.index()];
        *count = count.saturating_sub(1);
        let flows = &mut self.flows[path.index()];
        *flows = flows.saturating_sub(1);
    }
}

#[inline(always)]
const fn slot(tick: u32) -> usize {
    tick as usize % TICKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const TIMEOUT_NS: u64 = 160_000;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Packet { flow: usize, path: usize },
        TurnsLong { flow: usize },
        Silence { ns: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let flow = 0usize..20;
        let step = prop_oneof![
            6 => (flow.clone(), 0usize..4).prop_map(|(flow, path)| Step::Packet { flow, path }),
            1 => flow.prop_map(|flow| Step::TurnsLong { flow }),
            3 => (0u64..30_000).prop_map(|ns| Step::Silence { ns }),
            1 => (0u64..400_000).prop_map(|ns| Step::Silence { ns }),
        ];
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        /// Against the definition: a list of when each flow was last seen where.
        #[test]
        fn counts_are_those_of_a_full_list(steps in steps()) {
            let mut short_flows = ShortFlows::new(TIMEOUT_NS);
            let mut presences = [Presence::default(); 20];
            let mut last_seen = [[None; 4]; 20];
            let mut now_ns = 5u64;
            for step in steps {
                match step {
                    Step::Silence { ns } => now_ns += ns,
                    Step::TurnsLong { flow } => {
                        short_flows.leave(&mut presences[flow]);
                        last_seen[flow] = [None; 4];
                    }
                    Step::Packet { flow, path } => {
                        short_flows.advance(now_ns);
                        short_flows.renew(&mut presences[flow], PathId::new(path).expect("below 16"));
                        last_seen[flow][path] = Some(now_ns);
                    }
                }
                short_flows.advance(now_ns);
                for path in 0..4 {
                    let seen_within = |window_ns| last_seen.iter()
                        .filter(|seen| seen[path].is_some_and(|seen| now_ns - seen < window_ns))
                        .count() as u64;
                    let counted = short_flows.on(PathId::new(path).expect("below 16"));
                    prop_assert!(counted >= seen_within(TIMEOUT_NS - TIMEOUT_NS / 16));
                    prop_assert!(counted <= seen_within(TIMEOUT_NS));
                }
            }
        }
    }

    #[test]
    fn a_flow_counts_once_on_each_path_it_uses() {
        let (mut short_flows, mut presence) = (ShortFlows::new(TIMEOUT_NS), Presence::default());
        let paths = [0, 3].map(|path| PathId::new(path).expect("below 16"));
        for now_ns in (0..1_000_000).step_by(7_000) {
            short_flows.advance(now_ns);
            for path in paths {
                short_flows.renew(&mut presence, path);
                assert_eq!(short_flows.on(path), 1);
            }
        }
        short_flows.leave(&mut presence);
        assert_eq!(paths.map(|path| short_flows.on(path)), [0, 0]);
    }
}
