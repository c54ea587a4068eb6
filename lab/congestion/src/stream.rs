//! A peer to compare with: a reliable stream with CUBIC's window, as TCP and QUIC send it.
//!
//! Packets have numbers of their own, as QUIC's do, and are acknowledged by number, as SACK does
//! too. Losses are found by three later packets or a timeout (RFC 9002 §6).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cloudburst_proto::Ecn;

use crate::{
    cubic::Cubic,
    flow::{Flow, Load, Outbox, Packet, Payload},
};

/// Payload and wire length of a segment.
const SEGMENT_BYTES: usize = 1_448;
const WIRE_BYTES: usize = SEGMENT_BYTES + 52;
const ACKNOWLEDGEMENT_BYTES: usize = 60;
/// RFC 9002 §6.1.1, and the longest that a receiver waits (RFC 9000 §18.2).
const PACKET_THRESHOLD: u64 = 3;
const MAX_ACK_DELAY: u64 = 25_000_000;
/// RFC 9002 §6.2.2.
const INITIAL_ROUND_TRIP: u64 = 333_000_000;

/// One connection, its sender and its receiver.
pub(crate) struct Stream {
    flow: usize,
    cubic: Cubic,
    /// Its packets are capable of ECN, and a mark counts as a loss does (RFC 3168 §6.1.2).
    has_ecn: bool,
    /// Paces at 1.25 windows in a round trip, as QUIC does; without, all leaves at once.
    is_paced: bool,
    load: Load,
    next_message: usize,
    /// First segment behind each message, with the time when the message was given.
    messages: VecDeque<(u64, u64)>,
    next_segment: u64,
    end_segment: u64,
    resend: VecDeque<u64>,
    sent: BTreeMap<u64, (u64, u64)>,
    next_packet: u64,
    recovery_until: u64,
    round_trip: Option<(u64, u64)>,
    least_round_trip: u64,
    timeouts: u32,
    timer: u64,
    paced_until: u64,
    received: Received,
    completions: Vec<(u64, f64)>,
}

/// The receiver's side.
#[derive(Default)]
struct Received {
    /// Segments below this have all arrived.
    whole: u64,
    beyond: BTreeSet<u64>,
    goodput: u64,
    unacknowledged: Vec<u64>,
    is_marked: bool,
    highest: u64,
    due: Option<u64>,
}

impl Stream {
    pub(crate) fn new(flow: usize, load: Load, is_paced: bool) -> Self {
        let is_backlog = matches!(load, Load::Backlog { .. });
        Self {
            flow,
            cubic: Cubic::default(),
            has_ecn: false,
            is_paced,
            load,
            next_message: 0,
            messages: VecDeque::new(),
            next_segment: 0,
            end_segment: if is_backlog { u64::MAX } else { 0 },
            resend: VecDeque::new(),
            sent: BTreeMap::new(),
            next_packet: 0,
            recovery_until: 0,
            round_trip: None,
            least_round_trip: u64::MAX,
            timeouts: 0,
            timer: u64::MAX,
            paced_until: 0,
            received: Received::default(),
            completions: Vec::new(),
        }
    }

    /// Has its packets be marked where they would be dropped.
    pub(crate) fn with_ecn(self) -> Self {
        Self {
            has_ecn: true,
            ..self
        }
    }

    fn smoothed(&self) -> u64 {
        self.round_trip
            .map_or(INITIAL_ROUND_TRIP, |(smoothed, _)| smoothed)
    }

    fn timeout(&self) -> u64 {
        let (smoothed, variation) = self
            .round_trip
            .unwrap_or((INITIAL_ROUND_TRIP, INITIAL_ROUND_TRIP / 2));
        let timeout = smoothed + (4 * variation).max(1_000_000) + MAX_ACK_DELAY;
        timeout << self.timeouts.min(6)
    }

    fn sample(&mut self, sample: u64) {
        self.least_round_trip = self.least_round_trip.min(sample);
        self.round_trip = Some(match self.round_trip {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => (
                (7 * smoothed + sample) / 8,
                (3 * variation + smoothed.abs_diff(sample)) / 4,
            ),
        });
    }

    fn take_messages(&mut self, now: u64) -> Option<u64> {
        let Load::Messages(list) = &self.load else {
            return None;
        };
        while let Some(&(at, bytes)) = list.get(self.next_message) {
            if at > now {
                return Some(at);
            }
            self.end_segment += bytes.div_ceil(SEGMENT_BYTES) as u64;
            self.messages.push_back((self.end_segment, at));
            self.next_message += 1;
        }
        None
    }

    fn find_losses(&mut self, largest: u64) {
        let mut lost = false;
        while let Some((&packet, &(segment, _))) = self.sent.first_key_value()
            && packet + PACKET_THRESHOLD <= largest
        {
            self.sent.remove(&packet);
            self.resend.push_back(segment);
            lost |= packet >= self.recovery_until;
        }
        if lost {
            self.reduce();
        }
    }

    fn reduce(&mut self) {
        self.recovery_until = self.next_packet;
        self.cubic.lost();
    }

    fn send(&mut self, now: u64, out: &mut Outbox) -> Option<u64> {
        loop {
            let is_probe = self.timeouts > 0 && self.sent.is_empty();
            if self.sent.len() as f64 >= self.cubic.window && !is_probe {
                return None;
            }
            if self.is_paced && self.paced_until > now {
                return Some(self.paced_until);
            }
            let segment = match self.resend.pop_front() {
                Some(segment) => segment,
                None if self.next_segment < self.end_segment => {
                    self.next_segment += 1;
                    self.next_segment - 1
                }
                None => return None,
            };
            let packet = self.next_packet;
            self.next_packet += 1;
            self.sent.insert(packet, (segment, now));
            let gap = self.smoothed() as f64 / (1.25 * self.cubic.window);
            // A little may leave at once: timers are not that fine.
            self.paced_until = self.paced_until.max(now.saturating_sub(1_000_000)) + gap as u64;
            self.timer = now + self.timeout();
            out.forward.push(Packet {
                flow: self.flow,
                path: 0,
                bytes: WIRE_BYTES,
                ecn: if self.has_ecn {
                    Ecn::Capable
                } else {
                    Ecn::NotCapable
                },
                payload: Payload::Segment { packet, segment },
            });
        }
    }

    fn check_timer(&mut self, now: u64) {
        if self.sent.is_empty() || now < self.timer {
            return;
        }
        self.timeouts += 1;
        for (segment, _) in core::mem::take(&mut self.sent).into_values() {
            self.resend.push_back(segment);
        }
        self.recovery_until = self.next_packet;
        self.cubic.timed_out();
    }
}

impl Flow for Stream {
    fn arrived(&mut self, now: u64, packet: Packet) {
        self.received.is_marked |= packet.ecn == Ecn::CongestionExperienced;
        let Payload::Segment { packet, segment } = packet.payload else {
            return;
        };
        let received = &mut self.received;
        let in_order = packet == received.highest || packet == 0;
        received.highest = packet + 1;
        received.unacknowledged.push(packet);
        if segment >= received.whole && received.beyond.insert(segment) {
            while received.beyond.remove(&received.whole) {
                received.whole += 1;
                received.goodput += SEGMENT_BYTES as u64;
            }
        }
        let whole = received.whole;
        while let Some(&(end, at)) = self.messages.front()
            && end <= whole
        {
            self.completions.push((now, (now - at) as f64 / 1e6));
            self.messages.pop_front();
        }
        let is_due = received.unacknowledged.len() >= 2 || !in_order;
        received.due = Some(if is_due { now } else { now + MAX_ACK_DELAY });
    }

    fn returned(&mut self, now: u64, packet: Packet) {
        let Payload::Acknowledgement { packets, is_marked } = packet.payload else {
            return;
        };
        let largest = packets.iter().copied().max().unwrap_or(0);
        let mut count = 0;
        let is_full = self.sent.len() as f64 + 3.0 >= self.cubic.window;
        let mut sample = None;
        for packet in packets {
            if let Some((_, at)) = self.sent.remove(&packet) {
                count += 1;
                sample = Some(now - at);
            }
        }
        if count == 0 {
            return;
        }
        if let Some(sample) = sample {
            self.sample(sample);
            if is_full && largest >= self.recovery_until {
                let numbers = (largest, self.next_packet);
                let smoothed = self.smoothed();
                self.cubic
                    .acknowledged(now, count, numbers, sample, smoothed);
            }
        }
        self.timeouts = 0;
        self.timer = now + self.timeout();
        self.find_losses(largest);
        if is_marked && largest >= self.recovery_until {
            self.reduce();
        }
    }

    fn drive(&mut self, now: u64, out: &mut Outbox) -> Option<u64> {
        if self.received.due.is_some_and(|due| due <= now) {
            self.received.due = None;
            let packets = core::mem::take(&mut self.received.unacknowledged);
            let is_marked = core::mem::take(&mut self.received.is_marked);
            out.back.push(Packet {
                flow: self.flow,
                path: 0,
                bytes: ACKNOWLEDGEMENT_BYTES,
                ecn: Ecn::NotCapable,
                payload: Payload::Acknowledgement { packets, is_marked },
            });
        }
        let next_message = self.take_messages(now);
        self.check_timer(now);
        let paced = self.send(now, out);
        let timer = (!self.sent.is_empty()).then_some(self.timer);
        let times = [next_message, paced, timer, self.received.due];
        times.into_iter().flatten().min()
    }

    fn take_goodput(&mut self) -> u64 {
        core::mem::take(&mut self.received.goodput)
    }

    fn completions(&self) -> &[(u64, f64)] {
        &self.completions
    }
}
