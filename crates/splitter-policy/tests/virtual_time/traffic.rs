//! Senders that are clocked by acknowledgements, and the far border that sees what arrives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::border::{Border, Departure, MICROSECOND, MILLISECOND, SECOND};

pub(crate) const PAYLOAD_BYTES: u64 = 1_448;
const FIRST_WINDOW: u64 = 10;
/// What a receiver's buffer allows.
const LARGEST_WINDOW: u64 = 60;

/// SplitMix64: a seed tells all that is drawn.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// A flow that sends so many full packets from its start on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) start_ns: u64,
    pub(crate) packets: u64,
    pub(crate) round_trip_ns: u64,
    pub(crate) access_mbit: u64,
}

impl Flow {
    /// So many flows that start within half a second, of which one in `one_in` is long.
    pub(crate) fn mixed(random: &mut Random, count: usize, one_in: usize) -> Vec<Self> {
        let round_trips = [
            200 * MICROSECOND,
            2 * MILLISECOND,
            10 * MILLISECOND,
            22 * MILLISECOND,
        ];
        let flow = |number: usize| Self {
            start_ns: SECOND + random.below(SECOND / 2),
            packets: match number % one_in {
                0 => 50 + random.below(500),
                _ => 1 + random.below(38),
            },
            round_trip_ns: random.one_of(&round_trips),
            access_mbit: random.one_of(&[100, 1_000]),
        };
        (0..count).map(flow).collect()
    }
}

#[derive(Clone, Copy, Default)]
struct Sender {
    sent: u64,
    acknowledged: u64,
    window: u64,
    access_free_ns: u64,
}

/// What a far border saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Packets that came after a later one of their flow, with when they came.
    pub(crate) overtaken: Vec<(u64, Departure)>,
    /// Of each flow, when its last packet came, if all came.
    pub(crate) completed_ns: Vec<Option<u64>>,
}

/// Sends flows through a border until all have ended.
pub(crate) fn run(border: &mut Border, flows: &[Flow]) -> Seen {
    let mut senders = vec![
        Sender {
            window: FIRST_WINDOW,
            ..Sender::default()
        };
        flows.len()
    ];
    let mut events: BinaryHeap<_> = (flows.iter().enumerate())
        .map(|(number, flow)| Reverse((flow.start_ns, number)))
        .collect();
    let mut far = Far::new(border, flows.len());
    let mut starting = vec![true; flows.len()];
    let mut seen = Seen::default();
    loop {
        let event = events.peek().map(|Reverse((at_ns, _))| *at_ns);
        let Some(now_ns) = event.into_iter().chain(border.next_ns()).min() else {
            break;
        };
        border.run_until(now_ns);
        for departure in std::mem::take(&mut border.departures) {
            let flow = departure.packet.flow;
            let arrives_ns = far.receive(departure, &mut seen);
            events.push(Reverse((arrives_ns + flows[flow].round_trip_ns, flow)));
        }
        for packet in std::mem::take(&mut border.dropped) {
            let flow = packet.flow;
            // Sent again, or so it seems to the sender.
            far.count[flow] += 1;
            events.push(Reverse((now_ns + flows[flow].round_trip_ns, flow)));
        }
        while let Some(Reverse((_, number))) = events
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= now_ns)
        {
            events.pop();
            let (flow, sender) = (&flows[number], &mut senders[number]);
            if !std::mem::take(&mut starting[number]) {
                sender.acknowledged += 1;
                sender.window = (sender.window + 1).min(LARGEST_WINDOW);
            }
            while sender.sent < flow.packets && sender.sent < sender.acknowledged + sender.window {
                let on_wire_ns = (PAYLOAD_BYTES + 66) * 8_000 / flow.access_mbit;
                sender.access_free_ns = sender.access_free_ns.max(now_ns) + on_wire_ns;
                border.arrive(sender.access_free_ns, number, sender.sent, PAYLOAD_BYTES);
                sender.sent += 1;
            }
        }
    }
    seen.completed_ns = far.completed(flows);
    seen
}

/// The tunnels behind their shapers, a little faster than these, and the border at their end.
pub(crate) struct Far {
    rates: [u64; 2],
    free_ns: [u64; 2],
    next: Vec<u64>,
    count: Vec<u64>,
    pub(crate) last_ns: Vec<u64>,
}

impl Far {
    pub(crate) fn new(border: &Border, flows: usize) -> Self {
        Self {
            rates: border.rates_mbit,
            free_ns: [0; 2],
            next: vec![0; flows],
            count: vec![0; flows],
            last_ns: vec![0; flows],
        }
    }

    pub(crate) fn receive(&mut self, departure: Departure, seen: &mut Seen) -> u64 {
        let Departure {
            packet,
            left_ns,
            tunnel,
            ..
        } = departure;
        let index = tunnel as usize;
        // The shaper has 97 % of the rate.
        let on_wire_ns = packet.bytes * 8_000 * 97 / 100 / self.rates[index];
        let at_ns = self.free_ns[index].max(left_ns) + on_wire_ns;
        self.free_ns[index] = at_ns;
        let flow = packet.flow;
        // Departures come in the order of time at the border, and tunnels may differ in length by
        // less than a packet: what left later in the other tunnel arrives later, or is close.
        if packet.number < self.next[flow] {
            seen.overtaken.push((at_ns, departure));
        }
        self.next[flow] = self.next[flow].max(packet.number + 1);
        self.count[flow] += 1;
        self.last_ns[flow] = self.last_ns[flow].max(at_ns);
        at_ns
    }

    fn completed(&self, flows: &[Flow]) -> Vec<Option<u64>> {
        let all = flows.iter().zip(&self.count).zip(&self.last_ns);
        all.map(|((flow, count), last_ns)| (*count == flow.packets).then_some(*last_ns))
            .collect()
    }
}
