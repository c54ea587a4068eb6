//! One run: events in order of time until all messages have arrived.

use std::time::{Duration, Instant};

use flow_balance::Balancer;

use crate::{
    engine::packet::{EntryKind, Packet},
    fabric::{Network, load_balancer::CustomBalancer, outage::Outages},
    message::Message,
    outcome::Outcome,
    scenario::{Experiment, Traffic},
    transport::Hosts,
    workload::Workload,
};

/// Runs an experiment. The same experiment gives the same outcome on every machine.
///
/// ```
/// let source = netsim::Source::from_text(
///     "two hosts",
///     r#"
///     about = "One message from leaf to leaf"
///     fabric = { leaves = 2, spines = 1, hosts_per_leaf = 1, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }
///     traffic = [{ kind = "message", from = 0, to = 1, bytes = 1460 }]
///     "#,
/// );
/// let outcome = netsim::run(&source.experiment(&netsim::Overrides::default())?);
/// // Four links of 1 us, and 1.2 us for each of four transmissions.
/// assert_eq!(outcome.flows[0].fct_ns, Some(8_800));
/// # Ok::<(), netsim::ScenarioError>(())
/// ```
pub fn run(experiment: &Experiment) -> Outcome {
    let started = Instant::now();
    run_one(experiment, None, started)
}

/// Runs an experiment with a balancing policy that is not built in, in the place of the scenario's.
///
/// `make` gets a seed and returns the policy, of which each leaf, or each set of next hops in another topology, has a
/// state of its own.
///
/// ```
/// use flow_balance::{Balancer, Packet, PathId, Paths};
///
/// /// Every packet takes the first path that works.
/// struct First;
///
/// impl Balancer for First {
///     type Flow = ();
///     type Shared = ();
///
///     fn choose<P: Paths + ?Sized>(&self, (): &mut (), (): &mut (), paths: &P, _: &Packet) -> PathId {
///         paths.candidates().iter().next().unwrap_or_default()
///     }
/// }
///
/// let source = netsim::Source::find("tr-motivation")?;
/// let experiment = source.experiment(&netsim::Overrides::default())?;
/// let outcome = netsim::run_with_balancer(&experiment, |_seed| First);
/// let used = outcome.paths.iter().filter(|it| it.link.starts_with("leaf0") && it.utilisation > 0.0);
/// assert_eq!(used.count(), 1);
/// # Ok::<(), netsim::ScenarioError>(())
/// ```
pub fn run_with_balancer<B>(experiment: &Experiment, make: impl Fn(u64) -> B + 'static) -> Outcome
where
    B: Balancer + 'static,
    B::Shared: Default,
{
    let started = Instant::now();
    run_one(experiment, Some(&CustomBalancer::new(make)), started)
}

fn run_one(
    experiment: &Experiment,
    balancer: Option<&CustomBalancer>,
    started: Instant,
) -> Outcome {
    let mut simulation = Simulation::new(experiment, balancer);
    simulation.run();
    simulation.outcome(experiment, started.elapsed())
}

struct Simulation {
    network: Network,
    hosts: Hosts,
    workload: Workload,
    outages: Outages,
    /// Traffic that is measured, by its index in the scenario.
    measured: Vec<bool>,
    unfinished: u64,
    warm_up_ns: u64,
    until_ns: u64,
    /// When the next messages are taken: the time of the pending event.
    next_start_ns: u64,
    due: Vec<Message>,
}

/// How often test builds count all packets, in events.
const CHECK_EVERY: u64 = 1 << 14;

impl Simulation {
    fn new(experiment: &Experiment, balancer: Option<&CustomBalancer>) -> Self {
        let scenario = &experiment.scenario;
        let workload = Workload::new(experiment);
        let is_measured = |it: &Traffic| !matches!(it, Traffic::Background { .. });
        let network = Network::new(experiment, balancer);
        Self {
            outages: Outages::new(scenario.fabric.as_ref(), &network),
            network,
            hosts: Hosts::new(experiment),
            measured: scenario.traffic.iter().map(is_measured).collect(),
            unfinished: workload.measured,
            warm_up_ns: scenario.warm_up_ns(),
            until_ns: scenario.until_ms.map_or(u64::MAX, |ms| (ms * 1e6) as u64),
            workload,
            next_start_ns: u64::MAX,
            due: Vec::new(),
        }
    }

    fn run(&mut self) {
        for message in self.workload.background() {
            self.hosts.start(&mut self.network, message);
        }
        self.await_next_message();
        let only_background = self.unfinished == 0;
        let mut events = 0u64;
        while let Some(id) = self.network.events.pop(&self.network.slab) {
            if self.network.now() >= self.until_ns {
                break;
            }
            if self.network.now() >= self.outages.next_ns() {
                let now_ns = self.network.now();
                self.outages.advance(&mut self.network, now_ns);
            }
            self.handle(id);
            if !self.hosts.finished.is_empty() {
                self.follow_up();
                if self.unfinished == 0 && !only_background {
                    break;
                }
            }
            events += 1;
            if cfg!(debug_assertions) && events.is_multiple_of(CHECK_EVERY) {
                self.assert_conservation();
            }
        }
        self.assert_conservation();
    }

    #[inline]
    fn handle(&mut self, id: u32) {
        let network = &mut self.network;
        match network.slab[id].kind() {
            EntryKind::Data
            | EntryKind::Ack
            | EntryKind::Datagram
            | EntryKind::Credit
            | EntryKind::CreditRequest
            | EntryKind::CreditStop => {
                if let Some(id) = network.arrive(id) {
                    self.hosts.receive(network, id);
                }
            }
            EntryKind::Timer => self.hosts.on_timer(network, id),
            EntryKind::Wake => self.hosts.wake(network, id),
            EntryKind::PortFree => network.port_free(id),
            EntryKind::Start => {
                network.slab.remove(id);
                // One before which another came has been replaced by then.
                if network.now() >= self.next_start_ns {
                    self.next_start_ns = u64::MAX;
                    self.start_due();
                    self.await_next_message();
                }
            }
            EntryKind::Free => {
                debug_assert!(false, "entry {id} was freed while it was in the wheel")
            }
        }
    }

    /// Starts all messages that are due.
    fn start_due(&mut self) {
        self.workload.take(self.network.now(), &mut self.due);
        for message in self.due.drain(..) {
            self.hosts.start(&mut self.network, message);
        }
    }

    /// Puts in an event for the next messages, unless one is pending that comes in time.
    fn await_next_message(&mut self) {
        let Some(at) = self
            .workload
            .next_ns()
            .filter(|it| *it < self.next_start_ns)
        else {
            return;
        };
        let network = &mut self.network;
        let event = network.slab.insert(Packet::new(EntryKind::Start));
        if network.events.push(event, at) {
            self.next_start_ns = at;
        } else {
            network.slab.remove(event);
        }
    }

    /// Counts what has arrived, and lets those who always send go on.
    fn follow_up(&mut self) {
        while let Some(number) = self.hosts.finished.pop() {
            if cfg!(debug_assertions) {
                must_hold(self.hosts.check_complete(number));
            }
            let message = &self.hosts.messages[number as usize];
            if self.measured[usize::from(message.origin)] {
                self.unfinished -= u64::from(message.start_ns >= self.warm_up_ns);
                if message.transfer.is_some() {
                    let now_ns = self.network.now();
                    self.workload
                        .collectives
                        .arrived(message, now_ns, &mut self.due);
                }
            } else if let Some(next) = self.workload.after(message, self.network.now()) {
                self.hosts.start(&mut self.network, next);
            }
            for message in self.due.drain(..) {
                self.hosts.start(&mut self.network, message);
            }
        }
        self.await_next_message();
    }

    fn assert_conservation(&self) {
        must_hold(self.network.check_conservation());
    }

    fn outcome(self, experiment: &Experiment, took: Duration) -> Outcome {
        let iterations = self.workload.collectives.into_iterations();
        Outcome::new(
            experiment,
            &self.network,
            &self.hosts,
            &self.measured,
            iterations,
            took,
        )
    }
}

/// Panics on a defect of the simulator itself: the results of such a run are worth nothing.
fn must_hold(check: Result<(), String>) {
    if let Err(problem) = check {
        panic!("{problem}");
    }
}
