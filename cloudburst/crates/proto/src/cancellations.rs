//! Messages that were given up: their receivers are asked to forget them, until they answer.
//!
//! What a receiver has of a message is freed when nothing has come of it for a minute. A sender that
//! gives up says so at once; the question is repeated a few times where no answer comes, and no more
//! than a window of them is under way to a peer, for it is not paced.

use core::time::Duration;
use std::collections::VecDeque;

use cloudburst_congestion::Repeats;
use cloudburst_security::MAX_SPAN;

use super::{
    event::{PeerId, SendId},
    peer_map::PeerMap,
    time::Time,
    timers::{Alarm, TimerKey, Timers},
};

/// Messages of a peer that wait, at most: as many as can be under way. Beyond that the receiver
/// forgets by itself, later.
const MAX_WAITING: usize = MAX_SPAN as usize;

/// Messages that were given up, of all peers.
#[derive(Debug, Default)]
pub(super) struct Cancellations {
    peers: PeerMap<PeerCancellations>,
    /// Peers that may be asked something now.
    ready: VecDeque<PeerId>,
}

#[derive(Debug, Default)]
struct PeerCancellations {
    /// Messages, in the order in which they were given up.
    waiting: Repeats,
    is_ready: bool,
    alarm: Alarm,
}

impl Cancellations {
    pub(super) fn add_peer(&mut self, id: PeerId) {
        self.peers.insert(id, PeerCancellations::default());
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        self.peers.remove(id);
    }

    /// A peer has forgotten all there was.
    pub(super) fn clear(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.waiting.clear();
        }
    }

    /// A message was given up of which its receiver may have something.
    pub(super) fn add(&mut self, id: SendId) {
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        if peer.waiting.len() < MAX_WAITING {
            peer.waiting.add(id.message);
            self.make_ready(id.peer);
        }
    }

    /// The receiver has answered: it has forgotten the message, or was done with it.
    pub(super) fn confirmed(&mut self, id: SendId) {
        let peer = self.peers.get_mut(id.peer);
        if peer.is_some_and(|peer| peer.waiting.answered(id.message)) {
            self.make_ready(id.peer);
        }
    }

    /// A peer's alarm has come.
    pub(super) fn attend(&mut self, now: Time, id: PeerId, timers: &mut Timers<TimerKey>) {
        let peer = self.peers.get_mut(id);
        let key = TimerKey::Cancellations(id);
        if peer.is_some_and(|peer| peer.alarm.is_due(now, key, timers)) {
            self.make_ready(id);
        }
    }

    fn make_ready(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if !core::mem::replace(&mut peer.is_ready, true) {
            self.ready.push_back(id);
        }
    }

    pub(super) fn is_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A peer that may be asked something now; [`Self::next`] says what.
    pub(super) fn next_peer(&self) -> Option<PeerId> {
        self.ready.front().copied()
    }

    /// Returns a message of the peer that is ready about which it is to be asked now. If there is none the
    /// peer is ready no longer, and its alarm set. So many datagrams may be in flight to it.
    pub(super) fn next(
        &mut self,
        now: Time,
        (ack_timeout, window): (Duration, usize),
        timers: &mut Timers<TimerKey>,
    ) -> Option<SendId> {
        let id = self.next_peer()?;
        let Some(peer) = self.peers.get_mut(id) else {
            self.ready.pop_front();
            return None;
        };
        if let Some(message) = peer.waiting.next(now, ack_timeout, window) {
            return Some(SendId::new(id, message));
        }
        self.ready.pop_front();
        peer.is_ready = false;
        if let Some(due) = peer.waiting.next_due(window) {
            peer.alarm.set(due, TimerKey::Cancellations(id), timers);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId::new(0, 0);
    const ACK_TIMEOUT: Duration = Duration::from_millis(10);

    fn cancellations() -> (Cancellations, Timers<TimerKey>) {
        let mut cancellations = Cancellations::default();
        cancellations.add_peer(PEER);
        (cancellations, Timers::new())
    }

    /// All questions that are due by a time.
    fn asked(it: &mut Cancellations, timers: &mut Timers<TimerKey>, now: Time) -> Vec<u64> {
        asked_within(it, timers, now, usize::MAX)
    }

    /// The same, if congestion control allows so many datagrams.
    fn asked_within(
        it: &mut Cancellations,
        timers: &mut Timers<TimerKey>,
        now: Time,
        window: usize,
    ) -> Vec<u64> {
        while timers.pop(now).is_some() {
            it.attend(now, PEER, timers);
        }
        let mut asked = Vec::new();
        while it.is_any_ready() {
            asked.extend(
                it.next(now, (ACK_TIMEOUT, window), timers)
                    .map(|id| id.message),
            );
        }
        asked
    }

    #[test]
    fn a_question_without_an_answer_is_repeated_and_not_for_ever() {
        let (mut it, mut timers) = cancellations();
        it.add(SendId::new(PEER, 7));
        let mut times = Vec::new();
        for ms in 0..10_000 {
            let now = Time::from_nanos(ms * 1_000_000);
            for message in asked(&mut it, &mut timers, now) {
                assert_eq!(message, 7);
                times.push(ms);
            }
        }
        assert_eq!(times, [0, 10, 30, 70, 150]);
        assert!(it.peers.get(PEER).unwrap().waiting.is_empty());
        assert_eq!(timers.next(), None, "nothing is left to look at");
    }

    #[test]
    fn no_more_are_asked_about_at_a_time_than_the_window_holds() {
        let (mut it, mut timers) = cancellations();
        for message in 0..20 {
            it.add(SendId::new(PEER, message));
        }
        for ms in 0..100 {
            let now = Time::from_nanos(ms * 1_000_000);
            let asked = asked_within(&mut it, &mut timers, now, 2);
            assert!(asked.iter().all(|&message| message < 2), "{asked:?}");
            assert!(asked.len() <= 2, "{asked:?} at {ms} ms");
        }
        it.confirmed(SendId::new(PEER, 0));
        let now = Time::from_nanos(100_000_000);
        assert_eq!(asked_within(&mut it, &mut timers, now, 2), [2]);
    }

    #[test]
    fn memory_is_bounded_and_goes_with_the_peer() {
        let (mut it, mut timers) = cancellations();
        for message in 0..2 * MAX_SPAN {
            it.add(SendId::new(PEER, message));
        }
        assert_eq!(it.peers.get(PEER).unwrap().waiting.len(), MAX_WAITING);
        it.remove_peer(PEER);
        assert_eq!(asked(&mut it, &mut timers, Time::ZERO), []);
        it.add(SendId::new(PEER, 1));
        assert!(!it.is_any_ready());
    }
}
