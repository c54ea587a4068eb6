//! What is going to happen, and when.

use std::{cmp::Reverse, collections::BinaryHeap};

/// What is due at the same time comes in the order in which it was put in.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    items: Vec<Option<T>>,
    free: Vec<usize>,
    count: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            order: BinaryHeap::new(),
            items: Vec::new(),
            free: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn push(&mut self, at: u64, item: T) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        self.items[slot] = Some(item);
        self.order.push(Reverse((at, self.count, slot)));
        self.count += 1;
    }

    /// The next, unless it is later than `until`.
    pub(crate) fn pop(&mut self, until: u64) -> Option<(u64, T)> {
        let &Reverse((at, _, slot)) = self.order.peek().filter(|next| next.0.0 <= until)?;
        self.order.pop();
        self.free.push(slot);
        Some((at, self.items[slot].take()?))
    }
}

#[test]
fn the_queue_is_in_order() {
    let mut queue = Queue::new();
    for (at, item) in [(5, 'c'), (1, 'a'), (5, 'd'), (4, 'b'), (9, 'e')] {
        queue.push(at, item);
    }
    let taken: String = std::iter::from_fn(|| queue.pop(8))
        .map(|next| next.1)
        .collect();
    assert_eq!(taken, "abcd");
    assert_eq!(queue.pop(9), Some((9, 'e')));
}
