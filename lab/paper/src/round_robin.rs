//! The order in which messages take turns.

use std::cmp::Reverse;

use cloudburst_proto::{PeerId, SendId, Time};

use crate::{Due, Paper};

/// Rounds of all messages together take no more than this part of the time that
/// receivers remember a message for: one whose stop was lost has to be heard of
/// again before that is over.
const PART_OF_MEMORY: u32 = 4;

impl Paper {
    /// Lets messages into the rounds, the oldest first, as many as there is room for.
    pub(crate) fn fill_rounds(&mut self, now: Time) {
        let most = self.memory() / PART_OF_MEMORY;
        while let Some(&id) = self.queue.front() {
            let bytes = self.bytes_of_round(id);
            let is_full = self.pacer.time_of(self.round_bytes + bytes) > most;
            if is_full && self.round_bytes > 0 {
                return;
            }
            self.queue.pop_front();
            let is_alive = self.outgoing.contains_key(&id);
            let Some(peer) = self.peers.get_mut(&id.peer()).filter(|_| is_alive) else {
                continue;
            };
            let code = id.as_u64() as u8;
            if peer.ids.take_or_wait(now, id.as_u64()) {
                self.start(now, id);
            } else if let Some(free_at) = peer.ids.free_at(code) {
                self.timers.add(free_at, Due::Id(id.peer(), code));
            }
        }
    }

    fn bytes_of_round(&self, id: SendId) -> usize {
        let ways = self.peers.get(&id.peer()).map_or(0, |peer| peer.width());
        let outgoing = self.outgoing.get(&id);
        outgoing.map_or(0, |outgoing| ways * outgoing.datagram_bytes())
    }

    /// A message has its id: its first round is due.
    pub(crate) fn start(&mut self, now: Time, id: SendId) {
        if let Some(outgoing) = self.outgoing.get_mut(&id) {
            outgoing.start(now);
            self.enter_rounds(now, id);
        }
    }

    fn enter_rounds(&mut self, now: Time, id: SendId) {
        let bytes = self.bytes_of_round(id);
        if let Some(outgoing) = self.outgoing.get_mut(&id) {
            outgoing.round_bytes = bytes;
            self.round_bytes += bytes;
            self.plan_round(now, id);
        }
    }

    pub(crate) fn plan_round(&mut self, at: Time, id: SendId) {
        self.rounds_so_far += 1;
        self.rounds.push(Reverse((at, self.rounds_so_far, id)));
    }

    /// Others may come in; the rounds' list notices by itself.
    pub(crate) fn leave_rounds(&mut self, id: SendId) {
        if let Some(outgoing) = self.outgoing.get_mut(&id) {
            self.round_bytes -= core::mem::take(&mut outgoing.round_bytes);
        }
    }

    /// Messages that had to wait for leave to send more to a peer's address go on.
    pub(crate) fn resume(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let mut parked = core::mem::take(&mut peer.parked);
        for message in parked.drain(..) {
            self.enter_rounds(now, message);
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            // Its memory is kept.
            peer.parked = parked;
        }
    }
}
