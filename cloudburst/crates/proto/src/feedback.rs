//! Feedback: symbols that complete no message are acknowledged, at the pace that each sender needs.
//! Whatever ends a message acknowledges all before it.

use cloudburst_congestion::FeedbackPace;

use super::{
    control::SourceDatagram,
    event::PeerId,
    peer_map::PeerMap,
    time::Time,
    timers::{Alarm, TimerKey, Timers},
};

/// Symbols of each peer that were not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct Feedback {
    peers: PeerMap<Unacknowledged>,
}

#[derive(Debug, Default)]
struct Unacknowledged {
    pace: FeedbackPace,
    newest: Option<(SourceDatagram, u64)>,
    alarm: Alarm,
}

impl Feedback {
    pub(super) fn add_peer(&mut self, id: PeerId) {
        self.peers.insert(id, Unacknowledged::default());
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        self.peers.remove(id);
    }

    /// A symbol of a message has come. Returns it, if it is the peer's first, for a token may be asked for
    /// after it, and the peer has to know before that it was taken. When others are to be acknowledged
    /// the timers say.
    pub(super) fn take(
        &mut self,
        now: Time,
        id: PeerId,
        newest: (SourceDatagram, u64),
        timers: &mut Timers<TimerKey>,
    ) -> Option<(SourceDatagram, u64)> {
        let peer = self.peers.get_mut(id)?;
        peer.newest = Some(newest);
        let Some(due) = peer.pace.symbol(now) else {
            return peer.acknowledge(id, timers);
        };
        peer.alarm.set(due, TimerKey::Feedback(id), timers);
        None
    }

    /// A message was answered by itself, and with it what came before.
    pub(super) fn answered(&mut self, id: PeerId, message: u64, timers: &mut Timers<TimerKey>) {
        if let Some(peer) = self.peers.get_mut(id)
            && peer.newest.is_some_and(|(_, newest)| newest == message)
        {
            peer.acknowledge(id, timers);
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
        is_due.then(|| peer.acknowledge(id, timers)).flatten()
    }
}

impl Unacknowledged {
    fn acknowledge(
        &mut self,
        id: PeerId,
        timers: &mut Timers<TimerKey>,
    ) -> Option<(SourceDatagram, u64)> {
        self.pace.acknowledged();
        self.alarm.clear(TimerKey::Feedback(id), timers);
        self.newest.take()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::event::{Ecn, FourTuple, SocketId};

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
            ecn: Ecn::NotCapable,
            bytes: 1_200,
        }
    }

    /// A receiver, its time, and what it has acknowledged.
    struct Receiving {
        feedback: Feedback,
        timers: Timers<TimerKey>,
        now: Time,
        count: u32,
        wakes: u32,
    }

    impl Receiving {
        fn new() -> Self {
            let mut feedback = Feedback::default();
            feedback.add_peer(PEER);
            Self {
                feedback,
                timers: Timers::new(),
                now: Time::ZERO + Duration::from_secs(9),
                count: 0,
                wakes: 0,
            }
        }

        /// Takes so many symbols at once.
        fn take(&mut self, symbols: u32) {
            for _ in 0..symbols {
                let newest = (source(self.now), 1);
                let first = self.feedback.take(self.now, PEER, newest, &mut self.timers);
                self.count += u32::from(first.is_some());
            }
            self.attend();
        }

        fn attend(&mut self) {
            while self.timers.pop(self.now).is_some() {
                let due = self.feedback.attend(self.now, PEER, &mut self.timers);
                self.count += u32::from(due.is_some());
            }
        }

        /// Lets time pass, and wakes whenever that is asked for.
        fn pause(&mut self, pause: Duration) {
            let end = self.now + pause;
            while let Some(due) = self.timers.next().filter(|due| *due <= end) {
                self.wakes += 1;
                self.now = due;
                self.attend();
            }
            self.now = end;
        }
    }

    /// How often so many symbols with a pause between them are acknowledged.
    fn acknowledgements(symbols: u32, pause: Duration) -> u32 {
        let mut receiving = Receiving::new();
        for _ in 0..symbols {
            receiving.take(1);
            receiving.pause(pause);
        }
        receiving.pause(Duration::from_secs(1));
        receiving.count
    }

    #[test]
    fn symbols_are_acknowledged_a_few_at_a_time_and_at_the_end_of_a_burst() {
        assert_eq!(acknowledgements(1, Duration::ZERO), 1);
        assert_eq!(acknowledgements(4, Duration::from_millis(5)), 3);
        let many = acknowledgements(1_000, Duration::from_micros(12));
        assert!((125..160).contains(&many), "{many}");
        let slow = acknowledgements(100, Duration::from_millis(12));
        assert!((34..=51).contains(&slow), "{slow}");
    }

    /// 64 symbols at 200 Mbit/s: one acknowledgement for eight, and one for the rest.
    #[test]
    fn a_silence_between_messages_makes_acknowledgements_no_more_frequent() {
        let mut receiving = Receiving::new();
        let message = |receiving: &mut Receiving| {
            let before = receiving.count;
            for _ in 0..64 {
                receiving.take(1);
                receiving.pause(Duration::from_micros(50));
            }
            receiving.pause(Duration::from_millis(14));
            receiving.count - before
        };
        message(&mut receiving);
        let counts: Vec<u32> = (0..4).map(|_| message(&mut receiving)).collect();
        assert!(counts.iter().all(|count| *count <= 9), "{counts:?}");
    }

    #[test]
    fn what_comes_together_is_acknowledged_once() {
        let mut receiving = Receiving::new();
        receiving.take(1);
        assert_eq!(receiving.count, 1, "a peer's first");
        receiving.take(64);
        assert_eq!(receiving.count, 2);
        receiving.pause(Duration::from_secs(1));
        assert_eq!((receiving.count, receiving.wakes), (2, 0));
    }

    #[test]
    fn what_was_answered_by_itself_wakes_nobody() {
        let mut receiving = Receiving::new();
        receiving.take(1);
        receiving.pause(Duration::from_micros(50));
        receiving.take(1);
        receiving.feedback.answered(PEER, 1, &mut receiving.timers);
        receiving.pause(Duration::from_secs(1));
        assert_eq!((receiving.count, receiving.wakes), (1, 0));
    }
}
