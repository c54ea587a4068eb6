//! Flow set-up: a message becomes one flow, copies of it (RepFlow), or subflows (MPTCP).

use flow_tcp::{Receiver, Sender};

use super::{
    Hosts,
    expresspass::CreditFlow,
    flow::{Flow, FlowStats, Role, Timer},
};
use crate::{
    engine::packet::NONE,
    fabric::{FlowInfo, Network},
    message::Pool,
    scenario::CongestionControl,
};

impl Hosts {
    /// Opens the flows of a message.
    pub(super) fn send(&mut self, network: &mut Network, number: u32) {
        let message = &mut self.messages[number as usize];
        let settings = &self.settings[message.transport()];
        let bytes = message.bytes;
        message.first_flow = self.flows.len() as u32;
        if settings.subflows > 1 {
            message.flows = settings.subflows;
            let segments = segments(bytes, settings.mss_bytes);
            message.pool = Pool {
                untaken: segments,
                missing: segments,
                rounds: settings.join_round_trips,
                round_end: 0,
            };
            for _ in 0..settings.subflows {
                self.open(network, number, Role::Part, bytes);
            }
            return;
        }
        let replicated = bytes <= settings.replicate_bytes;
        let copies = if replicated { settings.replicas } else { 1 };
        message.flows = copies;
        for _ in 0..copies {
            self.open(network, number, Role::Whole, bytes);
        }
    }

    pub(super) fn open(&mut self, network: &mut Network, number: u32, role: Role, bytes: u64) {
        let message = &self.messages[number as usize];
        let (from, to) = match role {
            Role::Request => (message.to, message.from),
            Role::Whole | Role::Part => (message.from, message.to),
        };
        let settings = &self.settings[message.transport()];
        let mss = settings.mss_bytes;
        let data = segments(bytes, mss);
        let last = (bytes - u64::from(data - 1) * u64::from(mss)) as u16;
        let flow = self.flows.len() as u32;
        let connection = match message.transfer {
            // Copies are there to take other paths.
            Some(_) if role == Role::Whole && message.flows == 1 => {
                network.has_connections = true;
                let key = (message.origin, from, to);
                *self.connections.entry(key).or_insert(flow)
            }
            _ => flow,
        };
        // What answers a request, and what follows on a connection, finds it set up.
        let is_first = role == Role::Request || message.request_bytes.is_none();
        let has_handshake = settings.handshake && is_first && connection == flow;
        let all = data + u32::from(has_handshake);
        let (own, short) = match role {
            // It takes segments out of the message's as it may send them.
            Role::Part => (0, (NONE, last)),
            Role::Whole | Role::Request => (all, (all - 1, last)),
        };
        let sender = flow_tcp::Settings {
            handshake: has_handshake,
            ..settings.sender()
        };
        self.flows.push(Flow {
            sender: Sender::new(own, &sender),
            receiver: Receiver::new(&sender),
            from,
            to,
            message: number,
            role,
            priority: message.priority + settings.priority,
            transport: message.transport() as u8,
            has_handshake,
            closed: false,
            short,
            timer: Timer::default(),
            stats: FlowStats::default(),
            credits: (settings.control == CongestionControl::ExpressPass)
                .then(|| Box::new(CreditFlow::new(settings.expresspass))),
        });
        network.flow_info.push(FlowInfo {
            from,
            to,
            segments: all,
            connection,
            is_long: message.bytes > network.long_above_bytes,
        });
        if self.has_credits(flow) {
            return self.request_credits(network, flow);
        }
        let message = &self.messages[number as usize];
        if role == Role::Part && message.pool.rounds > 0 && flow != message.first_flow {
            return;
        }
        self.transmit(network, flow);
        self.restart_timer(network, flow);
    }

    /// An ACK of a subflow: the others join when that of the first one ends the last of its round trips until then.
    /// A connection has to be there before another subflow can begin its handshake (RFC 8684 §3.2).
    #[inline]
    pub(super) fn join_subflows(&mut self, network: &mut Network, number: u32, trigger: u32) {
        let flow = &self.flows[number as usize];
        if flow.role != Role::Part {
            return;
        }
        let message = &mut self.messages[flow.message as usize];
        let pool = &mut message.pool;
        if pool.rounds == 0 || number != message.first_flow || trigger < pool.round_end {
            return;
        }
        pool.rounds -= 1;
        pool.round_end = flow.sender.segments;
        if pool.rounds > 0 {
            return;
        }
        for other in message.first_flow + 1..message.first_flow + u32::from(message.flows) {
            self.transmit(network, other);
            self.restart_timer(network, other);
        }
    }
}

/// An empty message has one segment without data.
pub(crate) fn segments(bytes: u64, mss: u16) -> u32 {
    bytes.div_ceil(u64::from(mss)).max(1) as u32
}
