//! Messages that were given up: their receivers are asked to forget them, until they answer.
//!
//! What a receiver has of a message is freed when nothing has come of it for a minute. A sender that
//! gives up says so at once; the question is repeated a few times where no answer comes, and no more
//! than a window of them is under way to a peer, for it is not paced.

use core::time::Duration;
use std::collections::VecDeque;

use cloudburst_security::MAX_SPAN;

use super::{
    event::{PeerId, SendId},
    peer_map::PeerMap,
    time::Time,
    timers::{Alarm, TimerKey, Timers},
};

/// Questions under way to a peer at a time: as many bytes as an initial window of TCP has at most
/// (RFC 6928: ten segments), each 88 to 300 bytes long. Fewer where congestion control allows fewer
/// datagrams: a window of them to somebody of whom nothing is heard would come again and again.
const MAX_UNDER_WAY: usize = 48;
/// How often each is sent: with a doubled pause each time, over some thirty acknowledgement timeouts.
const MOST_ATTEMPTS: u8 = 5;
/// Longest pause between two of them: whoever makes round trips seem long must not keep them coming.
const MOST_PAUSE: Duration = Duration::from_secs(1);
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
    /// In the order in which they were given up; those in front are under way.
    waiting: VecDeque<Cancellation>,
    is_ready: bool,
    alarm: Alarm,
}

/// A message that was given up: 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Cancellation {
    message: u64,
    due: Time,
    attempts: u8,
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
            peer.waiting = VecDeque::new();
        }
    }

    /// A message was given up of which its receiver may have something.
    pub(super) fn add(&mut self, id: SendId) {
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        if peer.waiting.len() < MAX_WAITING {
            peer.waiting.push_back(Cancellation {
                message: id.message,
                due: Time::ZERO,
                attempts: 0,
            });
            self.make_ready(id.peer);
        }
    }

    /// The receiver has answered: it has forgotten the message, or was done with it.
    pub(super) fn confirmed(&mut self, id: SendId) {
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        let mut under_way = peer.waiting.iter().take(MAX_UNDER_WAY);
        if let Some(place) = under_way.position(|it| it.message == id.message) {
            peer.waiting.remove(place);
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
        let most = window.min(MAX_UNDER_WAY);
        if let Some(message) = peer.next(now, ack_timeout, most) {
            return Some(SendId::new(id, message));
        }
        self.ready.pop_front();
        peer.is_ready = false;
        let due = peer.waiting.iter().take(most).map(|it| it.due);
        if let Some(due) = due.min() {
            peer.alarm.set(due, TimerKey::Cancellations(id), timers);
        }
        None
    }
}

impl PeerCancellations {
    fn next(&mut self, now: Time, ack_timeout: Duration, most: usize) -> Option<u64> {
        // Those that were asked often enough make way.
        let is_over = |it: &Cancellation| it.attempts >= MOST_ATTEMPTS && it.due <= now;
        let mut place = 0;
        while place < self.waiting.len().min(most) {
            let it = &mut self.waiting[place];
            if is_over(it) {
                self.waiting.remove(place);
            } else if it.due <= now {
                it.due = now + ack_timeout.saturating_mul(1 << it.attempts).min(MOST_PAUSE);
                it.attempts = it.attempts.saturating_add(1);
                return Some(it.message);
            } else {
                place = place.saturating_add(1);
            }
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
    fn an_answer_ends_it_and_lets_the_next_go() {
        let (mut it, mut timers) = cancellations();
        let all = 3 * MAX_UNDER_WAY as u64;
        for message in 0..all {
            it.add(SendId::new(PEER, message));
        }
        let first = asked(&mut it, &mut timers, Time::ZERO);
        assert_eq!(first, (0..MAX_UNDER_WAY as u64).collect::<Vec<_>>());
        // One that was not asked about is not answered.
        it.confirmed(SendId::new(PEER, all - 1));
        assert_eq!(asked(&mut it, &mut timers, Time::ZERO), []);
        for message in (0..10).rev() {
            it.confirmed(SendId::new(PEER, message));
        }
        let next = MAX_UNDER_WAY as u64..MAX_UNDER_WAY as u64 + 10;
        let asked_next = asked(&mut it, &mut timers, Time::ZERO);
        assert_eq!(asked_next, next.collect::<Vec<_>>());
    }

    #[test]
    fn memory_is_bounded_and_goes_with_the_peer() {
        let (mut it, mut timers) = cancellations();
        for message in 0..2 * MAX_SPAN {
            it.add(SendId::new(PEER, message));
        }
        assert_eq!(it.peers.get(PEER).unwrap().waiting.len(), MAX_WAITING);
        assert_eq!(size_of::<Cancellation>(), 24);
        it.remove_peer(PEER);
        assert_eq!(asked(&mut it, &mut timers, Time::ZERO), []);
        it.add(SendId::new(PEER, 1));
        assert!(!it.is_any_ready());
    }
}
