//! Flows that are short still: counted by how far they have come, and taken to the other tunnel
//! where that keeps them in order.

use super::{CountedPacket, EXPECTED_BYTES, HEAD_START_NS, SharedQueues, ShortBacklog, Stage};
use super::{crowd::has_more, service, usable};
use crate::config::PolicyConfig;
use crate::cpu_queues::SharedWord;
use crate::flow::{FlowEntry, TunnelRole};
use flow_balance::{ActiveFlows, Activity};

/// The packets of a handshake that its first data follows: SYN and ACK.
const HANDSHAKE_PACKETS: u64 = 2;

impl<W: SharedWord> SharedQueues<W> {
    /// Counts a short flow as one that sends, once it does, and takes it to the tunnel where it has
    /// more if that keeps it in order.
    #[inline(always)]
    pub(super) fn grow(
        &mut self,
        config: &PolicyConfig,
        entry: &mut FlowEntry,
        sent: &CountedPacket,
        backlog: &impl ShortBacklog,
    ) {
        let CountedPacket {
            packet,
            last_seen_ns,
            now_ns,
            ..
        } = *sent;
        let (here, was) = (entry.tunnel(), entry.stage());
        let packets_before = entry.packets - packet.segments;
        let ends = packet.flags.closes() && !entry.is_finished();
        // After its handshake and a few words it acknowledges: now the other side sends.
        let listens =
            packet.is_pure_ack() && was.is(Stage::Starting) && packets_before >= HANDSHAKE_PACKETS;
        if ends || listens {
            self.crowds[here as usize].leave(was, last_seen_ns, now_ns);
            entry.set_stage(Stage::Silent);
            return;
        }
        let is = Stage::of(entry.packets, entry.bytes);
        if !packet.carries_data() || entry.is_finished() {
            return;
        }
        let has_no_data_here = packets_before <= HANDSHAKE_PACKETS && was.is(Stage::Starting);
        let is_free = has_no_data_here || self.has_drained(config, entry, now_ns, backlog);
        if was.is(is) && (is.is(Stage::Starting) || !is_free) {
            if ActiveFlows::is_first_of_window(last_seen_ns, now_ns) {
                self.note(here, is, Activity::RENEWS, now_ns);
            }
            return;
        }
        // It is in nobody's way while it chooses.
        self.crowds[here as usize].leave(was, last_seen_ns, now_ns);
        if is_free && !is.is(Stage::Starting) && self.has_more_there(config, entry, is, now_ns) {
            entry.flags ^= FlowEntry::ON_LONG_TUNNEL;
        }
        entry.set_stage(is);
        self.note(entry.tunnel(), is, Activity::ENTERS, now_ns);
    }

    /// Tells if a short flow that is not counted where it is will have more in the other tunnel.
    #[inline(always)]
    fn has_more_there(
        &self,
        config: &PolicyConfig,
        entry: &FlowEntry,
        stage: Stage,
        now_ns: u64,
    ) -> bool {
        let (here, there) = (entry.tunnel(), entry.tunnel().other());
        let lasts = stage.is(Stage::Lasting);
        let competition = |tunnel: TunnelRole| {
            let crowd = &self.crowds[tunnel as usize];
            let competition = if lasts {
                crowd.lasting_competition(now_ns)
            } else {
                crowd.competition(now_ns)
            };
            (competition, service(config, tunnel).speed())
        };
        // Up to its first window an earlier end counts for more than what it will have later.
        let ends_ns = |tunnel: TunnelRole| {
            let waits_ns = self.short[tunnel as usize].backlog_ns(now_ns);
            waits_ns + service(config, tunnel).of(EXPECTED_BYTES)
        };
        usable(config, there) == there
            && has_more(competition(there), competition(here))
            && (lasts || ends_ns(there) <= ends_ns(here) + HEAD_START_NS)
            && !self.is_much_busier(there, now_ns)
    }
}
