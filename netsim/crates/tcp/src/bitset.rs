//! Which segments beyond the first missing one have arrived: the receiver's reassembly, and the
//! sender's scoreboard.

use std::collections::VecDeque;

/// A set of segment numbers that is dense and moves upwards. Takes no memory while it is empty,
/// but for what it has grown to.
#[derive(Debug, Default)]
pub(crate) struct Bitset {
    /// The number of the first word.
    base: u32,
    words: VecDeque<u64>,
    count: u32,
}

const BITS: u32 = u64::BITS;

impl Bitset {
    /// How many numbers are in it.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts a number in; returns whether it is new. Numbers below the last
    /// [`remove_below`](Self::remove_below) must not come again.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let word = number / BITS;
        if self.words.is_empty() {
            self.base = word;
        }
        while word < self.base {
            self.base -= 1;
            self.words.push_front(0);
        }
        let index = (word - self.base) as usize;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (number % BITS);
        let new = self.words[index] & bit == 0;
        self.words[index] |= bit;
        self.count += u32::from(new);
        new
    }

    /// Forgets numbers below this one.
    pub(crate) fn remove_below(&mut self, number: u32) {
        while self.base < number / BITS {
            let Some(word) = self.words.pop_front() else {
                return;
            };
            self.count -= word.count_ones();
            self.base += 1;
        }
        if self.base == number / BITS
            && let Some(word) = self.words.front_mut()
        {
            let below = *word & ((1 << (number % BITS)) - 1);
            self.count -= below.count_ones();
            *word ^= below;
        }
        if self.count == 0 {
            self.words.clear();
        }
    }

    /// How many of `from..to` are in it.
    pub(crate) fn count(&self, from: u32, to: u32) -> u32 {
        let mut sum = 0;
        let mut at = from;
        while at < to {
            let end = to.min((at / BITS + 1) * BITS);
            let mut word = self.word(at / BITS) >> (at % BITS);
            if end - at < BITS {
                word &= (1 << (end - at)) - 1;
            }
            sum += word.count_ones();
            at = end;
        }
        sum
    }

    /// The first number from this one on that is not in it.
    pub(crate) fn first_missing(&self, from: u32) -> u32 {
        let mut at = from;
        loop {
            let ones = (self.word(at / BITS) >> (at % BITS)).trailing_ones();
            at += ones;
            if ones == 0 || !at.is_multiple_of(BITS) {
                return at;
            }
        }
    }

    fn word(&self, word: u32) -> u64 {
        let index = word.checked_sub(self.base);
        let word = index.and_then(|index| self.words.get(index as usize));
        word.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(numbers in prop::collection::vec(0..400u32, 1..200), step in 1..50usize) {
            let (mut bits, mut set) = (Bitset::default(), BTreeSet::new());
            let mut floor = 0;
            for (index, number) in numbers.into_iter().enumerate() {
                let number = number + floor;
                prop_assert_eq!(bits.insert(number), set.insert(number));
                if index % step == 0 {
                    floor += 37;
                    bits.remove_below(floor);
                    set.retain(|it| *it >= floor);
                }
                prop_assert_eq!(bits.len() as usize, set.len());
                prop_assert_eq!(bits.count(floor, number) as usize, set.range(floor..number.max(floor)).count());
                let missing = (floor..).find(|it| !set.contains(it));
                prop_assert_eq!(Some(bits.first_missing(floor)), missing);
            }
        }
    }
}
