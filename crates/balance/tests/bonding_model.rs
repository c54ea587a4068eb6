//! One flow over two unequal paths: does it fill both, and in order?
//!
//! The sender is clocked by acknowledgements as TCP Reno is (RFC 5681): its window grows by a packet for each
//! acknowledged one, later for each window, and is halved by a loss. Paths are FIFOs that store a packet before they
//! forward it, drop what would wait for longer than their limit, and delay what they forward. The balancer sees virtual
//! queues of the same rates, as a border does that shapes its tunnels.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flow_balance::{
    Balancer, Packet, PathView, Paths, ServiceTime, ShortFlows, Snapshot, Tr, TrFlow, VirtualQueue,
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
        let mut transfer = Self {
            tr,
            paths: Snapshot::new(views),
            queues: vec![VirtualQueue::default(); views.len()],
            shared: ShortFlows::new(100_000_000),
            flow: TrFlow::default(),
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
            let left_ns = match is_lost {
                true => queue.next_start_ns(now_ns),
                false => queue.send(FULL_FRAME.into(), now_ns, view.service),
            };
            let arrived_ns = left_ns + view.propagation_ns;
            if !is_lost {
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

fn first(paths: &Snapshot) -> flow_balance::PathId {
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
