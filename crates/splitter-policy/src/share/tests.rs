//! Queues of shared tunnels to which several CPUs send at once, and come in between each other's steps.

use super::*;
use crate::cpu_queues::contended::{Contended, Interrupts, interrupt_by};
use core::cell::{Cell, RefCell};
use proptest::prelude::*;
use std::rc::Rc;
use std::vec::Vec;

const CPUS: usize = 4;
const TICK_NS: u64 = 4_000_000;
const SLACK_NS: u64 = 2 * TICK_NS;

#[derive(Clone, Copy, Debug)]
struct Arrival {
    cpu: usize,
    tunnel: TunnelRole,
    queue_class: Class,
    bytes: u64,
    /// Since the one before.
    gap_ns: u64,
    /// It comes between two steps of whoever is at work.
    interrupts: bool,
}

struct Host {
    queues: SharedQueues<Contended>,
    own: [Cell<Option<OwnQueues>>; CPUS],
    waiting: RefCell<Vec<Arrival>>,
    now_ns: Cell<u64>,
    /// When packets were sent, and which.
    sent: RefCell<Vec<(u64, Arrival)>>,
    config: PolicyConfig,
}

impl Host {
    fn new(arrivals: &[Arrival], rates_mbit: [u64; 2]) -> Rc<Self> {
        let [short_service, long_service] =
            rates_mbit.map(|it| ServiceTime::from_bits_per_second(it * 1_000_000));
        let host = Rc::new(Self {
            queues: SharedQueues::default(),
            own: core::array::from_fn(|_| Cell::new(Some(OwnQueues::default()))),
            waiting: RefCell::new(arrivals.iter().rev().copied().collect()),
            now_ns: Cell::new(1_000_000_000),
            sent: RefCell::default(),
            config: PolicyConfig {
                short_service,
                long_service,
                // Nothing is dropped.
                long_queue_ns: 1 << 60,
                ..PolicyConfig::default()
            },
        });
        interrupt_by(Rc::<Self>::clone(&host));
        host
    }

    fn send(&self, arrival: Arrival, mut own: OwnQueues) {
        let (tunnel, bytes) = (arrival.tunnel, arrival.bytes);
        let now_ns = self.now_ns.get() + arrival.gap_ns;
        self.now_ns.set(now_ns);
        let coarse_ns = now_ns / TICK_NS * TICK_NS;
        self.sent.borrow_mut().push((now_ns, arrival));
        let cpu = &mut Cpu {
            own: &mut own,
            slack_ns: SLACK_NS,
        };
        match arrival.queue_class {
            Class::Short => {
                let free_at_ns = self.queues.short[tunnel as usize].free_at_ns();
                let is_busy = free_at_ns >= coarse_ns + SLACK_NS;
                let known_ns = if is_busy { coarse_ns } else { now_ns };
                let packet = (tunnel, bytes);
                let drained_ns = self
                    .queues
                    .enqueue_short(cpu, &self.config, packet, known_ns);
                assert!(drained_ns >= now_ns + service(&self.config, tunnel).of(bytes));
            }
            Class::Long => {
                self.queues
                    .enqueue_long(cpu, &self.config, (tunnel, bytes), coarse_ns);
            }
        }
        self.own[arrival.cpu].set(Some(own));
    }

    /// Sends the next packet, with all that comes meanwhile; false when there is none.
    fn step(&self) -> bool {
        let next = self.waiting.borrow_mut().pop();
        if let Some(arrival) = next {
            let own = self.own[arrival.cpu].take().expect("nobody is at work");
            self.send(arrival, own);
        }
        next.is_some()
    }

    /// When a queue that is fed with what was sent will have drained.
    fn truth_ns(&self, tunnel: TunnelRole, queue_class: Class) -> u64 {
        let sent = self.sent.borrow();
        let own = sent
            .iter()
            .filter(|it| it.1.tunnel == tunnel && it.1.queue_class == queue_class);
        let mut own: Vec<_> = own.map(|(now_ns, it)| (*now_ns, it.bytes)).collect();
        own.sort_unstable();
        let service = service(&self.config, tunnel);
        let fed = |free_ns: u64, (now_ns, bytes)| free_ns.max(now_ns) + service.of(bytes);
        own.into_iter().fold(0, fed)
    }
}

impl Interrupts for Host {
    fn be_interrupted(&self) {
        let next = self.waiting.borrow().last().copied();
        let Some(arrival) = next.filter(|it| it.interrupts) else {
            return;
        };
        // A processor that is taken away in the middle of a packet adds late to a long queue.
        let tick = |time_ns: u64| time_ns / TICK_NS;
        let now_ns = self.now_ns.get();
        if tick(now_ns + arrival.gap_ns) > tick(now_ns) {
            return;
        }
        if let Some(own) = self.own[arrival.cpu].take() {
            self.waiting.borrow_mut().pop();
            self.send(arrival, own);
        }
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap_ns = prop_oneof![4 => 0u64..2_000, 2 => 0u64..30_000, 1 => 0u64..9_000_000];
    let bytes = prop_oneof![60u64..1_514, 20_000u64..66_000];
    let one = (0..CPUS, 0u64..2, 0u64..2, bytes, gap_ns, any::<bool>());
    let one = one.prop_map(|(cpu, tunnel, class, bytes, gap_ns, interrupts)| Arrival {
        cpu,
        tunnel: TunnelRole::numbered(tunnel),
        queue_class: Class::numbered(class),
        bytes,
        gap_ns,
        interrupts,
    });
    proptest::collection::vec(one, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// However many CPUs send: the short class of no tunnel seems emptier than it is, and the long
    /// class of none fuller.
    #[test]
    fn queues_of_shared_tunnels_keep_what_several_cpus_send(
        arrivals in arrivals(),
        rates_mbit in prop_oneof![Just([100, 40]), Just([1_000, 1_000]), Just([10_000, 2_500])],
    ) {
        let host = Host::new(&arrivals, rates_mbit);
        while host.step() {
            for tunnel in TunnelRole::ALL {
                let short_ns = host.queues.short[tunnel as usize].word().number.get();
                let truth_ns = host.truth_ns(tunnel, Class::Short);
                prop_assert!(short_ns >= truth_ns, "short: {short_ns} before {truth_ns}");
                let long_ns = host.queues.long[tunnel as usize].word().number.get();
                let truth_ns = host.truth_ns(tunnel, Class::Long);
                prop_assert!(long_ns <= truth_ns, "long: {long_ns} after {truth_ns}");
            }
        }
    }
}

/// What flows that start will bring is no less for their starting at once, whether others were
/// expected before or not.
#[test]
fn expected_traffic_of_flows_that_start_at_once_adds_up() {
    const NOW_NS: u64 = 5_000_000;
    const COST_NS: u64 = 1_000;
    const FLOWS: u32 = 8;
    struct Starting {
        queue: LateQueue<Contended>,
        left: Cell<u32>,
        accesses: Cell<u32>,
    }
    impl Interrupts for Starting {
        fn be_interrupted(&self) {
            // Between reading and writing.
            self.accesses.set(self.accesses.get() + 1);
            let left = self.left.get();
            if left > 0 && self.accesses.get().is_multiple_of(2) {
                self.left.set(left - 1);
                self.queue.add(COST_NS, NOW_NS);
            }
        }
    }
    for busy_until_ns in [0, NOW_NS + 77] {
        let host = Rc::new(Starting {
            queue: LateQueue::default(),
            left: Cell::new(FLOWS - 1),
            accesses: Cell::new(0),
        });
        host.queue.word().number.set(busy_until_ns);
        interrupt_by(Rc::<Starting>::clone(&host));
        host.queue.add(COST_NS, NOW_NS);
        assert_eq!(host.left.get(), 0);
        let least_ns = busy_until_ns.max(NOW_NS) + u64::from(FLOWS) * COST_NS;
        assert!(host.queue.word().number.get() >= least_ns);
    }
}
