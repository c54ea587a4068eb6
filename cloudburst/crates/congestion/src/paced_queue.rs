//! Pacing of datagrams to many peers at once, which nothing acknowledges.

use core::time::Duration;
use std::collections::VecDeque;

use cloudburst_wire::Time;

/// Peers in a burst. With two datagrams each it is no longer than the initial window of a TCP (RFC 6928:
/// 14,600 bytes), also where each takes 300 bytes.
const BURST: usize = 24;
/// From one burst to the next: 16,384 peers take 3.4 s, and two datagrams of 88 bytes each come to 7 Mbit/s.
const PAUSE: Duration = Duration::from_millis(5);

/// Queue of peers that are sent one or two datagrams each, a burst at a time.
#[derive(Clone, Debug)]
pub struct PacedQueue<T> {
    peers: VecDeque<T>,
    /// How many go before the next burst, and when that may begin.
    left: usize,
    next_burst: Time,
}

impl<T> Default for PacedQueue<T> {
    fn default() -> Self {
        Self {
            peers: VecDeque::new(),
            left: 0,
            next_burst: Time::ZERO,
        }
    }
}

impl<T> PacedQueue<T> {
    /// Adds peers behind those that wait.
    pub fn extend(&mut self, peers: impl IntoIterator<Item = T>) {
        self.peers.extend(peers);
    }

    /// Takes out a peer whose turn it is.
    pub fn pop(&mut self, now: Time) -> Option<T> {
        if self.left == 0 && now >= self.next_burst {
            (self.left, self.next_burst) = (BURST, now + PAUSE);
        }
        let left = self.left.checked_sub(1)?;
        let peer = self.peers.pop_front()?;
        self.left = left;
        Some(peer)
    }

    /// Returns the time at which the next may go, if any waits.
    pub fn next_at(&self) -> Option<Time> {
        let is_within = self.left > 0;
        let at = if is_within {
            Time::ZERO
        } else {
            self.next_burst
        };
        (!self.peers.is_empty()).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_a_burst_goes_within_a_pause() {
        let mut queue = PacedQueue::default();
        queue.extend(0..10 * BURST);
        let (mut now, mut order) = (Time::ZERO, Vec::new());
        while let Some(at) = queue.next_at() {
            now = now.max(at);
            let before = order.len();
            order.extend(std::iter::from_fn(|| queue.pop(now)));
            assert_eq!(order.len() - before, BURST);
        }
        assert_eq!(now.since(Time::ZERO), PAUSE * 9);
        assert!(order.is_sorted() && order.len() == 10 * BURST);
        // What comes later does not go with a burst that is over.
        queue.extend([0]);
        assert_eq!(queue.pop(now), None);
        assert_eq!(queue.pop(now + PAUSE), Some(0));
    }

    #[test]
    fn an_empty_queue_is_never_due() {
        let mut queue = PacedQueue::<u32>::default();
        assert_eq!((queue.pop(Time::ZERO), queue.next_at()), (None, None));
    }
}
