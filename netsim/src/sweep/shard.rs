//! Parts of a plan.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// One of several parts of a plan, written `I/N` with I from 1 to N: every Nth run, from the Ith on.
///
/// Together the shards hold each run once. Schemes change fastest in a plan, then loads, then seeds: with a
/// number of shards that has no divisor in common with those, each gets some of all, and they take about
/// as long as each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

/// A text that names no shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "must be I/N, the Ith of N shards, with I from 1 to N and N up to {}",
    Shard::MOST
)]
pub struct ShardError;

impl Shard {
    /// All of a plan.
    pub const WHOLE: Self = Self { number: 1, of: 1 };
    /// More than any cluster's array of jobs has tasks.
    const MOST: usize = 1_000_000;

    /// Returns whether it is all of the plan.
    pub fn is_whole(self) -> bool {
        self.of == 1
    }

    /// How many of so many runs are in it.
    pub fn count(self, runs: usize) -> usize {
        runs.saturating_sub(self.number - 1).div_ceil(self.of)
    }

    pub(super) fn of<T>(self, runs: Vec<T>) -> Vec<T> {
        runs.into_iter()
            .skip(self.number - 1)
            .step_by(self.of)
            .collect()
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parse = |it: &str| it.parse::<usize>().map_err(|_| ShardError);
        let (number, of) = text.split_once('/').ok_or(ShardError)?;
        let (number, of) = (parse(number)?, parse(of)?);
        match (1..=of).contains(&number) && of <= Self::MOST {
            true => Ok(Self { number, of }),
            false => Err(ShardError),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_run_is_in_exactly_one_shard(runs in 0_usize..200, of in 1_usize..60) {
            let mut all: Vec<usize> = Vec::new();
            for number in 1..=of {
                let shard: Shard = format!("{number}/{of}").parse().expect("a shard");
                let mine = shard.of((0..runs).collect());
                prop_assert_eq!(shard.count(runs), mine.len());
                all.extend(mine);
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..runs).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_names_no_shard_is_refused() {
        for text in [
            "",
            "1",
            "0/3",
            "4/3",
            "1/0",
            "-1/3",
            "1/1000001",
            "1/2/3",
            "a/b",
        ] {
            assert_eq!(text.parse::<Shard>(), Err(ShardError), "{text}");
        }
    }
}
