//! All-reduce in a ring, step by step.

use crate::transfer::{Transfer, part_of};

/// Ranks in a ring: each sends to its successor, in the order of the steps.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    bytes: u64,
    ranks: Vec<Rank>,
}

/// The state of one rank.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    /// Steps that it has sent, or is sending.
    sent: u32,
    /// Steps that it has received, up to the first that is missing.
    received: u32,
    /// The step behind the missing one is there.
    is_early: bool,
}

/// Steps that a rank sends at a time, from the first that has not arrived: with one alone its link would be idle while
/// the next one is on its way, and with any number a slow link would carry the more at once the slower it is.
const UNDER_WAY: u32 = 2;

impl Ring {
    pub(crate) fn new(ranks: u32, bytes: u64) -> Self {
        Self {
            bytes,
            ranks: vec![Rank::default(); ranks as usize],
        }
    }

    /// All ranks send their first step.
    pub(crate) fn begin(&mut self, out: &mut Vec<Transfer>) {
        for rank in 0..self.ranks.len() as u32 {
            self.send_next(rank, out);
        }
    }

    pub(crate) fn arrived(&mut self, transfer: Transfer, out: &mut Vec<Transfer>) {
        let to = &mut self.ranks[transfer.to as usize];
        if transfer.tag == to.received {
            to.received += 1 + u32::from(to.is_early);
            to.is_early = false;
        } else {
            to.is_early = true;
        }
        self.send_next(transfer.from, out);
        self.send_next(transfer.to, out);
    }

    /// Sends the steps that a rank may send: it has what the one before has sent it in the step before.
    fn send_next(&mut self, rank: u32, out: &mut Vec<Transfer>) {
        let ranks = self.ranks.len() as u32;
        let to = (rank + 1) % ranks;
        let arrived = self.ranks[to as usize].received;
        let state = &mut self.ranks[rank as usize];
        while state.sent < arrived + UNDER_WAY
            && state.sent <= state.received
            && state.sent < 2 * (ranks - 1)
        {
            let step = state.sent;
            // In step t rank i sends part i - t, partly reduced in the first half of the steps, and final in the second.
            let part = (rank + 2 * ranks - step) % ranks;
            state.sent += 1;
            out.push(Transfer {
                from: rank,
                to,
                bytes: part_of(self.bytes, ranks, part),
                tag: step,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(out: &[Transfer], from: u32) -> Vec<u32> {
        let mine = out.iter().filter(|it| it.from == from);
        mine.map(|it| it.tag).collect()
    }

    /// A rank goes on when it has its predecessor's step, and has two under way at most.
    #[test]
    fn steps_wait_for_the_predecessor_and_for_the_link() {
        let mut ring = Ring::new(4, 100);
        let mut out = Vec::new();
        ring.begin(&mut out);
        assert_eq!(out.len(), 4);
        let take = |ring: &mut Ring, from: u32, tag: u32, out: &mut Vec<Transfer>| {
            let place = out.iter().position(|it| (it.from, it.tag) == (from, tag));
            let transfer = out.remove(place.expect("it is under way"));
            ring.arrived(transfer, out);
        };
        // The link of rank 1 is slow: what rank 0 sends, it has.
        take(&mut ring, 0, 0, &mut out);
        assert_eq!(steps(&out, 1), [0, 1]);
        take(&mut ring, 3, 0, &mut out);
        take(&mut ring, 0, 1, &mut out);
        assert_eq!(steps(&out, 1), [0, 1]);
        // The later one overtakes: rank 2 cannot pass on what it has not got.
        take(&mut ring, 1, 1, &mut out);
        assert_eq!(steps(&out, 2), [0]);
        assert_eq!(steps(&out, 1), [0]);
        take(&mut ring, 1, 0, &mut out);
        assert_eq!(steps(&out, 2), [0, 1]);
        assert_eq!(steps(&out, 1), [2]);
        take(&mut ring, 2, 0, &mut out);
        assert_eq!(steps(&out, 2), [1, 2]);
    }
}
