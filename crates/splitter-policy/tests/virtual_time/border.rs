//! A border router in virtual time: the policy that the kernel runs, two shaped tunnels, and a
//! processor that may be taken away.

use std::collections::BinaryHeap;
use std::{cmp::Reverse, ops::Range};

use flow_balance::ServiceTime;
use splitter_policy::classify::{Verdict, classify};
use splitter_policy::config::{PolicyConfig, TunnelUse};
use splitter_policy::counters::FlowEvent;
use splitter_policy::flow::{Class, FlowEntry, TunnelRole};
use splitter_policy::flow_packet::FlowPacket;
use splitter_policy::models::HostQueues;
use splitter_policy::packet::TcpFlags;

use crate::shaper::{Packet, Queue, Shaper};
use crate::traffic::Random;

pub(crate) const MICROSECOND: u64 = 1_000;
pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const HEADER_BYTES: u64 = 66;
pub(crate) const QUEUE_NS: u64 = 18 * MILLISECOND;

/// What a processor does first when it is there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// Timers, then packets: softirqs of one CPU, in their order.
    TimersFirst,
    /// Packets, then timers: another CPU has the timers, and is away for longer.
    PacketsFirst,
}

/// A packet that has left the border.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) packet: Packet,
    pub(crate) left_ns: u64,
    pub(crate) tunnel: TunnelRole,
}

/// Both tunnels of a border, and the policy in front of them.
pub(crate) struct Border {
    pub(crate) config: PolicyConfig,
    pub(crate) rates_mbit: [u64; 2],
    models: HostQueues,
    /// Each flow has the tunnel that its number tells, in one queue.
    is_hashed: bool,
    /// The policy may look at the shapers' queues.
    sees_queues: bool,
    entries: Vec<FlowEntry>,
    pub(crate) shapers: [Shaper; 2],
    /// When the processor is away, in order.
    away: Vec<Range<u64>>,
    resumption: Resumption,
    arrivals: BinaryHeap<Reverse<(u64, u64)>>,
    packets: Vec<(Packet, TcpFlags)>,
    pub(crate) verdicts: Vec<(u64, usize, Verdict)>,
    /// Taken by whoever is behind it.
    pub(crate) departures: Vec<Departure>,
    /// All departures.
    pub(crate) log: Vec<Departure>,
    /// Packets that a full queue dropped; taken by whoever is behind.
    pub(crate) dropped: Vec<Packet>,
}

impl Border {
    /// With both classes in both tunnels of these rates.
    pub(crate) fn shared(rates_mbit: [u64; 2], flows: usize) -> Self {
        let slack_ns = 3 * 1_514 * 8 * 1_000 / rates_mbit[0].min(rates_mbit[1]);
        Self::new(
            TunnelUse::SHARED,
            rates_mbit,
            flows,
            PolicyConfig {
                drain_margin_ns: PolicyConfig::DEFAULT_DRAIN_MARGIN_NS.max(slack_ns),
                max_wait_ns: PolicyConfig::DEFAULT_SHARED_MAX_WAIT_NS,
                ..PolicyConfig::default()
            },
        )
    }

    /// With a tunnel for each class, of these rates.
    pub(crate) fn dedicated(rates_mbit: [u64; 2], flows: usize) -> Self {
        Self::new(
            TunnelUse::DEDICATED,
            rates_mbit,
            flows,
            PolicyConfig {
                drain_margin_ns: PolicyConfig::DEFAULT_DRAIN_MARGIN_NS,
                max_wait_ns: PolicyConfig::DEFAULT_MAX_WAIT_NS,
                ..PolicyConfig::default()
            },
        )
    }

    fn new(
        tunnel_use: TunnelUse,
        rates_mbit: [u64; 2],
        flows: usize,
        config: PolicyConfig,
    ) -> Self {
        let rates = rates_mbit.map(|it| it * 1_000_000);
        let [short_service, long_service] = rates.map(ServiceTime::from_bits_per_second);
        // As the agent has it: a queue that is not ours is taken to drain late.
        let short_service = match tunnel_use {
            TunnelUse::SHARED => short_service,
            _ => ServiceTime::from_bits_per_second(rates[0] * 97 / 100),
        };
        Self {
            config: PolicyConfig {
                tunnel_use,
                short_service,
                long_service,
                long_queue_ns: match tunnel_use {
                    TunnelUse::SHARED => QUEUE_NS,
                    _ => PolicyConfig::DEFAULT_QUEUE_NS,
                },
                ..config
            },
            rates_mbit,
            models: HostQueues::default(),
            is_hashed: false,
            sees_queues: false,
            entries: vec![FlowEntry::default(); flows],
            shapers: rates.map(|rate| Shaper::new(rate, QUEUE_NS)),
            away: Vec::new(),
            resumption: Resumption::TimersFirst,
            arrivals: BinaryHeap::new(),
            packets: Vec::new(),
            verdicts: Vec::new(),
            departures: Vec::new(),
            log: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// The same with a processor that is away at these times.
    pub(crate) fn away(self, away: Vec<Range<u64>>, resumption: Resumption) -> Self {
        Self {
            away,
            resumption,
            ..self
        }
    }

    /// With per-flow ECMP in place of the policy: a tunnel by hash, and one queue in each.
    pub(crate) fn hashed(self) -> Self {
        Self {
            is_hashed: true,
            ..self
        }
    }

    /// The same where the policy sees what waits in the shapers' short classes.
    pub(crate) fn seeing_queues(self) -> Self {
        Self {
            sees_queues: true,
            ..self
        }
    }

    /// A packet with this payload reaches the border.
    pub(crate) fn arrive(&mut self, at_ns: u64, flow: usize, number: u64, payload: u64) {
        self.arrive_with(at_ns, flow, number, payload, TcpFlags(0x10));
    }

    /// The same, with other flags than an acknowledgement's.
    pub(crate) fn arrive_with(
        &mut self,
        at_ns: u64,
        flow: usize,
        number: u64,
        payload: u64,
        flags: TcpFlags,
    ) {
        let order = self.packets.len() as u64;
        let packet = Packet {
            flow,
            number,
            bytes: HEADER_BYTES + payload,
            entered_ns: at_ns,
            class: Class::Short,
            queue: Queue::Short,
        };
        self.packets.push((packet, flags));
        self.arrivals.push(Reverse((at_ns, order)));
    }

    /// When the next thing happens here, if anything is to happen.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let arrival = self.arrivals.peek().map(|Reverse((at_ns, _))| *at_ns);
        let timers = self.shapers.iter().filter_map(Shaper::timer_ns);
        timers.chain(arrival).min().map(|it| self.handled_ns(it))
    }

    /// Does all that is due until then.
    pub(crate) fn run_until(&mut self, end_ns: u64) {
        while let Some(now_ns) = self.next_ns().filter(|it| *it <= end_ns) {
            let arrived = self.arrivals.peek().map(|Reverse((at_ns, _))| *at_ns);
            let arrived = arrived.filter(|it| self.handled_ns(*it) <= now_ns);
            let timer = self.shapers.iter().filter_map(Shaper::timer_ns).min();
            let is_timer_due = timer.is_some_and(|it| self.handled_ns(it) <= now_ns);
            let packet_first = self.resumption == Resumption::PacketsFirst || !is_timer_due;
            match arrived {
                Some(_) if packet_first => self.forward(now_ns),
                _ => self.fire(now_ns),
            }
        }
    }

    /// The tunnels that a flow has used, one after the other.
    pub(crate) fn tunnels_of(&self, flow: usize) -> Vec<TunnelRole> {
        let own = self.verdicts.iter().filter(|it| it.1 == flow);
        let mut tunnels: Vec<_> = own.map(|it| it.2.tunnel).collect();
        tunnels.dedup();
        tunnels
    }

    /// Tells if a flow has changed tunnels.
    pub(crate) fn has_moved(&self, flow: usize) -> bool {
        self.tunnels_of(flow).len() > 1
    }

    fn handled_ns(&self, due_ns: u64) -> u64 {
        let next = self.away.partition_point(|it| it.end <= due_ns);
        match self.away.get(next) {
            Some(away) if away.contains(&due_ns) => away.end,
            _ => due_ns,
        }
    }

    fn fire(&mut self, now_ns: u64) {
        for tunnel in TunnelRole::ALL {
            self.transmit(tunnel, now_ns);
        }
    }

    fn forward(&mut self, now_ns: u64) {
        let Some(Reverse((_, order))) = self.arrivals.pop() else {
            return;
        };
        let (mut packet, flags) = self.packets[order as usize];
        let payload = packet.bytes - HEADER_BYTES;
        let seen = FlowPacket::new(packet.bytes, payload, flags, &self.config);
        if self.sees_queues {
            self.models.short_backlog = TunnelRole::ALL.map(|tunnel| {
                let shaper = &self.shapers[tunnel as usize];
                shaper.waiting_bytes(Queue::Short)
            });
        }
        let entry = &mut self.entries[packet.flow];
        let mut verdict = classify(entry, seen, &self.config, &mut self.models, now_ns);
        if self.is_hashed {
            verdict.queue_class = Class::Short;
            verdict.tunnel = TunnelRole::numbered(Random(packet.flow as u64).next() & 1);
        }
        self.verdicts.push((now_ns, packet.flow, verdict));
        packet.entered_ns = now_ns;
        packet.class = verdict.class;
        packet.queue = match verdict.queue_class {
            Class::Short => Queue::Short,
            Class::Long => Queue::Long,
        };
        if verdict.hand_over == Some(FlowEvent::DroppedToDrain) {
            self.dropped.push(packet);
            return;
        }
        if !self.shapers[verdict.tunnel as usize].enqueue(packet) {
            self.dropped.push(packet);
        }
        // Whoever enqueues also dequeues what may leave.
        self.transmit(verdict.tunnel, now_ns);
    }

    fn transmit(&mut self, tunnel: TunnelRole, now_ns: u64) {
        for packet in self.shapers[tunnel as usize].run(now_ns) {
            let departure = Departure {
                packet,
                left_ns: now_ns,
                tunnel,
            };
            self.departures.push(departure);
            self.log.push(departure);
        }
    }
}
