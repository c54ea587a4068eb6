//! Hosts that run Cloudburst's state machine, as it is: the same code that sockets drive.
//!
//! What goes in and out of it are real datagrams with real symbols in them. The contents of messages
//! are zeros behind a number that tells them apart, so that what is decoded can be checked and
//! datagrams in flight take little memory.

mod endpoint_paths;
mod host;

use cloudburst_proto::{Event, Machine, MessageKind, SendRefused, Time, Transport};

use self::{endpoint_paths::EndpointPaths, host::Host};
use super::flow::FlowStats;
use crate::{
    engine::{
        datagram::Label,
        packet::{EntryKind, NONE, Packet, flag},
        random::{Purpose, Random},
    },
    fabric::Network,
    message::Message,
    scenario::{CloudburstSettings, Experiment, LEAST_BYTES, StartMachine},
};

/// All hosts' endpoints, and the messages that they carry.
#[derive(Debug)]
pub(crate) struct Cloudburst {
    settings: CloudburstSettings,
    config: cloudburst_proto::TransportConfig,
    start_machine: StartMachine,
    priority: u8,
    seed: u64,
    hosts: Vec<Option<Box<Host>>>,
    paths: EndpointPaths,
    /// By message; those of other transports are empty.
    transfers: Vec<Transfer>,
    /// Messages that have arrived, and when they are decoded.
    pub(super) arrived: Vec<(u32, u64)>,
    /// Content of messages: zeros, but for the number in front.
    content: Vec<u8>,
    /// For datagrams that are sent, and for one that is received.
    sending: Vec<u8>,
    receiving: Vec<u8>,
}

/// A message of Cloudburst's.
#[derive(Clone, Debug, Default)]
struct Transfer {
    from: u16,
    to: u16,
    bytes: u64,
    request_bytes: Option<u64>,
    symbols: u32,
    /// Time spent on its codes, and on those of its request.
    coding_ns: u64,
    is_asked_for: bool,
    is_done: bool,
    /// Symbols that had been sent when it was decoded.
    sent_by_end: u32,
    stats: FlowStats,
}

/// A message as it is on the wire: the number in front of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag(u32);

const REQUEST: u32 = 1 << 31;

impl Tag {
    fn new(message: u32, is_request: bool) -> Self {
        Self(message | if is_request { REQUEST } else { 0 })
    }

    fn message(self) -> u32 {
        self.0 & !REQUEST
    }

    fn is_request(self) -> bool {
        self.0 & REQUEST != 0
    }
}

/// Headers of IPv4 and UDP.
const HEADER_BYTES: u16 = 28;
/// The longest train that an endpoint is asked for.
const BUFFER_BYTES: usize = 1 << 16;

impl Cloudburst {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let (scenario, seed) = (&experiment.scenario, experiment.seed);
        let paper = experiment.paper_machine;
        let paper = paper.filter(|_| experiment.needs_paper_machine());
        let settings = scenario.transport.cloudburst.clone();
        let hosts = experiment.hosts.count();
        // Checked: endpoints name their paths by spines.
        let spines = scenario.fabric.as_ref().map_or(0, |it| it.spines);
        Self {
            config: settings.config((experiment.hosts.gbps() * 1e9) as u64, hosts),
            start_machine: paper.unwrap_or(start_endpoint),
            priority: scenario.transport.priority,
            seed,
            hosts: std::iter::repeat_with(|| None).take(hosts).collect(),
            paths: EndpointPaths::new(&settings, spines, seed),
            transfers: Vec::new(),
            arrived: Vec::new(),
            content: Vec::new(),
            sending: vec![0; BUFFER_BYTES],
            receiving: Vec::new(),
            settings,
        }
    }

    /// A message is due: it is sent, or asked for.
    pub(super) fn start(&mut self, network: &mut Network, number: u32, message: &Message) {
        let index = number as usize;
        if self.transfers.len() <= index {
            self.transfers.resize(index + 1, Transfer::default());
        }
        self.transfers[index] = Transfer {
            from: message.from,
            to: message.to,
            bytes: message.bytes.max(LEAST_BYTES),
            request_bytes: message.request_bytes.map(|it| it.max(LEAST_BYTES)),
            symbols: self.settings.symbols(message.bytes.max(LEAST_BYTES)),
            ..Transfer::default()
        };
        let host = self.send(network, Tag::new(number, message.request_bytes.is_some()));
        self.serve(network, host);
    }

    /// A datagram has come to its host.
    pub(super) fn receive(&mut self, network: &mut Network, id: u32) {
        let packet = network.slab[id];
        network.slab.remove(id);
        let label = network.datagrams.take(packet.seq, &mut self.receiving);
        if label.message != NONE {
            self.count_arrival(Tag(label.message), &packet);
        }
        let ecn = match (packet.has(flag::CE), packet.has(flag::ECT)) {
            (true, _) => cloudburst_proto::Ecn::CongestionExperienced,
            (false, true) => cloudburst_proto::Ecn::Capable,
            (false, false) => cloudburst_proto::Ecn::NotCapable,
        };
        let four_tuple = self.paths.four_tuple(label.from, label.path);
        let now = now(network);
        self.prepare(network, packet.to);
        if let Some(host) = &mut self.hosts[usize::from(packet.to)] {
            host.endpoint
                .handle_datagram(now, four_tuple, ecn, &mut self.receiving);
        }
        self.serve(network, packet.to);
    }

    /// A host is called at the time that it asked for.
    pub(super) fn wake(&mut self, network: &mut Network, id: u32) {
        let number = network.slab[id].to;
        network.slab.remove(id);
        let now = now(network);
        let Some(host) = &mut self.hosts[usize::from(number)] else {
            return;
        };
        if !host.wake.take(id) {
            return;
        }
        host.endpoint.handle_timeout(now);
        self.serve(network, number);
    }

    /// Returns whether a message counts as arrived.
    pub(super) fn is_done(&self, message: u32) -> bool {
        self.transfers
            .get(message as usize)
            .is_some_and(|it| it.is_done)
    }

    /// Figures of a message, how many symbols it has, and how many had been sent when it was decoded.
    pub(crate) fn stats(&self, message: u32) -> Option<(FlowStats, u32, u32)> {
        let it = self.transfers.get(message as usize)?;
        Some((it.stats, it.symbols, it.sent_by_end))
    }

    fn count_arrival(&mut self, tag: Tag, packet: &Packet) {
        let transfer = &mut self.transfers[tag.message() as usize];
        if tag.is_request() || transfer.is_done {
            return;
        }
        transfer.stats.count_arrival(packet);
    }

    /// Hands a message to the endpoint of its sender, which is returned.
    fn send(&mut self, network: &mut Network, tag: Tag) -> u16 {
        let transfer = &mut self.transfers[tag.message() as usize];
        let (from, to, bytes) = if tag.is_request() {
            (
                transfer.to,
                transfer.from,
                transfer.request_bytes.unwrap_or(LEAST_BYTES),
            )
        } else {
            (transfer.from, transfer.to, transfer.bytes)
        };
        let symbols = if tag.is_request() {
            self.settings.symbols(bytes)
        } else {
            transfer.symbols
        };
        transfer.coding_ns +=
            self.settings.encode_ns + u64::from(symbols) * self.settings.decode_ns;
        self.prepare(network, from);
        let (now, bytes) = (now(network), bytes as usize);
        if self.content.len() < bytes {
            self.content.resize(bytes, 0);
        }
        self.content[..LEAST_BYTES as usize].copy_from_slice(&tag.0.to_le_bytes());
        let Some(host) = &mut self.hosts[usize::from(from)] else {
            return from;
        };
        let alias = self.paths.draw_alias();
        let peer = host.peer(now, to, alias, &self.paths);
        match host
            .endpoint
            .send(now, peer, MessageKind::Message, &self.content[..bytes])
        {
            Ok(id) => host.sent(id, (to, alias), tag),
            Err(SendRefused::Full { .. }) => host.waiting.push_back(tag),
            Err(error) => panic!("a message of {bytes} bytes was checked, but: {error}"),
        }
        from
    }

    /// Makes sure that a host has an endpoint.
    fn prepare(&mut self, network: &Network, number: u16) {
        let host = &mut self.hosts[usize::from(number)];
        if host.is_none() {
            let mut random = Random::new(self.seed, Purpose::Endpoints, number.into());
            let mut seed = [0; 32];
            for chunk in seed.chunks_mut(4) {
                chunk.copy_from_slice(&random.bits().to_le_bytes());
            }
            let endpoint = (self.start_machine)(self.config.clone(), seed, now(network));
            *host = Some(Box::new(Host::new(endpoint)));
        }
    }

    /// Takes out of an endpoint all that it has to give, and asks when to call it next.
    fn serve(&mut self, network: &mut Network, number: u16) {
        loop {
            self.transmit(network, number);
            let Some(host) = &mut self.hosts[usize::from(number)] else {
                return;
            };
            let Some(event) = host.endpoint.poll_event() else {
                break;
            };
            self.handle_event(network, number, event);
        }
        if let Some(host) = &mut self.hosts[usize::from(number)] {
            host.set_wake(network, number);
        }
    }

    fn transmit(&mut self, network: &mut Network, number: u16) {
        let now = now(network);
        let Some(host) = &mut self.hosts[usize::from(number)] else {
            return;
        };
        while let Some(transmit) = host.endpoint.poll_transmit(now, &mut self.sending) {
            let (to, path) = self.paths.ends(&transmit.four_tuple);
            let spine = self.paths.spine(network, number, to, path);
            for datagram in self.sending[..transmit.bytes].chunks(transmit.segment_bytes) {
                let tag = host.tag((to, self.paths.alias(path)), datagram);
                if let Some(tag) = tag.filter(|it| !it.is_request()) {
                    self.transfers[tag.message() as usize].stats.sent += 1;
                }
                let label = Label {
                    from: number,
                    path,
                    spine,
                    message: tag.map_or(NONE, |it| it.0),
                };
                let mut packet = Packet::new(EntryKind::Datagram);
                packet.seq = network.datagrams.insert(label, datagram);
                packet.bytes = HEADER_BYTES + datagram.len() as u16;
                packet.to = to;
                let is_capable = transmit.ecn != cloudburst_proto::Ecn::NotCapable;
                packet.set(flag::ECT, is_capable);
                packet.set_priority(self.priority);
                let id = network.slab.insert(packet);
                network.inject(usize::from(number), id);
            }
        }
    }

    fn handle_event(&mut self, network: &mut Network, number: u16, event: Event) {
        let ended = match event {
            Event::Received { message, .. } => return self.take(network, number, &message),
            Event::Delivered { id, .. } | Event::Undelivered { id, .. } => id,
            _ => return,
        };
        let Some(host) = &mut self.hosts[usize::from(number)] else {
            return;
        };
        let Some(tag) = host.ended(ended) else {
            return;
        };
        let again = host.waiting.pop_front();
        let transfer = &mut self.transfers[tag.message() as usize];
        let has_come = transfer.is_done || (tag.is_request() && transfer.is_asked_for);
        if !has_come {
            // It was given up, or mixed up with another one (A-C1): the application asks again.
            transfer.stats.timeouts += 1;
            self.send(network, tag);
        }
        if let Some(tag) = again {
            self.send(network, tag);
        }
    }

    /// A message was decoded at its receiver.
    fn take(&mut self, network: &mut Network, number: u16, content: &[u8]) {
        let Some((tag, zeros)) = content.split_first_chunk() else {
            return;
        };
        let tag = Tag(u32::from_le_bytes(*tag));
        let Some(transfer) = self.transfers.get_mut(tag.message() as usize) else {
            return;
        };
        let (to, bytes) = if tag.is_request() {
            (transfer.from, transfer.request_bytes.unwrap_or(0))
        } else {
            (transfer.to, transfer.bytes)
        };
        // With mode paper symbols of a message long gone may spoil another (A-C1).
        let is_whole = content.len() as u64 == bytes && zeros.iter().all(|it| *it == 0);
        if to != number || !is_whole || transfer.is_done {
            return;
        }
        if tag.is_request() {
            if !std::mem::replace(&mut transfer.is_asked_for, true) {
                // The sender of the answer is this host, which is served anyway.
                self.send(network, Tag::new(tag.message(), false));
            }
            return;
        }
        transfer.is_done = true;
        transfer.sent_by_end = transfer.stats.sent;
        let at_ns = network.now() + transfer.coding_ns;
        self.arrived.push((tag.message(), at_ns));
    }
}

/// Starts the product's machine.
fn start_endpoint(
    config: cloudburst_proto::TransportConfig,
    seed: [u8; 32],
    now: Time,
) -> Box<dyn Machine> {
    // The scenario's check has built the same configuration.
    let endpoint =
        Transport::deterministic(config, seed, now).unwrap_or_else(|error| panic!("{error}"));
    Box::new(endpoint)
}

fn now(network: &Network) -> Time {
    Time::from_nanos(network.now())
}
