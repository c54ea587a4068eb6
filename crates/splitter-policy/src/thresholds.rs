//! Thresholds of flows: one for all, or several by the remote site that a flow leads to.
//!
//! A flow needs no look-up of its site before it has counted more than the lowest threshold that
//! there is, and most flows end below that. So every flow begins under index 0, where the lowest
//! stands. A packet that takes it beyond leaves the fast path, its site is looked up once, and the
//! index of the site's threshold is kept in the flow's record. When it has counted more than that one
//! its site is looked up again before it is called long: another configuration may hold by then.
//!
//! Other thresholds are numbered in the half of the indices that was not in use. Those of the other half
//! then have the lowest threshold, so that flows which have one of them are looked up again.

/// The number of a threshold: six bits of a flow's record.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThresholdIndex(u8);

impl ThresholdIndex {
    /// The flow's site has not been looked up yet, or it has no threshold of its own.
    pub const UNKNOWN: Self = Self(0);
    /// Bits of a record that an index takes.
    pub const BITS: u32 = 6;
    pub(crate) const MASK: u64 = (1 << Self::BITS) - 1;

    /// The index whose number the lowest bits are.
    #[inline(always)]
    pub const fn numbered(bits: u64) -> Self {
        Self((bits & Self::MASK) as u8)
    }

    /// The number of the index.
    #[inline(always)]
    pub const fn number(self) -> u64 {
        self.0 as u64
    }

    /// The index was never looked up.
    #[inline(always)]
    pub const fn is_unknown(self) -> bool {
        self.0 == 0
    }
}

/// All thresholds, by their indices; 520 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    by_index: [u64; COUNT],
    /// The index of the threshold of what has none of its own; 0 where there is no other.
    common: u64,
}

const COUNT: usize = 1 << ThresholdIndex::BITS;
/// The first index of the upper half, and how many each half has without index 0.
const UPPER: usize = COUNT / 2;
const HALF: usize = UPPER - 1;

impl Thresholds {
    /// The number of different thresholds that sites can have besides the common one.
    pub const MOST_OWN: usize = HALF - 1;

    /// One threshold for all flows.
    #[inline(always)]
    pub const fn uniform(threshold: u64) -> Self {
        Self {
            by_index: [threshold; COUNT],
            common: 0,
        }
    }

    /// The threshold at an index.
    #[inline(always)]
    pub const fn at(&self, index: ThresholdIndex) -> u64 {
        // Masked here, too, for the verifier.
        self.by_index[index.0 as usize & (COUNT - 1)]
    }

    /// The threshold of flows to no site that has one of its own.
    #[inline(always)]
    pub const fn common(&self) -> u64 {
        self.at(self.common_index())
    }

    /// The index of [`Thresholds::common`].
    #[inline(always)]
    pub const fn common_index(&self) -> ThresholdIndex {
        ThresholdIndex::numbered(self.common)
    }

    /// All flows have the same threshold, so that no site need be looked up.
    #[inline(always)]
    pub const fn are_uniform(&self) -> bool {
        self.common == 0
    }
}

#[cfg(not(target_arch = "bpf"))]
impl Thresholds {
    /// The thresholds `common` and `own`, to follow these. `None` when `own` has more than
    /// [`Thresholds::MOST_OWN`] different ones besides the common one.
    #[must_use]
    pub fn followed_by(&self, common: u64, own: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut next = [common; HALF];
        let mut count = 1;
        for threshold in own {
            if !next[..count].contains(&threshold) {
                *next.get_mut(count)? = threshold;
                count += 1;
            }
        }
        if count == 1 {
            return Some(Self::uniform(common));
        }
        let next = &mut next[..count];
        // In one order, so that a flow that missed a change finds the threshold that it had.
        next[1..].sort_unstable();
        let lowest = common.min(next[1]);
        let first = if self.uses_lower_half() { UPPER } else { 1 };
        let mut by_index = [lowest; COUNT];
        by_index[first..first + count].copy_from_slice(next);
        Some(Self {
            by_index,
            common: first as u64,
        })
    }

    /// These with those of `before` in the other half, for the time in which sites are still looked
    /// up by the indices of `before`.
    #[must_use]
    pub fn while_following(&self, before: &Self) -> Self {
        let mut both = *self;
        if self.are_uniform() {
            return both;
        }
        let other = if self.uses_lower_half() {
            UPPER..COUNT
        } else {
            1..UPPER
        };
        both.by_index[other.clone()].copy_from_slice(&before.by_index[other]);
        both.by_index[0] = self.by_index[0].min(before.by_index[0]);
        both
    }

    /// The index of a site's threshold; unknown for the common one, and for what is none of these.
    #[must_use]
    pub fn index_of(&self, threshold: u64) -> ThresholdIndex {
        if self.are_uniform() || threshold == self.common() {
            return ThresholdIndex::UNKNOWN;
        }
        let first = self.common as usize;
        let found = (first..first + HALF).find(|it| self.by_index[*it] == threshold);
        found.map_or(ThresholdIndex::UNKNOWN, |it| {
            ThresholdIndex::numbered(it as u64)
        })
    }

    const fn uses_lower_half(&self) -> bool {
        self.common != 0 && (self.common as usize) < UPPER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const BEFORE: Thresholds = Thresholds::uniform(40);

    #[test]
    fn one_threshold_needs_no_look_up() {
        let same = BEFORE.followed_by(40, [40, 40]).unwrap();
        assert!(same.are_uniform());
        assert_eq!(same, BEFORE);
        assert_eq!(same.index_of(40), ThresholdIndex::UNKNOWN);
    }

    #[test]
    fn flow_that_was_not_looked_up_has_the_lowest() {
        let lower = BEFORE.followed_by(40, [100, 7]).unwrap();
        assert_eq!(lower.at(ThresholdIndex::UNKNOWN), 7);
        let higher = BEFORE.followed_by(40, [100]).unwrap();
        assert_eq!(higher.at(ThresholdIndex::UNKNOWN), 40);
    }

    #[test]
    fn as_many_thresholds_fit_as_are_promised_and_no_more() {
        let most = Thresholds::MOST_OWN as u64;
        let first = BEFORE.followed_by(40, 100..100 + most).unwrap();
        let second = first.followed_by(40, 200..200 + most).unwrap();
        for thresholds in [first, second] {
            let last = 99 + most + if thresholds == first { 0 } else { 100 };
            assert_eq!(thresholds.at(thresholds.index_of(last)), last);
        }
        assert_eq!(BEFORE.followed_by(40, 100..=100 + most), None);
        assert_eq!(first.followed_by(40, 100..=100 + most), None);
    }

    proptest! {
        /// Whatever holds: each site's index leads to its threshold, and an index of before never to
        /// one above the lowest once the others are in force.
        #[test]
        fn indices_lead_to_their_thresholds(
            changes in proptest::collection::vec((1u64..9, proptest::collection::vec(1u64..9, 0..6)), 1..6),
        ) {
            let mut present = BEFORE;
            let mut before: Vec<(ThresholdIndex, u64)> = Vec::new();
            for (common, own) in changes {
                let next = present.followed_by(common, own.iter().copied()).unwrap();
                let lowest = own.iter().copied().fold(common, u64::min);
                prop_assert_eq!(next.common(), common);
                prop_assert_eq!(next.at(ThresholdIndex::UNKNOWN), lowest);
                let both = next.while_following(&present);
                prop_assert!(both.at(ThresholdIndex::UNKNOWN) <= lowest);
                for (index, threshold) in &before {
                    prop_assert!(next.are_uniform() || both.at(*index) == *threshold);
                    prop_assert!(next.at(*index) == lowest);
                }
                before = vec![(next.common_index(), common)];
                for threshold in own {
                    let index = next.index_of(threshold);
                    let index = if index.is_unknown() { next.common_index() } else { index };
                    prop_assert_eq!(next.at(index), threshold);
                    prop_assert_eq!(both.at(index), threshold);
                    before.push((index, threshold));
                }
                before.retain(|(index, _)| !index.is_unknown());
                present = next;
            }
        }
    }
}
