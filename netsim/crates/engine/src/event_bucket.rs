//! The events of a short time, in order.

use super::packet::NONE;

/// A bucket spans 2^8 ns.
pub(crate) const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;

/// An event: an entry of the slab, and the time at which it is due.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Event {
    /// Due time in ns, modulo 2^32: the level that holds it knows the rest.
    pub(crate) time: u32,
    /// The entry of the slab.
    pub(crate) id: u32,
}

impl Event {
    #[inline]
    fn slot(self) -> usize {
        self.time as usize % SLOTS
    }
}

/// Events that are [sorted](Self::sort) when time enters the bucket, and those that are
/// [added](Self::add) while it is in it.
///
/// The latter come after all that were there before them and are due at the same time, so that the order
/// in which events were put in stays that in which they come out.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Events in order, from `next` on.
    sorted: Vec<Event>,
    next: usize,
    /// Events in the order in which they came.
    unsorted: Vec<Event>,
    late: Late,
}

/// Fewer are sorted by insertion: to count them takes a pass over all [`SLOTS`].
const FEW: usize = 32;

impl Bucket {
    /// The bits of a time that differ within a bucket.
    pub(crate) const MASK: u64 = SLOTS as u64 - 1;

    pub(crate) fn new() -> Self {
        Self {
            sorted: Vec::new(),
            next: 0,
            unsorted: Vec::new(),
            late: Late::new(),
        }
    }

    /// Adds events before time enters the bucket.
    pub(crate) fn extend(&mut self, events: &[Event]) {
        self.unsorted.extend_from_slice(events);
    }

    /// Brings them in order. All that were in the bucket before have been taken.
    pub(crate) fn sort(&mut self) {
        debug_assert!(self.next == self.sorted.len() && self.late.count == 0);
        self.next = 0;
        if self.unsorted.len() < FEW {
            std::mem::swap(&mut self.sorted, &mut self.unsorted);
            sort_few(&mut self.sorted);
        } else {
            self.count_and_place();
        }
        self.unsorted.clear();
    }

    /// Counting sort: stable, and linear.
    fn count_and_place(&mut self) {
        let mut places = [0u32; SLOTS];
        for event in &self.unsorted {
            places[event.slot()] += 1;
        }
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        self.sorted.clear();
        let nothing = Event { time: 0, id: NONE };
        self.sorted.resize(self.unsorted.len(), nothing);
        for event in &self.unsorted {
            let place = &mut places[event.slot()];
            self.sorted[*place as usize] = *event;
            *place += 1;
        }
    }

    /// Adds an event that is not before the one that was taken last.
    pub(crate) fn add(&mut self, event: Event) {
        self.late.add(event);
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Event> {
        let next = self.sorted.get(self.next).copied();
        if self.late.count > 0 {
            let slot = self.late.first_slot();
            if next.is_none_or(|next| slot < next.slot()) {
                return Some(self.late.take(slot));
            }
        }
        self.next += usize::from(next.is_some());
        next
    }

    /// The entry that comes after `ahead` others, if none is added before.
    #[inline]
    pub(crate) fn ahead(&self, ahead: usize) -> Option<u32> {
        self.sorted.get(self.next + ahead).map(|it| it.id)
    }
}

fn sort_few(events: &mut [Event]) {
    for end in 1..events.len() {
        let event = events[end];
        let mut place = end;
        while place > 0 && events[place - 1].slot() > event.slot() {
            events[place] = events[place - 1];
            place -= 1;
        }
        events[place] = event;
    }
}

/// A list for each nanosecond. Only links shorter than a bucket need it, and timers.
#[derive(Debug)]
struct Late {
    count: usize,
    occupied: [u64; SLOTS / 64],
    /// The first and the last link of each list, where there is one.
    lists: Box<[(u32, u32)]>,
    /// An event, and the link behind it. Forgotten as soon as all are taken.
    links: Vec<(Event, u32)>,
}

impl Late {
    fn new() -> Self {
        Self {
            count: 0,
            occupied: [0; SLOTS / 64],
            lists: vec![(NONE, NONE); SLOTS].into_boxed_slice(),
            links: Vec::new(),
        }
    }

    fn add(&mut self, event: Event) {
        let slot = event.slot();
        let link = self.links.len() as u32;
        self.links.push((event, NONE));
        let (first, last) = &mut self.lists[slot];
        if self.occupied[slot / 64] & (1 << (slot % 64)) == 0 {
            self.occupied[slot / 64] |= 1 << (slot % 64);
            *first = link;
        } else {
            self.links[*last as usize].1 = link;
        }
        *last = link;
        self.count += 1;
    }

    /// Returns the first slot with events, of which there are some.
    fn first_slot(&self) -> usize {
        let word = self.occupied.iter().position(|it| *it != 0).unwrap_or(0);
        word * 64 + self.occupied[word].trailing_zeros() as usize
    }

    fn take(&mut self, slot: usize) -> Event {
        let (first, _) = &mut self.lists[slot];
        let (event, next) = self.links[*first as usize];
        *first = next;
        if next == NONE {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
        self.count -= 1;
        if self.count == 0 {
            self.links.clear();
        }
        event
    }
}
