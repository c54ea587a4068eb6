//! The event queue: a hierarchical timing wheel (a calendar queue) of three levels. It hands events
//! out by time, and among those of the same nanosecond in the order in which they were put in:
//! exactly what a heap of (time, number) does, at a constant cost.
//!
//! The near level has a bucket for each 2^8 ns, the middle one for each 2^10 of these, the far one
//! for each 2^11 of those. When time enters a bucket of an upper level, its events move one level
//! down, in order; when it enters one of the near level, they are sorted.
//!
//! Under load an event is pending for every nanosecond of the next few microseconds, so what a run
//! costs is decided by the cache lines that the wheel touches. An event is a time and a number, eight
//! to a line, in chunks that the buckets take from one pool: those that are filled at a time, and
//! those that were emptied last, stay in the first-level cache, and no packet is touched before its
//! event is due.

use super::{
    event_bucket::{Bucket, Event},
    packet::{NONE, Slab},
    prefetch::prefetch,
};

/// Events must lie before this: 18 minutes.
pub const HORIZON_NS: u64 = 1 << (FAR_SHIFT + FAR_BITS);

/// A bucket of the near level has 2^8 ns, as many as a [`Bucket`] can sort.
const NEAR_SHIFT: u32 = super::event_bucket::BITS;
const NEAR_BITS: u32 = 10;
const MIDDLE_SHIFT: u32 = NEAR_SHIFT + NEAR_BITS;
const MIDDLE_BITS: u32 = 11;
const FAR_SHIFT: u32 = MIDDLE_SHIFT + MIDDLE_BITS;
const FAR_BITS: u32 = 11;

/// Prefetch distance in events: as far ahead as memory takes.
const LOOK_AHEAD: usize = 8;

/// The event queue of a run: pending events in order of time.
#[derive(Debug)]
pub struct EventQueue {
    now: u64,
    /// Events of the bucket that time is in.
    current: Bucket,
    near: Level,
    middle: Level,
    far: Level,
    chunks: Chunks,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl EventQueue {
    /// Creates an empty queue, at time 0.
    pub fn new() -> Self {
        Self {
            now: 0,
            current: Bucket::new(),
            near: Level::new(NEAR_BITS),
            middle: Level::new(MIDDLE_BITS),
            far: Level::new(FAR_BITS),
            chunks: Chunks::new(),
        }
    }

    /// Returns the simulated time: when the event that was handed out last was due.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Puts entry `id` in, to be handed out at `at`. Returns whether it was: what lies beyond the
    /// horizon never happens.
    #[inline(always)]
    pub fn push(&mut self, id: u32, at: u64) -> bool {
        debug_assert!(at >= self.now, "an event at {at} is before {}", self.now);
        let differs = at ^ self.now;
        // Nearly all are.
        if differs >> NEAR_SHIFT != 0 && differs >> MIDDLE_SHIFT == 0 {
            let event = Event {
                time: at as u32,
                id,
            };
            self.near.append(&mut self.chunks, at >> NEAR_SHIFT, event);
            return true;
        }
        self.push_elsewhere(id, at)
    }

    #[inline(never)]
    fn push_elsewhere(&mut self, id: u32, at: u64) -> bool {
        let event = Event {
            time: at as u32,
            id,
        };
        let differs = at ^ self.now;
        if differs >> NEAR_SHIFT == 0 {
            self.current.add(event);
        } else if differs >> FAR_SHIFT == 0 {
            self.middle
                .append(&mut self.chunks, at >> MIDDLE_SHIFT, event);
        } else if at < HORIZON_NS {
            self.far.append(&mut self.chunks, at >> FAR_SHIFT, event);
        } else {
            return false;
        }
        true
    }

    /// Hands out the next event, and moves time to when it is due.
    #[inline]
    pub fn pop(&mut self, slab: &Slab) -> Option<u32> {
        loop {
            if let Some(event) = self.current.take() {
                self.now = (self.now & !Bucket::MASK) | (u64::from(event.time) & Bucket::MASK);
                if let Some(id) = self.current.ahead(LOOK_AHEAD) {
                    prefetch(&slab[id]);
                }
                return Some(event.id);
            }
            if !self.enter_next_bucket(slab) {
                return None;
            }
        }
    }

    /// Moves time to the next bucket that has events, and sorts them.
    fn enter_next_bucket(&mut self, slab: &Slab) -> bool {
        loop {
            if let Some(slot) = self.near.first_from(self.now >> NEAR_SHIFT) {
                self.now = ((self.now >> MIDDLE_SHIFT << NEAR_BITS) | slot) << NEAR_SHIFT;
                let list = self.near.take(slot);
                self.chunks
                    .empty(list, |_, events| self.current.extend(events));
                self.current.sort();
                for ahead in 0..LOOK_AHEAD {
                    if let Some(id) = self.current.ahead(ahead) {
                        prefetch(&slab[id]);
                    }
                }
                return true;
            }
            if let Some(slot) = self.middle.first_from(self.now >> MIDDLE_SHIFT) {
                self.now = ((self.now >> FAR_SHIFT << MIDDLE_BITS) | slot) << MIDDLE_SHIFT;
                let list = self.middle.take(slot);
                self.near.adopt(&mut self.chunks, list, NEAR_SHIFT);
                continue;
            }
            let Some(slot) = self.far.first_from(self.now >> FAR_SHIFT) else {
                return false;
            };
            self.now = slot << FAR_SHIFT;
            let list = self.far.take(slot);
            self.middle.adopt(&mut self.chunks, list, MIDDLE_SHIFT);
        }
    }
}

/// Lists of events, one a bucket.
#[derive(Debug)]
struct Level {
    mask: u64,
    lists: Box<[List]>,
    /// Bitmap of the buckets that have events, and above it one of its words.
    occupied: Box<[u64]>,
    words: u64,
}

/// The first and the last chunk of a list; both are [`NONE`] when it is empty.
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
        debug_assert!(slots <= 64 * 64, "one word tells which words have bits");
        Self {
            mask: slots as u64 - 1,
            lists: vec![EMPTY; slots].into_boxed_slice(),
            occupied: vec![0; slots / 64].into_boxed_slice(),
            words: 0,
        }
    }

    #[inline(always)]
    fn append(&mut self, chunks: &mut Chunks, tick: u64, event: Event) {
        let slot = (tick & self.mask) as usize;
        if !chunks.append(self.lists[slot], event) {
            self.append_chunk(chunks, slot, event);
        }
    }

    #[inline(never)]
    fn append_chunk(&mut self, chunks: &mut Chunks, slot: usize, event: Event) {
        let list = &mut self.lists[slot];
        if list.last == NONE {
            self.occupied[slot / 64] |= 1 << (slot % 64);
            self.words |= 1 << (slot / 64);
        }
        chunks.append_chunk(list, event);
    }

    /// The first bucket that has events, at that of `tick` or behind it.
    fn first_from(&self, tick: u64) -> Option<u64> {
        let slot = (tick & self.mask) as usize;
        let word = slot / 64;
        let rest = self.occupied[word] & (u64::MAX << (slot % 64));
        if rest != 0 {
            return Some((word * 64) as u64 + u64::from(rest.trailing_zeros()));
        }
        // Twice, as a shift by 64 is none.
        let rest = self.words & (u64::MAX << word << 1);
        if rest == 0 {
            return None;
        }
        let word = rest.trailing_zeros() as usize;
        Some((word * 64) as u64 + u64::from(self.occupied[word].trailing_zeros()))
    }

    /// Takes the whole list of a bucket.
    fn take(&mut self, slot: u64) -> List {
        let slot = slot as usize;
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        if self.occupied[slot / 64] == 0 {
            self.words &= !(1 << (slot / 64));
        }
        std::mem::replace(&mut self.lists[slot], EMPTY)
    }

    /// Puts a list of the level above into buckets of 2^`shift` ns.
    fn adopt(&mut self, chunks: &mut Chunks, list: List, shift: u32) {
        chunks.empty(list, |chunks, events| {
            for event in events {
                self.append(chunks, u64::from(event.time >> shift), *event);
            }
        });
    }
}

/// Two cache lines of a list.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Chunk {
    next: u32,
    len: u32,
    events: [Event; Self::CAPACITY],
}

impl Chunk {
    const CAPACITY: usize = 15;
}

/// All chunks, those in no list chained by `next`.
#[derive(Debug)]
struct Chunks {
    all: Vec<Chunk>,
    free: u32,
}

impl Chunks {
    fn new() -> Self {
        Self {
            all: Vec::new(),
            free: NONE,
        }
    }

    /// Puts an event into the last chunk of a list. Returns whether that had space.
    #[inline(always)]
    fn append(&mut self, list: List, event: Event) -> bool {
        // `NONE` is beyond all chunks.
        if let Some(chunk) = self.all.get_mut(list.last as usize)
            && let Some(place) = chunk.events.get_mut(chunk.len as usize)
        {
            *place = event;
            chunk.len += 1;
            return true;
        }
        false
    }

    fn append_chunk(&mut self, list: &mut List, event: Event) {
        let chunk = Chunk {
            next: NONE,
            len: 1,
            events: [event; Chunk::CAPACITY],
        };
        let id = if self.free == NONE {
            self.all.push(chunk);
            self.all.len() as u32 - 1
        } else {
            let id = self.free;
            self.free = std::mem::replace(&mut self.all[id as usize], chunk).next;
            id
        };
        match list.last {
            NONE => list.first = id,
            last => self.all[last as usize].next = id,
        }
        list.last = id;
    }

    /// Hands out the events of a list, in order, and takes its chunks back.
    fn empty(&mut self, list: List, mut take: impl FnMut(&mut Self, &[Event])) {
        let mut id = list.first;
        while id != NONE {
            let chunk = self.all[id as usize];
            self.all[id as usize].next = self.free;
            self.free = id;
            take(self, &chunk.events[..chunk.len as usize]);
            id = chunk.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap};

    use proptest::prelude::*;

    use super::*;
    use crate::packet::{EntryKind, Packet};

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
            let (mut wheel, mut slab) = (EventQueue::new(), Slab::new());
            let mut heap = BinaryHeap::new();
            for (number, (delay, pops)) in steps.into_iter().enumerate() {
                let number = number as u32;
                let at = wheel.now() + delay;
                let mut packet = Packet::new(EntryKind::Data);
                packet.flow = number;
                let id = slab.insert(packet);
                if wheel.push(id, at) {
                    heap.push(Reverse((at, number)));
                }
                for _ in 0..pops {
                    let got = wheel.pop(&slab).map(|id| (wheel.now(), slab[id].flow));
                    prop_assert_eq!(got, heap.pop().map(|Reverse(it)| it));
                    if got.is_none() { break }
                }
            }
            while let Some(Reverse(expected)) = heap.pop() {
                let id = wheel.pop(&slab).expect("the heap has one more");
                prop_assert_eq!((wheel.now(), slab[id].flow), expected);
            }
            prop_assert!(wheel.pop(&slab).is_none());
        }
    }

    #[test]
    fn what_lies_beyond_the_horizon_never_happens() {
        let (mut wheel, mut slab) = (EventQueue::new(), Slab::new());
        let id = slab.insert(Packet::new(EntryKind::Timer));
        assert!(!wheel.push(id, HORIZON_NS));
        assert!(wheel.push(id, HORIZON_NS - 1));
        assert_eq!(wheel.pop(&slab), Some(id));
        assert_eq!(wheel.now(), HORIZON_NS - 1);
    }
}
