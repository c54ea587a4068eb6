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

use super::{MAX_PATHS, PathId};

const TICKS: usize = 16;

/// The short flows on each path of one set of paths: 1.2 kB. All zeros are none yet, of a host that
/// [sets the time-out](Self::set_timeout).
///
/// CPUs that share it may overwrite each other's updates. What they miscount by
/// that is gone after two time-outs: counts pass out of sight, and each tick the sum of
/// one path is made anew.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// On which paths a flow counts as short: what it has to remember, 24 bytes. All zeros are none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// A byte for each path, the first one's in the lowest: the number of ticks, the present one among them, until
    /// it is dropped from the path's count; 0 where it is not counted.
    left: [u64; MAX_PATHS / 8],
    /// The present tick, as of then.
    tick: u32,
    reserved: u32,
}

/// The highest bit of each byte.
const HIGHEST: u64 = 0x8080_8080_8080_8080;
/// The lowest bit of each byte.
const LOWEST: u64 = 0x0101_0101_0101_0101;

impl Presence {
    /// Tells if it was counted nowhere, as of when it was looked at last.
    #[inline(always)]
    const fn is_nowhere(&self) -> bool {
        self.left[0] | self.left[1] == 0
    }

    #[inline(always)]
    const fn left(&self, path: PathId) -> u8 {
        (self.left[path.index() / 8] >> (path.index() % 8 * 8)) as u8
    }

    /// Counts it on a path until all ticks have passed.
    #[inline(always)]
    const fn insert(&mut self, path: PathId) {
        let shift = path.index() % 8 * 8;
        let left = &mut self.left[path.index() / 8];
        *left = *left & !(0xff << shift) | (TICKS as u64) << shift;
    }

    /// Lets time pass, in ticks: eight paths at once, for a kernel program's stack is small.
    #[inline(always)]
    const fn age(&mut self, ticks: u32) {
        let ticks = if ticks < TICKS as u32 {
            ticks as u64
        } else {
            TICKS as u64
        };
        let mut word = 0;
        while word < self.left.len() {
            // No byte borrows from the next one: all are far below its highest bit.
            let less = (self.left[word] | HIGHEST).wrapping_sub(ticks * LOWEST);
            let is_left = (less & HIGHEST) >> 7;
            self.left[word] = less & !HIGHEST & is_left.wrapping_mul(0xff);
            word += 1;
        }
    }
}

impl ShortFlows {
    /// None yet. A flow is taken off a path after a silence of `timeout_ns`,
    /// which is the round-trip time in the paper: of the slowest path, lest
    /// flows there seem to pause between two windows (A-T7).
    pub const fn new(timeout_ns: u64) -> Self {
        Self {
            ends_ns: 0,
            tick_ns: tick_ns(timeout_ns),
            flows: [0; MAX_PATHS],
            recent: [[0; MAX_PATHS]; TICKS],
            tick: 0,
            reserved: 0,
        }
    }

    /// Takes flows off a path after another silence than before, from the next tick on.
    #[inline(always)]
    pub const fn set_timeout(&mut self, timeout_ns: u64) {
        self.tick_ns = tick_ns(timeout_ns);
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

    /// The ticks that counts are kept for.
    pub const TICKS: usize = TICKS;

    /// Lets the present tick end, if it has by `now_ns`. Returns true if so. A step of [`advance`](Self::advance),
    /// which takes it until it is false, and at the most so often as there are [ticks](Self::TICKS).
    #[inline(always)]
    pub fn advance_by_a_tick(&mut self, now_ns: u64) -> bool {
        let is_over = now_ns >= self.ends_ns;
        if is_over {
            self.end_tick();
        }
        is_over
    }

    /// Begins anew where [`advance`](Self::advance) has taken all its steps, and time has not caught up: the last one.
    #[inline(always)]
    pub fn begin_anew(&mut self, now_ns: u64) {
        if now_ns >= self.ends_ns {
            // All counts were dropped: nothing is left to be off by.
            self.flows = [0; MAX_PATHS];
            self.ends_ns = now_ns.saturating_add(self.tick_ns);
        }
    }

    /// Notes a packet of a short flow on `path`, at the time of the last
    /// [`advance`](Self::advance).
    #[inline(always)]
    pub fn renew(&mut self, presence: &mut Presence, path: PathId) {
        self.catch_up(presence);
        let left = presence.left(path);
        if left == TICKS as u8 {
            return;
        }
        if left > 0 {
            self.take_off(presence, path);
        }
        presence.insert(path);
        self.flows[path.index()] = self.flows[path.index()].wrapping_add(1);
        let count = &mut self.recent[slot(self.tick)][path.index()];
        *count = count.wrapping_add(1);
    }

    /// Takes a flow off all paths: it has turned long.
    #[inline(always)]
    pub fn leave(&mut self, presence: &mut Presence) {
        // As for each packet of a long flow but the first.
        if presence.is_nowhere() {
            return;
        }
        self.catch_up(presence);
        for path in PathId::all() {
            if presence.left(path) > 0 {
                self.take_off(presence, path);
            }
        }
        *presence = Presence::default();
    }

    #[inline(always)]
    fn turn(&mut self, now_ns: u64) {
        for _ in 0..TICKS {
            if now_ns < self.ends_ns {
                return;
            }
            self.end_tick();
        }
        self.begin_anew(now_ns);
    }

    #[inline(always)]
    fn end_tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        self.ends_ns = self.ends_ns.saturating_add(self.tick_ns);
        let dropped = &mut self.recent[slot(self.tick)];
        for (flows, dropped) in self.flows.iter_mut().zip(dropped) {
            *flows = flows.saturating_sub(*dropped as u64);
            *dropped = 0;
        }
        // What it is already, unless CPUs have overwritten each other's updates.
        let path = slot(self.tick);
        let counts = self.recent.iter().map(|counts| counts[path] as u64);
        self.flows[path] = counts.fold(0, u64::wrapping_add);
    }

    /// Brings what a flow remembers to the present tick.
    #[inline(always)]
    fn catch_up(&self, presence: &mut Presence) {
        let passed = self.tick.wrapping_sub(presence.tick);
        if passed > 0 {
            presence.age(passed);
            presence.tick = self.tick;
        }
    }

    /// Takes a flow that has caught up off a path where it is counted.
    #[inline(always)]
    fn take_off(&mut self, presence: &Presence, path: PathId) {
        let since = TICKS as u32 - presence.left(path) as u32;
        let counted = presence.tick.wrapping_sub(since);
        let count = &mut self.recent[slot(counted)][path.index()];
        *count = count.saturating_sub(1);
        let flows = &mut self.flows[path.index()];
        *flows = flows.saturating_sub(1);
    }
}

#[inline(always)]
const fn tick_ns(timeout_ns: u64) -> u64 {
    let tick_ns = timeout_ns / TICKS as u64;
    if tick_ns == 0 { 1 } else { tick_ns }
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
    fn what_processors_miscounted_is_gone_after_two_time_outs_of_a_busy_path() {
        let (mut short_flows, mut presence) = (ShortFlows::default(), Presence::default());
        short_flows.set_timeout(TIMEOUT_NS);
        let path = PathId::new(5).expect("below 16");
        for now_ns in (0..2 * TIMEOUT_NS).step_by(7_000) {
            short_flows.advance(now_ns);
            short_flows.renew(&mut presence, path);
            if now_ns == 7_000 {
                // Another processor has added to one number and not to the other.
                short_flows.flows[path.index()] += 3;
                short_flows.recent[slot(short_flows.tick)][path.index()] += 1;
            }
        }
        short_flows.advance(2 * TIMEOUT_NS);
        assert_eq!(short_flows.on(path), 1);
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
