//! A bounded queue between who records and who exports.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

/// Items that wait to be exported: none until somebody exports, and then at most [`CAPACITY`].
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    is_on: AtomicBool,
    has_batch: Notify,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            items: Mutex::default(),
            is_on: AtomicBool::new(false),
            has_batch: Notify::new(),
        }
    }
}

impl<T> Queue<T> {
    /// Takes items from now on.
    pub(crate) fn turn_on(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Takes none any more; those that wait stay.
    pub(crate) fn turn_off(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Adds an item. Never waits for an export; returns `false` when there is no space for it.
    pub(crate) fn push(&self, item: T) -> bool {
        let mut items = self.locked();
        if items.len() >= CAPACITY {
            return false;
        }
        items.push_back(item);
        if items.len() >= BATCH {
            self.has_batch.notify_one();
        }
        true
    }

    /// Takes the oldest items out, at most [`BATCH`].
    pub(crate) fn take_batch(&self) -> Vec<T> {
        let mut items = self.locked();
        let count = items.len().min(BATCH);
        items.drain(..count).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.locked().len()
    }

    /// Completes once a whole batch waits.
    pub(crate) async fn filled(&self) {
        while self.len() < BATCH {
            self.has_batch.notified().await;
        }
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The defaults of OTEL_BSP_MAX_QUEUE_SIZE and OTEL_BSP_MAX_EXPORT_BATCH_SIZE (OpenTelemetry, "Environment
/// Variable Specification").
const CAPACITY: usize = 2048;
const BATCH: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_taken_and_the_oldest_leave_first() {
        let queue = Queue::default();
        let taken = (0..CAPACITY + 100).filter(|&item| queue.push(item)).count();
        assert_eq!(taken, CAPACITY);
        assert_eq!(queue.take_batch(), (0..BATCH).collect::<Vec<_>>());
        assert!(queue.push(7));
    }
}
