//! Hosts, a network and what happens in between.

use std::net::SocketAddr;

use cloudburst_proto::{
    Ecn, FourTuple, IcmpKind, MessageKind, PeerId, SendOptions, SendRefused, SocketId,
};

use super::{
    host::Host,
    keys,
    log::Log,
    messages::{Draft, MessageRecords},
    network::{Network, Parcel},
    queue::Queue,
    random::{Random, mix},
    scenario::{Fault, Scenario, SendPlan},
};

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) scenario: Scenario,
    pub(crate) hosts: Vec<Host>,
    pub(crate) network: Network,
    pub(crate) records: MessageRecords,
    pub(crate) log: Log,
    /// All that was ever put on the way, if somebody asked for it.
    pub(crate) captured: Option<Vec<Parcel>>,
    /// What was handed over of somebody who is no host, if there is somebody: to whom, as which message.
    pub(crate) of_others: Option<Vec<(usize, u64, Vec<u8>)>>,
    pub(super) queue: Queue<Happening>,
    pub(super) random: Random,
    pub(super) buffer: Vec<u8>,
    /// Sends, replies and faults still to come.
    pub(crate) to_come: usize,
    /// Sends that were not accepted.
    pub(crate) not_accepted: Vec<SendRefused>,
}

pub(super) enum Happening {
    /// At the host's link, and past it.
    Arrive(Parcel),
    Take(Parcel),
    Timer {
        host: usize,
        number: u64,
    },
    Send(usize),
    Reply {
        host: usize,
        incarnation: u32,
        peer: PeerId,
        to_host: usize,
        to: u64,
    },
    Cancel {
        message: usize,
    },
    Fault(usize),
    Unreachable {
        host: usize,
        incarnation: u32,
        four_tuple: FourTuple,
        quoted: Vec<u8>,
    },
}

impl World {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let mut queue = Queue::new();
        for (index, (at, _)) in scenario.faults.iter().enumerate() {
            queue.push(*at, Happening::Fault(index));
        }
        for (index, send) in scenario.sends.iter().enumerate() {
            queue.push(send.at, Happening::Send(index));
        }
        Self {
            now: 0,
            hosts: (0..scenario.hosts.len())
                .map(|number| Host::new(&scenario, number))
                .collect(),
            network: Network::new(scenario.seed, scenario.paths.clone(), scenario.symmetric),
            records: MessageRecords::new(&scenario),
            log: Log::new(),
            captured: None,
            of_others: None,
            queue,
            random: Random::of(scenario.seed, 3),
            buffer: vec![0; 65_535],
            to_come: scenario.sends.len() + scenario.faults.len(),
            not_accepted: Vec::new(),
            scenario,
        }
    }

    pub(crate) fn run_until(&mut self, until: u64) {
        while let Some((at, happening)) = self.queue.pop(until) {
            self.now = at;
            self.happen(happening);
        }
        self.now = until;
    }

    /// A datagram out of nowhere, or of who pretends to be somebody else.
    pub(crate) fn inject(&mut self, at: u64, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let ecn = Ecn::NotCapable;
        let parcel = Parcel {
            from,
            to,
            ecn,
            bytes,
        };
        self.queue.push(at, Happening::Take(parcel));
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive(parcel) => self.arrive(parcel),
            Happening::Take(parcel) => self.take(parcel),
            Happening::Timer { host, number } => self.timer(host, number),
            Happening::Send(index) => self.send(index),
            Happening::Reply {
                host,
                incarnation,
                peer,
                to_host,
                to,
            } => self.reply(host, incarnation, peer, to_host, to),
            Happening::Cancel { message } => self.cancel(message),
            Happening::Fault(index) => self.strike(&self.scenario.faults[index].1.clone()),
            Happening::Unreachable {
                host,
                incarnation,
                four_tuple,
                quoted,
            } => {
                let (now, at) = (self.now, &mut self.hosts[host]);
                if at.incarnation == incarnation && at.held.is_none() {
                    let now = at.clock.tell(now);
                    at.endpoint
                        .handle_icmp(now, four_tuple, IcmpKind::Unreachable, &quoted);
                    self.service(host);
                }
            }
        }
    }

    fn arrive(&mut self, parcel: Parcel) {
        let Some((host, ..)) = self.scenario.owner(parcel.to) else {
            return;
        };
        match &mut self.hosts[host].ingress {
            None => self.take(parcel),
            Some(link) => {
                if let Some(queued) = link.carry(self.now, parcel.bytes.len()) {
                    self.queue.push(self.now + queued, Happening::Take(parcel));
                }
            }
        }
    }

    fn take(&mut self, parcel: Parcel) {
        let Some((number, socket, ports)) = self.scenario.owner(parcel.to) else {
            return;
        };
        if !self.hosts[number].reads(self.now, socket, ports) {
            return;
        }
        let host = &mut self.hosts[number];
        let Some(mut parcel) = host.hold(parcel) else {
            return;
        };
        self.log.numbers(&[self.now, 1, number as u64]);
        self.log.say(
            self.now,
            format_args!(
                "host {number} gets  {}",
                describe(&parcel.bytes, parcel.from)
            ),
        );
        host.totals.take_in(parcel.from.ip(), &parcel.bytes);
        if let Some((from, ..)) = self.scenario.owner(parcel.from) {
            host.heard_at.insert(from, self.now);
        }
        let remote = parcel.from;
        let four_tuple = FourTuple::new(socket, remote);
        let now = host.clock.tell(self.now);
        host.endpoint
            .handle_datagram(now, four_tuple, parcel.ecn, &mut parcel.bytes);
        self.service(number);
    }

    fn timer(&mut self, number: usize, timer: u64) {
        let host = &mut self.hosts[number];
        if host.held.is_some() || host.timer.is_none_or(|(_, latest)| latest != timer) {
            return;
        }
        host.timer = None;
        host.totals.timers += 1;
        let now = host.clock.tell(self.now);
        let is_due = host.endpoint.next_deadline().is_some_and(|due| due <= now);
        if is_due {
            host.endpoint.handle_timeout(now);
        }
        let is_idle = !self.service(number);
        let host = &mut self.hosts[number];
        let is_due_again = host.endpoint.next_deadline().is_some_and(|due| due <= now);
        host.spins = if is_due && is_idle && is_due_again {
            host.spins + 1
        } else {
            0
        };
        assert!(
            host.spins < 4,
            "host {number} is always due and has nothing to do: a driver would spin; {:?} at {now}",
            host.endpoint.next_deadline()
        );
    }

    fn send(&mut self, index: usize) {
        self.to_come -= 1;
        let plan = self.scenario.sends[index];
        let SendPlan { from, to, .. } = plan;
        let draft = Draft {
            from,
            to,
            kind: if plan.is_request {
                MessageKind::Request
            } else {
                MessageKind::Message
            },
            bytes: plan.bytes,
            options: plan.options(),
            tag: mix(self.scenario.seed ^ index as u64),
        };
        let heard = self.hosts[from].heard.get(&to).copied();
        let Some(peer) = heard
            .filter(|_| plan.back)
            .or_else(|| self.connect(from, to))
        else {
            return;
        };
        let accepted = self.accept(draft, peer).or_else(|| {
            // It may have gone; then it can be found again.
            let is_gone = self.not_accepted.last() == Some(&SendRefused::NoPeer);
            self.hosts[from].connected.remove(&to);
            self.hosts[from].heard.remove(&to);
            let peer = self.connect(from, to).filter(|_| is_gone)?;
            self.accept(draft, peer)
        });
        if let (Some(message), Some(after)) = (accepted, plan.cancel_after) {
            let at = self.now + after;
            self.queue.push(at, Happening::Cancel { message });
        }
        self.service(from);
    }

    fn accept(&mut self, draft: Draft, peer: PeerId) -> Option<usize> {
        let host = &mut self.hosts[draft.from];
        let now = host.clock.tell(self.now);
        let content = draft.content();
        let kind = (draft.kind, draft.options);
        let sent = host.endpoint.send_with(now, peer, kind, &content);
        self.log.say(
            self.now,
            format_args!(
                "host {} sends {} bytes to {}: {sent:?}",
                draft.from, draft.bytes, draft.to
            ),
        );
        match sent {
            Ok(id) => {
                host.totals.accepted += 1;
                host.ids.insert(id.as_u64(), id);
                let (id, clock) = (id.as_u64(), now.as_nanos());
                self.log.numbers(&[self.now, 2, id]);
                Some(
                    self.records
                        .accept(draft, host.incarnation, id, self.now, clock),
                )
            }
            Err(error) => {
                self.not_accepted.push(error);
                None
            }
        }
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> Option<PeerId> {
        if let Some(peer) = self.hosts[from].connected.get(&to) {
            return Some(*peer);
        }
        let plans = &self.scenario.hosts;
        let pairs = (0..plans[from].sockets)
            .flat_map(|socket| (0..plans[to].sockets).map(move |port| (socket, port)));
        let four_tuples: Vec<_> = pairs
            .take(self.scenario.four_tuples)
            .map(|(socket, port)| FourTuple::new(SocketId(socket), self.address(to, port)))
            .collect();
        let key = self.scenario.has_key_pairs.then(|| keys::pair(to).public());
        let host = &mut self.hosts[from];
        host.totals.trust(four_tuples[0].remote.ip());
        let now = host.clock.tell(self.now);
        let peer = host.endpoint.connect(now, &four_tuples, key).ok()?;
        host.connected.insert(to, peer);
        Some(peer)
    }

    fn reply(&mut self, host: usize, incarnation: u32, peer: PeerId, to_host: usize, to: u64) {
        self.to_come -= 1;
        if self.hosts[host].incarnation != incarnation {
            return;
        }
        let draft = Draft {
            from: host,
            to: to_host,
            kind: MessageKind::Reply { to },
            bytes: self.hosts[host].plan.reply_bytes,
            options: SendOptions::new(),
            tag: mix(self.scenario.seed ^ mix(to) ^ 77),
        };
        self.accept(draft, peer);
        self.service(host);
    }

    fn cancel(&mut self, index: usize) {
        let message = &mut self.records.messages[index];
        let (from, id) = (message.from, message.id);
        if message.incarnation == self.hosts[from].incarnation {
            message.cancelled |= message.fate.is_none();
            let host = &mut self.hosts[from];
            if let Some(id) = host.ids.get(&id) {
                host.endpoint.cancel(host.clock.tell(self.now), *id);
            }
            self.service(from);
        }
    }

    /// A host that was held reads what has come, and does what has been due for long.
    fn release(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        host.timer = None;
        for parcel in host.held.take().unwrap_or_default() {
            self.take(parcel);
        }
        let host = &mut self.hosts[number];
        let now = host.clock.tell(self.now);
        host.endpoint.handle_timeout(now);
    }

    fn strike(&mut self, fault: &Fault) {
        self.to_come -= 1;
        self.log.say(self.now, format_args!("{fault:?}"));
        let now = self.now;
        match *fault {
            Fault::ClockForward { host, ns } => self.hosts[host].clock.jump(i128::from(ns)),
            Fault::ClockBack { host, ns } => self.hosts[host].clock.jump(-i128::from(ns)),
            Fault::Restart { host, same_seed } => {
                self.records.forget(now, host);
                let security = keys::of(&self.scenario, host);
                self.hosts[host].restart(now, same_seed, security);
            }
            Fault::Goodbye { host } => {
                let at = &mut self.hosts[host];
                at.endpoint.close(at.clock.tell(now));
                self.service(host);
                self.records.forget(now, host);
                let security = keys::of(&self.scenario, host);
                self.hosts[host].restart(now, false, security);
            }
            Fault::Mute { host, mute } => self.hosts[host].mute = mute,
            Fault::Held { host, held: true } => self.hosts[host].held = Some(Vec::new()),
            Fault::Held { host, held: false } => self.release(host),
            Fault::Unreachable { host, unreachable } => self.hosts[host].unreachable = unreachable,
            Fault::SocketGone { host, socket } => {
                let at = &mut self.hosts[host];
                at.endpoint
                    .remove_socket(at.clock.tell(now), SocketId(socket));
            }
            Fault::Rebind { host } => {
                for socket in 0..self.scenario.hosts[host].sockets {
                    self.hosts[host].change_port(now, SocketId(socket));
                }
            }
            Fault::Fill {
                path,
                direction,
                share,
            } => self.network.paths[path].directions[direction]
                .link
                .fill(share),
            Fault::Mtu { path, mtu } => self.network.paths[path].mtu = mtu,
            Fault::Keys { host, ref keys } => {
                self.hosts[host].endpoint.set_security(keys::rings(keys))
            }
        }
        for host in 0..self.hosts.len() {
            self.service(host);
        }
    }
}

/// For people.
pub(super) fn describe(bytes: &[u8], other: SocketAddr) -> String {
    const KINDS: [&str; 10] = [
        "?",
        "symbol",
        "stop",
        "ask",
        "have",
        "busy",
        "ping",
        "pong",
        "challenge",
        "token",
    ];
    let kind = usize::from(bytes.first().map_or(0, |first| first & 15));
    let number = |range: std::ops::Range<usize>| {
        let bytes = bytes.get(range).unwrap_or_default();
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    format!(
        "{:<9} {:>5} B  {other}  path {} no. {} message {}",
        KINDS.get(kind).unwrap_or(&"?"),
        bytes.len(),
        number(2..4),
        number(16..24),
        number(24..32)
    )
}
