//! Puts a [`Schedule`] on hosts, those of a [`Topology`] or others, as real TCP connections and measures each flow.
//!
//! Every host is one thread inside its namespace with a single-threaded runtime. A flow's
//! completion time is what an application sees: from the call of `connect` to the last byte at the
//! receiver. Both ends share a clock, for they are threads of one process.

mod station;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::{
    namespace::NamespaceError,
    topology::{Host, Topology},
    workload::{Class, Flow, Role, Schedule},
};

/// How often the observer hears of the time.
const TICK: Duration = Duration::from_millis(50);
/// From the start of the threads to the first flow, so that all listen by then.
const LEAD: Duration = Duration::from_millis(100);

/// The TCP port at which hosts listen.
pub const PORT: u16 = station::PORT;
/// The smallest upload, which is its own number.
pub const MIN_UPLOAD_BYTES: u32 = station::NUMBER_BYTES as u32;

/// Records what became of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What it was.
    pub class: Class,
    /// When it was to start.
    pub at: Duration,
    /// From `connect` to the last byte, or nothing when it had not finished at the end.
    pub completion: Option<Duration>,
}

/// One TCP connection between any two hosts that carries data one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// When it starts, counted from the start of the traffic.
    pub at: Duration,
    /// The host that connects, by its place in the list of hosts.
    pub initiator: usize,
    /// The host that listens.
    pub responder: usize,
    /// Whether the initiator sends the data; else the responder does.
    pub upload: bool,
    /// Payload, of an upload at least [`MIN_UPLOAD_BYTES`].
    pub bytes: u32,
}

/// Records how long the parts of a transfer took, from the call of `connect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// Until the connection was there, or nothing when it had not come about at the end.
    pub connected: Option<Duration>,
    /// Until the last byte was at the receiver, or nothing when it had not finished at the end.
    pub completion: Option<Duration>,
}

/// Why traffic could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// A host's thread could not be put into its namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A host could not make its sockets or its runtime.
    #[error("{host} cannot start: {source}")]
    Start {
        /// The name of its namespace.
        host: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Runs all flows of `schedule` and waits up to `drain` for those under way at its end. `observer`
/// hears about every 50 ms how long traffic has been flowing.
///
/// # Errors
/// [`TrafficError::Cancelled`] soon after `cancel`; others when a host cannot be set up.
pub fn run(
    topology: &Topology,
    schedule: &Arc<Schedule>,
    drain: Duration,
    cancel: &CancellationToken,
    observer: &mut dyn FnMut(Duration),
) -> Result<Vec<Outcome>, TrafficError> {
    let roles = [
        Role::Client,
        Role::Server,
        Role::GeneratorA,
        Role::GeneratorB,
    ];
    let hosts: Vec<_> = roles.into_iter().zip(topology.hosts()).collect();
    run_between(&hosts, schedule, drain, cancel, observer)
}

/// Like [`run`], between hosts of any topology. Flows of a role that has no host break at once.
///
/// # Errors
/// As [`run`].
pub fn run_between(
    hosts: &[(Role, &Host)],
    schedule: &Arc<Schedule>,
    drain: Duration,
    cancel: &CancellationToken,
    observer: &mut dyn FnMut(Duration),
) -> Result<Vec<Outcome>, TrafficError> {
    // A role without a host has a number that no host has.
    let number = |role| {
        let found = hosts.iter().position(|(own, _)| *own == role);
        found.unwrap_or(hosts.len())
    };
    let flows = schedule.flows();
    let transfers = flows.iter().map(|flow| Transfer {
        at: flow.at,
        initiator: number(flow.initiator),
        responder: number(flow.responder),
        upload: flow.upload,
        bytes: flow.bytes,
    });
    let hosts: Vec<_> = hosts.iter().map(|(_, host)| *host).collect();
    let transfers: Arc<[_]> = transfers.collect();
    let completions = run_transfers(
        &hosts,
        &transfers,
        schedule.length(),
        drain,
        cancel,
        observer,
    )?;
    let outcome = |(flow, timed): (&Flow, Timed)| Outcome {
        class: flow.class,
        at: flow.at,
        completion: timed.completion,
    };
    Ok(flows.iter().zip(completions).map(outcome).collect())
}

/// Runs `transfers`, which are ordered by time and name hosts by their place in `hosts`, like [`run`]. `length` is
/// when no more of them start. Returns how long each took.
///
/// # Errors
/// As [`run`].
pub fn run_transfers(
    hosts: &[&Host],
    transfers: &Arc<[Transfer]>,
    length: Duration,
    drain: Duration,
    cancel: &CancellationToken,
    observer: &mut dyn FnMut(Duration),
) -> Result<Vec<Timed>, TrafficError> {
    let record = Arc::new(Record::new(transfers.len()));
    let stop = cancel.child_token();
    // However this function is left, the threads end.
    let _stop_on_return = stop.clone().drop_guard();
    let mut threads = Vec::with_capacity(hosts.len());
    for (number, host) in hosts.iter().enumerate() {
        let station = station::Station::new(number, hosts, transfers, &record);
        let stop = stop.clone();
        let thread = host.namespace.spawn(move || station.run(&stop))?;
        threads.push((host.namespace.name().to_owned(), thread));
    }

    let last = length + drain;
    loop {
        thread::sleep(TICK);
        if cancel.is_cancelled() {
            break;
        }
        let now = Instant::now().saturating_duration_since(record.epoch);
        observer(now);
        let all_done = record.settled.load(Ordering::Relaxed) == transfers.len();
        let host_ended = threads.iter().any(|(_, thread)| thread.is_finished());
        if now >= last || (all_done && now >= length) || host_ended {
            break;
        }
    }
    stop.cancel();
    for (host, thread) in threads {
        let ended = thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended?.map_err(|source| TrafficError::Start { host, source })?;
    }
    if cancel.is_cancelled() {
        Err(TrafficError::Cancelled)
    } else {
        Ok(record.completions())
    }
}

/// When each flow started and finished, filled in by both its ends.
#[derive(Debug)]
struct Record {
    epoch: Instant,
    marks: Vec<Marks>,
    /// How many flows are settled.
    settled: AtomicUsize,
}

/// Nanoseconds after the epoch; 0 stands for not yet.
#[derive(Debug, Default)]
struct Marks {
    started_ns: AtomicU64,
    connected_ns: AtomicU64,
    finished_ns: AtomicU64,
    settled: AtomicBool,
}

impl Record {
    fn new(transfers: usize) -> Self {
        Self {
            epoch: Instant::now() + LEAD,
            marks: (0..transfers).map(|_| Marks::default()).collect(),
            settled: AtomicUsize::new(0),
        }
    }

    fn start(&self, flow: usize) {
        self.marks[flow]
            .started_ns
            .store(self.now_ns(), Ordering::Relaxed);
    }

    fn connect(&self, flow: usize) {
        self.marks[flow]
            .connected_ns
            .store(self.now_ns(), Ordering::Relaxed);
    }

    fn finish(&self, flow: usize) {
        self.marks[flow]
            .finished_ns
            .store(self.now_ns(), Ordering::Relaxed);
        self.settle(flow);
    }

    /// The flow need not be waited for any more: it has finished or is broken.
    fn settle(&self, flow: usize) {
        if !self.marks[flow].settled.swap(true, Ordering::Relaxed) {
            self.settled.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn now_ns(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.epoch);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    fn completions(&self) -> Vec<Timed> {
        let timed = |marks: &Marks| {
            let started = marks.started_ns.load(Ordering::Relaxed);
            let since = |mark: &AtomicU64| {
                let at = mark.load(Ordering::Relaxed);
                (at > 0).then(|| Duration::from_nanos(at.saturating_sub(started)))
            };
            Timed {
                connected: since(&marks.connected_ns),
                completion: since(&marks.finished_ns),
            }
        };
        self.marks.iter().map(timed).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::{require, require::Requirement::*, topology::TopologyOptions, workload::*};

    type TestResult = Result<(), Box<dyn Error>>;

    #[test]
    fn every_flow_finishes_on_an_idle_testbed() -> TestResult {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool") => Ok(()));
        let topology = Topology::build(&TopologyOptions::default())?;
        let workload = Workload {
            short: ShortFlows::mixed(),
            background: Some(Background {
                bytes: 200_000,
                mbit_per_second: 2.0,
            }),
            length: Duration::from_secs(1),
            seed: 1,
        };
        let schedule = Arc::new(workload.schedule());
        let mut last_tick = Duration::ZERO;
        let outcomes = run(
            &topology,
            &schedule,
            Duration::from_secs(3),
            &CancellationToken::new(),
            &mut |at| {
                last_tick = at;
            },
        )?;
        assert_eq!(outcomes.len(), schedule.flows().len());
        for outcome in outcomes {
            let completion = outcome
                .completion
                .ok_or(format!("unfinished: {outcome:?}"))?;
            assert!(completion > Duration::from_micros(100), "{outcome:?}");
        }
        assert!(last_tick >= schedule.length());
        Ok(())
    }

    #[test]
    fn cancelling_ends_at_once() -> TestResult {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool") => Ok(()));
        let topology = Topology::build(&TopologyOptions::default())?;
        let schedule = Arc::new(Schedule::uploads(100, 5, 2.0, 1));
        let cancel = CancellationToken::new();
        let begun = Instant::now();
        let ended = run(&topology, &schedule, Duration::ZERO, &cancel, &mut |_| {
            cancel.cancel();
        });
        assert!(matches!(ended, Err(TrafficError::Cancelled)));
        // The schedule takes 50 s.
        assert!(begun.elapsed() < Duration::from_secs(25));
        Ok(())
    }

    #[test]
    fn flow_that_cannot_finish_is_reported() -> TestResult {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool") => Ok(()));
        let topology = Topology::build(&TopologyOptions::default())?;
        topology.borders[0].namespace.run("ip link set tun0 down")?;
        let schedule = Arc::new(Schedule::uploads(3, 5, 100.0, 1));
        let cancel = CancellationToken::new();
        let outcomes = run(
            &topology,
            &schedule,
            Duration::from_millis(300),
            &cancel,
            &mut |_| {},
        )?;
        assert_eq!(outcomes.len(), 3);
        assert!(outcomes.iter().all(|outcome| outcome.completion.is_none()));
        Ok(())
    }
}
