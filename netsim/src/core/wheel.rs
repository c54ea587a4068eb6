//! A timing wheel of three levels that hands events out by time, and among those of the same
//! nanosecond in the order in which they were put in: exactly what a heap of (time, number) does,
//! at a constant cost.
//!
//! The near level has a slot for each nanosecond of the current block of 2^16, so nothing is ever
//! sorted; the middle level has a slot for each of 2^12 blocks, the far level one for each of 2^12
//! times as much. When time enters a block, its list moves one level down, in order. Most events
//! are a link's propagation away and are put in once or twice.

use super::{
    packet::{NONE, Packet, Slab},
    prefetch::prefetch,
};

/// Events must lie before this: 18 minutes.
pub(crate) const HORIZON_NS: u64 = 1 << (NEAR_BITS + MIDDLE_BITS + FAR_BITS);

const NEAR_BITS: u32 = 16;
const MIDDLE_BITS: u32 = 12;
const FAR_BITS: u32 = 12;

/// Events in order of time.
#[derive(Debug)]
pub(crate) struct Wheel {
    now: u64,
    near: Level,
    middle: Level,
    far: Level,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            near: Level::new(NEAR_BITS),
            middle: Level::new(MIDDLE_BITS),
            far: Level::new(FAR_BITS),
        }
    }

    /// When the event that was handed out last was due.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Puts entry `id` in, to be handed out at `at`. Returns whether it was: what lies beyond the
    /// horizon never happens.
    #[inline]
    pub(crate) fn push(&mut self, slab: &mut Slab, id: u32, at: u64) -> bool {
        debug_assert!(at >= self.now, "an event at {at} is before {}", self.now);
        slab[id].time = at as u32;
        if at >> NEAR_BITS == self.now >> NEAR_BITS {
            self.near.append(slab, at, id);
        } else if at >> (NEAR_BITS + MIDDLE_BITS) == self.now >> (NEAR_BITS + MIDDLE_BITS) {
            self.middle.append(slab, at >> NEAR_BITS, id);
        } else if at < HORIZON_NS {
            self.far.append(slab, at >> (NEAR_BITS + MIDDLE_BITS), id);
        } else {
            return false;
        }
        true
    }

    /// Hands out the next event, and moves time to when it is due.
    #[inline]
    pub(crate) fn pop(&mut self, slab: &mut Slab) -> Option<u32> {
        loop {
            if let Some(slot) = self.near.first_from(self.now) {
                self.now = (self.now & !self.near.mask) | slot;
                return Some(self.near.take_first(slab, slot));
            }
            if !self.enter_next_block(slab) {
                return None;
            }
        }
    }

    /// Moves time to the next block that has events, and those to the near level.
    #[cold]
    fn enter_next_block(&mut self, slab: &mut Slab) -> bool {
        loop {
            if let Some(slot) = self.middle.first_from(self.now >> NEAR_BITS) {
                let upper = (self.now >> NEAR_BITS) & !self.middle.mask;
                self.now = (upper | slot) << NEAR_BITS;
                let list = self.middle.take_all(slot);
                self.near.adopt(slab, list, 0);
                return true;
            }
            let Some(slot) = self.far.first_from(self.now >> (NEAR_BITS + MIDDLE_BITS)) else {
                return false;
            };
            self.now = slot << (NEAR_BITS + MIDDLE_BITS);
            let list = self.far.take_all(slot);
            self.middle.adopt(slab, list, NEAR_BITS);
        }
    }
}

/// Lists of entries, one a slot.
#[derive(Debug)]
struct Level {
    mask: u64,
    lists: Box<[List]>,
    /// A bit a slot, and above it a bit a word of those.
    occupied: Box<[u64]>,
    words: Box<[u64]>,
}

/// The ends of a list; both are [`NONE`] when it is empty.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List {
    first: NONE,
    last: NONE,
};

impl Level {
    fn new(bits: u32) -> Self {
        let slots = 1usize << bits;
        Self {
            mask: slots as u64 - 1,
            lists: vec![EMPTY; slots].into_boxed_slice(),
            occupied: vec![0; slots / 64].into_boxed_slice(),
            words: vec![0; slots.div_ceil(64 * 64)].into_boxed_slice(),
        }
    }

    #[inline]
    fn append(&mut self, slab: &mut Slab, tick: u64, id: u32) {
        let slot = (tick & self.mask) as usize;
        slab[id].next = NONE;
        let list = &mut self.lists[slot];
        let last = std::mem::replace(&mut list.last, id);
        if last == NONE {
            list.first = id;
            self.occupied[slot / 64] |= 1 << (slot % 64);
            self.words[slot / 4096] |= 1 << (slot / 64 % 64);
        } else {
            slab[last].next = id;
        }
    }

    /// The first slot that has entries, at that of `tick` or behind it.
    #[inline]
    fn first_from(&self, tick: u64) -> Option<u64> {
        let slot = (tick & self.mask) as usize;
        let word = slot / 64;
        let rest = self.occupied[word] & (u64::MAX << (slot % 64));
        if rest != 0 {
            return Some((word * 64) as u64 + u64::from(rest.trailing_zeros()));
        }
        let next = word + 1;
        let mut summary = next / 64;
        let mut rest = self.words.get(summary)? & (u64::MAX << (next % 64));
        while rest == 0 {
            summary += 1;
            rest = *self.words.get(summary)?;
        }
        let word = summary * 64 + rest.trailing_zeros() as usize;
        Some((word * 64) as u64 + u64::from(self.occupied[word].trailing_zeros()))
    }

    #[inline]
    fn take_first(&mut self, slab: &mut Slab, slot: u64) -> u32 {
        let list = &mut self.lists[slot as usize];
        let first = list.first;
        let mut next = slab[first].next;
        list.first = next;
        if next == NONE {
            self.clear(slot);
            // Under load there is an event for most nanoseconds.
            next = self.lists[((slot + 1) & self.mask) as usize].first;
        }
        if next != NONE {
            prefetch(&slab[next]);
        }
        first
    }

    /// The first entry of the whole list.
    fn take_all(&mut self, slot: u64) -> u32 {
        let first = self.lists[slot as usize].first;
        self.clear(slot);
        first
    }

    /// Puts a list of the level above into slots of 2^`shift` ns.
    fn adopt(&mut self, slab: &mut Slab, first: u32, shift: u32) {
        let mut id = first;
        while id != NONE {
            let Packet { next, time, .. } = slab[id];
            self.append(slab, u64::from(time) >> shift, id);
            id = next;
        }
    }

    fn clear(&mut self, slot: u64) {
        let slot = slot as usize;
        self.lists[slot] = EMPTY;
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        if self.occupied[slot / 64] == 0 {
            self.words[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap};

    use proptest::prelude::*;

    use super::*;
    use crate::core::packet::Kind;

    fn delays() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..4u64,
            0..10_000u64,
            0..(1u64 << 20),
            0..(1u64 << 30),
            0..(1u64 << 36)
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_heap(steps in prop::collection::vec((delays(), 0..3usize), 1..300)) {
            let (mut wheel, mut slab) = (Wheel::new(), Slab::new());
            let mut heap = BinaryHeap::new();
            for (number, (delay, pops)) in steps.into_iter().enumerate() {
                let number = number as u32;
                let at = wheel.now() + delay;
                let mut packet = Packet::new(Kind::Data);
                packet.flow = number;
                let id = slab.insert(packet);
                if wheel.push(&mut slab, id, at) {
                    heap.push(Reverse((at, number)));
                }
                for _ in 0..pops {
                    let got = wheel.pop(&mut slab).map(|id| (wheel.now(), slab[id].flow));
                    prop_assert_eq!(got, heap.pop().map(|Reverse(it)| it));
                    if got.is_none() { break }
                }
            }
            while let Some(Reverse(expected)) = heap.pop() {
                let id = wheel.pop(&mut slab).expect("the heap has one more");
                prop_assert_eq!((wheel.now(), slab[id].flow), expected);
            }
            prop_assert!(wheel.pop(&mut slab).is_none());
        }
    }

    #[test]
    fn what_lies_beyond_the_horizon_never_happens() {
        let (mut wheel, mut slab) = (Wheel::new(), Slab::new());
        let id = slab.insert(Packet::new(Kind::Timer));
        assert!(!wheel.push(&mut slab, id, HORIZON_NS));
        assert!(wheel.push(&mut slab, id, HORIZON_NS - 1));
        assert_eq!(wheel.pop(&mut slab), Some(id));
        assert_eq!(wheel.now(), HORIZON_NS - 1);
    }
}
