//! Collective operations: which transfers they consist of, and which of them wait for which.

use thiserror::Error;

use crate::{
    ring::Ring,
    transfer::{Transfer, part_of},
    tree::Tree,
};

/// A collective operation of several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// All-reduce in a ring: a reduce-scatter and an all-gather, each of *n* - 1 steps, in each of which every rank
    /// sends an *n*th of the buffer to its successor once it has that of its predecessor. A rank has two steps under way
    /// at most.
    RingAllReduce,
    /// All-reduce in a binary tree: chunks are summed up towards the root and come down again as soon as they are
    /// there.
    TreeAllReduce,
    /// All-to-all: every rank sends an *n*th of its buffer to every other one.
    AllToAll,
}

/// The extent of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveSettings {
    /// Number of ranks: 2 to 65,535.
    pub ranks: u32,
    /// Bytes of each rank's buffer.
    pub bytes: u64,
    /// Chunks that a tree divides the buffer into; others do not look at it.
    pub chunks: u32,
    /// Transfers that each rank has under way at most, in an all-to-all; others do not look at it.
    pub at_once: u32,
}

/// Why a collective operation cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CollectiveError {
    /// Too few or too many take part.
    #[error("{0} ranks: there must be 2 to 65535")]
    Ranks(u32),
    /// The buffer has fewer bytes than parts.
    #[error("{bytes} bytes cannot be divided into {parts} parts of at least one")]
    Bytes {
        /// Bytes of the buffer.
        bytes: u64,
        /// Parts that it is divided into.
        parts: u32,
    },
    /// A tree needs at least one chunk, and has at most 65,535.
    #[error("{0} chunks: there must be 1 to 65535")]
    Chunks(u32),
    /// Nothing could ever be sent.
    #[error("at_once = 0: each rank must be allowed at least one transfer")]
    AtOnce,
    /// State is kept for each rank and chunk.
    #[error(
        "{0} chunks over all ranks are more than {most}; take fewer chunks",
        most = Collective::MAX_CHUNKS
    )]
    TooMany(u64),
    /// More transfers of an all-to-all are under way at once than can be kept in memory.
    #[error(
        "{0} transfers at once over all ranks are more than {most}; have each rank send to fewer at once",
        most = Collective::MAX_BEGUN
    )]
    TooManyAtOnce(u64),
}

/// The state of one collective operation, which may be begun again when it is complete.
#[derive(Clone, Debug)]
pub struct Collective {
    operation: Operation,
    settings: CollectiveSettings,
    /// Transfers that have not arrived.
    missing: u64,
    ring: Option<Ring>,
    tree: Option<Tree>,
    /// All-to-all: the distance to the next rank that each sends to.
    next: Vec<u32>,
}

impl Collective {
    const MAX_CHUNKS: u64 = 10_000_000;
    const MAX_BEGUN: u64 = 10_000_000;

    /// Checks an operation, which is not begun yet.
    ///
    /// # Errors
    /// When it has too few ranks, or a buffer that cannot be divided.
    pub fn new(
        operation: Operation,
        settings: CollectiveSettings,
    ) -> Result<Self, CollectiveError> {
        let CollectiveSettings {
            ranks,
            bytes,
            chunks,
            at_once,
        } = settings;
        if !(2..=65_535).contains(&ranks) {
            return Err(CollectiveError::Ranks(ranks));
        }
        let mut parts = ranks;
        if operation == Operation::TreeAllReduce {
            parts = chunks;
            if !(1..=65_535).contains(&chunks) {
                return Err(CollectiveError::Chunks(chunks));
            }
            let all = u64::from(ranks) * u64::from(chunks);
            if all > Self::MAX_CHUNKS {
                return Err(CollectiveError::TooMany(all));
            }
        }
        if bytes < u64::from(parts) {
            return Err(CollectiveError::Bytes { bytes, parts });
        }
        if operation == Operation::AllToAll {
            if at_once == 0 {
                return Err(CollectiveError::AtOnce);
            }
            let begun = u64::from(ranks) * u64::from(at_once.min(ranks - 1));
            if begun > Self::MAX_BEGUN {
                return Err(CollectiveError::TooManyAtOnce(begun));
            }
        }
        Ok(Self {
            operation,
            settings,
            missing: 0,
            ring: None,
            tree: None,
            next: Vec::new(),
        })
    }

    /// Returns the number of transfers that it consists of.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        let CollectiveSettings { ranks, chunks, .. } = self.settings;
        let [ranks, chunks] = [ranks, chunks].map(u64::from);
        match self.operation {
            Operation::RingAllReduce => 2 * ranks * (ranks - 1),
            Operation::TreeAllReduce => 2 * (ranks - 1) * chunks,
            Operation::AllToAll => ranks * (ranks - 1),
        }
    }

    /// Returns whether everything has arrived; also before it is begun.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Begins it, for the first time or again. Adds the transfers that wait for nothing to `out`.
    pub fn begin(&mut self, out: &mut Vec<Transfer>) {
        self.missing = self.transfers();
        let CollectiveSettings {
            ranks,
            bytes,
            chunks,
            at_once,
        } = self.settings;
        match self.operation {
            Operation::RingAllReduce => self.ring.insert(Ring::new(ranks, bytes)).begin(out),
            Operation::TreeAllReduce => {
                self.tree.insert(Tree::new(ranks, bytes, chunks)).begin(out);
            }
            Operation::AllToAll => {
                let first = at_once.min(ranks - 1);
                self.next = vec![first + 1; ranks as usize];
                for distance in 1..=first {
                    out.extend((0..ranks).map(|it| self.to_distance(it, distance)));
                }
            }
        }
    }

    /// Takes a transfer that has arrived, and adds those that waited for it to `out`.
    ///
    /// It is one that `begin` or this has given out since the operation was begun, and each comes back once; another
    /// one may make it panic.
    pub fn arrived(&mut self, transfer: Transfer, out: &mut Vec<Transfer>) {
        self.missing = self.missing.saturating_sub(1);
        let ranks = self.settings.ranks;
        match self.operation {
            Operation::RingAllReduce => {
                if let Some(ring) = &mut self.ring {
                    ring.arrived(transfer, out);
                }
            }
            Operation::TreeAllReduce => {
                if let Some(tree) = &mut self.tree {
                    tree.arrived(transfer, out);
                }
            }
            Operation::AllToAll => {
                let distance = self.next[transfer.from as usize];
                if distance < ranks {
                    self.next[transfer.from as usize] += 1;
                    out.push(self.to_distance(transfer.from, distance));
                }
            }
        }
    }

    /// All ranks begin with their successor, so that no receiver is met by all at once.
    fn to_distance(&self, rank: u32, distance: u32) -> Transfer {
        let CollectiveSettings { ranks, bytes, .. } = self.settings;
        let to = (rank + distance) % ranks;
        Transfer {
            from: rank,
            to,
            bytes: part_of(bytes, ranks, to),
            tag: distance,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use proptest::prelude::*;

    fn operation() -> impl Strategy<Value = (Operation, CollectiveSettings)> {
        let operation = prop_oneof![
            Just(Operation::RingAllReduce),
            Just(Operation::TreeAllReduce),
            Just(Operation::AllToAll)
        ];
        (operation, 2..20u32, 100..10_000u64, 1..9u32, 1..25u32).prop_map(
            |(operation, ranks, bytes, chunks, at_once)| {
                let settings = CollectiveSettings {
                    ranks,
                    bytes,
                    chunks,
                    at_once,
                };
                (operation, settings)
            },
        )
    }

    /// Runs it, with arrivals in the order that `picks` say. Returns all transfers in the order of their start and
    /// of their arrival.
    fn run(collective: &mut Collective, picks: &[usize]) -> [Vec<Transfer>; 2] {
        let (mut under_way, mut started, mut arrived) = (Vec::new(), Vec::new(), Vec::new());
        collective.begin(&mut under_way);
        started.extend(under_way.iter().copied());
        let mut picks = picks.iter().cycle();
        while !under_way.is_empty() {
            let pick = picks.next().map_or(0, |it| it % under_way.len());
            let transfer = under_way.remove(pick);
            arrived.push(transfer);
            let known = under_way.len();
            collective.arrived(transfer, &mut under_way);
            started.extend(&under_way[known..]);
        }
        [started, arrived]
    }

    /// What each rank knows of each part: the ranks whose values are in it.
    fn reduce(
        settings: CollectiveSettings,
        transfers: &[Transfer],
    ) -> BTreeMap<(u32, u32), BTreeSet<u32>> {
        let ranks = settings.ranks;
        let all = (0..ranks).flat_map(|rank| (0..ranks).map(move |part| (rank, part)));
        let mut known: BTreeMap<_, BTreeSet<u32>> = all
            .map(|(rank, part)| ((rank, part), BTreeSet::from([rank])))
            .collect();
        for it in transfers {
            let part = (it.from + 2 * ranks - it.tag) % ranks;
            let sent = known[&(it.from, part)].clone();
            known.entry((it.to, part)).or_default().extend(sent);
        }
        known
    }

    proptest! {
        #[test]
        fn every_transfer_arrives_once_in_any_order(
            (operation, settings) in operation(),
            picks in prop::collection::vec(0..1000usize, 1..50)
        ) {
            let mut collective = Collective::new(operation, settings).expect("it is right");
            for _ in 0..2 {
                let [started, arrived] = run(&mut collective, &picks);
                prop_assert_eq!(arrived.len() as u64, collective.transfers());
                prop_assert!(collective.is_complete());
                let unique: BTreeSet<_> = started.iter().map(|it| (it.from, it.to, it.tag)).collect();
                prop_assert_eq!(unique.len(), started.len());
                prop_assert!(started.iter().all(|it| it.from != it.to && it.bytes > 0));
                let sent: u64 = started.iter().map(|it| it.bytes).sum();
                let [ranks, bytes] = [u64::from(settings.ranks), settings.bytes];
                prop_assert_eq!(sent, match operation {
                    Operation::RingAllReduce | Operation::TreeAllReduce => 2 * (ranks - 1) * bytes,
                    Operation::AllToAll => (ranks - 1) * bytes,
                });
            }
        }

        /// A rank sends a part on only once it has what its predecessor knew of it: at the end all know the sum.
        #[test]
        fn after_a_ring_every_rank_has_the_sum_of_all(
            ranks in 2..12u32,
            picks in prop::collection::vec(0..1000usize, 1..50)
        ) {
            let settings = CollectiveSettings { ranks, bytes: 1000, chunks: 1, at_once: 1 };
            let mut ring = Collective::new(Operation::RingAllReduce, settings).expect("it is right");
            let [started, _] = run(&mut ring, &picks);
            for (place, set) in reduce(settings, &started) {
                prop_assert_eq!(set.len() as u32, ranks, "{:?}", place);
            }
        }

        #[test]
        fn an_all_to_all_keeps_to_what_may_be_under_way(
            ranks in 2..12u32,
            at_once in 1..12u32,
            picks in prop::collection::vec(0..1000usize, 1..50)
        ) {
            let settings = CollectiveSettings { ranks, bytes: 1000, chunks: 1, at_once };
            let mut collective = Collective::new(Operation::AllToAll, settings).expect("it is right");
            let mut under_way = Vec::new();
            collective.begin(&mut under_way);
            let mut picks = picks.iter().cycle();
            while !under_way.is_empty() {
                for rank in 0..ranks {
                    let own = under_way.iter().filter(|it: &&Transfer| it.from == rank).count();
                    prop_assert!(own as u32 <= at_once);
                }
                let pick = picks.next().map_or(0, |it| it % under_way.len());
                let transfer = under_way.remove(pick);
                collective.arrived(transfer, &mut under_way);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let settings = CollectiveSettings {
            ranks: 4,
            bytes: 100,
            chunks: 2,
            at_once: 1,
        };
        let error = |operation, settings| {
            let error = Collective::new(operation, settings).expect_err("it is wrong");
            error.to_string()
        };
        use Operation::{AllToAll, RingAllReduce, TreeAllReduce};
        let few = CollectiveSettings {
            ranks: 1,
            ..settings
        };
        assert!(error(RingAllReduce, few).starts_with("1 ranks"));
        let small = CollectiveSettings {
            bytes: 3,
            ..settings
        };
        assert!(error(RingAllReduce, small).starts_with("3 bytes cannot be divided into 4"));
        let none = CollectiveSettings {
            at_once: 0,
            ..settings
        };
        assert!(error(AllToAll, none).starts_with("at_once = 0"));
        let none = CollectiveSettings {
            chunks: 0,
            ..settings
        };
        assert!(error(TreeAllReduce, none).starts_with("0 chunks"));
        let many = CollectiveSettings {
            ranks: 65_535,
            bytes: 1 << 40,
            chunks: 60_000,
            ..settings
        };
        assert!(error(TreeAllReduce, many).contains("more than 10000000"));
        let all_at_once = CollectiveSettings {
            at_once: 65_535,
            ..many
        };
        assert!(error(AllToAll, all_at_once).contains("4294770690 transfers at once"));
    }
}
