//! One flow over two unequal paths: does it fill both, and in order?
//!
//! The sender is clocked by acknowledgements as TCP Reno is (RFC 5681): its window grows by a packet for each
//! acknowledged one, later for each window, and is halved by a loss. Paths are FIFOs that store a packet before they
//! forward it, drop what would wait for longer than their limit, and delay what they forward. The balancer sees virtual
//! queues of the same rates, as a border does that shapes its tunnels. What really happens may differ from that by chance,
//! as timers are late and delays are measured: `docs/src/explanation/bond.md` has what comes of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flow_balance::{
    Balancer, Packet, PathId, PathView, Paths, ServiceTime, ShortFlows, Snapshot, Tr, TrFlow,
    VirtualQueue,
};

const FULL_FRAME: u32 = 1_500;
const WAITS_AT_MOST_NS: u64 = 50_000_000;
const SECONDS: u64 = 20;

/// A path of this rate and this delay one way.
fn path(mbit: u64, delay_ms: u64) -> PathView {
    PathView {
        propagation_ns: delay_ms * 1_000_000,
        service: ServiceTime::from_bits_per_second(mbit * 1_000_000),
        weight: mbit as u32,
        ..PathView::default()
    }
}

/// How a transfer differs from what the balancer's model says.
#[derive(Clone, Copy, Debug, Default)]
struct Reality {
    /// Each packet arrives earlier or later than predicted by up to so much, evenly distributed; none overtakes another one of
    /// its path.
    error_ns: u64,
    /// A packet that changes paths is held back until it arrives so much after the one before.
    hold_ns: u64,
}

/// The outcome of a transfer, from its fifth second on.
#[derive(Debug)]
struct Outcome {
    share_of_sum: f64,
    out_of_order: f64,
}

/// A transfer in virtual time.
struct Transfer {
    tr: Tr,
    paths: Snapshot,
    queues: Vec<VirtualQueue>,
    shared: ShortFlows,
    flow: TrFlow,
    reality: Reality,
    /// When the last packet was predicted to arrive, and by which path.
    predicted: Option<(u64, PathId)>,
    /// When the last one of each path arrived.
    arrived_ns: Vec<u64>,
    window: f64,
    slow_start_until: f64,
    in_flight: u64,
    sent: u64,
    recover: u64,
    /// When the sender hears of a packet: time, number, and whether it was lost.
    acknowledgements: BinaryHeap<Reverse<(u64, u64, bool)>>,
    /// When packets arrive, and which.
    arrivals: Vec<(u64, u64)>,
}

impl Transfer {
    fn run(tr: Tr, views: &[PathView]) -> Outcome {
        Self::run_in(Reality::default(), tr, views)
    }

    fn run_in(reality: Reality, tr: Tr, views: &[PathView]) -> Outcome {
        let mut transfer = Self {
            tr,
            paths: Snapshot::new(views),
            queues: vec![VirtualQueue::default(); views.len()],
            shared: ShortFlows::new(100_000_000),
            flow: TrFlow::default(),
            reality,
            predicted: None,
            arrived_ns: vec![0; views.len()],
            window: 10.0,
            slow_start_until: f64::INFINITY,
            in_flight: 0,
            sent: 0,
            recover: 0,
            acknowledgements: BinaryHeap::new(),
            arrivals: Vec::new(),
        };
        transfer.send(0);
        while let Some(Reverse((now_ns, number, is_lost))) = transfer.acknowledgements.pop() {
            if now_ns > SECONDS * 1_000_000_000 {
                break;
            }
            transfer.hear(number, is_lost);
            transfer.send(now_ns);
        }
        transfer.outcome(views)
    }

    /// Sends what the window has room for.
    fn send(&mut self, now_ns: u64) {
        while (self.in_flight as f64) < self.window.floor() {
            for (path, queue) in self.paths.known().iter().zip(&self.queues) {
                self.paths.view_mut(path).local_backlog_ns = queue.backlog_ns(now_ns);
            }
            let packet = Packet {
                now_ns,
                bytes: FULL_FRAME,
                flow_hash: 0x5eed,
            };
            let path = self
                .tr
                .choose(&mut self.shared, &mut self.flow, &self.paths, &packet);
            let (view, queue) = (self.paths.view(path), &mut self.queues[path.index()]);
            let is_lost = queue.backlog_ns(now_ns) > WAITS_AT_MOST_NS;
            let start_ns = queue.next_start_ns(now_ns);
            let mut arrived_ns = start_ns + view.propagation_ns;
            if !is_lost {
                arrived_ns += view.service.of(FULL_FRAME.into());
                let held_ns = match self.predicted {
                    Some((last_ns, last)) if last != path && self.reality.hold_ns > 0 => {
                        (last_ns + self.reality.hold_ns).saturating_sub(arrived_ns)
                    }
                    _ => 0,
                };
                queue.send(FULL_FRAME.into(), start_ns + held_ns, view.service);
                arrived_ns += held_ns;
                self.predicted = Some((arrived_ns, path));
                let last_ns = &mut self.arrived_ns[path.index()];
                arrived_ns =
                    (arrived_ns + error_ns(self.sent, self.reality.error_ns)).max(*last_ns);
                *last_ns = arrived_ns;
                self.arrivals.push((arrived_ns, self.sent));
            }
            // Acknowledgements go back by the first path.
            let heard_ns = arrived_ns + self.paths.view(first(&self.paths)).propagation_ns;
            self.acknowledgements
                .push(Reverse((heard_ns, self.sent, is_lost)));
            self.sent += 1;
            self.in_flight += 1;
        }
    }

    /// Adapts the window as Reno does.
    fn hear(&mut self, number: u64, is_lost: bool) {
        self.in_flight -= 1;
        if !is_lost && self.window < self.slow_start_until {
            self.window += 1.0;
        } else if !is_lost {
            self.window += 1.0 / self.window;
        } else if number >= self.recover {
            self.window = (self.window / 2.0).max(2.0);
            self.slow_start_until = self.window;
            self.recover = self.sent;
        }
    }

    fn outcome(&mut self, views: &[PathView]) -> Outcome {
        let (from_ns, until_ns) = (5_000_000_000, SECONDS * 1_000_000_000);
        self.arrivals.sort_unstable();
        let mut arrived: f64 = 0.0;
        let mut overtaken = 0.0;
        let mut latest = 0;
        for &(arrived_ns, number) in &self.arrivals {
            if (from_ns..until_ns).contains(&arrived_ns) {
                arrived += 1.0;
                overtaken += f64::from(u8::from(number < latest));
            }
            latest = latest.max(number);
        }
        let sum_mbit: u32 = views.iter().map(|view| view.weight).sum();
        let bits = arrived * f64::from(FULL_FRAME) * 8.0;
        let seconds = (until_ns - from_ns) as f64 / 1e9;
        Outcome {
            share_of_sum: bits / seconds / 1e6 / f64::from(sum_mbit),
            out_of_order: overtaken / arrived.max(1.0),
        }
    }
}

/// By how much the packet with a number comes late, and all of them by up to twice `most_ns`: only differences count.
fn error_ns(number: u64, most_ns: u64) -> u64 {
    // splitmix64.
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) % (2 * most_ns + 1)
}

fn first(paths: &Snapshot) -> PathId {
    paths.known().iter().next().expect("a path")
}

/// The cases of a known bench of bonding, and equal paths.
fn cases() -> Vec<Vec<PathView>> {
    vec![
        vec![path(30, 10), path(8, 30)],
        vec![path(20, 10), path(20, 10)],
        vec![path(50, 10), path(50, 10), path(20, 10)],
    ]
}

#[test]
fn one_flow_fills_unequal_paths_in_order() {
    for case in cases() {
        let outcome = Transfer::run(Tr::bonding(), &case);
        println!("{case:?}: {outcome:?}");
        assert_eq!(outcome.out_of_order, 0.0, "{case:?}");
        assert!(outcome.share_of_sum > 0.9, "{outcome:?}");
    }
}

#[test]
fn a_guard_keeps_one_flow_from_filling_unequal_paths() {
    let unequal = &cases()[0];
    let guarded = Tr {
        guard_ns: 5_000_000,
        ..Tr::bonding()
    };
    let (with, without) = (
        Transfer::run(guarded, unequal),
        Transfer::run(Tr::bonding(), unequal),
    );
    println!("guard: {with:?}, none: {without:?}");
    assert!(with.share_of_sum < 0.85 * without.share_of_sum);
}

/// A place between two packets of the faster path is 0.4 ms wide, and the slower one's packets come anywhere in it: so
/// the part of them that comes to lie in another place is as the error, and no precision that timers have is enough.
#[test]
fn order_is_as_good_as_predictions_and_holding_packets_back_buys_it() {
    // 31 Mbit/s: with 30 and 8 only four places within a packet's time occur, and chance has no part in it.
    let paths = [path(31, 10), path(8, 30)];
    let run = |error_us: u64, hold_us: u64| {
        let reality = Reality {
            error_ns: error_us * 1_000,
            hold_ns: hold_us * 1_000,
        };
        let outcome = Transfer::run_in(reality, Tr::bonding(), &paths);
        println!("{reality:?}: {outcome:?}");
        outcome
    };
    let wrong = [0, 5, 10, 20, 50, 100].map(|error_us| run(error_us, 0));
    assert_eq!(wrong[0].out_of_order, 0.0);
    // Five microseconds are more than 0.1 % already.
    assert!(
        wrong[1..].iter().all(|it| it.out_of_order > 0.001),
        "{wrong:?}"
    );
    assert!(
        wrong[5].out_of_order > 4.0 * wrong[1].out_of_order,
        "{wrong:?}"
    );
    // Two errors are twice as far apart.
    for hold_us in [100, 200] {
        let held = run(50, hold_us);
        assert!(
            held.out_of_order < 0.001 && held.share_of_sum > 0.95,
            "{held:?}"
        );
    }
}

#[test]
fn guard_buys_order_by_locking_a_flow_out_of_a_path() {
    let reality = Reality {
        error_ns: 50_000,
        hold_ns: 0,
    };
    let paths = [path(31, 10), path(8, 30)];
    let guarded = |guard_ns| {
        let tr = Tr {
            guard_ns,
            ..Tr::bonding()
        };
        let outcome = Transfer::run_in(reality, tr, &paths);
        println!("guard of {guard_ns} ns: {outcome:?}");
        outcome
    };
    let without = guarded(0);
    assert!(
        without.share_of_sum > 0.95 && without.out_of_order > 0.01,
        "{without:?}"
    );
    for guard_ns in [100_000, 200_000, 300_000, 500_000] {
        let with = guarded(guard_ns);
        assert_eq!(with.out_of_order, 0.0, "{with:?}");
        assert!(with.share_of_sum < 0.88, "{with:?}");
    }
}
