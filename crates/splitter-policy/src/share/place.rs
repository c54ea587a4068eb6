//! Long flows: placed in a tunnel, where that keeps them in order, and taken to the other one later.

use super::{CountedPacket, SharedQueues, ShortBacklog, Stage};
use crate::config::PolicyConfig;
use crate::counters::FlowEvent;
use crate::cpu_queues::SharedWord;
use crate::flow::{Class, FlowEntry, TunnelRole};
use flow_balance::{ActiveFlows, Activity};

impl<W: SharedWord> SharedQueues<W> {
    /// Places a long flow, or changes its tunnel if it waits for that.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
        backlog: &impl ShortBacklog,
    ) -> Option<FlowEvent> {
        if entry.class() == Class::Short || !sent.packet.carries_data() {
            return None;
        }
        // With two tunnels there is no need to remember which one it waits for.
        let how = if sent.chosen == Some(entry.tunnel()) {
            FlowEvent::KeptTunnel
        } else if self.has_drained(config, entry, sent.now_ns, backlog) {
            entry.flags ^= FlowEntry::ON_LONG_TUNNEL;
            FlowEvent::HandedOverDrained
        } else if has_waited_enough(config, entry, sent.now_ns) {
            FlowEvent::KeptTunnelAtMaxWait
        } else {
            return None;
        };
        entry.flags |= FlowEntry::PLACED;
        Some(how)
    }

    /// Changes the tunnel of a flow that was placed before, if it may.
    #[inline(always)]
    pub(super) fn change(
        &mut self,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
    ) -> Option<FlowEvent> {
        let (here, now_ns) = (entry.tunnel(), sent.now_ns);
        let has_turns = entry.changes < FlowEntry::MOST_CHANGES && sent.packet.carries_data();
        if !has_turns || !self.may_change(config, here, sent.last_seen_ns, now_ns) {
            return None;
        }
        self.note(here.other(), Stage::Lasting, Activity::ENTERS, now_ns);
        entry.flags ^= FlowEntry::ON_LONG_TUNNEL;
        entry.changes += 1;
        Some(FlowEvent::ChangedTunnelLater)
    }

    /// Notes what a packet of a placed flow says of its part in the tunnel.
    #[inline(always)]
    pub(super) fn note_placed(
        &mut self,
        tunnel: TunnelRole,
        entry: &FlowEntry,
        sent: &CountedPacket,
        hand_over: Option<FlowEvent>,
    ) {
        let now_ns = sent.now_ns;
        if let Some(FlowEvent::KeptTunnelAtMaxWait) = hand_over {
            self.crowds[tunnel.other() as usize].leave(Stage::Lasting, sent.last_seen_ns, now_ns);
            self.note(tunnel, Stage::Lasting, Activity::ENTERS, now_ns);
        }
        let is_first_of_window = ActiveFlows::is_first_of_window(sent.last_seen_ns, now_ns);
        if sent.packet.flags.closes() && !entry.is_finished() {
            // One that is placed with this packet has just entered.
            let counted_ns = if hand_over.is_some() {
                now_ns
            } else {
                sent.last_seen_ns
            };
            self.crowds[tunnel as usize].leave(Stage::Lasting, counted_ns, now_ns);
        } else if hand_over.is_none() && is_first_of_window {
            self.note(tunnel, Stage::Lasting, Activity::RENEWS, now_ns);
        }
    }
}

/// A long flow has been in the short class long enough: in time, or in what the threshold counts. A
/// flow that grows from round trip to round trip has paused by then, unless the path is so short
/// that it never does.
#[inline(always)]
fn has_waited_enough(config: &PolicyConfig, entry: &FlowEntry, now_ns: u64) -> bool {
    now_ns >= entry.long_since_ns + config.max_wait_ns
        || config.exceeds_threshold(entry.threshold(), entry.packets / 2, entry.bytes / 2)
}
