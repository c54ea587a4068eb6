//! Transfers that share a sender's access, with the congestion control of an ordinary host: slow
//! start, CUBIC (RFC 9438) and losses that a full queue causes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use splitter_policy::packet::TcpFlags;

use crate::border::{Border, Departure, HEADER_BYTES, QUEUE_NS, SECOND};
use crate::shaper::Packet;
use crate::traffic::{Far, PAYLOAD_BYTES, Random, Seen};

const FIRST_WINDOW: f64 = 10.0;
/// What iperf3 says first on each connection.
const COOKIE_BYTES: u64 = 37;
/// A full packet on the access link of 1 Gbit/s that the transfers share.
const ON_ACCESS_NS: u64 = (PAYLOAD_BYTES + HEADER_BYTES) * 8;
/// RFC 9438 sections 4.6, 4.1 and 4.3.
const CUBIC_DECREASE: f64 = 0.7;
const CUBIC_SCALE: f64 = 0.4;
const RENO_GROWTH: f64 = 0.53;
const ACK: TcpFlags = TcpFlags(0x10);
const SYN: TcpFlags = TcpFlags(0x02);
const FIN: TcpFlags = TcpFlags(0x11);

/// When a transfer's connection is opened, and when it begins to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) opens_ns: u64,
    /// `None`: with the last packet of its handshake.
    pub(crate) sends_ns: Option<u64>,
    /// How many full packets it sends before it ends.
    pub(crate) packets: u64,
}

/// Transfers in front of one border, and what else is on the network.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) transfers: Vec<Opening>,
    pub(crate) round_trip_ns: u64,
    /// Flows that send or acknowledge a few packets each, with when they start.
    pub(crate) small: Vec<Small>,
    /// When a download begins whose requests and acknowledgements pass here, and whose data do not.
    pub(crate) downloads: Vec<u64>,
    pub(crate) ends_ns: u64,
}

impl Traffic {
    /// How many flows there are, in the order of the fields.
    pub(crate) fn flows(&self) -> usize {
        self.transfers.len() + self.small.len() + self.downloads.len()
    }
}

/// A flow that sends so many packets, as many again each round trip as acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    pub(crate) starts_ns: u64,
    pub(crate) packets: u64,
    /// 0 of a flow of acknowledgements.
    pub(crate) payload: u64,
}

impl Small {
    /// Such flows by the second, half of them of acknowledgements.
    pub(crate) fn mixed(
        random: &mut Random,
        per_second: u64,
        from_ns: u64,
        to_ns: u64,
    ) -> Vec<Self> {
        let count = per_second * (to_ns - from_ns) / SECOND;
        (0..count)
            .map(|number| Self {
                starts_ns: from_ns + random.below(to_ns - from_ns),
                packets: random.one_of(&[5, 10, 20, 37]),
                payload: if number % 2 == 0 { PAYLOAD_BYTES } else { 0 },
            })
            .collect()
    }
}

/// What the far border received within a time.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Of each tunnel.
    pub(crate) bytes: [u64; 2],
    /// Departures of packets with data that came after a later one of their flow.
    pub(crate) overtaken: Vec<(u64, Departure)>,
    /// When each transfer was acknowledged to its end, if it was.
    pub(crate) completed_ns: Vec<Option<u64>>,
    /// When the last packet of each small flow had arrived.
    pub(crate) small_ns: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Opened,
    Acknowledged,
    /// The number of the packet.
    Lost(u64),
}

#[derive(Clone)]
struct Sender {
    window: f64,
    /// The window before the last loss, and when that was; 0 in slow start.
    before: f64,
    lost_ns: u64,
    in_flight: u64,
    sent: u64,
    /// Packets that are not sent yet, or were lost.
    left: u64,
    /// Losses of packets before this one belong to the last decrease.
    recovers_at: u64,
}

impl Sender {
    fn new(sent: u64, left: u64) -> Self {
        Self {
            window: FIRST_WINDOW,
            before: 0.0,
            lost_ns: 0,
            in_flight: 0,
            sent,
            left,
            recovers_at: 0,
        }
    }

    fn hear(&mut self, event: Event, now_ns: u64) {
        match event {
            Event::Opened => {}
            Event::Acknowledged => {
                self.in_flight -= 1;
                self.window += self.growth(now_ns);
            }
            Event::Lost(number) => {
                self.in_flight -= 1;
                self.left += 1;
                if number >= self.recovers_at {
                    self.before = self.window;
                    self.window = (self.window * CUBIC_DECREASE).max(2.0);
                    self.lost_ns = now_ns;
                    self.recovers_at = self.sent;
                }
            }
        }
    }

    fn growth(&self, now_ns: u64) -> f64 {
        if self.lost_ns == 0 {
            return 1.0;
        }
        let since = (now_ns - self.lost_ns) as f64 / 1e9;
        let back_at = (self.before * (1.0 - CUBIC_DECREASE) / CUBIC_SCALE).cbrt();
        let target = CUBIC_SCALE * (since - back_at).powi(3) + self.before;
        // Never slower than Reno, as on short round trips (section 4.3), and not as fast as it began.
        let in_round_trip = (target - self.window).max(RENO_GROWTH);
        in_round_trip.min(self.window / 2.0) / self.window
    }
}

/// Sends through a border; what comes out from `from_ns` on.
pub(crate) fn run(border: &mut Border, traffic: &Traffic, from_ns: u64) -> Received {
    let Traffic {
        transfers,
        round_trip_ns,
        small,
        downloads,
        ends_ns,
    } = traffic;
    let mut events = BinaryHeap::new();
    let mut senders = Vec::new();
    for (flow, opening) in transfers.iter().enumerate() {
        let (sent, sends_ns) = open(border, flow, opening, *round_trip_ns);
        senders.push(Sender::new(sent, opening.packets));
        events.push(Reverse((sends_ns, flow, Event::Opened)));
    }
    for (index, small) in small.iter().enumerate() {
        send_small(border, transfers.len() + index, small, *round_trip_ns);
    }
    for (index, starts_ns) in downloads.iter().enumerate() {
        let flow = transfers.len() + small.len() + index;
        send_acknowledgements(border, flow, *starts_ns, *round_trip_ns);
    }
    let mut far = Far::new(border, traffic.flows());
    let (mut seen, mut received) = (Seen::default(), Received::default());
    received.completed_ns = vec![None; transfers.len()];
    let mut access_free_ns = 0;
    let is_transferred = |packet: &Packet| {
        packet.flow < transfers.len() && packet.bytes > HEADER_BYTES + COOKIE_BYTES
    };
    loop {
        let event = events.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let next_ns = event.into_iter().chain(border.next_ns()).min();
        let Some(now_ns) = next_ns.filter(|it| it < ends_ns) else {
            break;
        };
        border.run_until(now_ns);
        for departure in std::mem::take(&mut border.departures) {
            let packet = departure.packet;
            let at_ns = far.receive(departure, &mut seen);
            if at_ns >= from_ns {
                received.bytes[departure.tunnel as usize] += packet.bytes;
            }
            if is_transferred(&packet) {
                let heard_ns = at_ns + round_trip_ns;
                events.push(Reverse((heard_ns, packet.flow, Event::Acknowledged)));
            }
        }
        for packet in std::mem::take(&mut border.dropped) {
            if is_transferred(&packet) {
                // Seen when what was in front of it is acknowledged.
                let heard_ns = now_ns + QUEUE_NS + round_trip_ns;
                events.push(Reverse((heard_ns, packet.flow, Event::Lost(packet.number))));
            }
        }
        while let Some(Reverse((at_ns, flow, event))) = events.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            events.pop();
            let sender = &mut senders[flow];
            sender.hear(event, now_ns);
            while sender.left > 0 && (sender.in_flight as f64) < sender.window.floor() {
                access_free_ns = now_ns.max(access_free_ns) + ON_ACCESS_NS;
                let flags = if sender.left == 1 { FIN } else { ACK };
                border.arrive_with(access_free_ns, flow, sender.sent, PAYLOAD_BYTES, flags);
                sender.sent += 1;
                sender.left -= 1;
                sender.in_flight += 1;
            }
            if sender.left == 0 && sender.in_flight == 0 {
                received.completed_ns[flow].get_or_insert(now_ns);
            }
        }
    }
    received.small_ns = far.last_ns[transfers.len()..][..small.len()].to_vec();
    // What carries no data may come late: nobody misses it.
    let carries_data = |it: &(u64, Departure)| it.1.packet.bytes > HEADER_BYTES;
    received.overtaken = seen.overtaken.into_iter().filter(carries_data).collect();
    received
}

/// Shakes hands; how many packets that takes, and when the transfer begins.
fn open(border: &mut Border, flow: usize, opening: &Opening, round_trip_ns: u64) -> (u64, u64) {
    border.arrive_with(opening.opens_ns, flow, 0, 0, SYN);
    let opened_ns = opening.opens_ns + round_trip_ns;
    border.arrive(opened_ns, flow, 1, 0);
    match opening.sends_ns.filter(|it| *it > opened_ns) {
        Some(sends_ns) => {
            border.arrive(opened_ns, flow, 2, COOKIE_BYTES);
            (3, sends_ns)
        }
        None => (2, opened_ns),
    }
}

/// The client's side of a download: a request, and an acknowledgement for every other packet.
fn send_acknowledgements(border: &mut Border, flow: usize, starts_ns: u64, round_trip_ns: u64) {
    const REQUEST_BYTES: u64 = 300;
    const ACKS: u64 = 500;
    const BETWEEN_NS: u64 = 2 * 121_120;
    border.arrive_with(starts_ns, flow, 0, 0, SYN);
    let opened_ns = starts_ns + round_trip_ns;
    border.arrive(opened_ns, flow, 1, 0);
    border.arrive(opened_ns, flow, 2, REQUEST_BYTES);
    let answered_ns = opened_ns + round_trip_ns;
    for ack in 0..ACKS {
        border.arrive(answered_ns + ack * BETWEEN_NS, flow, 3 + ack, 0);
    }
    border.arrive_with(answered_ns + ACKS * BETWEEN_NS, flow, 3 + ACKS, 0, FIN);
}

/// A flow whose packets none misses: twice as many in each round trip, the last with its end.
fn send_small(border: &mut Border, flow: usize, small: &Small, round_trip_ns: u64) {
    border.arrive_with(small.starts_ns, flow, 0, 0, SYN);
    let (mut at_ns, mut number, mut window) = (small.starts_ns, 1, FIRST_WINDOW as u64);
    while number <= small.packets {
        at_ns += round_trip_ns;
        for _ in 0..window.min(small.packets + 1 - number) {
            let is_last = number == small.packets;
            let flags = if is_last { FIN } else { ACK };
            border.arrive_with(at_ns, flow, number, small.payload, flags);
            at_ns += ON_ACCESS_NS;
            number += 1;
        }
        window *= 2;
    }
}
