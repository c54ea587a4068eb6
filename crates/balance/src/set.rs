//! Path numbers, and sets of paths as bit masks.

use super::Paths;
use super::arithmetic::{less, opaque, select};
use super::random::below;

/// How many paths a balancer can choose among.
pub const MAX_PATHS: usize = 16;

const INDEX_MASK: u8 = MAX_PATHS as u8 - 1;

/// The number of a path, below [`MAX_PATHS`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u8);

impl PathId {
    /// Path `number`, if there can be one.
    pub const fn new(number: usize) -> Option<Self> {
        if number < MAX_PATHS {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Path `number` by its low bits. For what a kernel program reads from a map: it has been a
    /// path's when it was written, which the verifier does not know; Linux 6.1 forgets, too, what was
    /// compared with a number that the compiler keeps on the stack.
    #[inline(always)]
    pub fn from_low_bits(number: u64) -> Self {
        Self(opaque(number) as u8 & INDEX_MASK)
    }

    /// Every number there is, in order.
    #[inline(always)]
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_PATHS as u8).map(Self)
    }

    /// The number, as an index into an array of [`MAX_PATHS`].
    #[inline(always)]
    pub const fn index(self) -> usize {
        // Always true of the number; said again where compiler and verifier see it.
        (self.0 & INDEX_MASK) as usize
    }
}

/// Some of the paths.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathSet(u16);

impl PathSet {
    /// The set without any path.
    pub const EMPTY: Self = Self(0);

    /// The paths whose bits are set, path 0 in the lowest.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The first `count` paths; all of them beyond [`MAX_PATHS`].
    pub const fn first(count: usize) -> Self {
        if count >= MAX_PATHS {
            Self(u16::MAX)
        } else {
            Self((1 << count) - 1)
        }
    }

    /// A bit for each path, path 0 in the lowest.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Tells if no path is in the set.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many paths are in it.
    #[inline(always)]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Its path, if there is exactly one.
    #[inline(always)]
    pub fn only(self) -> Option<PathId> {
        // The compiler knows the bound of a number of zeros, and the verifier does not follow how it is
        // counted.
        let index = opaque(self.0.trailing_zeros().into()) as u8 & INDEX_MASK;
        self.0.is_power_of_two().then_some(PathId(index))
    }

    /// Tells if `path` is in the set.
    #[inline(always)]
    pub const fn contains(self, path: PathId) -> bool {
        self.0 >> path.index() & 1 != 0
    }

    /// Adds `path` to the set.
    #[inline(always)]
    pub const fn insert(&mut self, path: PathId) {
        self.0 |= 1 << path.index();
    }

    /// Adds `path` if `holds`, without a branch.
    #[inline(always)]
    pub const fn insert_if(&mut self, path: PathId, holds: bool) {
        self.0 |= (holds as u16) << path.index();
    }

    /// Takes `path` out of the set.
    #[inline(always)]
    pub const fn remove(&mut self, path: PathId) {
        self.0 &= !(1 << path.index());
    }

    /// The paths that are in both sets.
    #[inline(always)]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Its paths, in order.
    #[inline(always)]
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        PathId::all().filter(move |&path| self.contains(path))
    }

    /// Its paths, in order; in the kernel all there are, for the sake of the verifier
    /// (see [`arithmetic`](super::arithmetic)).
    #[inline(always)]
    pub(super) fn iter_loosely(self) -> impl Iterator<Item = PathId> {
        PathId::all().filter(move |&path| cfg!(target_arch = "bpf") || self.contains(path))
    }

    /// The paths of the set of which that holds. Without an array of numbers, for a kernel
    /// program's stack is small.
    #[inline(always)]
    pub fn those(self, holds: impl Fn(PathId) -> bool) -> Self {
        let mut those = Self::EMPTY;
        for path in PathId::all() {
            let holds = self.contains(path) && holds(path);
            those.0 |= u16::from(holds) << path.index();
        }
        // True of them already; said again for a compiler that knows how many
        // there can be in `self`, and then leaves the others out.
        self.and(those)
    }

    /// The smallest number of its paths; as well without an array.
    #[inline(always)]
    pub fn least_of(self, number: impl Fn(PathId) -> u64) -> u64 {
        let mut least = u64::MAX;
        for path in PathId::all() {
            if self.contains(path) {
                least = least.min(number(path));
            }
        }
        least
    }

    /// A number for each of its paths, and `otherwise` for the rest.
    #[inline(always)]
    pub fn map(self, otherwise: u64, number: impl Fn(PathId) -> u64) -> [u64; MAX_PATHS] {
        let mut numbers = [otherwise; MAX_PATHS];
        for path in self.iter() {
            numbers[path.index()] = number(path);
        }
        numbers
    }

    // Which of the numbers is small is what nobody can predict, a processor no
    // more than others, so the following go through all of them without a branch.

    /// The paths of the set whose number is at least `bound`.
    #[inline(always)]
    pub fn at_least(self, bound: u64, numbers: &[u64; MAX_PATHS]) -> Self {
        self.and(Self::where_all(numbers, |number| number >= bound))
    }

    /// The paths of the set whose number is at most `bound`.
    #[inline(always)]
    pub fn at_most(self, bound: u64, numbers: &[u64; MAX_PATHS]) -> Self {
        self.and(Self::where_all(numbers, |number| number <= bound))
    }

    /// The paths of the set whose number is the smallest among them.
    #[inline(always)]
    pub fn smallest(self, numbers: &[u64; MAX_PATHS]) -> Self {
        self.at_most(self.least(numbers), numbers)
    }

    /// The smallest number of its paths.
    #[inline(always)]
    pub fn least(self, numbers: &[u64; MAX_PATHS]) -> u64 {
        // Four at a time: what takes long is that each waits for the one before.
        let mut least = [u64::MAX; 4];
        for path in PathId::all() {
            let foreign = (self.contains(path) as u64).wrapping_sub(1);
            let least = &mut least[path.index() % 4];
            *least = (*least).min(numbers[path.index()] | foreign);
        }
        let [a, b, c, d] = least;
        a.min(b).min(c.min(d))
    }

    #[inline(always)]
    fn where_all(numbers: &[u64; MAX_PATHS], holds: impl Fn(u64) -> bool) -> Self {
        let mut bits = 0;
        for path in PathId::all() {
            bits |= (holds(numbers[path.index()]) as u16) << path.index();
        }
        Self(bits)
    }

    /// One of its paths, each for an equal share of all values of `random`;
    /// path 0 if there is none.
    #[inline(always)]
    pub fn pick(self, random: u64) -> PathId {
        let mut skip = below(random, self.0.count_ones() as u64) as u32;
        let (mut rest, mut index) = (self.0, 0);
        // Halves what is searched, without a loop whose end depends on data: for the verifier.
        let mut half = MAX_PATHS as u32 / 2;
        while half > 0 {
            let in_lower = (rest & ((1 << half) - 1)).count_ones();
            if skip >= in_lower {
                skip -= in_lower;
                rest >>= half;
                index += half;
            }
            half /= 2;
        }
        let is_any = (self.0 != 0) as u32;
        PathId(opaque((index * is_any).into()) as u8 & INDEX_MASK)
    }

    /// One of its paths, each for a share of all values of `random` by its
    /// weight; equal shares if no weight is above 0.
    #[inline(always)]
    pub fn pick_weighted<P: Paths + ?Sized>(self, paths: &P, random: u64) -> PathId {
        // Loops without adapters or branches: what a compiler makes a function of has a type that the
        // kernel does not take, and its verifier would follow both ways at each path.
        let mut total = 0;
        for path in PathId::all() {
            total += self.weight_of(path, paths);
        }
        let left = below(random, total);
        let (mut sum, mut passed) = (0, 0);
        for path in PathId::all() {
            sum += self.weight_of(path, paths);
            // Opaque, for a compiler makes a branch of each comparison whose result is only counted.
            passed += 1 ^ opaque(less(left, sum));
        }
        if passed < MAX_PATHS as u64 {
            return PathId(opaque(passed) as u8 & INDEX_MASK);
        }
        self.pick(random)
    }

    /// The weight of one of its paths, and 0 of another.
    #[inline(always)]
    fn weight_of<P: Paths + ?Sized>(self, path: PathId, paths: &P) -> u64 {
        if cfg!(target_arch = "bpf") {
            let is_member = self.0 as u64 >> path.index() & 1;
            select(is_member, paths.weight(path).into(), 0)
        } else if self.contains(path) {
            paths.weight(path).into()
        } else {
            0
        }
    }

    /// The path that has its turn after `previous`.
    #[inline(always)]
    pub const fn after(self, previous: PathId) -> PathId {
        let shift = previous.index() as u32 + 1;
        let ahead = Self(self.0.rotate_right(shift));
        PathId((ahead.lowest().0 + shift as u8) & INDEX_MASK)
    }

    #[inline(always)]
    const fn lowest(self) -> PathId {
        PathId(self.0.trailing_zeros() as u8 & INDEX_MASK)
    }
}

/// The path that a flow's last packet took, if there was one. A zero byte is
/// none, so that a zeroed entry of a table is a new flow.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastPath(u8);

impl LastPath {
    /// Nothing was sent yet.
    pub const NONE: Self = Self(0);

    /// The path, if there is one.
    #[inline(always)]
    pub const fn get(self) -> Option<PathId> {
        match self.0 {
            0 => None,
            number => Some(PathId((number - 1) & INDEX_MASK)),
        }
    }

    /// The path, if there is one and `set` has it.
    #[inline(always)]
    pub const fn within(self, set: PathSet) -> Option<PathId> {
        match self.get() {
            Some(path) if set.contains(path) => Some(path),
            _ => None,
        }
    }

    /// Notes that `path` was taken, and returns it.
    #[inline(always)]
    pub const fn set(&mut self, path: PathId) -> PathId {
        self.0 = path.0 + 1;
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;
    use crate::{PathView, Snapshot};
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn a_pick_is_in_the_set(bits in 1u16.., random: u64, weights: [u32; MAX_PATHS]) {
            let set = PathSet::from_bits(bits);
            let paths = Snapshot::new(&weights.map(|weight| PathView { weight, ..PathView::default() }));
            prop_assert!(set.contains(set.pick(random)));
            prop_assert!(set.contains(set.pick_weighted(&paths, random)));
        }

        #[test]
        fn turns_go_round(bits in 1u16..) {
            let set = PathSet::from_bits(bits);
            let members: Vec<_> = set.iter().collect();
            prop_assert_eq!(members.len(), set.len() as usize);
            for (index, &path) in members.iter().enumerate() {
                prop_assert_eq!(set.after(path), members[(index + 1) % members.len()]);
            }
        }

        #[test]
        fn comparisons_see_its_own_paths_alone(bits: u16, numbers: [u8; MAX_PATHS], bound: u8) {
            let (set, numbers) = (PathSet::from_bits(bits), numbers.map(u64::from));
            let those = |holds: &dyn Fn(u64) -> bool| {
                let mut those = PathSet::EMPTY;
                for path in set.iter().filter(|path| holds(numbers[path.index()])) {
                    those.insert(path);
                }
                those
            };
            let bound = bound as u64;
            prop_assert_eq!(set.at_least(bound, &numbers), those(&|number| number >= bound));
            prop_assert_eq!(set.at_most(bound, &numbers), those(&|number| number <= bound));
            let least = set.iter().map(|path| numbers[path.index()]).min();
            prop_assert_eq!(set.least(&numbers), least.unwrap_or(u64::MAX));
            prop_assert_eq!(set.smallest(&numbers), those(&|number| Some(number) == least));
        }
    }

    #[test]
    fn shares_follow_the_weights() {
        let paths = [100, 0, 40].map(|weight| PathView {
            weight,
            ..PathView::default()
        });
        let paths = Snapshot::new(&paths);
        let mut picked = [0; MAX_PATHS];
        for count in 0..14_000 {
            picked[paths.known().pick_weighted(&paths, mix(count)).index()] += 1;
        }
        assert!((9_800..10_200).contains(&picked[0]), "{picked:?}");
        assert_eq!(picked[1], 0);
        assert_eq!(picked[0] + picked[2], 14_000);
    }

    #[test]
    fn equal_picks_are_equally_frequent() {
        let set = PathSet::from_bits(0b10_1001_0110);
        let mut picked = [0; MAX_PATHS];
        for count in 0..50_000 {
            picked[set.pick(mix(count)).index()] += 1;
        }
        for path in set.iter() {
            assert!(
                (9_700..10_300).contains(&picked[path.index()]),
                "{picked:?}"
            );
        }
    }
}
