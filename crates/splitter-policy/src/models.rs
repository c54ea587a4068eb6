//! Virtual queues of the tunnels, as a host keeps and asks them.
//!
//! They lose nothing that would make a flow overtake itself, however many CPUs send.

use crate::config::PolicyConfig;
use core::cell::Cell;

use crate::cpu_queues::SharedWord;
use crate::dedicated::{DedicatedQueues, OwnShare, SharedModels};
use crate::egress::Egress;
use crate::flow::{FlowEntry, TunnelRole};
use crate::flow_packet::FlowPacket;
use crate::share::{CountedPacket, Cpu, OwnQueues, SharedQueues, ShortBacklog, Stage};

/// Access to the virtual queues of all tunnels, which each host keeps in its own memory.
pub trait QueueModels: SharedEgress {
    /// A number that this host's CPUs share.
    type Word: SharedWord;

    /// The queues of dedicated tunnels. `None` only where a kernel program finds no map, which
    /// cannot be.
    fn dedicated(&mut self) -> Option<DedicatedQueues<'_, Self::Word>>;
}

/// Decisions for flows in shared tunnels. A host may run each apart from the rest, which a verifier
/// thanks it for: [`SharedQueues`] is all there is to it.
pub trait SharedEgress {
    /// Chooses the tunnel that a flow starts in.
    fn start(&mut self, config: &PolicyConfig, now_ns: u64) -> TunnelRole;

    /// Chooses the tunnel of a flow that turns long `here`, was in this stage before, and sent its
    /// last packet at `last_seen_ns`.
    fn choose(
        &mut self,
        config: &PolicyConfig,
        here: TunnelRole,
        was: Stage,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> TunnelRole;

    /// Tells if a flow that was placed `here`, and sent its last packet at `last_seen_ns`, may
    /// change tunnels with its next one, and has more of the other.
    fn may_change(
        &self,
        config: &PolicyConfig,
        here: TunnelRole,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> bool;

    /// Sends a packet of a flow that is counted already, and places the flow if it is due.
    fn send(
        &mut self,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
    ) -> Egress;

    /// Sends a packet of a flow that was placed in `tunnel` before and goes on. Of its entry no
    /// more is needed than whether the packet is its first of a window of `ActiveFlows`.
    fn send_placed(
        &mut self,
        config: &PolicyConfig,
        tunnel: TunnelRole,
        packet: FlowPacket,
        is_first_of_window: bool,
        now_ns: u64,
    ) -> Egress;
}

/// The queues of dedicated and of shared tunnels, in one value, for a host with one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostQueues {
    /// The queues of dedicated tunnels.
    pub dedicated: SharedModels<Cell<u64>>,
    /// The CPU's own share of them.
    pub own: OwnShare,
    /// The most by which the host's coarse clock lies behind.
    pub slack_ns: u64,
    /// The queues of shared tunnels.
    pub shared: SharedQueues<Cell<u64>>,
    /// The CPU's own share of those.
    pub own_shared: OwnQueues,
    /// The bytes that really wait in the short class of each shared tunnel, where a host knows.
    pub short_backlog: [u64; 2],
}

impl ShortBacklog for [u64; 2] {
    fn bytes(&self, tunnel: TunnelRole) -> u64 {
        self[tunnel as usize]
    }
}

impl QueueModels for HostQueues {
    type Word = Cell<u64>;

    fn dedicated(&mut self) -> Option<DedicatedQueues<'_, Self::Word>> {
        Some(DedicatedQueues {
            shared: &self.dedicated,
            own: &mut self.own,
            slack_ns: self.slack_ns,
        })
    }
}

impl SharedEgress for HostQueues {
    fn start(&mut self, config: &PolicyConfig, now_ns: u64) -> TunnelRole {
        self.shared.start(config, now_ns)
    }

    fn choose(
        &mut self,
        config: &PolicyConfig,
        here: TunnelRole,
        was: Stage,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> TunnelRole {
        self.shared.choose(config, here, was, last_seen_ns, now_ns)
    }

    fn may_change(
        &self,
        config: &PolicyConfig,
        here: TunnelRole,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> bool {
        self.shared.may_change(config, here, last_seen_ns, now_ns)
    }

    fn send(
        &mut self,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
    ) -> Egress {
        let (own, slack_ns) = (&mut self.own_shared, self.slack_ns);
        let cpu = &mut Cpu { own, slack_ns };
        self.shared
            .send_seeing(cpu, config, entry, sent, &self.short_backlog)
    }

    fn send_placed(
        &mut self,
        config: &PolicyConfig,
        tunnel: TunnelRole,
        packet: FlowPacket,
        is_first_of_window: bool,
        now_ns: u64,
    ) -> Egress {
        let (own, slack_ns) = (&mut self.own_shared, self.slack_ns);
        let cpu = &mut Cpu { own, slack_ns };
        self.shared
            .send_placed(cpu, config, tunnel, packet, is_first_of_window, now_ns)
    }
}

impl<M: QueueModels> QueueModels for &mut M {
    type Word = M::Word;

    #[inline(always)]
    fn dedicated(&mut self) -> Option<DedicatedQueues<'_, Self::Word>> {
        (**self).dedicated()
    }
}

impl<M: SharedEgress> SharedEgress for &mut M {
    #[inline(always)]
    fn start(&mut self, config: &PolicyConfig, now_ns: u64) -> TunnelRole {
        (**self).start(config, now_ns)
    }

    #[inline(always)]
    fn choose(
        &mut self,
        config: &PolicyConfig,
        here: TunnelRole,
        was: Stage,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> TunnelRole {
        (**self).choose(config, here, was, last_seen_ns, now_ns)
    }

    #[inline(always)]
    fn may_change(
        &self,
        config: &PolicyConfig,
        here: TunnelRole,
        last_seen_ns: u64,
        now_ns: u64,
    ) -> bool {
        (**self).may_change(config, here, last_seen_ns, now_ns)
    }

    #[inline(always)]
    fn send(
        &mut self,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
    ) -> Egress {
        (**self).send(config, entry, sent)
    }

    #[inline(always)]
    fn send_placed(
        &mut self,
        config: &PolicyConfig,
        tunnel: TunnelRole,
        packet: FlowPacket,
        is_first_of_window: bool,
        now_ns: u64,
    ) -> Egress {
        (**self).send_placed(config, tunnel, packet, is_first_of_window, now_ns)
    }
}
