//! The running instance, as its sweeper and its scrapes share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use splitter_common::counters::FlowEvent;
use splitter_common::flow::FlowEntry;

use crate::advise::{FlowSize, Sample, Sizes};
use crate::config::ThresholdUnit;
use crate::figures::Figures;
use crate::flows::{Census, Swept, sweep};
use crate::kernel::{AttachedMode, Dataplane, KernelError, Pins};

/// The running instance, shared between the sweeper and the scrapes.
///
/// No lock is held while a table is walked or a map is read, so that neither
/// waits for the other.
#[derive(Debug)]
pub struct Monitor {
    dataplane: Mutex<Arc<Dataplane>>,
    census: Mutex<Census>,
    attached: Mutex<Vec<AttachedMode>>,
    ledger: Mutex<Ledger>,
    sizes: Mutex<Sizes>,
    figures: Arc<Figures>,
    since: Instant,
    repairs: AtomicU64,
}

/// What became of the flows that were started, as far as this agent saw it.
#[derive(Debug, Default)]
struct Ledger {
    /// Flows that had gone before it began to watch these maps.
    gone_before: u64,
    /// Flows that it has removed from these maps.
    removed: u64,
    /// Evictions from maps that it watched before these.
    evicted_before: u64,
    /// Evictions from these maps, as of the last sweep.
    evicted: u64,
    /// Flows that started afresh in these maps, as of the last sweep.
    restarted: u64,
}

impl Monitor {
    /// Watches `dataplane` from now on.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn new(dataplane: Dataplane) -> Result<Self, KernelError> {
        let (census, ledger) = first_look(&dataplane)?;
        Ok(Self {
            dataplane: Mutex::new(Arc::new(dataplane)),
            census: Mutex::new(census),
            attached: Mutex::default(),
            ledger: Mutex::new(ledger),
            sizes: Mutex::default(),
            figures: Arc::default(),
            since: Instant::now(),
            repairs: AtomicU64::new(0),
        })
    }

    /// Watches these maps from now on: the old ones' pins were removed by
    /// somebody else. The same maps change nothing.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn replace(&self, dataplane: Dataplane) -> Result<(), KernelError> {
        if dataplane.program_id()? == self.dataplane().program_id()? {
            return Ok(());
        }
        let (census, new) = first_look(&dataplane)?;
        let mut ledger = lock(&self.ledger);
        let evicted_before = ledger.evicted_before + ledger.evicted;
        *ledger = Ledger {
            evicted_before,
            ..new
        };
        *lock(&self.census) = census;
        *lock(&self.dataplane) = Arc::new(dataplane);
        Ok(())
    }

    /// Sweeps the flow table and takes the census. Blocks for some microseconds
    /// a flow.
    ///
    /// # Errors
    /// When the table cannot be read or changed.
    pub fn sweep(&self) -> Result<(), KernelError> {
        let watched = self.dataplane();
        let mut ended = Vec::new();
        let swept = sweep_pinned(watched.pins(), |entry| {
            ended.push(FlowSize {
                packets: entry.packets,
                bytes: entry.bytes,
            });
        })?;
        let Some(Swept {
            census,
            removed,
            restarted,
        }) = swept
        else {
            return Ok(());
        };
        let started = watched.counters()?.events(FlowEvent::Started);
        let unseen = {
            let mut ledger = lock(&self.ledger);
            let before = (ledger.evicted, ledger.restarted);
            ledger.settle(started, removed, &census);
            ledger.restarted = ledger.restarted.max(restarted);
            (ledger.evicted - before.0) + (ledger.restarted - before.1)
        };
        let mut sizes = lock(&self.sizes);
        sizes.advance(self.since.elapsed());
        ended.into_iter().for_each(|flow| sizes.add(flow));
        sizes.miss(unseen);
        drop(sizes);
        *lock(&self.census) = census;
        Ok(())
    }

    /// The flows that ended lately by size in a unit, how many end in a second, and the share of
    /// them whose size was not seen; as of the last sweep.
    pub fn flow_sizes(&self, unit: ThresholdUnit) -> (Sample, f64, f64) {
        let sizes = lock(&self.sizes);
        let sample = sizes.sample(unit).clone();
        (sample, sizes.flows_per_second(), sizes.missed_share())
    }

    /// What the agent counts of itself.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// For how long it has been watching.
    pub fn uptime(&self) -> Duration {
        self.since.elapsed()
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
        let ledger = lock(&self.ledger);
        ledger.evicted_before + ledger.evicted
    }

    /// Notes that something was put back.
    pub fn count_repair(&self) {
        self.repairs.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something was put back since this agent began to watch.
    pub fn repairs(&self) -> u64 {
        self.repairs.load(Ordering::Relaxed)
    }

    /// The maps and pins.
    pub fn dataplane(&self) -> Arc<Dataplane> {
        Arc::clone(&lock(&self.dataplane))
    }
}

impl Ledger {
    fn settle(&mut self, started: u64, removed: u64, census: &Census) {
        self.removed += removed;
        let accounted = self.gone_before + self.removed + census.entries_v4 + census.entries_v6;
        // Flows that started while the table was walked make this a little too
        // large for a moment; a counter must not fall again.
        self.evicted = self.evicted.max(started.saturating_sub(accounted));
    }
}

fn first_look(dataplane: &Dataplane) -> Result<(Census, Ledger), KernelError> {
    // How long ago these flows ended is not known, so they tell no rate.
    let swept = sweep_pinned(dataplane.pins(), |_| ())?;
    let Swept {
        census, restarted, ..
    } = swept.unwrap_or_default();
    let started = dataplane.counters()?.events(FlowEvent::Started);
    let present = census.entries_v4 + census.entries_v6;
    let gone_before = started.saturating_sub(present);
    Ok((
        census,
        Ledger {
            gone_before,
            restarted,
            ..Ledger::default()
        },
    ))
}

/// Sweeps through handles of its own; `None` when the pins have gone.
fn sweep_pinned(pins: &Pins, ended: impl FnMut(&FlowEntry)) -> Result<Option<Swept>, KernelError> {
    let mut dataplane = Dataplane::open(pins)?;
    let swept = dataplane.as_mut().map(|it| sweep(it, ended));
    swept.transpose()
}

/// A panic elsewhere does not make plain numbers wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_there_nor_removed_was_evicted() {
        let mut ledger = Ledger {
            gone_before: 10,
            ..Ledger::default()
        };
        let census = |entries_v4| Census {
            entries_v4,
            ..Census::default()
        };
        ledger.settle(100, 20, &census(70));
        assert_eq!(ledger.evicted, 0);
        ledger.settle(200, 0, &census(100));
        assert_eq!(ledger.evicted, 70);
        // A flow that started during the walk is counted as there later.
        ledger.settle(200, 0, &census(101));
        assert_eq!(ledger.evicted, 70, "never falls");
    }
}
