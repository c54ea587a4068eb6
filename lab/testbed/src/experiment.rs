//! Compares [schemes](Scheme) on the same traffic.
//!
//! Modes are interleaved: every round runs each of them once on the same schedule, on a topology
//! built again, and the next round starts with another mode, so that what drifts on the machine
//! falls on all alike.

mod delivery;
mod probe;

use std::{sync::Arc, time::Duration};

use flow_report::Summary;
use tokio_util::sync::CancellationToken;

pub use self::delivery::Delivery;
use self::{delivery::DeliveryWatch, probe::Probe};
use crate::{
    cpu::CpuError,
    namespace::NamespaceError,
    scheme::{Handovers, Scheme, SchemeError},
    timed::{Meter, Strain},
    topology::{Topology, TopologyOptions},
    traffic::{self, Outcome, TrafficError},
    workload::{Class, Schedule, Workload},
};

/// Describes which schemes to compare, and on which traffic.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What is compared.
    pub modes: Vec<Mode>,
    /// The testbed, built again for every mode and round.
    pub topology: TopologyOptions,
    /// What is sent, the warm-up included.
    pub traffic: Traffic,
    /// How long traffic flows before it counts.
    pub warm_up: Duration,
    /// How long to wait at the end for flows under way.
    pub drain: Duration,
    /// How often each mode is run.
    pub rounds: u32,
}

/// Describes the traffic that an experiment sends.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Round `n` (from 0) is drawn with seed `seed + n`.
    Drawn(Workload),
    /// Every round is the same.
    Fixed(Arc<Schedule>),
}

/// A scheme under the name that it has in results.
#[derive(Clone, Debug)]
pub struct Mode {
    /// E.g. `ecmp_flow`.
    pub name: String,
    /// What it does.
    pub scheme: Scheme,
}

/// Results of one mode over all rounds.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The mode.
    pub name: String,
    /// The short flows.
    pub short: Completions,
    /// The background's flows.
    pub long: Completions,
    /// What the hosts' TCP went through.
    pub tcp: TcpEvents,
    /// CPU time that the whole machine was busy while traffic was measured, waits for the last
    /// flows left out.
    pub cpu: Duration,
    /// How XDP programs were attached, for schemes that attach some.
    pub xdp_mode: Option<String>,
    /// What became of long flows, for schemes that count them.
    pub handovers: Option<Handovers>,
    /// Under which conditions each round was measured.
    pub conditions: Vec<Conditions>,
}

/// Conditions under which a round was measured: they tell whether it was the links that were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// What the machine lacked.
    pub strain: Strain,
    /// What the tunnels delivered.
    pub delivery: Delivery,
}

/// Flow completion times of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completions {
    /// When each finished flow started (in seconds, with the rounds end to end) and how long it
    /// took (in milliseconds).
    pub samples: Vec<(f64, f64)>,
    /// Flows that had not finished at the end of their round.
    pub unfinished: usize,
}

/// Changes of TCP counters, summed over all hosts, from the end of the warm-up to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpEvents {
    /// Segments dropped because their timestamp was older than one seen before (`PAWSEstab`):
    /// packets overtook each other badly.
    pub paws_estab: u64,
    /// Retransmission timeouts (`TCPTimeouts`).
    pub timeouts: u64,
    /// Retransmitted segments (`RetransSegs`).
    pub retrans: u64,
    /// Retransmissions of what was still in the host's own queue (`TCPSpuriousRtxHostQueues`).
    pub spurious_host_queue: u64,
}

/// How far an experiment has come.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// The mode under way.
    pub mode: &'a str,
    /// Its round, from 1.
    pub round: u32,
    /// How many rounds there are.
    pub rounds: u32,
    /// The share of the whole experiment that is done, 0 to 1.
    pub done: f64,
}

/// Hears how far an experiment has come, some twenty times a second.
pub trait Progress {
    /// Takes note; slow work here would delay the measurement.
    fn update(&mut self, status: &Status<'_>);
}

/// Hears nothing.
impl Progress for () {
    fn update(&mut self, _: &Status<'_>) {}
}

/// Why an experiment ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The testbed could not be built or read.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A scheme failed.
    #[error("{mode}: {source}")]
    Scheme {
        /// The mode.
        mode: String,
        /// What failed.
        source: SchemeError,
    },
    /// Traffic could not be made.
    #[error(transparent)]
    Traffic(TrafficError),
    /// The machine's CPU time could not be read.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The experiment was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl Experiment {
    /// Runs all rounds and returns the modes in their order. Call it from a thread that lasts:
    /// processes of a scheme end with the thread that started them.
    ///
    /// # Errors
    /// The first failure; [`ExperimentError::Cancelled`] soon after `cancel`. Nothing of the
    /// testbed remains in either case.
    pub fn run(
        &self,
        progress: &mut dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Vec<Measurement>, ExperimentError> {
        let mut measurements: Vec<Measurement> = self.modes.iter().map(Measurement::new).collect();
        let steps = f64::from(self.rounds) * self.modes.len() as f64;
        let mut step = 0.0;
        for round in 0..self.rounds {
            let schedule = self.traffic.schedule(round);
            for index in rotated(self.modes.len(), round as usize) {
                let mode = &self.modes[index];
                let slice = self.run_slice(&mode.scheme, &schedule, cancel, &mut |share| {
                    let (done, round) = ((step + share) / steps, round + 1);
                    progress.update(&Status {
                        mode: &mode.name,
                        round,
                        rounds: self.rounds,
                        done,
                    });
                });
                let slice = slice.map_err(|error| error.in_mode(&mode.name))?;
                measurements[index].add(slice, self.warm_up, self.measured(&schedule) * round);
                step += 1.0;
            }
        }
        Ok(measurements)
    }

    fn measured(&self, schedule: &Schedule) -> Duration {
        schedule.length().saturating_sub(self.warm_up)
    }

    /// One mode in one round. `tick` hears the share of the slice that is done.
    fn run_slice(
        &self,
        scheme: &Scheme,
        schedule: &Arc<Schedule>,
        cancel: &CancellationToken,
        tick: &mut dyn FnMut(f64),
    ) -> Result<Slice, SliceError> {
        tick(0.0);
        let topology = Topology::build(&self.topology)?;
        let applied = scheme.apply(&topology, cancel)?;
        let mut probe = Probe::new(&topology, self.warm_up, schedule.length());
        // Fixed schedules may be empty or of one moment.
        let length = schedule.length().as_secs_f64().max(f64::MIN_POSITIVE);
        let meter = Meter::start();
        let watch = DeliveryWatch::start(&topology)?;
        let outcomes = traffic::run(&topology, schedule, self.drain, cancel, &mut |at| {
            probe.at(at);
            tick((at.as_secs_f64() / length).min(1.0));
        })?;
        let conditions = Conditions {
            delivery: watch.end(),
            strain: meter.end(),
        };
        let (tcp, cpu) = probe.finish()?;
        let xdp_mode = applied.xdp_mode().map(str::to_owned);
        let handovers = applied.handovers();
        applied.remove()?;
        Ok(Slice {
            outcomes,
            tcp,
            cpu,
            xdp_mode,
            handovers,
            conditions,
        })
    }
}

impl Traffic {
    fn schedule(&self, round: u32) -> Arc<Schedule> {
        match self {
            Self::Fixed(schedule) => Arc::clone(schedule),
            Self::Drawn(workload) => {
                let seed = workload.seed.wrapping_add(round.into());
                Arc::new(
                    Workload {
                        seed,
                        ..workload.clone()
                    }
                    .schedule(),
                )
            }
        }
    }
}

/// What one mode came to in one round.
struct Slice {
    outcomes: Vec<Outcome>,
    tcp: TcpEvents,
    cpu: Duration,
    xdp_mode: Option<String>,
    handovers: Option<Handovers>,
    conditions: Conditions,
}

/// An [`ExperimentError`] that does not know its mode yet.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum SliceError {
    Namespace(#[from] NamespaceError),
    Scheme(#[from] SchemeError),
    Traffic(#[from] TrafficError),
    Cpu(#[from] CpuError),
}

impl SliceError {
    fn in_mode(self, mode: &str) -> ExperimentError {
        match self {
            Self::Scheme(SchemeError::Cancelled) | Self::Traffic(TrafficError::Cancelled) => {
                ExperimentError::Cancelled
            }
            Self::Namespace(source) => ExperimentError::Namespace(source),
            Self::Scheme(source) => ExperimentError::Scheme {
                mode: mode.to_owned(),
                source,
            },
            Self::Traffic(source) => ExperimentError::Traffic(source),
            Self::Cpu(source) => ExperimentError::Cpu(source),
        }
    }
}

impl Measurement {
    fn new(mode: &Mode) -> Self {
        Self {
            name: mode.name.clone(),
            short: Completions::default(),
            long: Completions::default(),
            tcp: TcpEvents::default(),
            cpu: Duration::ZERO,
            xdp_mode: None,
            handovers: None,
            conditions: Vec::new(),
        }
    }

    /// Adds a round whose measured part lies `begin` after the start of the first one.
    fn add(&mut self, slice: Slice, warm_up: Duration, begin: Duration) {
        for outcome in slice.outcomes {
            // What started in the warm-up found the tunnels emptier than they are later.
            let Some(at) = outcome.at.checked_sub(warm_up) else {
                continue;
            };
            let completions = match outcome.class {
                Class::Short => &mut self.short,
                Class::Long => &mut self.long,
            };
            match outcome.completion {
                Some(completion) => {
                    let at_s = (begin + at).as_secs_f64();
                    completions
                        .samples
                        .push((at_s, completion.as_secs_f64() * 1e3));
                }
                None => completions.unfinished += 1,
            }
        }
        self.tcp = self.tcp + slice.tcp;
        self.cpu += slice.cpu;
        self.conditions.push(slice.conditions);
        // The worst word stands: one slice in another mode makes all of it mixed.
        self.xdp_mode = match (self.xdp_mode.take(), slice.xdp_mode) {
            (Some(earlier), Some(now)) if earlier != now => Some("mixed".to_owned()),
            (earlier, now) => earlier.or(now),
        };
        self.handovers = match (self.handovers, slice.handovers) {
            (Some(earlier), Some(now)) => Some(earlier + now),
            (earlier, now) => earlier.or(now),
        };
    }
}

impl Completions {
    /// The completion times in milliseconds.
    pub fn distribution_ms(&self) -> Summary {
        Summary::new(self.samples.iter().map(|&(_, completion_ms)| completion_ms))
    }
}

impl std::ops::Add for TcpEvents {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            paws_estab: self.paws_estab + other.paws_estab,
            timeouts: self.timeouts + other.timeouts,
            retrans: self.retrans + other.retrans,
            spurious_host_queue: self.spurious_host_queue + other.spurious_host_queue,
        }
    }
}

/// 0 to `count`, starting at `first`.
fn rotated(count: usize, first: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| (index + first) % count)
}
