//! The run of one scheme: events in order of time until the recording is over.

mod access;
mod opening;
mod receiving;

use std::io::Read;

use flow_recording::{Count, FlowRecord, ReadError, Reader, ThresholdUnit};
use flow_tcp::Ack;

use super::TwinOutcome;
use super::beside::Beside;
use super::border::{Border, Forwarded, Threshold};
use super::connection::{Connection, Connections, Hosts, RecordedClass};
use super::event::{Event, Events, Handle, Packet, PacketKind, Side};
use super::port::{Discipline, Port};
use super::scheme::Scheme;
use super::settings::{TwinSettings, Uplink};
use super::statistics::Distribution;

/// More connections are not under way at a time: 100 MB.
const MOST_LIVE: usize = 100_000;
/// Time that flows under way have to complete after the recording ends.
const GRACE_NS: u64 = 60_000_000_000;
/// A shaper lets so much of an uplink's rate through, so that packets queue in front of it.
const SHAPED_PERCENT: u64 = 97;
/// No queue is smaller: ten full packets.
const LEAST_BUFFER_BYTES: u64 = 15_140;
/// Progress is told of once in so many events.
const PROGRESS_EVENTS: u64 = 1 << 18;

/// Everything that there is in the run of a scheme.
pub(super) struct World<'a, R> {
    reader: Reader<R>,
    next: Option<FlowRecord>,
    scheme: Scheme,
    threshold: Threshold,
    /// The threshold by which flows are reported.
    reported: Threshold,
    skip_us: u64,
    until_us: u64,
    seed: u64,
    uplinks: Vec<Uplink>,
    hosts: Hosts,
    events: Events,
    connections: Connections,
    /// By side.
    borders: [Border; 2],
    /// By side and uplink.
    ports: [Vec<Port>; 2],
    /// By side, the link of its hosts to the border, where it is bound.
    access: [Option<Port>; 2],
    beside: Beside<'a>,
    count: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    started: u64,
    short: Distribution,
    long: Distribution,
    segments: u64,
    retransmitted: u64,
    timeouts: u64,
    dropped_by_policy: u64,
    paced: u64,
    left_out: u64,
    cut_by_skip: u64,
    hops: u64,
}

impl<'a, R: Read> World<'a, R> {
    pub(super) fn new(
        reader: Reader<R>,
        settings: &TwinSettings,
        scheme: &Scheme,
        beside: Beside<'a>,
    ) -> Self {
        let header = reader.header();
        let is_bytes = header.unit == ThresholdUnit::Bytes;
        let value = settings
            .threshold
            .unwrap_or(u64::from(header.threshold).max(1));
        let reported = Threshold { value, is_bytes };
        let threshold = Threshold {
            value: scheme.own_threshold().unwrap_or(value),
            is_bytes,
        };
        let shaped = if scheme.shapes() { SHAPED_PERCENT } else { 100 };
        let uplinks = &settings.uplinks;
        let rate = |it: &Uplink| it.bits_per_second * shaped / 100;
        let rates: Vec<u64> = uplinks.iter().map(rate).collect();
        let discipline = match scheme {
            Scheme::Ecmp | Scheme::Spray | Scheme::Dedicated { .. } => Discipline::Fifo,
            Scheme::FairQueueing => Discipline::Fair,
            Scheme::Share { .. } | Scheme::Tr { .. } => Discipline::Priority,
        };
        let skip_us = settings.skip_s.saturating_mul(1_000_000);
        let end_us = settings.for_s.map_or(u64::MAX, |it| {
            settings.skip_s.saturating_add(it).saturating_mul(1_000_000)
        });
        let until_us = end_us.min(header.duration_us);
        let ports = || {
            let ports = uplinks.iter().zip(&rates).map(|(uplink, rate)| {
                let buffer = rate / 8 * settings.buffer_ms / 1_000;
                let buffer = buffer.max(LEAST_BUFFER_BYTES);
                let mut port = Port::new(*rate, uplink.round_trip_ns / 2, discipline, buffer);
                port.counted_until_ns = until_us.saturating_sub(skip_us) * 1_000;
                port
            });
            ports.collect()
        };
        // The ends of the uplinks spread flows apart from each other.
        let border = |side: u64| {
            let seed = settings.seed.wrapping_mul(2).wrapping_add(side);
            Border::new(scheme, settings, &rates, threshold, seed)
        };
        Self {
            until_us,
            skip_us,
            reader,
            next: None,
            scheme: *scheme,
            threshold,
            reported,
            seed: settings.seed,
            uplinks: uplinks.clone(),
            hosts: Hosts::new(settings),
            events: Events::default(),
            connections: Connections::default(),
            borders: [border(0), border(1)],
            ports: [ports(), ports()],
            access: [access::port(settings), access::port(settings)],
            beside,
            count: Totals::default(),
        }
    }

    pub(super) fn run(mut self, progress: &mut impl FnMut(f64)) -> Result<TwinOutcome, ReadError> {
        self.await_next()?;
        self.await_cross();
        let whole_ns = self.until_us.saturating_sub(self.skip_us) * 1_000;
        let mut events = 0u64;
        while let Some(event) = self.events.pop() {
            if self.events.now_ns() > whole_ns.saturating_add(GRACE_NS) {
                break;
            }
            match event {
                Event::Start => self.start_due()?,
                Event::Cross => self.cross_due(),
                Event::Arrival(packet) => self.arrive(packet),
                Event::PortFree(port) => self.port_free(port),
                Event::Handshake(handle) => self.on_handshake_timer(handle),
                Event::DelayedAck(handle, sender, missing) => {
                    self.on_delayed_ack(handle, sender, missing);
                }
                Event::Timer(handle, sender) => self.on_timer(handle, sender),
                Event::Paced(handle, sender) => self.on_paced(handle, sender),
            }
            events += 1;
            if events.is_multiple_of(PROGRESS_EVENTS) {
                progress((self.events.now_ns() as f64 / whole_ns.max(1) as f64).min(1.0));
            }
        }
        // What is left is read as well: a recording that was cut off must not pass for a whole one.
        while self.next_record()?.is_some() {}
        progress(1.0);
        Ok(self.outcome(whole_ns))
    }

    fn next_record(&mut self) -> Result<Option<FlowRecord>, ReadError> {
        self.reader.next().transpose()
    }

    /// Reads on to the next flow of the part that is simulated, and waits until it is due.
    fn await_next(&mut self) -> Result<(), ReadError> {
        self.next = loop {
            match self.next_record()? {
                Some(record) if record.start_us < self.skip_us => {
                    let end_us = record.start_us.saturating_add(record.duration_us);
                    self.count.cut_by_skip += u64::from(end_us > self.skip_us);
                }
                Some(record) if record.start_us >= self.until_us => break None,
                record => break record,
            }
        };
        if let Some(record) = &self.next {
            let due_ns = (record.start_us - self.skip_us).saturating_mul(1_000);
            self.events.push(due_ns, Event::Start);
        }
        Ok(())
    }

    fn start_due(&mut self) -> Result<(), ReadError> {
        if let Some(record) = self.next.take() {
            self.start(&record);
        }
        self.await_next()
    }

    fn start(&mut self, record: &FlowRecord) {
        let reported = self.reported;
        let is_long = |count: Count| {
            let size = if reported.is_bytes {
                count.bytes
            } else {
                count.packets
            };
            size > reported.value
        };
        let number = self.count.started;
        self.count.started += 1;
        let hash = mix(self.seed ^ mix(self.count.started));
        let now_ns = self.events.now_ns();
        let Some(connection) =
            Connection::new(record, (number, hash), now_ns, &self.hosts, is_long)
        else {
            return;
        };
        if self.connections.live() >= MOST_LIVE {
            self.count.left_out += 1;
            return;
        }
        self.count.paced += u64::from(connection.is_paced());
        let handle = self.connections.insert(connection);
        self.begin(handle);
    }

    /// Sends what the window lets go.
    fn transmit(&mut self, handle: Handle, sender: Side) {
        loop {
            let now_ns = self.events.now_ns();
            let Some(connection) = self.connections.get(handle) else {
                return;
            };
            let header_bytes = connection.header_bytes;
            let Some(transfer) = connection.transfer(sender) else {
                return;
            };
            let Some(segment) = transfer.sender.poll() else {
                return;
            };
            let payload = transfer.payload_of(segment.number) as u32;
            self.count.segments += 1;
            self.count.retransmitted += u64::from(segment.is_retransmission);
            let packet = Packet {
                connection: handle,
                from: sender,
                sender,
                kind: PacketKind::Data {
                    number: segment.number,
                    is_retransmission: segment.is_retransmission,
                },
                bytes: header_bytes + payload,
                stamp_ns: now_ns,
                at_border_ns: now_ns,
            };
            self.send(packet, payload);
        }
    }

    /// A packet has come to the border of its side.
    fn forward(&mut self, mut packet: Packet, payload_bytes: u32) {
        let now_ns = self.events.now_ns();
        packet.at_border_ns = now_ns;
        let side = packet.from as usize;
        let Some(connection) = self.connections.get(packet.connection) else {
            return;
        };
        let forwarded = Forwarded {
            now_ns,
            bytes: packet.bytes,
            payload_bytes,
            flow_hash: connection.hash,
        };
        let ports = &mut self.ports[side];
        let flow = &mut connection.flows[side];
        let Some((uplink, class)) = self.borders[side].forward(flow, &forwarded, ports) else {
            self.count.dropped_by_policy += 1;
            return;
        };
        self.count.hops += 1;
        if let Some(free_ns) = ports[uplink].take(packet, class, now_ns) {
            self.await_port(side, uplink, free_ns);
        }
    }

    fn await_port(&mut self, side: usize, uplink: usize, free_ns: u64) {
        let number = side * TwinSettings::MOST_UPLINKS + uplink;
        self.events.push(free_ns, Event::PortFree(number as u16));
    }

    fn port_free(&mut self, number: u16) {
        let now_ns = self.events.now_ns();
        let number = usize::from(number);
        if let Some(side) = access::side(number) {
            return self.access_free(side);
        }
        let (side, uplink) = (
            number / TwinSettings::MOST_UPLINKS,
            number % TwinSettings::MOST_UPLINKS,
        );
        let port = &mut self.ports[side][uplink];
        let arrival_ns = now_ns + port.propagation_ns;
        let (sent, free_ns) = port.free(now_ns);
        // Nobody answers other traffic.
        if let Some(packet) = sent.filter(|it| it.kind != PacketKind::Cross) {
            self.events.push(arrival_ns, Event::Arrival(packet));
        }
        if let Some(free_ns) = free_ns {
            self.await_port(side, uplink, free_ns);
        }
    }

    fn arrive(&mut self, packet: Packet) {
        self.beside
            .arrived(&packet, &mut self.connections, self.events.now_ns());
        match packet.kind {
            PacketKind::Cross => {}
            PacketKind::Data {
                number,
                is_retransmission,
            } => self.on_data(&packet, number, is_retransmission),
            PacketKind::Ack { missing, trigger } => self.on_ack(&packet, missing, trigger),
            PacketKind::Handshake(step) => self.on_handshake(&packet, step),
        }
    }

    fn on_ack(&mut self, packet: &Packet, missing: u32, trigger: u32) {
        let (now_ns, handle) = (self.events.now_ns(), packet.connection);
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let Some(transfer) = connection.transfer(packet.sender) else {
            return;
        };
        let ack = Ack {
            missing,
            trigger,
            is_duplicate: false,
            marked: false,
            now_ns,
            round_trip_ns: now_ns.saturating_sub(packet.stamp_ns),
        };
        let is_new = transfer.sender.on_ack(ack, None);
        if connection.is_done() {
            self.connections.remove(handle);
            return;
        }
        self.transmit(handle, packet.sender);
        if is_new {
            self.restart_timer(handle, packet.sender);
        }
    }

    fn restart_timer(&mut self, handle: Handle, sender: Side) {
        let now_ns = self.events.now_ns();
        let transfer = self.connections.get(handle);
        let Some(transfer) = transfer.and_then(|it| it.transfer(sender)) else {
            return;
        };
        if !transfer.sender.awaits_ack() {
            return;
        }
        transfer.deadline_ns = now_ns + transfer.sender.rto.timeout_ns();
        // A pending event that comes in time puts in another one.
        if transfer
            .pending_ns
            .is_none_or(|it| it > transfer.deadline_ns)
        {
            transfer.pending_ns = Some(transfer.deadline_ns);
            let at_ns = transfer.deadline_ns;
            self.events.push(at_ns, Event::Timer(handle, sender));
        }
    }

    fn on_timer(&mut self, handle: Handle, sender: Side) {
        let now_ns = self.events.now_ns();
        let transfer = self.connections.get(handle);
        let Some(transfer) = transfer.and_then(|it| it.transfer(sender)) else {
            return;
        };
        if transfer.pending_ns != Some(now_ns) {
            // An earlier one took its place.
            return;
        }
        transfer.pending_ns = None;
        if !transfer.sender.awaits_ack() {
            return;
        }
        if now_ns < transfer.deadline_ns {
            transfer.pending_ns = Some(transfer.deadline_ns);
            let at_ns = transfer.deadline_ns;
            self.events.push(at_ns, Event::Timer(handle, sender));
            return;
        }
        transfer.sender.on_timeout();
        self.count.timeouts += 1;
        self.transmit(handle, sender);
        self.restart_timer(handle, sender);
    }

    fn await_pace(&mut self, handle: Handle, sender: Side) {
        let now_ns = self.events.now_ns();
        let transfer = self.connections.get(handle);
        let Some(transfer) = transfer.and_then(|it| it.transfer(sender)) else {
            return;
        };
        let is_more_to_come = transfer.sender.segments < transfer.segments;
        if let Some(pace_ns) = transfer.pace_ns.filter(|_| is_more_to_come) {
            let at_ns = now_ns.saturating_add(pace_ns.max(1));
            self.events.push(at_ns, Event::Paced(handle, sender));
        }
    }

    fn on_paced(&mut self, handle: Handle, sender: Side) {
        let connection = self.connections.get(handle);
        if let Some(transfer) = connection.and_then(|it| it.transfer(sender)) {
            let was_idle = !transfer.sender.awaits_ack();
            transfer.sender.segments += 1;
            self.await_pace(handle, sender);
            self.transmit(handle, sender);
            if was_idle {
                self.restart_timer(handle, sender);
            }
        }
    }

    fn outcome(self, whole_ns: u64) -> TwinOutcome {
        let mut unfinished = [0; 2];
        for class in self
            .connections
            .iter()
            .filter_map(Connection::unfinished_as)
        {
            unfinished[class as usize] += 1;
        }
        let seconds = whole_ns.max(1) as f64 / 1e9;
        let carried = |side: usize, uplink: usize| {
            let bits = self.ports[side][uplink].sent_bytes as f64 * 8.0;
            (bits / seconds / self.uplinks[uplink].bits_per_second as f64).min(1.0)
        };
        let uplinks = 0..self.ports[0].len();
        let ports = self.ports.iter().flatten();
        TwinOutcome {
            scheme: self.scheme.to_string(),
            threshold: self.scheme.has_threshold().then_some(self.threshold.value),
            utilisation: uplinks.map(|it| [carried(0, it), carried(1, it)]).collect(),
            dropped_packets: ports.map(|it| it.dropped).sum::<u64>() + self.count.dropped_by_policy,
            segments: self.count.segments,
            retransmitted: self.count.retransmitted,
            timeouts: self.count.timeouts,
            paced_flows: self.count.paced,
            left_out: self.count.left_out,
            cut_by_skip: self.count.cut_by_skip,
            hops: self.count.hops,
            short: self.count.short.statistics(unfinished[0]),
            long: self.count.long.statistics(unfinished[1]),
        }
    }
}

/// Counts the completion time of a connection, if all of it has arrived, and how much longer that is than alone
/// on the best uplink.
fn completed(count: &mut Totals, connection: &Connection, now_ns: u64, uplinks: &[Uplink]) {
    let Some(class) = connection.completed_as() else {
        return;
    };
    let time_ns = now_ns.saturating_sub(connection.start_ns);
    // Which one is best depends on the size: few bytes want a short way, many a fast one.
    let alone_ns = uplinks.iter().map(|it| connection.alone_ns(it));
    let alone_ns = alone_ns.fold(f64::INFINITY, f64::min);
    let slowdown = time_ns as f64 / alone_ns.max(1.0);
    match class {
        RecordedClass::Short => count.short.add(time_ns, slowdown),
        RecordedClass::Long => count.long.add(time_ns, slowdown),
    }
}

/// Spreads numbers over 64 bits (splitmix64's finaliser, S. Vigna, 2015).
fn mix(number: u64) -> u64 {
    let mut it = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

#[cfg(test)]
mod tests;
