//! The running instance, as its sweeper and its scrapes share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use splitter_advise::{FlowSize, Sample, Sizes, ThresholdUnit};
use splitter_control::stats::AgentStats;
use splitter_datapath::flows::{FlowTotals, Swept, sweep};
use splitter_datapath::slow_flows::{SlowFlow, SlowFlows};
use splitter_datapath::{AttachedMode, Dataplane, KernelError, Pins};
use splitter_policy::counters::FlowEvent;
use splitter_policy::table::StoredFlow;

/// The running instance, shared between the sweeper and the scrapes.
///
/// No lock is held while a table is walked or a map is read, so that neither
/// waits for the other.
#[derive(Debug)]
pub struct Monitor {
    dataplane: Mutex<Arc<Dataplane>>,
    totals: Mutex<FlowTotals>,
    attached: Mutex<Vec<AttachedMode>>,
    ledger: Mutex<Ledger>,
    sizes: Mutex<Sizes>,
    slow: Mutex<SlowFlows>,
    stats: Arc<AgentStats>,
    since: Instant,
    reconciliations: AtomicU64,
    last_sweep_ns: AtomicU64,
}

/// What became of the flows that were started in these maps, as far as this agent saw it.
#[derive(Debug, Default)]
struct Ledger {
    /// Flows that had gone before it began to watch.
    gone_before: u64,
    /// Flows whose slots it has freed.
    freed: u64,
    /// Flows whose slots the kernel gave to others, as of the last sweep: nobody saw their size.
    replaced: u64,
    /// Flows that started again, up to the last sweep: nobody saw their size before.
    restarted: u64,
}

impl Monitor {
    /// Watches `dataplane` from now on.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn new(dataplane: Dataplane) -> Result<Self, KernelError> {
        let (totals, ledger) = first_look(&dataplane)?;
        Ok(Self {
            dataplane: Mutex::new(Arc::new(dataplane)),
            totals: Mutex::new(totals),
            attached: Mutex::default(),
            ledger: Mutex::new(ledger),
            sizes: Mutex::default(),
            slow: Mutex::default(),
            stats: Arc::default(),
            since: Instant::now(),
            reconciliations: AtomicU64::new(0),
            last_sweep_ns: AtomicU64::new(0),
        })
    }

    /// Watches these maps from now on: the old ones' pins were removed by
    /// somebody else, or the tables have another size. The same maps change nothing.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn replace(&self, dataplane: Dataplane) -> Result<(), KernelError> {
        // Not the program's, which is the pinned one's of whichever.
        if dataplane.table_id()? == self.dataplane().table_id()? {
            return Ok(());
        }
        let (totals, ledger) = first_look(&dataplane)?;
        *lock(&self.ledger) = ledger;
        *lock(&self.totals) = totals;
        lock(&self.slow).begin_again();
        *lock(&self.dataplane) = Arc::new(dataplane);
        Ok(())
    }

    /// Sweeps the flow table and takes the totals. Blocks for some
    /// milliseconds.
    ///
    /// # Errors
    /// When the table cannot be read or changed.
    pub fn sweep(&self) -> Result<(), KernelError> {
        let begun = Instant::now();
        let watched = self.dataplane();
        let mut ended = Vec::new();
        let mut look = lock(&self.slow).look();
        let swept = sweep_pinned(watched.pins(), |StoredFlow { key, entry, .. }, is_freed| {
            look.see(key, entry, is_freed);
            if is_freed {
                ended.push(FlowSize {
                    packets: entry.packets,
                    bytes: entry.bytes,
                });
            }
        })?;
        let Some(swept) = swept else {
            return Ok(());
        };
        lock(&self.slow).settle(swept.at_ns, look, SystemTime::now());
        let started = watched.counters()?.events(FlowEvent::Started);
        let unseen = lock(&self.ledger).settle(started, &swept);
        let mut sizes = lock(&self.sizes);
        sizes.advance(self.since.elapsed());
        ended.into_iter().for_each(|flow| sizes.add(flow));
        sizes.miss(unseen);
        drop(sizes);
        *lock(&self.totals) = swept.totals;
        let took_ns = begun.elapsed().as_nanos() as u64;
        self.last_sweep_ns.store(took_ns, Ordering::Relaxed);
        Ok(())
    }

    /// How long the last sweep took, 0 before the first.
    pub fn last_sweep(&self) -> Duration {
        Duration::from_nanos(self.last_sweep_ns.load(Ordering::Relaxed))
    }

    /// The flows that ended lately by size in a unit, how many end in a second, and the share of
    /// them whose size was not seen; as of the last sweep.
    pub fn flow_sizes(&self, unit: ThresholdUnit) -> (Sample, f64, f64) {
        let sizes = lock(&self.sizes);
        let sample = sizes.sample(unit).clone();
        (sample, sizes.flows_per_second(), sizes.missed_share())
    }

    /// The last slow flow of each bucket of the completion times that surely is in it; as of the last
    /// sweep.
    pub fn slow_flows(&self) -> Vec<SlowFlow> {
        lock(&self.slow).all()
    }

    /// Returns what the agent counts of itself.
    pub fn stats(&self) -> &Arc<AgentStats> {
        &self.stats
    }

    /// For how long it has been watching.
    pub fn uptime(&self) -> Duration {
        self.since.elapsed()
    }

    /// Says how the program is attached now, an entry for each interface.
    pub fn set_attached(&self, modes: Vec<AttachedMode>) {
        *lock(&self.attached) = modes;
    }

    /// The totals of the last sweep.
    pub fn totals(&self) -> FlowTotals {
        *lock(&self.totals)
    }

    /// How the program is attached, an entry for each interface.
    pub fn attached(&self) -> Vec<AttachedMode> {
        lock(&self.attached).clone()
    }

    /// Notes that something was restored.
    pub fn count_reconciliation(&self) {
        self.reconciliations.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something was restored since this agent began to watch.
    pub fn reconciliations(&self) -> u64 {
        self.reconciliations.load(Ordering::Relaxed)
    }

    /// The maps and pins.
    pub fn dataplane(&self) -> Arc<Dataplane> {
        Arc::clone(&lock(&self.dataplane))
    }
}

impl Ledger {
    /// Takes the result of a sweep, and returns how many flows have ended since the last one
    /// without their size being seen.
    fn settle(&mut self, started: u64, swept: &Swept) -> u64 {
        self.freed += swept.freed;
        let accounted = self.gone_before + self.freed + present(&swept.totals);
        let before = self.replaced + self.restarted;
        // Flows that started while the table was walked make this a little too
        // large for a short time; what was missed once is not missed again.
        self.replaced = self.replaced.max(started.saturating_sub(accounted));
        self.restarted = self.restarted.max(swept.restarted);
        self.replaced + self.restarted - before
    }
}

const fn present(totals: &FlowTotals) -> u64 {
    totals.entries_v4 + totals.entries_v6
}

fn first_look(dataplane: &Dataplane) -> Result<(FlowTotals, Ledger), KernelError> {
    // How long ago these flows ended is not known, so they tell no rate.
    let swept = sweep_pinned(dataplane.pins(), |_, _| ())?.unwrap_or_default();
    let started = dataplane.counters()?.events(FlowEvent::Started);
    let ledger = Ledger {
        gone_before: started.saturating_sub(present(&swept.totals)),
        restarted: swept.restarted,
        ..Ledger::default()
    };
    Ok((swept.totals, ledger))
}

/// Sweeps through handles of its own; `None` when the pins have gone.
fn sweep_pinned(
    pins: &Pins,
    visit: impl FnMut(&StoredFlow, bool),
) -> Result<Option<Swept>, KernelError> {
    let dataplane = Dataplane::open(pins)?;
    dataplane.as_ref().map(|it| sweep(it, visit)).transpose()
}

/// A panic elsewhere does not make plain numbers wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
