//! The search for the largest packet that passes.

/// Searches between a length that passes and one that may not, the longest first: mostly it passes.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    passes: usize,
    /// The shortest that has not passed, or one more than the longest.
    fails: usize,
    longest: usize,
}

impl MtuSearch {
    /// Begins with a length that has passed.
    pub(crate) fn new(passes: usize, longest: usize) -> Self {
        Self {
            passes,
            fails: longest.max(passes) + 1,
            longest: longest.max(passes),
        }
    }

    /// The length to try next; `None` once the largest is known.
    pub(crate) fn next(&self) -> Option<usize> {
        if self.passes + 1 >= self.fails {
            return None;
        }
        match self.fails > self.longest {
            true => Some(self.longest),
            false => Some(usize::midpoint(self.passes, self.fails)),
        }
    }

    /// Notes how the try of that length went.
    pub(crate) fn note(&mut self, length: usize, has_passed: bool) {
        match has_passed {
            true => self.passes = length,
            false => self.fails = length,
        }
    }

    /// The largest length that has passed.
    pub(crate) fn largest(&self) -> usize {
        self.passes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn largest_length_that_passes_is_found_in_few_tries(
            low in 40usize..200,
            longest in 200usize..9_000,
            mtu in 200usize..9_500,
        ) {
            let mut search = MtuSearch::new(low, longest);
            let mut tries = 0;
            while let Some(length) = search.next() {
                search.note(length, length <= mtu);
                tries += 1;
            }
            prop_assert_eq!(search.largest(), mtu.min(longest));
            prop_assert!(tries <= 15, "{} tries", tries);
            prop_assert!(mtu < longest || tries == 1);
        }
    }

    #[test]
    fn nothing_is_tried_where_the_longest_has_passed() {
        assert_eq!(MtuSearch::new(1_500, 1_500).next(), None);
        assert_eq!(MtuSearch::new(1_500, 1_280).next(), None);
    }
}
