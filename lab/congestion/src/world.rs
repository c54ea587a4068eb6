//! The world: events in the order of their times, one bottleneck, and the flows through it.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    flow::{Flow, Outbox, Packet, count_goodput},
    link::{Enqueued, Link},
    random::Random,
};

/// A sender's packets are delayed by the time of so many bytes at the bottleneck, at most.
const JITTER_BYTES: usize = 1_500;

/// A change of the bottleneck.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Rate(f64),
    Loss(f64),
}

#[derive(Debug)]
enum Event {
    /// The link has sent the packet at its head.
    Through,
    /// A packet gets to the link.
    Enter(Packet),
    Arrive(Packet),
    Return(Packet),
    Wake(usize),
    Change(Change),
}

#[derive(Debug)]
struct Due {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Flows that share a bottleneck, in virtual time.
pub(crate) struct World {
    pub(crate) link: Link,
    pub(crate) flows: Vec<Box<dyn Flow>>,
    /// From the bottleneck to the receivers, and from there back.
    delay_ns: u64,
    heap: BinaryHeap<Reverse<Due>>,
    wakes: Vec<u64>,
    number: u64,
    random: Random,
    back_loss: f64,
    /// When the last packet of each flow gets to the link.
    entered: Vec<u64>,
}

impl World {
    pub(crate) fn new(
        link: Link,
        round_trip_ns: u64,
        seed: u64,
        flows: Vec<Box<dyn Flow>>,
    ) -> Self {
        let wakes = vec![u64::MAX; flows.len()];
        let entered = vec![0; flows.len()];
        let mut world = Self {
            link,
            flows,
            delay_ns: round_trip_ns / 2,
            heap: BinaryHeap::new(),
            wakes,
            number: 0,
            random: Random::new(seed),
            back_loss: 0.0,
            entered,
        };
        for flow in 0..world.flows.len() {
            // Nobody starts at the very same time as another.
            world.wake(flow, 1 + 137_000 * flow as u64);
        }
        world
    }

    pub(crate) fn change(&mut self, at: u64, change: Change) {
        self.push(at, Event::Change(change));
    }

    fn push(&mut self, at: u64, event: Event) {
        self.number += 1;
        let number = self.number;
        self.heap.push(Reverse(Due { at, number, event }));
    }

    fn wake(&mut self, flow: usize, at: u64) {
        if at < self.wakes[flow] {
            self.wakes[flow] = at;
            self.push(at, Event::Wake(flow));
        }
    }

    /// Runs until a time, in ns.
    pub(crate) fn run(&mut self, until: u64) {
        let mut out = Outbox::default();
        while let Some(Reverse(due)) = self.heap.pop() {
            if due.at >= until {
                break;
            }
            self.handle(due.at, due.event, &mut out);
        }
    }

    fn handle(&mut self, now: u64, event: Event, out: &mut Outbox) {
        let flow = match event {
            Event::Through => {
                if let Some((packet, next)) = self.link.finish(now) {
                    self.push(now + self.delay_ns, Event::Arrive(packet));
                    if let Some(next) = next {
                        self.push(next, Event::Through);
                    }
                }
                return;
            }
            Event::Enter(packet) => {
                if let Enqueued::Serving(until) = self.link.enqueue(now, packet, &mut self.random) {
                    self.push(until, Event::Through);
                }
                return;
            }
            Event::Change(change) => {
                match change {
                    Change::Rate(bits_per_s) => self.link.set_rate(bits_per_s),
                    Change::Loss(share) => {
                        self.link.set_loss(share);
                        self.back_loss = share;
                    }
                }
                return;
            }
            Event::Arrive(packet) => {
                let flow = packet.flow;
                self.flows[flow].arrived(now, packet);
                count_goodput(&mut *self.flows[flow], self.link.series.at(now, flow));
                flow
            }
            Event::Return(packet) => {
                let flow = packet.flow;
                self.flows[flow].returned(now, packet);
                flow
            }
            Event::Wake(flow) => {
                if self.wakes[flow] != now {
                    return;
                }
                self.wakes[flow] = u64::MAX;
                flow
            }
        };
        self.drive(now, flow, out);
    }

    fn drive(&mut self, now: u64, flow: usize, out: &mut Outbox) {
        let next = self.flows[flow].drive(now, out);
        for packet in out.forward.drain(..) {
            // Without chance, acknowledgements clock one flow's packets into places that are free and
            // the other's always into a full queue (phase effects, Floyd and Jacobson 1992).
            let chance = self.random.share() * self.link.time_of(JITTER_BYTES) as f64;
            let at = (now + chance as u64).max(self.entered[flow]);
            self.entered[flow] = at;
            self.number += 1;
            let (number, event) = (self.number, Event::Enter(packet));
            self.heap.push(Reverse(Due { at, number, event }));
        }
        for packet in out.back.drain(..) {
            if self.back_loss > 0.0 && self.random.share() < self.back_loss {
                continue;
            }
            self.number += 1;
            let (number, event) = (self.number, Event::Return(packet));
            let at = now + self.delay_ns;
            self.heap.push(Reverse(Due { at, number, event }));
        }
        if let Some(next) = next {
            self.wake(flow, next.max(now + 1));
        }
    }
}
