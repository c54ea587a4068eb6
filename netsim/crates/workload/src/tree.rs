//! All-reduce in a binary tree, chunk by chunk.

use std::collections::VecDeque;

use crate::transfer::{Transfer, part_of};

/// Ranks in the order of a heap: the root is rank 0, and rank *i* has the children 2*i* + 1 and 2*i* + 2.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    ranks: u32,
    bytes: u64,
    chunks: u32,
    /// By rank and chunk: how many children have sent it.
    reduced: Vec<u8>,
    /// By rank, the edge to its parent: up, and down.
    edges: Vec<[Edge; 2]>,
}

/// One direction of an edge: chunks go in order.
#[derive(Clone, Debug, Default)]
struct Edge {
    waiting: VecDeque<u32>,
    under_way: u8,
}

/// Chunks that are on an edge at a time: with one alone it would be idle while the next one is on its way.
const UNDER_WAY: u8 = 2;

const UP: usize = 0;
const DOWN: usize = 1;

impl Tree {
    pub(crate) fn new(ranks: u32, bytes: u64, chunks: u32) -> Self {
        Self {
            ranks,
            bytes,
            chunks,
            reduced: vec![0; ranks as usize * chunks as usize],
            edges: vec![Default::default(); ranks as usize],
        }
    }

    /// Leaves begin.
    pub(crate) fn begin(&mut self, out: &mut Vec<Transfer>) {
        // The first rank without children follows the parent of the last rank.
        for rank in self.ranks / 2..self.ranks {
            for chunk in 0..self.chunks {
                self.send(rank, UP, chunk, out);
            }
        }
    }

    pub(crate) fn arrived(&mut self, transfer: Transfer, out: &mut Vec<Transfer>) {
        let (chunk, direction) = (transfer.tag / 2, (transfer.tag % 2) as usize);
        let child = if direction == UP {
            transfer.from
        } else {
            transfer.to
        };
        let edge = &mut self.edges[child as usize][direction];
        edge.under_way -= 1;
        self.send_next(child, direction, out);
        if direction == DOWN {
            return self.send_down(transfer.to, chunk, out);
        }
        let rank = transfer.to;
        let reduced = &mut self.reduced[rank as usize * self.chunks as usize + chunk as usize];
        *reduced += 1;
        let is_whole = u32::from(*reduced) == self.children(rank).count() as u32;
        match (is_whole, rank) {
            (false, _) => (),
            (true, 0) => self.send_down(0, chunk, out),
            (true, _) => self.send(rank, UP, chunk, out),
        }
    }

    fn send_down(&mut self, rank: u32, chunk: u32, out: &mut Vec<Transfer>) {
        for child in self.children(rank) {
            self.send(child, DOWN, chunk, out);
        }
    }

    fn children(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let ranks = self.ranks;
        (2 * rank + 1..=2 * rank + 2).filter(move |it| *it < ranks)
    }

    fn send(&mut self, child: u32, direction: usize, chunk: u32, out: &mut Vec<Transfer>) {
        self.edges[child as usize][direction]
            .waiting
            .push_back(chunk);
        self.send_next(child, direction, out);
    }

    fn send_next(&mut self, child: u32, direction: usize, out: &mut Vec<Transfer>) {
        let edge = &mut self.edges[child as usize][direction];
        if edge.under_way == UNDER_WAY {
            return;
        }
        let Some(chunk) = edge.waiting.pop_front() else {
            return;
        };
        edge.under_way += 1;
        let parent = (child - 1) / 2;
        let (from, to) = if direction == UP {
            (child, parent)
        } else {
            (parent, child)
        };
        out.push(Transfer {
            from,
            to,
            bytes: part_of(self.bytes, self.chunks, chunk),
            tag: 2 * chunk + direction as u32,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk goes up when all children have sent it, and comes down from the root alone.
    #[test]
    fn chunks_wait_for_all_children_and_come_down_from_the_root() {
        let mut tree = Tree::new(3, 10, 1);
        let mut out = Vec::new();
        tree.begin(&mut out);
        let ends = |out: &[Transfer]| out.iter().map(|it| (it.from, it.to)).collect::<Vec<_>>();
        assert_eq!(ends(&out), [(1, 0), (2, 0)]);
        let [first, second] = [out[0], out[1]];
        out.clear();
        tree.arrived(first, &mut out);
        assert_eq!(ends(&out), []);
        tree.arrived(second, &mut out);
        assert_eq!(ends(&out), [(0, 1), (0, 2)]);
    }

    #[test]
    fn an_edge_carries_two_chunks_at_a_time_in_order() {
        let mut tree = Tree::new(2, 10, 4);
        let mut out = Vec::new();
        tree.begin(&mut out);
        assert_eq!(out.iter().map(|it| it.tag).collect::<Vec<_>>(), [0, 2]);
        let first = out.remove(0);
        out.clear();
        tree.arrived(first, &mut out);
        // The third chunk goes up, and the first comes down.
        assert_eq!(out.iter().map(|it| it.tag).collect::<Vec<_>>(), [4, 1]);
    }
}
