//! Several CPUs at once, which come in between each other's steps.

use super::*;
use crate::cpu_queues::MOST_AHEAD_NS;
use crate::cpu_queues::contended::{Contended, Interrupts, interrupt_by};
use core::cell::{Cell, RefCell};
use proptest::prelude::*;
use std::rc::Rc;
use std::vec::Vec;

const CPUS: usize = 4;
const TICK_NS: u64 = 4_000_000;
const SLACK_NS: u64 = 2 * TICK_NS;
const NO_LIMIT: u64 = u64::MAX / 4;
/// One of a gigabit per second.
const COST_OF_BYTE_NS: u64 = 8;

/// A packet: who sends it, its size, how long after the one before; and whether it comes between two steps of
/// whoever is at it.
type Arrival = (usize, u64, u64, bool);

struct Host {
    shared: SharedModels<Contended>,
    own: [Cell<Option<OwnShare>>; CPUS],
    waiting: RefCell<Vec<Arrival>>,
    now_ns: Cell<u64>,
    /// When packets were sent, and how long each takes.
    sent: RefCell<Vec<(u64, u64)>>,
    is_long: bool,
    /// Its coarse clock is an exact one.
    is_exact: Cell<bool>,
}

impl Host {
    fn new(arrivals: &[Arrival], is_long: bool) -> Rc<Self> {
        let host = Rc::new(Self {
            shared: SharedModels::default(),
            own: core::array::from_fn(|_| Cell::new(Some(OwnShare::default()))),
            waiting: RefCell::new(arrivals.iter().rev().copied().collect()),
            now_ns: Cell::new(1_000_000_000),
            sent: RefCell::default(),
            is_long,
            is_exact: Cell::new(false),
        });
        interrupt_by(Rc::<Self>::clone(&host));
        host
    }
}

impl Interrupts for Host {
    fn be_interrupted(&self) {
        let next = self.waiting.borrow().last().copied();
        if let Some((cpu, _, gap_ns, true)) = next {
            // A processor that is taken away in the middle of a packet adds late to the long queue.
            let tick = |time_ns: u64| time_ns / TICK_NS;
            let now_ns = self.now_ns.get();
            if self.is_long && tick(now_ns + gap_ns) > tick(now_ns) {
                return;
            }
            self.waiting.borrow_mut().pop();
            if let (Some(own), Some(arrival)) = (self.own[cpu].take(), next) {
                self.send(arrival, own);
            }
        }
    }
}

impl Host {
    fn send(&self, (cpu, bytes, gap_ns, _): Arrival, mut own: OwnShare) {
        let now_ns = self.now_ns.get() + gap_ns;
        self.now_ns.set(now_ns);
        let (coarse_ns, slack_ns) = match self.is_exact.get() {
            true => (now_ns, 0),
            false => (now_ns / TICK_NS * TICK_NS, SLACK_NS),
        };
        let service = ServiceTime::from_bits_per_second(8_000_000_000 / COST_OF_BYTE_NS);
        self.sent.borrow_mut().push((now_ns, service.of(bytes)));
        let mut queues = DedicatedQueues {
            shared: &self.shared,
            own: &mut own,
            slack_ns,
        };
        if self.is_long {
            queues.send_long(bytes, service, NO_LIMIT, coarse_ns);
        } else {
            let is_busy = queues.is_short_busy(coarse_ns);
            let known_ns = if is_busy { coarse_ns } else { now_ns };
            let drained_ns = queues.send_short(bytes, service, NO_LIMIT, known_ns);
            assert!(drained_ns >= now_ns + service.of(bytes));
        }
        self.own[cpu].set(Some(own));
    }

    /// Sends the next packet, with all that comes meanwhile; false when there is none.
    fn step(&self) -> bool {
        let next = self.waiting.borrow_mut().pop();
        if let Some(arrival) = next {
            let own = self.own[arrival.0].take().expect("nobody is at work");
            self.send(arrival, own);
        }
        next.is_some()
    }

    /// When a queue that is fed with what was sent will have drained.
    fn truth_ns(&self) -> u64 {
        let mut sent = self.sent.borrow().clone();
        sent.sort_unstable();
        let fed = |free_ns: u64, (now_ns, cost_ns)| free_ns.max(now_ns) + cost_ns;
        sent.into_iter().fold(0, fed)
    }

    fn short_ns(&self) -> u64 {
        self.shared.short.word().number.get()
    }
}

/// Gaps that leave the queue idle, keep it busy, and let it grow beyond a tick.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap_ns = prop_oneof![4 => 0u64..2_000, 2 => 0u64..30_000, 1 => 0u64..9_000_000];
    let bytes = prop_oneof![60u64..1_514, 20_000u64..66_000];
    proptest::collection::vec((0..CPUS, bytes, gap_ns, any::<bool>()), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_short_queue_never_seems_emptier_than_it_is(arrivals in arrivals(), is_exact: bool) {
        let host = Host::new(&arrivals, false);
        host.is_exact.set(is_exact);
        while host.step() {
            let (model_ns, truth_ns) = (host.short_ns(), host.truth_ns());
            prop_assert!(model_ns >= truth_ns, "{model_ns} before {truth_ns}");
        }
    }

    #[test]
    fn it_seems_fuller_by_no_more_than_what_is_paid_in_advance(arrivals in arrivals()) {
        let host = Host::new(&arrivals, false);
        while host.step() {
            let sent_ns: u64 = host.sent.borrow().iter().map(|it| it.1).sum();
            let ahead_ns = sent_ns / 16 + CPUS as u64 * MOST_AHEAD_NS;
            let (model_ns, truth_ns) = (host.short_ns(), host.truth_ns());
            // Who comes too late to end an idle time adds what has passed since the other's packet.
            let late_ns = arrivals.iter().filter(|it| it.3).map(|it| it.2).sum::<u64>();
            prop_assert!(model_ns <= truth_ns + ahead_ns + late_ns);
        }
    }

    #[test]
    fn the_long_queue_never_seems_fuller_than_it_is(arrivals in arrivals()) {
        let host = Host::new(&arrivals, true);
        while host.step() {
            let model_ns = host.shared.long.word().number.get();
            prop_assert!(model_ns <= host.truth_ns());
        }
    }
}

#[test]
fn busy_queues_are_written_once_for_many_packets() {
    const PACKETS: u64 = 10_000;
    let arrivals: Vec<Arrival> = (0..PACKETS)
        .map(|number| (number as usize % 2, 1_514, 5_000, false))
        .collect();
    for is_long in [false, true] {
        let host = Host::new(&arrivals, is_long);
        while host.step() {}
        let line = match is_long {
            true => host.shared.long.word(),
            false => host.shared.short.word(),
        };
        let writes = line.writes.get();
        assert!(writes < PACKETS / 3, "{writes}");
        let lag_ns = host.truth_ns().abs_diff(line.number.get());
        assert!(lag_ns < host.truth_ns() / 20, "{lag_ns}");
    }
}
