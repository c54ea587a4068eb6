//! Cache of offers that were read already, whose repeats cost no operation with keys.
//!
//! An initiator puts its offer before each datagram of its first flight, and sends it by each of its
//! paths, so that any of them can be opened by itself. Reading an offer takes several
//! multiplications on the curve. Where it is accepted at once, its first flight is known by its
//! ephemeral key; where it is not, as while a token is wanted, what was read of it is found here.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use cloudburst_wire::{OfferId, Time};

use super::associations::OFFER_LIFETIME;

/// How long an offer is remembered: its initiator makes another after that.
const REMEMBERED_FOR: Duration = OFFER_LIFETIME;
/// Offers that are remembered at most: those of two seconds, where as many are read without a token
/// as the budget has. The one that was read first makes room.
const MAX_OFFERS: usize = 1_024;

/// Bounded cache of what was found out about offers.
#[derive(Debug)]
pub struct OfferCache<T> {
    known: HashMap<OfferId, Entry<T>, FixedState>,
    /// By the time of reading. Some have been taken out meanwhile.
    order: VecDeque<(Time, OfferId)>,
}

#[derive(Debug)]
struct Entry<T> {
    read_at: Time,
    found: T,
}

impl<T> OfferCache<T> {
    /// Remembers none yet. Ids are hashes under a key already, which nobody outside can choose.
    pub fn new(hash_seed: u64) -> Self {
        Self {
            known: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            order: VecDeque::new(),
        }
    }

    /// Returns what was found out about an offer, unless that was too long ago.
    pub fn get(&self, now: Time, id: &OfferId) -> Option<&T> {
        let entry = self.known.get(id)?;
        (now.since(entry.read_at) < REMEMBERED_FOR).then_some(&entry.found)
    }

    /// Remembers what was found out about an offer, from when it was read first.
    pub fn insert(&mut self, now: Time, id: OfferId, found: T) {
        self.forget(now);
        if let Some(entry) = self.known.get_mut(&id) {
            entry.found = found;
            return;
        }
        while self.order.len() >= MAX_OFFERS {
            self.forget_first();
        }
        self.order.push_back((now, id));
        self.known.insert(
            id,
            Entry {
                read_at: now,
                found,
            },
        );
    }

    /// Forgets an offer that was accepted: it is known by its keys from now on.
    pub fn remove(&mut self, id: &OfferId) {
        self.known.remove(id);
    }

    /// Forgets all: they were read with other keys.
    pub fn clear(&mut self) {
        self.known.clear();
        self.order.clear();
    }

    /// Returns how many offers are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns true if none is remembered.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn forget(&mut self, now: Time) {
        while let Some((read_at, _)) = self.order.front()
            && now.since(*read_at) >= REMEMBERED_FOR
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        // The same may have been taken out and read again since.
        if let Some((at, id)) = self.order.pop_front()
            && self.known.get(&id).is_some_and(|it| it.read_at == at)
        {
            self.known.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> OfferId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        OfferId::from_bytes(bytes)
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_offer_is_remembered_from_its_first_reading_and_no_longer_than_it_lives() {
        let mut cache = OfferCache::new(1);
        cache.insert(at(0), id(1), "read");
        cache.insert(at(4_000), id(1), "answered");
        assert_eq!(cache.get(at(4_999), &id(1)), Some(&"answered"));
        assert_eq!(cache.get(at(5_000), &id(1)), None);
        cache.insert(at(5_000), id(2), "read");
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let mut cache = OfferCache::new(1);
        let offers = 10 * MAX_OFFERS as u64;
        for number in 0..offers {
            cache.insert(at(number / 10), id(number), number);
            assert!(cache.len() <= MAX_OFFERS && cache.order.len() <= MAX_OFFERS);
            // Of what is taken out, nothing is left behind.
            if number % 3 == 0 {
                cache.remove(&id(number));
            }
        }
        let last = at(offers / 10);
        let kept = (0..offers).filter(|number| cache.get(last, &id(*number)).is_some());
        let newest = (offers - MAX_OFFERS as u64..offers).filter(|number| number % 3 != 0);
        assert!(kept.eq(newest));
        assert!(cache.known.capacity() <= 2 * MAX_OFFERS);
        cache.clear();
        assert!(cache.is_empty() && cache.order.is_empty());
    }

    #[test]
    fn an_offer_that_was_taken_out_and_read_again_lives_as_long_as_any() {
        let mut cache = OfferCache::new(1);
        cache.insert(at(0), id(1), "first");
        cache.remove(&id(1));
        cache.insert(at(3_000), id(1), "second");
        cache.insert(at(6_000), id(2), "other");
        assert_eq!(cache.get(at(6_000), &id(1)), Some(&"second"));
    }
}
