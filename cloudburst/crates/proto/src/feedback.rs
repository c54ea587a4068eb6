//! Feedback: when a receiver acknowledges symbols that complete no message.
//!
//! A sender's window moves with what it hears, so symbols are acknowledged a few at a time, and at
//! the end of a burst. Whatever ends a message acknowledges all before it.

use core::time::Duration;

use super::{
    control::SourceDatagram,
    event::PeerId,
    peer_map::PeerMap,
    time::Time,
    timers::{Alarm, TimerKey, Timers},
};

/// Symbols that are acknowledged together: those of this time, so many at least (RFC 9000 §13.2.2)
/// and at most.
const SYMBOLS_TIME: Duration = Duration::from_micros(500);
const SYMBOLS: [u128; 2] = [2, 8];
/// A pause after which a burst has ended: so many of the pauses between its symbols, this at least,
/// and the longest that anything waits (RFC 9000 §18.2, `max_ack_delay`).
const PAUSES: u32 = 4;
const LEAST_PAUSE: Duration = Duration::from_millis(1);
const MOST_PAUSE: Duration = Duration::from_millis(25);

/// Symbols of each peer that were not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct Feedback {
    peers: PeerMap<Unacknowledged>,
}

#[derive(Debug, Default)]
struct Unacknowledged {
    symbols: u32,
    /// Its first symbol has come, which is acknowledged at once.
    is_known: bool,
    /// The newest, and the first that waits.
    newest: Option<(SourceDatagram, u64)>,
    since: Time,
    /// Smoothed pause between symbols.
    pause: Duration,
    last_at: Time,
    alarm: Alarm,
}

impl Feedback {
    pub(super) fn add_peer(&mut self, id: PeerId) {
        self.peers.insert(id, Unacknowledged::default());
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        self.peers.remove(id);
    }

    /// A symbol of a message has come. Returns it, if it is to be acknowledged now.
    pub(super) fn take(
        &mut self,
        now: Time,
        id: PeerId,
        (source, message): (SourceDatagram, u64),
        timers: &mut Timers<TimerKey>,
    ) -> Option<(SourceDatagram, u64)> {
        let peer = self.peers.get_mut(id)?;
        let pause = now.since(peer.last_at);
        peer.last_at = now;
        peer.pause = (peer.pause * 7 + pause.min(MOST_PAUSE)) / 8;
        if peer.symbols == 0 {
            peer.since = now;
        }
        peer.symbols += 1;
        peer.newest = Some((source, message));
        let [least, most] = SYMBOLS;
        let together = SYMBOLS_TIME.as_nanos() / peer.pause.as_nanos().max(1);
        let is_first = !core::mem::replace(&mut peer.is_known, true);
        if is_first || u128::from(peer.symbols) >= together.clamp(least, most) {
            return peer.acknowledge();
        }
        let wait = (peer.pause * PAUSES).max(LEAST_PAUSE);
        let due = (now + wait).min(peer.since + MOST_PAUSE);
        peer.alarm.set(due, TimerKey::Feedback(id), timers);
        None
    }

    /// A message was answered by itself, and with it what came before.
    pub(super) fn answered(&mut self, id: PeerId, message: u64) {
        if let Some(peer) = self.peers.get_mut(id)
            && peer.newest.is_some_and(|(_, newest)| newest == message)
        {
            peer.acknowledge();
        }
    }

    /// A peer's time has come. Returns the symbol that is to be acknowledged.
    pub(super) fn attend(
        &mut self,
        now: Time,
        id: PeerId,
        timers: &mut Timers<TimerKey>,
    ) -> Option<(SourceDatagram, u64)> {
        let peer = self.peers.get_mut(id)?;
        let is_due = peer.alarm.is_due(now, TimerKey::Feedback(id), timers);
        is_due.then(|| peer.acknowledge()).flatten()
    }
}

impl Unacknowledged {
    fn acknowledge(&mut self) -> Option<(SourceDatagram, u64)> {
        self.symbols = 0;
        self.newest.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FourTuple, SocketId};

    const PEER: PeerId = PeerId::new(0, 0);

    fn source(now: Time) -> SourceDatagram {
        SourceDatagram {
            four_tuple: FourTuple::new(SocketId(0), ([192, 0, 2, 1], 7).into()),
            peer: Some(PEER),
            asker: 5,
            keys: 0,
            arrived: now,
            path: 1,
            sent_us: 0,
            bytes: 1_200,
        }
    }

    /// How often so many symbols with a pause between them are acknowledged.
    fn acknowledgements(symbols: u32, pause: Duration) -> (u32, Time) {
        let mut feedback = Feedback::default();
        feedback.add_peer(PEER);
        let mut timers = Timers::new();
        let (mut now, mut count) = (Time::ZERO + Duration::from_secs(9), 0);
        let mut next = now;
        let mut left = symbols;
        while left > 0 || timers.next().is_some() {
            now = timers
                .next()
                .map_or(next, |due| if left > 0 { due.min(next) } else { due });
            while timers.pop(now).is_some() {
                count += u32::from(feedback.attend(now, PEER, &mut timers).is_some());
            }
            if left > 0 && now == next {
                let taken = feedback.take(now, PEER, (source(now), 1), &mut timers);
                count += u32::from(taken.is_some());
                left -= 1;
                next = now + pause;
            }
        }
        (count, now)
    }

    #[test]
    fn symbols_are_acknowledged_a_few_at_a_time_and_at_the_end_of_a_burst() {
        assert_eq!(acknowledgements(1, Duration::ZERO).0, 1);
        assert_eq!(acknowledgements(4, Duration::from_millis(5)).0, 3);
        let (many, _) = acknowledgements(1_000, Duration::from_micros(12));
        assert!((125..160).contains(&many), "{many}");
        let (slow, _) = acknowledgements(100, Duration::from_millis(12));
        assert!((34..=51).contains(&slow), "{slow}");
    }
}
