//! Our flow: two of the machines that everybody's endpoints run, on both sides of the bottleneck.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use cloudburst_proto::{
    Event, FourTuple, MessageKind, PeerId, SecretKey, Security, SendId, SocketId, Time, Transport,
    TransportConfig,
};

use crate::flow::{Flow, Load, Outbox, Packet, Payload};

/// Headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;

/// What receivers' clocks say when a world begins: they have been running for long, and take first flights
/// at once.
const AGE: Duration = Duration::from_secs(60);
/// The calendar when a receiver was started.
const CALENDAR: Duration = Duration::from_secs(1_700_000_000);

/// A sender and a receiver of messages, with a key pair each.
pub(crate) struct Ours {
    flow: usize,
    sender: Transport,
    receiver: Transport,
    peer: PeerId,
    load: Load,
    next_message: usize,
    /// Bytes that are not delivered yet, as far as the sender knows.
    outstanding: usize,
    sizes: HashMap<SendId, usize>,
    /// When each message was given, by its number on the wire.
    given: HashMap<u64, u64>,
    goodput: u64,
    completions: Vec<(u64, f64)>,
    buffer: Vec<u8>,
    /// Messages that were abandoned.
    pub(crate) abandoned: u64,
}

fn four_tuple(end: u8, path: u16) -> FourTuple {
    FourTuple::new(
        SocketId(path),
        SocketAddr::from(([10, 0, 0, end], 7_000 + path)),
    )
}

/// The time by the machines' clocks, some ns after the world has begun.
fn clock(now: u64) -> Time {
    Time::ZERO + AGE + Duration::from_nanos(now)
}

/// A machine with defaults that was started then.
fn machine(security: Security, seed: [u8; 32], started: Time) -> Transport {
    let mut config = TransportConfig::new(security);
    config.unix_time = Some(CALENDAR + started.since(Time::ZERO));
    Transport::deterministic(config, seed, started).expect("the settings are valid")
}

impl Ours {
    /// A flow whose endpoints have so many paths between them.
    pub(crate) fn new(flow: usize, load: Load, paths: u16) -> Self {
        let bytes = |of: u8| {
            let mut bytes = [of; 32];
            bytes[0] = flow as u8;
            bytes
        };
        let [own, other] = [3, 4].map(|of| SecretKey::new(bytes(of)));
        let key = other.public();
        let listed = Security::with_allowed(other, [own.public()]);
        let mut sender = machine(Security::key_pair(own), bytes(1), clock(0));
        let receiver = machine(listed, bytes(2), Time::ZERO);
        let tuples: Vec<_> = (0..paths).map(|path| four_tuple(2, path)).collect();
        let peer = sender
            .connect(clock(0), &tuples, Some(key))
            .expect("there is capacity");
        Self {
            flow,
            sender,
            receiver,
            peer,
            load,
            next_message: 0,
            outstanding: 0,
            sizes: HashMap::new(),
            given: HashMap::new(),
            goodput: 0,
            completions: Vec::new(),
            buffer: vec![0; 65_536],
            abandoned: 0,
        }
    }

    fn give(&mut self, now: u64, at: u64, bytes: usize) -> bool {
        let message = vec![0x5a; bytes];
        let time = clock(now);
        let Ok(id) = self
            .sender
            .send(time, self.peer, MessageKind::Message, &message)
        else {
            return false;
        };
        self.outstanding += bytes;
        self.sizes.insert(id, bytes);
        self.given.insert(id.as_u64(), at);
        true
    }

    fn take_messages(&mut self, now: u64) -> Option<u64> {
        match &self.load {
            &Load::Backlog {
                message_bytes,
                ahead,
            } => {
                while self.outstanding < ahead && self.give(now, now, message_bytes) {}
                None
            }
            Load::Messages(list) => {
                let due: Vec<_> = list[self.next_message..]
                    .iter()
                    .take_while(|(at, _)| *at <= now)
                    .copied()
                    .collect();
                let next = list.get(self.next_message + due.len()).map(|(at, _)| *at);
                for (at, bytes) in due {
                    self.give(now, at, bytes);
                    self.next_message += 1;
                }
                next
            }
        }
    }

    fn take_events(&mut self, now: u64) {
        while let Some(event) = self.sender.poll_event() {
            let ended = match event {
                Event::Delivered { id, .. } => id,
                Event::Undelivered { id, .. } => {
                    self.abandoned += 1;
                    id
                }
                _ => continue,
            };
            self.outstanding -= self.sizes.remove(&ended).unwrap_or(0);
        }
        while let Some(event) = self.receiver.poll_event() {
            if let Event::Received { id, message, .. } = event {
                self.goodput += message.len() as u64;
                if let Some(at) = self.given.remove(&id) {
                    self.completions.push((now, (now - at) as f64 / 1e6));
                }
            }
        }
    }
}

/// Takes what a machine has to send, datagram by datagram.
fn transmit(
    machine: &mut Transport,
    now: Time,
    (flow, buffer): (usize, &mut [u8]),
    out: &mut Vec<Packet>,
) {
    while let Some(transmit) = machine.poll_transmit(now, buffer) {
        let datagrams = buffer[..transmit.bytes].chunks(transmit.segment_bytes);
        out.extend(datagrams.map(|datagram| Packet {
            flow,
            path: transmit.four_tuple.socket.0,
            bytes: datagram.len() + HEADER_BYTES,
            ecn: transmit.ecn,
            payload: Payload::Datagram(datagram.to_vec()),
        }));
    }
}

fn take(machine: &mut Transport, now: u64, from: u8, packet: Packet) {
    if let Payload::Datagram(mut datagram) = packet.payload {
        let four_tuple = four_tuple(from, packet.path);
        machine.handle_datagram(clock(now), four_tuple, packet.ecn, &mut datagram);
    }
}

impl Flow for Ours {
    fn arrived(&mut self, now: u64, packet: Packet) {
        take(&mut self.receiver, now, 1, packet);
        self.take_events(now);
    }

    fn returned(&mut self, now: u64, packet: Packet) {
        take(&mut self.sender, now, 2, packet);
        self.take_events(now);
    }

    fn drive(&mut self, now: u64, out: &mut Outbox) -> Option<u64> {
        let time = clock(now);
        let next_message = self.take_messages(now);
        for machine in [&mut self.sender, &mut self.receiver] {
            if machine.next_deadline().is_some_and(|due| due <= time) {
                machine.handle_timeout(time);
            }
        }
        let scratch = (self.flow, &mut self.buffer[..]);
        transmit(&mut self.sender, time, scratch, &mut out.forward);
        let scratch = (self.flow, &mut self.buffer[..]);
        transmit(&mut self.receiver, time, scratch, &mut out.back);
        self.take_events(now);
        let deadlines = [&self.sender, &self.receiver].map(Transport::next_deadline);
        let deadlines = deadlines.into_iter().flatten();
        let deadlines = deadlines.map(|due| due.since(clock(0)).as_nanos() as u64);
        deadlines.chain(next_message).min()
    }

    fn take_goodput(&mut self) -> u64 {
        core::mem::take(&mut self.goodput)
    }

    fn completions(&self) -> &[(u64, f64)] {
        &self.completions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As users run it: sealed, with the first message in the first flight.
    #[test]
    fn the_first_flight_is_sealed_and_carries_the_first_message() {
        let mut ours = Ours::new(0, Load::Messages(vec![(0, 1_000)]), 1);
        let mut out = Outbox::default();
        for ms in 0..20 {
            // Nothing comes back, so that all of it is the first flight.
            ours.drive(ms * 1_000_000, &mut out);
        }
        assert!(!out.forward.is_empty());
        for packet in out.forward.drain(..) {
            let Payload::Datagram(datagram) = &packet.payload else {
                panic!("it sends datagrams");
            };
            let filler = [0x5a; 16];
            let is_open = datagram.windows(filler.len()).any(|it| it == filler);
            assert!(!is_open, "the message can be read");
            ours.arrived(20_000_000, packet);
        }
        assert_eq!(ours.take_goodput(), 1_000);
    }
}
