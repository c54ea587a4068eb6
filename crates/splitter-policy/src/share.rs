//! Shared tunnels: both carry both classes, and short flows have strict priority on each.
//!
//! The border shapes each tunnel and keeps two classes in front of it, of which
//! the short one has strict priority. So short flows hardly notice long ones,
//! and long flows have all that short ones leave, on both tunnels.
//!
//! | packet of a flow that | goes into the queue class | of the tunnel |
//! |---|---|---|
//! | is short | short | that promised to be the earlier one when it started, or nearly so; it may change at a pause |
//! | turned long, and waits | short | the same |
//! | was placed | long | with the fewest flows for its rate |
//! | any, if it is a pure acknowledgement | short | that of its flow |
//!
//! Flows that start at the same time see each other: a crowd counts them from their first
//! packet on, not only from when they are placed. A flow that has only shaken hands changes at no
//! risk, and one that sends changes where its packets have left its tunnel, as they have between
//! the round trips of a slow start.
//!
//! A flow is placed with its first packet beyond the threshold that carries data:
//! one that acknowledges and then ends is short, however long that took. If that is on
//! the tunnel where it is, it changes class at once: strict priority lets
//! nothing in the long class overtake what waits in the short one. Else it
//! waits for what [`crate::dedicated`] asks of a change
//! of tunnels, and stays where it is if that does not come within
//! [`PolicyConfig::max_wait_ns`], or before it has sent as much again as made it long: while
//! it waits it is ahead of short flows. So it never overtakes itself. Later it changes with its
//! first packet after it has been silent for so long that it is [counted](ActiveFlows) no more,
//! 134 ms at least, if it has more of the other tunnel then, and no more than
//! [`FlowEntry::MOST_CHANGES`] times.
//!
//! When its packets have left, the [virtual queues](crate::cpu_queues) tell. They run ahead of a shaper
//! that stood still because its processor was away; where the host can read the real queue
//! ([`ShortBacklog`]), a flow waits for that too.

mod crowd;
mod growth;
mod place;
mod start;

use crate::config::PolicyConfig;
use crate::counters::FlowEvent;
use crate::cpu_queues::{EarlyQueue, LateQueue, OwedShare, PaidShare, Sent, SharedWord};
use crate::egress::Egress;
use crate::flow::{Class, FlowEntry, TunnelRole};
use crate::flow_packet::FlowPacket;
pub use crowd::Stage;
use crowd::{Crowd, has_more};
use flow_balance::{ActiveFlows, Activity, Placement, RoundRobin, ServiceTime};

/// Access to the queues that are modelled here, as far as a host has any.
pub trait ShortBacklog {
    /// The bytes that wait in the short class of a tunnel now; 0 where nobody can tell.
    fn bytes(&self, tunnel: TunnelRole) -> u64;
}

/// A packet that is counted in its flow, as sharing looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedPacket {
    /// The size and kind of the packet.
    pub packet: FlowPacket,
    /// The tunnel that was chosen for its flow, if it is that one's first long packet.
    pub chosen: Option<TunnelRole>,
    /// The time of its flow's last packet before, to the precision of
    /// [`FlowEntry::last_seen_ns`].
    pub last_seen_ns: u64,
    /// The time of the packet.
    pub now_ns: u64,
}

/// The virtual queues of two shared tunnels, and what was chosen lately. The values of the short
/// tunnel come first.
///
/// No CPU loses what another puts into a queue. The counts of flows and whose turn it is are written
/// plainly: what is lost of them is gone after two windows of [`ActiveFlows`].
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedQueues<W> {
    /// The short class of each; it drains never too early.
    short: [LateQueue<W>; 2],
    /// The long class of each, as if it had the tunnel alone; it drains never too late.
    long: [EarlyQueue<W>; 2],
    /// The traffic that flows that started will bring.
    expected: [LateQueue<W>; 2],
    /// The flows on each.
    crowds: [Crowd; 2],
    /// The round robin by which flows start.
    turns: RoundRobin,
}

/// The share of one CPU in the queues of both tunnels: what it has paid for in advance, and what it still
/// has to add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnQueues {
    short: [PaidShare; 2],
    long: [OwedShare; 2],
}

/// One CPU, as far as it puts packets into the queues.
#[derive(Debug)]
pub struct Cpu<'a> {
    /// Its share of them.
    pub own: &'a mut OwnQueues,
    /// The most by which a packet's coarse time lies behind.
    pub slack_ns: u64,
}

/// What a short flow is expected to bring: some ten full packets.
const EXPECTED_BYTES: u64 = 15_000;
/// The lead that a tunnel gets for a new flow to start in it all the same, if it has fewer flows
/// for its rate: should the new one turn long, it need not change. Less than a round trip is to a
/// person.
const HEAD_START_NS: u64 = 1_000_000;
/// How many packets of a short flow have to wait, one round trip after the
/// other, for a long one that is just being sent.
const ROUND_TRIPS: u64 = 4;
const FULL_PACKET_BYTES: u64 = 1_514;

impl<W: SharedWord> SharedQueues<W> {
    /// Chooses as [`SharedEgress::start`](crate::models::SharedEgress::start) has it.
    #[inline(always)]
    pub fn start(&mut self, config: &PolicyConfig, now_ns: u64) -> TunnelRole {
        let next = self.take_turn(config, now_ns);
        self.start_near(config, next, now_ns)
    }

    /// Chooses as [`SharedEgress::choose`](crate::models::SharedEgress::choose) has it.
    #[inline(always)]
    pub fn choose(
        &mut self,
        config: &PolicyConfig,
        here: TunnelRole,
        was: Stage,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> TunnelRole {
        self.crowds[here as usize].leave(was, last_seen_ns, now_ns);
        let competition = |tunnel: TunnelRole| self.lasting_competition(config, tunnel, now_ns);
        let there = here.other();
        let goes =
            has_more(competition(there), competition(here)) && !self.is_much_busier(there, now_ns);
        let chosen = usable(config, if goes { there } else { here });
        // Seen by those that are placed while it waits to go there.
        self.note(chosen, Stage::Lasting, Activity::ENTERS, now_ns);
        chosen
    }

    /// Tells what [`SharedEgress::may_change`](crate::models::SharedEgress::may_change) asks.
    #[inline(always)]
    pub fn may_change(
        &self,
        config: &PolicyConfig,
        here: TunnelRole,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> bool {
        let there = here.other();
        // While it counts, so may what it sent last: a queue that the model takes for drained may
        // be that of a shaper whose processor was away.
        if ActiveFlows::counts(last_seen_ns, now_ns) || usable(config, there) != there {
            return false;
        }
        let competition = |tunnel: TunnelRole| self.lasting_competition(config, tunnel, now_ns);
        has_more(competition(there), competition(here))
    }

    /// Sends a packet as [`SharedEgress::send_placed`](crate::models::SharedEgress::send_placed) does.
    #[inline(always)]
    pub fn send_placed(
        &mut self,
        cpu: &mut Cpu<'_>,
        config: &PolicyConfig,
        tunnel: TunnelRole,
        packet: FlowPacket,
        is_first_of_window: bool,
        now_ns: u64,
    ) -> Egress {
        let tunnel = usable(config, tunnel);
        if is_first_of_window {
            self.note(tunnel, Stage::Lasting, Activity::RENEWS, now_ns);
        }
        let queue_class = if packet.is_pure_ack() {
            self.enqueue_short(cpu, config, (tunnel, packet.bytes), now_ns);
            Class::Short
        } else {
            self.enqueue_long(cpu, config, (tunnel, packet.bytes), now_ns);
            Class::Long
        };
        Egress {
            hand_over: None,
            queue_class,
            tunnel,
        }
    }

    /// Sends a packet as [`SharedEgress::send`](crate::models::SharedEgress::send) does, for a host that may
    /// see its real queues.
    #[inline(always)]
    pub fn send_seeing(
        &mut self,
        cpu: &mut Cpu<'_>,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
        backlog: &impl ShortBacklog,
    ) -> Egress {
        let hand_over = self.hand_over(config, entry, sent, backlog);
        self.send_after(hand_over, cpu, config, entry, sent, backlog)
    }

    /// Places the flow of a packet, or changes its tunnel, if that is due: the first part of
    /// [`send_seeing`](Self::send_seeing), by itself for a host with little stack.
    #[inline(always)]
    pub fn hand_over(
        &mut self,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
        backlog: &impl ShortBacklog,
    ) -> Option<FlowEvent> {
        if entry.is_placed() {
            self.change(config, entry, sent)
        } else {
            self.place(config, entry, sent, backlog)
        }
    }

    /// Sends a packet after its flow was looked at: the second part.
    #[inline(always)]
    pub fn send_after(
        &mut self,
        hand_over: Option<FlowEvent>,
        cpu: &mut Cpu<'_>,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
        backlog: &impl ShortBacklog,
    ) -> Egress {
        let CountedPacket { packet, now_ns, .. } = *sent;
        if entry.is_placed() {
            let egress = self.send_placed(cpu, config, entry.tunnel(), packet, false, now_ns);
            self.note_placed(egress.tunnel, entry, sent, hand_over);
            return Egress {
                hand_over,
                ..egress
            };
        }
        if entry.class() == Class::Short {
            self.grow(config, entry, sent, backlog);
        }
        let tunnel = usable(config, entry.tunnel());
        entry.drained_ns = self.enqueue_short(cpu, config, (tunnel, packet.bytes), now_ns);
        Egress {
            hand_over,
            queue_class: Class::Short,
            tunnel,
        }
    }

    /// The flows that last in each tunnel.
    #[cfg(test)]
    pub(crate) fn lasting(&self, now_ns: u64) -> [u32; 2] {
        self.crowds.map(|it| it.lasting.count(now_ns))
    }

    /// The competition that a flow meets in each tunnel if it starts there.
    #[cfg(test)]
    pub(crate) fn competition(&self, now_ns: u64) -> [u64; 2] {
        self.crowds.map(|it| it.competition(now_ns))
    }

    #[inline(always)]
    fn lasting_competition(
        &self,
        config: &PolicyConfig,
        tunnel: TunnelRole,
        now_ns: u64,
    ) -> (u64, u32) {
        let competition = self.crowds[tunnel as usize].lasting_competition(now_ns);
        (competition, service(config, tunnel).speed())
    }

    #[inline(always)]
    fn note(&mut self, tunnel: TunnelRole, stage: Stage, activity: Activity, now_ns: u64) {
        self.crowds[tunnel as usize].note(stage, activity, now_ns);
    }

    /// Tells if much more waits in front of this tunnel than of the other.
    #[inline(always)]
    fn is_much_busier(&self, tunnel: TunnelRole, now_ns: u64) -> bool {
        let backlog_ns = |tunnel: TunnelRole| {
            let index = tunnel as usize;
            self.short[index].backlog_ns(now_ns) + self.long[index].backlog_ns(now_ns)
        };
        backlog_ns(tunnel) > backlog_ns(tunnel.other()) + Placement::DEFAULT_TOLERANCE_NS
    }

    /// Tells if the flow's packets will have left its tunnel before a packet that goes into the
    /// other now. The real queue is looked at last, for the few packets that it decides on.
    ///
    /// Where it holds more than the model, that has run ahead and says no more of where in the
    /// queue the flow's packets are: they may be the last.
    #[inline(always)]
    fn has_drained(
        &self,
        config: &PolicyConfig,
        entry: &FlowEntry,
        now_ns: u64,
        backlog: &impl ShortBacklog,
    ) -> bool {
        let there = entry.tunnel().other();
        let leaves_ns = match entry.class() {
            Class::Long => self.long[there as usize].next_start_ns(now_ns),
            // In front of all that is long.
            Class::Short => now_ns,
        };
        if leaves_ns < entry.drained_ns + config.drain_margin_ns {
            return false;
        }
        let (here, service) = (entry.tunnel(), service(config, entry.tunnel()));
        let bytes = backlog.bytes(here);
        let is_modelled = !self.short[here as usize].is_ahead_of(bytes, now_ns, service);
        is_modelled || leaves_ns >= now_ns + service.of(bytes) + config.drain_margin_ns
    }

    /// Puts a packet into the modelled queue of the long class.
    #[inline(always)]
    fn enqueue_long(
        &self,
        cpu: &mut Cpu<'_>,
        config: &PolicyConfig,
        (tunnel, bytes): (TunnelRole, u64),
        now_ns: u64,
    ) {
        let sent = Sent {
            bytes,
            service: service(config, tunnel),
            limit_ns: config.long_queue_ns,
            now_ns,
        };
        let index = tunnel as usize;
        self.long[index].send(sent, &mut cpu.own.long[index]);
    }

    /// Puts a packet into the modelled queue of the short class; when it will
    /// have left. More than the queue holds, for it must not seem to drain too early.
    #[inline(always)]
    fn enqueue_short(
        &self,
        cpu: &mut Cpu<'_>,
        config: &PolicyConfig,
        (tunnel, bytes): (TunnelRole, u64),
        now_ns: u64,
    ) -> u64 {
        let sent = Sent {
            bytes,
            service: service(config, tunnel).cautious(),
            limit_ns: 2 * config.long_queue_ns,
            now_ns,
        };
        let index = tunnel as usize;
        self.short[index].send(sent, &mut cpu.own.short[index], cpu.slack_ns)
    }
}

/// The tunnel for packets that are meant for this one: the other if only that
/// forwards them.
#[inline(always)]
const fn usable(config: &PolicyConfig, tunnel: TunnelRole) -> TunnelRole {
    if config.usable == 1 << tunnel.other() as u8 {
        tunnel.other()
    } else {
        tunnel
    }
}

#[inline(always)]
const fn service(config: &PolicyConfig, tunnel: TunnelRole) -> ServiceTime {
    match tunnel {
        TunnelRole::Short => config.short_service,
        TunnelRole::Long => config.long_service,
    }
}

#[cfg(test)]
mod tests;
