//! The running instance, as its sweeper and its scrapes share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use splitter_common::counters::FlowEvent;

use crate::flows::{Census, Swept, sweep};
use crate::kernel::{AttachedMode, Dataplane, KernelError};

/// The running instance, shared between the sweeper and the scrapes.
#[derive(Debug)]
pub struct Monitor {
    dataplane: Mutex<Dataplane>,
    census: Mutex<Census>,
    attached: Mutex<Vec<AttachedMode>>,
    /// Flows that were started but are in the table no more, apart from those
    /// that this agent removed; counted from when it began to watch.
    evictions: AtomicU64,
    started_elsewhere: AtomicU64,
    removed: AtomicU64,
}

impl Monitor {
    /// Watches `dataplane`, attached in these modes, from now on.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn new(mut dataplane: Dataplane) -> Result<Self, KernelError> {
        let Swept { census, .. } = sweep(&mut dataplane)?;
        let started = dataplane.counters()?.events(FlowEvent::Started);
        let present = census.entries_v4 + census.entries_v6;
        Ok(Self {
            dataplane: Mutex::new(dataplane),
            census: Mutex::new(census),
            attached: Mutex::default(),
            evictions: AtomicU64::new(0),
            started_elsewhere: AtomicU64::new(started.saturating_sub(present)),
            removed: AtomicU64::new(0),
        })
    }

    /// Sweeps the flow table and takes the census. Blocks for about a
    /// microsecond per flow.
    ///
    /// # Errors
    /// When the table cannot be read or changed.
    pub fn sweep(&self) -> Result<Census, KernelError> {
        let mut dataplane = self.dataplane();
        let Swept { census, removed } = sweep(&mut dataplane)?;
        let started = dataplane.counters()?.events(FlowEvent::Started);
        let removed = self.removed.fetch_add(removed, Ordering::Relaxed) + removed;
        let accounted = self.started_elsewhere.load(Ordering::Relaxed)
            + removed
            + census.entries_v4
            + census.entries_v6;
        // Flows that started while the table was walked make this a little too
        // large for a moment; a counter must not fall again.
        self.evictions
            .fetch_max(started.saturating_sub(accounted), Ordering::Relaxed);
        *lock(&self.census) = census;
        Ok(census)
    }

    /// Says how the program is attached now, an entry for each interface.
    pub fn set_attached(&self, modes: Vec<AttachedMode>) {
        *lock(&self.attached) = modes;
    }

    /// The census of the last sweep.
    pub fn census(&self) -> Census {
        *lock(&self.census)
    }

    /// How the program is attached, an entry for each interface.
    pub fn attached(&self) -> Vec<AttachedMode> {
        lock(&self.attached).clone()
    }

    /// Flows that the table forgot for want of room since this agent began to
    /// watch, as of the last sweep.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Watches these maps from now on: the old ones' pins were removed by
    /// somebody else.
    pub fn replace(&self, dataplane: Dataplane) {
        *self.dataplane() = dataplane;
    }

    /// The maps and pins.
    pub fn dataplane(&self) -> MutexGuard<'_, Dataplane> {
        lock(&self.dataplane)
    }
}

/// A panic elsewhere does not make plain numbers wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
