//! Hosts and their transport: flows with congestion control, loss recovery and timers, flows that go by
//! credits, or Cloudburst's endpoints.

mod cloudburst;
mod expresspass;
pub(crate) mod flow;
mod flow_setup;
mod pacing;
mod segment;

use std::collections::HashMap;

pub(crate) use self::flow_setup::segments;
use self::{
    cloudburst::Cloudburst,
    expresspass::CreditCounters,
    flow::{Flow, Role},
    pacing::Pacer,
    segment::data,
};
use flow_tcp::{Ack, ONE};

use crate::{
    engine::{
        packet::{EntryKind, NONE, Packet, flag},
        random::{Purpose, Random},
    },
    fabric::Network,
    message::Message,
    scenario::{CongestionControl, Experiment, TransportSettings},
};

/// The hosts of a fabric.
#[derive(Debug)]
pub(crate) struct Hosts {
    pub(crate) flows: Vec<Flow>,
    pub(crate) messages: Vec<Message>,
    /// Messages that have arrived since the simulation last looked.
    pub(crate) finished: Vec<u32>,
    /// Settings of the rest, and of the background.
    settings: [TransportSettings; 2],
    pacers: [Option<Pacer>; 2],
    pub(crate) cloudburst: Option<Box<Cloudburst>>,
    /// First flows of connections, by traffic, sender and receiver.
    connections: HashMap<(u16, u16, u16), u32>,
    pub(crate) credit_counters: CreditCounters,
    /// Of pauses between credits.
    random: Random,
}

impl Hosts {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let scenario = &experiment.scenario;
        let transport = &scenario.transport;
        let background = scenario.background_transport.as_ref();
        let settings = [transport, background.unwrap_or(transport)].map(TransportSettings::clone);
        let has_endpoints = transport.control == CongestionControl::Cloudburst;
        Self {
            flows: Vec::new(),
            messages: Vec::new(),
            finished: Vec::new(),
            connections: HashMap::new(),
            credit_counters: CreditCounters::default(),
            random: Random::new(experiment.seed, Purpose::Credits, 0),
            pacers: settings.each_ref().map(|it| it.pace.map(Pacer::new)),
            settings,
            cloudburst: has_endpoints.then(|| Box::new(Cloudburst::new(experiment))),
        }
    }

    fn settings(&self, message: u32) -> &TransportSettings {
        &self.settings[self.messages[message as usize].transport()]
    }

    /// A message is due: it is sent, or asked for.
    pub(crate) fn start(&mut self, network: &mut Network, message: Message) {
        let number = self.messages.len() as u32;
        let request = message.request_bytes;
        self.messages.push(message);
        if self.settings(number).control == CongestionControl::Cloudburst {
            let message = &self.messages[number as usize];
            if let Some(cloudburst) = &mut self.cloudburst {
                cloudburst.start(network, number, message);
            }
            return self.take_arrived();
        }
        match request {
            Some(bytes) => self.open(network, number, Role::Request, bytes),
            None => self.send(network, number),
        }
    }

    /// A packet has come to its host.
    #[inline]
    pub(crate) fn receive(&mut self, network: &mut Network, id: u32) {
        match network.slab[id].kind() {
            EntryKind::Data => self.on_data(network, id),
            EntryKind::Datagram => {
                if let Some(cloudburst) = &mut self.cloudburst {
                    cloudburst.receive(network, id);
                }
                self.take_arrived();
            }
            EntryKind::Credit => self.on_credit(network, id),
            EntryKind::CreditRequest => self.on_credit_request(network, id),
            EntryKind::CreditStop => self.on_credit_stop(network, id),
            _ => self.on_ack(network, id),
        }
    }

    /// An endpoint is called at the time that it asked for.
    pub(crate) fn wake(&mut self, network: &mut Network, id: u32) {
        if let Some(cloudburst) = &mut self.cloudburst {
            cloudburst.wake(network, id);
        }
        self.take_arrived();
    }

    /// Messages that endpoints have decoded.
    fn take_arrived(&mut self) {
        let Some(cloudburst) = &mut self.cloudburst else {
            return;
        };
        for (number, end_ns) in cloudburst.arrived.drain(..) {
            self.messages[number as usize].end_ns = end_ns;
            self.finished.push(number);
        }
    }

    /// The event of a flow's timer has come.
    pub(crate) fn on_timer(&mut self, network: &mut Network, id: u32) {
        let number = network.slab[id].flow;
        if self.has_credits(number) {
            return self.on_credit_timer(network, id);
        }
        let flow = &mut self.flows[number as usize];
        let is_stale = flow.timer.event != id;
        if is_stale || flow.closed || !flow.sender.awaits_ack() {
            if !is_stale {
                flow.timer.event = NONE;
            }
            network.slab.remove(id);
            return;
        }
        if network.now() < flow.timer.deadline_ns {
            flow.timer.event_ns = flow.timer.deadline_ns;
            put_timer(network, flow, id);
            return;
        }
        flow.timer.event = NONE;
        network.slab.remove(id);
        let is_timeout = flow.sender.on_timer(network.now());
        flow.stats.timeouts += u32::from(is_timeout);
        self.transmit(network, number);
        self.restart_timer(network, number);
    }

    /// Checks that a message which has arrived did so with all its segments.
    ///
    /// # Errors
    /// When it was declared complete without.
    pub(crate) fn check_complete(&self, number: u32) -> Result<(), String> {
        let message = &self.messages[number as usize];
        let settings = self.settings(number);
        if settings.control == CongestionControl::Cloudburst {
            let is_done = self
                .cloudburst
                .as_ref()
                .is_some_and(|it| it.is_done(number));
            return if is_done {
                Ok(())
            } else {
                Err(format!(
                    "message {number} counts as arrived and was not decoded"
                ))
            };
        }
        let first = message.first_flow as usize;
        let flows = &self.flows[first..first + usize::from(message.flows)];
        let arrived = |role| {
            let flows = flows.iter().filter(move |it| it.role == role);
            flows.map(|it| it.receiver.count().saturating_sub(it.has_handshake.into()))
        };
        let expected = segments(message.bytes, settings.mss_bytes);
        let whole = arrived(Role::Whole).any(|it| it == expected);
        let parts = arrived(Role::Part).sum::<u32>() == expected;
        if whole || parts {
            return Ok(());
        }
        Err(format!(
            "message {number} counts as arrived without all of its {expected} segments"
        ))
    }

    fn on_data(&mut self, network: &mut Network, id: u32) {
        let number = network.slab[id].flow;
        if self.has_credits(number) {
            return self.on_credited_data(network, id);
        }
        let flow = &mut self.flows[number as usize];
        let packet = &mut network.slab[id];
        let segment = packet.seq;
        let marked = packet.has(flag::CE);
        flow.stats.count_arrival(packet);
        let is_retransmission = packet.has(flag::RETRANSMITTED);
        let now_ns = network.events.now();
        let sent_ns = now_ns - u64::from((now_ns as u32).wrapping_sub(packet.stamp));
        let is_taken = flow.receiver.accepts(segment, is_retransmission, sent_ns);
        let new = is_taken && flow.receiver.on_segment(segment, is_retransmission);

        // The packet turns around and becomes the ACK of it.
        let mut ack = Packet::new(EntryKind::Ack);
        ack.flow = number;
        ack.seq = flow.receiver.missing();
        // What was discarded is reported by none.
        let is_known = is_taken || segment < ack.seq;
        ack.aux = if is_known {
            segment
        } else {
            ack.seq.saturating_sub(1)
        };
        ack.credit = flow.receiver.report();
        // Nor does its time stamp come back.
        ack.stamp = match flow.receiver.recent_ns() {
            Some(recent_ns) if !is_taken => recent_ns as u32,
            _ => packet.stamp,
        };
        ack.bytes = self.settings[usize::from(flow.transport)].header_bytes;
        ack.set_priority(flow.priority);
        ack.to = flow.from;
        ack.set(flag::CE, marked);
        ack.set(flag::DUPLICATE, is_known && !new);
        *packet = ack;
        let host = usize::from(flow.to);
        if new {
            self.on_new_segment(network, number);
        }
        network.inject(host, id);
    }

    /// A segment has arrived for the first time: perhaps the last one.
    fn on_new_segment(&mut self, network: &mut Network, number: u32) {
        let flow = &self.flows[number as usize];
        let message = flow.message;
        let it = &mut self.messages[message as usize];
        let complete = match flow.role {
            Role::Part => {
                it.pool.missing -= 1;
                it.pool.missing == 0
            }
            Role::Whole | Role::Request => flow.receiver.missing() == flow.sender.segments,
        };
        if !complete || it.is_finished() {
            return;
        }
        if flow.role == Role::Request {
            self.send(network, message);
            return;
        }
        it.end_ns = network.now();
        self.finished.push(message);
        let flows = it.first_flow as usize..it.first_flow as usize + usize::from(it.flows);
        let flows = &self.flows[flows];
        it.needed = flows.iter().map(|it| it.stats.arrived).sum();
        it.sent_by_end = flows.iter().map(|it| it.stats.sent).sum();
        // Copies that are late have nothing left to do (RepFlow).
        if it.flows > 1 && flow.role == Role::Whole {
            let first = it.first_flow as usize;
            for flow in &mut self.flows[first..first + usize::from(it.flows)] {
                flow.closed = true;
            }
        }
    }

    fn on_ack(&mut self, network: &mut Network, id: u32) {
        let packet = network.slab[id];
        network.slab.remove(id);
        let number = packet.flow;
        if self.flows[number as usize].closed {
            return;
        }
        let coupled = self.coupled_increase(number);
        let ack = Ack {
            missing: packet.seq,
            trigger: packet.aux,
            is_duplicate: packet.has(flag::DUPLICATE),
            marked: packet.has(flag::CE),
            now_ns: network.now(),
            round_trip_ns: u64::from((network.now() as u32).wrapping_sub(packet.stamp)),
        };
        let flow = &mut self.flows[number as usize];
        let reported = flow.receiver.reported_by(packet.credit);
        flow.sender.on_reports(ack.now_ns, reported);
        let new = flow.sender.on_ack(ack, coupled);
        self.join_subflows(network, number, packet.aux);
        self.transmit(network, number);
        if new || self.flows[number as usize].sender.has_timers() {
            self.restart_timer(network, number);
        }
    }

    /// Sends what the window lets go.
    fn transmit(&mut self, network: &mut Network, number: u32) {
        let flow = &mut self.flows[number as usize];
        flow.sender.on_clock(network.now());
        loop {
            while let Some(segment) = flow.sender.poll() {
                let id = network.slab.insert(data(
                    flow,
                    number,
                    segment,
                    &self.settings[usize::from(flow.transport)],
                    network.events.now() as u32,
                ));
                flow.stats.sent += 1;
                flow.stats.retransmitted += u32::from(segment.is_retransmission);
                match &mut self.pacers[usize::from(flow.transport)] {
                    None => network.inject(usize::from(flow.from), id),
                    Some(pacer) => {
                        let bytes = network.slab[id].bytes;
                        let at_ns = pacer.leave(flow.from, network.now(), bytes);
                        network.inject_at(at_ns, id);
                    }
                }
            }
            if flow.role != Role::Part || !flow.sender.wants_segments() {
                return;
            }
            let pool = &mut self.messages[flow.message as usize].pool;
            if pool.untaken == 0 {
                return;
            }
            pool.untaken -= 1;
            if pool.untaken == 0 {
                flow.short.0 = flow.sender.segments;
            }
            flow.sender.segments += 1;
        }
    }

    fn restart_timer(&mut self, network: &mut Network, number: u32) {
        let flow = &mut self.flows[number as usize];
        if !flow.sender.awaits_ack() {
            return;
        }
        flow.timer.deadline_ns = flow.sender.deadline_ns(network.now());
        // A pending event that comes in time will do; a later one becomes stale.
        if flow.timer.event == NONE || flow.timer.event_ns > flow.timer.deadline_ns {
            let mut event = Packet::new(EntryKind::Timer);
            event.flow = number;
            let id = network.slab.insert(event);
            flow.timer.event = id;
            flow.timer.event_ns = flow.timer.deadline_ns;
            put_timer(network, flow, id);
        }
    }

    /// Computes what each acknowledged segment may add to the window of a subflow, so that all
    /// together take no more than one flow on the best path would (RFC 6356 §3).
    fn coupled_increase(&self, number: u32) -> Option<u64> {
        let flow = &self.flows[number as usize];
        if flow.role != Role::Part {
            return None;
        }
        let message = &self.messages[flow.message as usize];
        let first = message.first_flow as usize;
        let (mut best, mut sum) = (0.0f64, 0.0);
        let flows = &self.flows[first..first + usize::from(message.flows)];
        // What has not joined has no part of it yet.
        let joined = if message.pool.rounds > 0 {
            1
        } else {
            flows.len()
        };
        for other in &flows[..joined] {
            let window = other.sender.window.size() as f64 / ONE as f64;
            let round_trip = other.sender.rto.smoothed_ns().max(1) as f64;
            best = best.max(window / (round_trip * round_trip));
            sum += window / round_trip;
        }
        // alpha / total window, where alpha = total window * max(w / rtt^2) / (sum of w / rtt)^2.
        // Only basic operations of IEEE 754: the same on every machine.
        Some((best / (sum * sum) * ONE as f64) as u64)
    }
}

fn put_timer(network: &mut Network, flow: &mut Flow, id: u32) {
    if !network.events.push(id, flow.timer.event_ns) {
        flow.timer.event = NONE;
        network.slab.remove(id);
    }
}
