//! Which flows start when: the same for every scheme with the same seed.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use flow_testbed::{
    traffic::{MIN_UPLOAD_BYTES, Transfer},
    workload::{PACKET_BYTES, PACKET_PAYLOAD_BYTES},
};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp};

use crate::cell::{Cell, SizeClass};

/// The flows of a run, by time, and the class of each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) transfers: Arc<[Transfer]>,
    pub(crate) classes: Vec<SizeClass>,
    /// No flow starts later.
    pub(crate) length: Duration,
}

impl Schedule {
    /// Draws Poisson arrivals at each leaf, of flows to hosts of other leaves, without regard to those under way.
    pub(crate) fn draw(cell: &Cell, length: Duration, seed: u64) -> Result<Self> {
        let distribution = cell.sizes.distribution()?;
        let divisor = cell.sizes.divisor();
        let payload = f64::from(PACKET_PAYLOAD_BYTES) / f64::from(PACKET_BYTES);
        let bytes_per_second = cell.load * f64::from(cell.sum_mbit()) * 1e6 / 8.0 * payload;
        let gap = Exp::new(bytes_per_second / (distribution.mean() / divisor as f64))?;
        let hosts = usize::from(cell.shape.hosts);
        let mut flows = Vec::new();
        for leaf in 0..usize::from(cell.shape.leaves) {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(leaf as u64);
            let mut at_s = gap.sample(&mut random);
            while at_s < length.as_secs_f64() {
                let bytes = distribution.at(random.random());
                let others = hosts * (usize::from(cell.shape.leaves) - 1);
                let other = random.random_range(0..others);
                // The hosts of a leaf follow each other, and those of the own one are passed over.
                let own = other >= leaf * hosts;
                let transfer = Transfer {
                    at: Duration::from_secs_f64(at_s),
                    initiator: leaf * hosts + random.random_range(0..hosts),
                    responder: other + if own { hosts } else { 0 },
                    upload: true,
                    bytes: scaled(bytes, divisor),
                };
                flows.push((transfer, SizeClass::of(bytes)));
                at_s += gap.sample(&mut random);
            }
        }
        flows.sort_by_key(|(it, _)| it.at);
        let (transfers, classes): (Vec<_>, Vec<_>) = flows.into_iter().unzip();
        Ok(Self {
            transfers: transfers.into(),
            classes,
            length,
        })
    }
}

fn scaled(bytes: u64, divisor: u64) -> u32 {
    let bytes = u32::try_from(bytes / divisor).unwrap_or(u32::MAX);
    bytes.max(MIN_UPLOAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{self, Shape, tests::SHAPE};

    fn schedule(shape: Shape, seconds: u64, seed: u64) -> Schedule {
        let cell = cell::chosen(shape, Some("asym2.5-web_search-load0.6"), false)[0];
        Schedule::draw(&cell, Duration::from_secs(seconds), seed).expect("both are built in")
    }

    #[test]
    fn same_seed_same_flows() {
        assert_eq!(schedule(SHAPE, 5, 1), schedule(SHAPE, 5, 1));
        assert_ne!(
            schedule(SHAPE, 5, 1).transfers,
            schedule(SHAPE, 5, 2).transfers
        );
    }

    #[test]
    fn flows_lead_to_all_hosts_of_other_leaves() {
        let shape = Shape { leaves: 3, ..SHAPE };
        let schedule = schedule(shape, 20, 1);
        let mut pairs = std::collections::BTreeSet::new();
        for it in schedule.transfers.iter() {
            assert_ne!(it.initiator / 2, it.responder / 2, "{it:?}");
            pairs.insert((it.initiator, it.responder));
        }
        assert_eq!(pairs.len(), 6 * 4);
        assert!(schedule.transfers.is_sorted_by_key(|it| it.at));
    }

    #[test]
    fn each_leaf_offers_the_load() {
        let seconds = 2_000;
        let schedule = schedule(SHAPE, seconds, 1);
        for leaf in 0..2 {
            let own = schedule
                .transfers
                .iter()
                .filter(|it| it.initiator / 2 == leaf);
            let bytes: u64 = own.map(|it| u64::from(it.bytes)).sum();
            let mbit = bytes as f64 * 8.0 / 1e6 / seconds as f64 * 1514.0 / 1448.0;
            assert!((mbit / (98.0 * 0.6) - 1.0).abs() < 0.05, "{mbit}");
        }
    }

    #[test]
    fn sizes_are_scaled_and_classed_by_what_they_were() {
        let schedule = schedule(SHAPE, 60, 1);
        for (it, class) in schedule.transfers.iter().zip(&schedule.classes) {
            // What was divided is not known to the last digit.
            let was = u64::from(it.bytes) * 10;
            let classes = [was, was + 9].map(SizeClass::of);
            assert!(classes.contains(class), "{it:?} is {class:?}");
        }
        assert_eq!(scaled(7, 10), MIN_UPLOAD_BYTES);
    }
}
