//! What a host does after every call: takes events and datagrams until there are
//! no more, and sets its timer.

use std::time::Duration;

use cloudburst_proto::{
    Ecn, Event, FourTuple, Health, MAX_LIFETIME, MessageKind, Receipt, SocketId, Undelivered,
};

use super::{
    messages::{Fate, Message},
    network::Parcel,
    path::{MICRO, MILLI},
    totals::SHORT_TIMER_NS,
    world::{Happening, World, describe},
};

/// Calls of `poll_transmit` at one moment before it counts as endless.
const MOST_CALLS: u32 = 100_000;
/// How long after its lifetime a message's end may be told: a probe timeout or so.
const SLACK_NS: u64 = 400 * MILLI;
/// A host is taken for one that has just been started for so long: as long as its answers may take.
const YOUNG_NS: u64 = 15_000 * MILLI;
const UNREACHABLE_NS: u64 = 300 * MICRO;
/// The upper half of the first byte of what somebody sends who is no host: that of a host's is its number.
pub(crate) const NO_HOST: u8 = 15;

impl World {
    /// Says whether anything was done.
    pub(crate) fn service(&mut self, number: usize) -> bool {
        if self.hosts[number].held.is_some() {
            return false;
        }
        let mut worked = false;
        let mut trains = Vec::new();
        for call in 0.. {
            assert!(
                call < MOST_CALLS,
                "host {number} has no end of datagrams at {}",
                self.now
            );
            while let Some(event) = self.hosts[number].endpoint.poll_event() {
                worked = true;
                self.event(number, event);
            }
            let Some(train) = self.transmit(number) else {
                break;
            };
            worked = true;
            if !trains.contains(&train) {
                trains.push(train);
            }
        }
        // Without datagrams there may be events all the same.
        while let Some(event) = self.hosts[number].endpoint.poll_event() {
            worked = true;
            self.event(number, event);
        }
        let host = &mut self.hosts[number];
        host.totals.sends += trains.len() as u64;
        host.totals.check(&host.endpoint.statistics());
        self.set_timer(number);
        worked
    }

    fn set_timer(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        let Some(deadline) = host.endpoint.next_deadline() else {
            host.timer = None;
            return;
        };
        let due = host.clock.when(deadline).max(self.now + 1);
        if host.timer.is_some_and(|(at, _)| at == due) {
            return;
        }
        host.timers_set += 1;
        // Who is called for what is due already needs no timer.
        let lead = due - self.now;
        host.totals.short_timers += u64::from((2..SHORT_TIMER_NS).contains(&lead));
        host.timer = Some((due, host.timers_set));
        if due == u64::MAX {
            return;
        }
        let late = self.random.below(host.plan.timer_slack_ns + 1);
        let happening = Happening::Timer {
            host: number,
            number: host.timers_set,
        };
        self.queue.push(due + late, happening);
    }

    /// One train of datagrams, if there is one: where it goes, and in datagrams of which length.
    fn transmit(&mut self, number: usize) -> Option<(FourTuple, usize)> {
        let host = &mut self.hosts[number];
        let now = host.clock.tell(self.now);
        let mut buffer = std::mem::take(&mut self.buffer);
        let out = &mut buffer[..host.plan.buffer_bytes];
        let Some(transmit) = host.endpoint.poll_transmit(now, out) else {
            self.buffer = buffer;
            return None;
        };
        assert!(
            transmit.bytes > 0 && transmit.bytes <= out.len(),
            "{transmit:?}"
        );
        assert!(transmit.segment_bytes > 0, "{transmit:?}");
        let mut too_big = None;
        for segment in out[..transmit.bytes].chunks(transmit.segment_bytes) {
            if !self.put_out(number, transmit.four_tuple, transmit.ecn, segment) {
                too_big = Some(segment.len());
            }
        }
        self.buffer = buffer;
        if let Some(bytes) = too_big {
            let host = &mut self.hosts[number];
            host.endpoint
                .handle_too_big(now, transmit.four_tuple, bytes);
        }
        Some((transmit.four_tuple, transmit.segment_bytes))
    }

    /// Says whether it fitted.
    fn put_out(&mut self, number: usize, four_tuple: FourTuple, ecn: Ecn, segment: &[u8]) -> bool {
        let host = &mut self.hosts[number];
        assert!(
            four_tuple.socket.0 < host.plan.sockets,
            "{four_tuple:?} is no socket of host {number}"
        );
        host.totals
            .give_out(self.now, four_tuple.remote.ip(), segment);
        host.translate(self.now, four_tuple.socket);
        self.log.numbers(&[self.now, 3, number as u64]);
        self.log.bytes(segment);
        self.log.say(
            self.now,
            format_args!(
                "host {number} sends {}",
                describe(segment, four_tuple.remote)
            ),
        );
        let parcel = Parcel {
            from: self.address(number, four_tuple.socket.0),
            to: four_tuple.remote,
            ecn,
            bytes: segment.to_vec(),
        };
        if let Some(captured) = &mut self.captured {
            captured.push(parcel.clone());
        }
        if self
            .network
            .is_told_too_big(parcel.from, parcel.to, segment.len())
        {
            return false;
        }
        if !self.hosts[number].mute {
            self.travel(number, four_tuple, parcel);
        }
        true
    }

    fn travel(&mut self, from: usize, four_tuple: FourTuple, mut parcel: Parcel) {
        let Some((to, ..)) = self.scenario.owner(parcel.to) else {
            return;
        };
        if self.hosts[to].unreachable {
            let incarnation = self.hosts[from].incarnation;
            let host = from;
            self.queue.push(
                self.now + UNREACHABLE_NS,
                Happening::Unreachable {
                    host,
                    incarnation,
                    four_tuple,
                    quoted: parcel.bytes,
                },
            );
            return;
        }
        let Some(queued) = self.hosts[from].egress.carry(self.now, parcel.bytes.len()) else {
            return;
        };
        let direction = usize::from(from > to);
        let arrivals = self
            .network
            .carry(self.now + queued, direction, &mut parcel);
        for at in arrivals.into_iter().flatten() {
            self.queue.push(at, Happening::Arrive(parcel.clone()));
        }
    }

    fn event(&mut self, number: usize, event: Event) {
        match event {
            Event::Received {
                peer,
                id,
                kind,
                message,
                ..
            } => self.received(number, peer, id, kind, &message),
            Event::Delivered { id, receipt } => {
                self.hosts[number].totals.delivered += 1;
                self.delivered(number, id.as_u64(), receipt);
            }
            Event::Undelivered { id, failure } => {
                self.hosts[number].totals.undelivered += 1;
                self.undelivered(number, id.as_u64(), failure);
            }
            Event::PeerGone { peer, .. } => {
                let host = &mut self.hosts[number];
                host.connected.retain(|_, known| *known != peer);
                host.heard.retain(|_, known| *known != peer);
                self.log.numbers(&[self.now, 6, number as u64]);
                self.log
                    .say(self.now, format_args!("host {number} loses {peer:?}"));
            }
            Event::RotatePort { socket } => self.rotate_port(number, socket),
            Event::CircuitBroken { .. } | Event::PathReplaced { .. } | Event::Cancelled { .. } => {
                self.log.numbers(&[self.now, 9, number as u64]);
                self.log
                    .say(self.now, format_args!("host {number}: {event:?}"));
            }
            // Statistics and reports of paths say what there is to check.
            _ => {}
        }
    }

    fn rotate_port(&mut self, number: usize, socket: SocketId) {
        let host = &mut self.hosts[number];
        assert!(socket.0 < host.plan.sockets, "{socket:?} is none of its");
        if !host.may_change_ports {
            return;
        }
        host.change_port(self.now, socket);
        let now = host.clock.tell(self.now);
        host.endpoint.port_rotated(now, socket);
        self.log
            .numbers(&[self.now, 10, number as u64, socket.0.into()]);
        self.log.say(
            self.now,
            format_args!("host {number} gives socket {} another port", socket.0),
        );
    }

    fn received(
        &mut self,
        number: usize,
        peer: cloudburst_proto::PeerId,
        id: u64,
        kind: MessageKind,
        message: &[u8],
    ) {
        let host = &mut self.hosts[number];
        host.totals.received += 1;
        self.log.numbers(&[self.now, 7, number as u64, id]);
        self.log.bytes(message);
        self.log.say(
            self.now,
            format_args!("host {number} takes {kind:?} {id}, {} bytes", message.len()),
        );
        let incarnation = host.incarnation;
        if let Some(of_others) = &mut self.of_others
            && message.first().is_some_and(|first| first >> 4 == NO_HOST)
        {
            of_others.push((number, id, message.to_vec()));
            return;
        }
        let records = &mut self.records;
        let Some(index) = records.hand_over(self.now, number, incarnation, id, kind, message)
        else {
            return;
        };
        let from = self.records.messages[index].from;
        let host = &mut self.hosts[number];
        host.heard.insert(from, peer);
        if kind == MessageKind::Request {
            self.to_come += 1;
            let think = host.plan.think_ns;
            self.queue.push(
                self.now + think,
                Happening::Reply {
                    host: number,
                    incarnation,
                    peer,
                    to_host: from,
                    to: id,
                },
            );
        }
    }

    fn delivered(&mut self, number: usize, id: u64, receipt: Receipt) {
        let index = self.end(number, id, Fate::Delivered(receipt));
        let host = &self.hosts[number];
        let message = &self.records.messages[index];
        let same_seed = self.scenario.restarts_with_same_seed(number) && host.incarnation > 0;
        let is_lax = same_seed || self.scenario.is_credulous();
        assert!(
            message.handed_over > 0 || is_lax,
            "told to be delivered, and never handed over: {message:?}"
        );
        let symbols = receipt.symbols;
        assert!(symbols >= 1 && receipt.paths >= 1, "{receipt:?}");
        assert!(
            receipt.sent <= self.most_symbols(number, symbols),
            "over budget: {receipt:?}"
        );
        assert!(is_lax || receipt.needed <= receipt.sent, "{receipt:?}");
    }

    fn undelivered(&mut self, number: usize, id: u64, failure: Undelivered) {
        let index = self.end(number, id, Fate::Undelivered(failure));
        let message = &self.records.messages[index];
        assert!(
            failure.sent <= self.most_symbols(number, failure.symbols),
            "over budget: {failure:?}"
        );
        assert!(
            message.cancelled || failure.reason != cloudburst_proto::Reason::Cancelled,
            "nobody cancelled {message:?}"
        );
        if failure.reason == cloudburst_proto::Reason::Unknown {
            // Who has just been started cannot be told from who was restarted.
            let is_young = self.scenario.age_ns + message.accepted < YOUNG_NS;
            assert!(
                self.scenario.restarts(message.to) || is_young,
                "nothing is unknown about {message:?}"
            );
            assert!(!message.is_idempotent, "it does no harm twice: {message:?}");
        }
    }

    /// The common part: exactly once, and in time.
    fn end(&mut self, number: usize, id: u64, fate: Fate) -> usize {
        let host = &mut self.hosts[number];
        let now = host.clock.tell(self.now).as_nanos();
        let index = self.records.find(number, host.incarnation, id);
        self.log.numbers(&[self.now, 8, number as u64, id]);
        self.log.say(
            self.now,
            format_args!("host {number} hears of {id}: {fate:?}"),
        );
        self.records.resolve(self.now, index, fate);
        host.ids.remove(&id);
        let message = &self.records.messages[index];
        let took = now - message.accepted_by_clock;
        let most = self.most_time_ns(number, message) + SLACK_NS + self.scenario.jumps_ns(number);
        assert!(
            took <= most,
            "told {took} ns after it was accepted: {fate:?}, {message:?}"
        );
        index
    }

    /// A lifetime runs from the first transmission while its receiver is heard of, and a deadline from
    /// the call.
    fn most_time_ns(&self, number: usize, message: &Message) -> u64 {
        let host = &self.hosts[number];
        let lifetime = host.plan.config.budget.lifetime;
        let heard_at = host.heard_at.get(&message.to);
        let may_wait = heard_at.is_some_and(|at| *at > message.accepted);
        let waits = if may_wait {
            MAX_LIFETIME
        } else {
            Duration::ZERO
        };
        let most = (waits + lifetime).min(message.options.deadline.unwrap_or(Duration::MAX));
        most.as_nanos() as u64
    }

    fn most_symbols(&self, number: usize, symbols: u32) -> u32 {
        let budget = &self.hosts[number].plan.config.budget;
        (budget.symbols_factor * f64::from(symbols)) as u32 + budget.symbols_extra
    }

    /// Paths of a host to another that are in a state.
    pub(crate) fn paths_that_are(&self, host: usize, to: usize, health: Health) -> usize {
        let at = &self.hosts[host];
        let peer = at.connected.get(&to).or_else(|| at.heard.get(&to));
        let paths = peer
            .into_iter()
            .flat_map(|peer| at.endpoint.paths(at.clock.told(), *peer));
        paths.filter(|path| path.health == health).count()
    }

    /// A socket's, with the port that it has now.
    pub(crate) fn address(&self, host: usize, socket: u16) -> std::net::SocketAddr {
        let (ports, _) = self.hosts[host].ports[usize::from(socket)];
        self.scenario.address_of(host, SocketId(socket), ports)
    }
}
