//! Messages to somebody who may not be there begin with little.
//!
//! A peer whose last message was given up without a word, that the network says is not there, or
//! that has been silent for a second of asking, is sent two symbols of a message and two pings.
//! The rest follows with its first word. To whom nothing is held against, and be it somebody never
//! heard of, all is sent at once: it would cost the others a round trip.

use super::{
    super::{
        event::{PeerId, Reason, SendId},
        outgoing::Outgoing,
        time::Time,
    },
    Native,
};

/// Ways by which somebody is pinged of whom nothing is heard.
const INITIAL_PROBES: usize = 2;

impl Native {
    /// A message was given up: what that says of the peer.
    pub(super) fn note_failure(&mut self, outgoing: &Outgoing, reason: Reason) {
        let says_something = matches!(
            reason,
            Reason::TimedOut | Reason::BudgetSpent | Reason::Unreachable
        );
        if says_something
            && !outgoing.is_unsent()
            && let Some(peer) = self.peers.get_mut(outgoing.id.peer)
        {
            peer.failed(outgoing.accepted_at());
        }
    }

    /// Asks whether anybody is there. Dead ways are pinged besides, while a message waits.
    pub(super) fn send_initial_probes(&mut self, now: Time, id: PeerId) {
        for _ in 0..INITIAL_PROBES {
            let Some(peer) = self.peers.get_mut(id) else {
                return;
            };
            let Some((index, _)) = peer.paths.choose(now, 0, 0, 0.0, None) else {
                return;
            };
            let four_tuple = peer.paths.get(index).four_tuple;
            self.ping(id, four_tuple, now.as_nanos(), 0);
        }
    }

    /// Somebody is there: sends what has waited for that.
    pub(super) fn resume(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let (loss, ack_timeout) = (peer.paths.loss(), peer.ack_timeout());
        for message in peer.oldest_message..peer.next_message {
            let id = SendId { peer: id, message };
            if let Some(outgoing) = self.outgoing.get_mut(&id)
                && outgoing.resume(&loss, ack_timeout)
            {
                self.enqueue(now, id);
            }
        }
    }
}
