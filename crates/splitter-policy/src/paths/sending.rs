//! What a packet does to the queues in front of the tunnel that it takes.

use flow_balance::{Earliest, EarliestArrival, EarliestFlow, Packet, PathId};

use super::{ALL, Behind, FIRST, LivePaths};
use crate::cpu_queues::SharedWord;

impl<W: SharedWord, B: Behind> LivePaths<'_, W, B> {
    /// Has a packet take a path on which its flow stays in order. Returns the path, and true if the queue
    /// in front of it takes the packet.
    #[inline(always)]
    pub fn forward_in_order(
        &self,
        balancer: &EarliestArrival,
        flow: &mut EarliestFlow,
        packet: &Packet,
    ) -> (PathId, bool) {
        let earliest = balancer.find(flow, self, packet);
        let is_taken = self.send_in_order(earliest, packet.bytes, flow);
        (earliest.path, is_taken)
    }

    /// Puts a packet into the queue in front of the path that was [found](EarliestArrival::find), and has
    /// its flow note it if the queue takes it. Returns true if so. The second step of
    /// [`forward_in_order`](Self::forward_in_order), for hosts that do something between both.
    ///
    /// A packet that is dropped there leaves its place to the next one, which may arrive earlier than it
    /// would have: earlier, too, than the last packet that really went, by another path.
    #[inline(always)]
    pub fn send_in_order(&self, found: Earliest, bytes: u32, flow: &mut EarliestFlow) -> bool {
        let is_taken = self.send(found.path, bytes);
        if is_taken {
            flow.note(found);
        }
        is_taken
    }

    /// Puts a packet into the queue in front of a tunnel. Where that is full already it is dropped
    /// there, and so not counted. Returns true if it was put there.
    #[inline(always)]
    pub fn send(&self, path: PathId, bytes: u32) -> bool {
        let index = path.index();
        let (tunnel, now_ns) = (&self.site.tunnels[index], self.now_ns);
        let (first, all) = (&self.queues.of[FIRST][index], &self.queues.of[ALL][index]);
        let (first_ns, all_ns) = (first.get(), all.get());
        // What goes first waits for its like alone, and the rest from when these are gone.
        let goes_first = self.waits_for == FIRST;
        let gone_ns = if goes_first { first_ns } else { all_ns };
        let is_full_at = |at_ns| gone_ns > at_ns && gone_ns - at_ns > tunnel.queue_ns;
        if is_full_at(now_ns) && (goes_first || is_full_at(first_ns)) {
            return false;
        }
        let service_ns = tunnel.service.of(bytes as u64);
        add(all, all_ns, now_ns, service_ns);
        if goes_first {
            add(first, first_ns, now_ns, service_ns);
        }
        true
    }
}

/// Adds to a queue, which begins at `now_ns` if it was empty when it was read. In one step, for each takes as long as twenty
/// others; if the exchange fails, another CPU has added to it meanwhile.
#[inline(always)]
pub(super) fn add<W: SharedWord>(queue: &W, free_at_ns: u64, now_ns: u64, service_ns: u64) {
    if free_at_ns < now_ns && queue.exchange(free_at_ns, now_ns.wrapping_add(service_ns)) {
        return;
    }
    queue.add(service_ns);
}
