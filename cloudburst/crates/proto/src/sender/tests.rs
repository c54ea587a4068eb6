//! Messages on their way, with receivers that are made up.

use cloudburst_congestion::MAX_ACK_TIMEOUT;

use super::*;
use crate::{
    event::{Event, MessageKind},
    packet::{Echo, Outcome, Stop},
    shared_message::SharedMessage,
};

const PEER: PeerId = PeerId::new(0, 0);
const OTHER: PeerId = PeerId::new(1, 0);
const ECHO: Echo = Echo {
    path: 1,
    sent_us: 0,
    hold_us: 0,
};

struct Rig {
    sender: Sender,
    config: TransportConfig,
    timers: Timers<TimerKey>,
    statistics: TransportStatistics,
}

impl Rig {
    fn new() -> Self {
        let mut sender = Sender::new(1);
        sender.add_peer(Time::ZERO, PEER, 1_000);
        sender.add_peer(Time::ZERO, OTHER, 7_777);
        Self {
            sender,
            config: TransportConfig::unprotected(),
            timers: Timers::new(),
            statistics: TransportStatistics::default(),
        }
    }

    fn accept(&mut self, now: Time, message: &[u8]) -> Result<Accepted, SendRefused> {
        self.accept_with(now, message, SendOptions::new())
    }

    fn remaining(&self, id: SendId) -> Option<u32> {
        self.sender.rank(id).map(|rank| rank.remaining)
    }

    fn accept_with(
        &mut self,
        now: Time,
        message: &[u8],
        options: SendOptions,
    ) -> Result<Accepted, SendRefused> {
        let content = Content::Own(MessageKind::Message, message);
        self.accept_content(now, (PEER, options, content))
    }

    fn accept_shared(
        &mut self,
        peer: PeerId,
        message: &SharedMessage,
    ) -> Result<Accepted, SendRefused> {
        let content = Content::Shared(message);
        self.accept_content(Time::ZERO, (peer, SendOptions::new(), content))
    }

    fn accept_content(
        &mut self,
        now: Time,
        message: (PeerId, SendOptions, Content<'_>),
    ) -> Result<Accepted, SendRefused> {
        let known = (Some(PathStatistics::default()), Framing::PLAIN);
        let (config, statistics) = (&self.config, &mut self.statistics);
        self.sender.accept(now, message, known, config, statistics)
    }

    /// Sends what is to be sent of a message; how many symbols.
    fn send(&mut self, now: Time, id: SendId) -> u32 {
        let path = ChosenPath::sample();
        let round_trip = RoundTripEstimator::default();
        let count = self.remaining(id).expect("it is under way");
        let sent = (count, &path, now);
        self.sender
            .sent(now, id, sent, &round_trip, &mut self.timers);
        count
    }

    fn stop(&mut self, now: Time, id: SendId, outcome: Outcome) -> Option<Event> {
        let stop = Stop {
            message: id.as_u64(),
            outcome,
            echo: ECHO,
            needed: 0,
            spread_us: 0,
        };
        self.sender.stopped(now, PEER, &stop, &mut self.statistics)
    }
}

#[test]
fn a_message_is_delivered_by_the_stop_and_by_nothing_before_it_was_sent() {
    let mut rig = Rig::new();
    let id = rig.accept(Time::ZERO, &[7; 5_000]).unwrap().id;
    assert!(rig.stop(Time::ZERO, id, Outcome::Delivered).is_none());
    assert_eq!(rig.statistics.refused.unexpected, 1);
    assert!(rig.send(Time::ZERO, id) >= 5);
    let event = rig.stop(Time::ZERO, id, Outcome::Delivered);
    assert!(matches!(event, Some(Event::Delivered { .. })), "{event:?}");
    assert!(rig.stop(Time::ZERO, id, Outcome::Delivered).is_none());
    assert_eq!(
        (rig.statistics.outgoing_now, rig.sender.is_idle(PEER)),
        (0, true)
    );
}

#[test]
fn what_a_receiver_misses_is_retransmitted_as_further_symbols() {
    let mut rig = Rig::new();
    let id = rig.accept(Time::ZERO, &[7; 50_000]).unwrap().id;
    rig.send(Time::ZERO, id);
    assert_eq!(rig.remaining(id), Some(0));
    let state = ProgressState::UnderWay { missing: 3 };
    let paths = PathStatistics::default();
    let known = (&paths, Framing::PLAIN);
    let progressed = rig
        .sender
        .progressed(Time::ZERO, id, (state, 0), known, &rig.config);
    assert_eq!(progressed, Progressed::Continue);
    assert!(rig.remaining(id) >= Some(3));
}

#[test]
fn what_is_in_flight_is_not_retransmitted() {
    let mut rig = Rig::new();
    let id = rig.accept(Time::ZERO, &[7; 50_000]).unwrap().id;
    let later = Time::ZERO + Duration::from_millis(3);
    rig.send(later, id);
    let paths = PathStatistics::default();
    let state = ProgressState::UnderWay { missing: 3 };
    for (sent_us, is_in_flight) in [(2_999, true), (3_000, false)] {
        let (report, known) = ((state, sent_us), (&paths, Framing::PLAIN));
        rig.sender.progressed(later, id, report, known, &rig.config);
        assert_eq!(rig.remaining(id) == Some(0), is_in_flight);
    }
}

#[test]
fn a_message_without_an_answer_is_retransmitted_after_the_timeout_and_abandoned_at_its_end() {
    let mut rig = Rig::new();
    let id = rig.accept(Time::ZERO, &[7; 5_000]).unwrap().id;
    let round_trip = RoundTripEstimator::default();
    let mut now = Time::ZERO;
    let (mut sent, mut queries) = (0, 0);
    let reason = loop {
        if rig.remaining(id) > Some(0) {
            sent += rig.send(now, id);
        }
        rig.sender.ready(now, id, &round_trip, &mut rig.timers);
        now = rig.timers.next().expect("it has an alarm").max(now);
        while rig.timers.pop(now).is_some() {}
        match rig.sender.attend(now, id, &mut rig.timers) {
            Some(Step::Query) => queries += 1,
            Some(Step::Abandon(reason)) => break reason,
            _ => {}
        }
    };
    assert_eq!(reason, Reason::TimedOut);
    assert!(sent > 10 && queries > 10, "{sent} {queries}");
    rig.sender.abandon(id, reason, &mut rig.statistics);
    let next = rig.accept(now, &[7; 50_000]).unwrap();
    assert!(next.awaits_first_contact, "nothing was ever heard");
    assert_eq!(rig.remaining(next.id), Some(2));
    assert!(rig.sender.answered(now, PEER));
    assert!(rig.sender.resume(next.id, &PathStatistics::default()));
    assert!(rig.remaining(next.id) > Some(20));
}

#[test]
fn a_message_whose_symbols_are_used_up_is_abandoned_when_reports_say_that_it_is_not_there() {
    let mut rig = Rig::new();
    (
        rig.config.budget.symbols_factor,
        rig.config.budget.symbols_extra,
    ) = (1.0, 1);
    let id = rig.accept(Time::ZERO, &[7; 5_000]).unwrap().id;
    let round_trip = RoundTripEstimator::default();
    let paths = PathStatistics::default();
    let mut now = Time::ZERO;
    let mut reports = 0;
    let reason = loop {
        if rig.remaining(id) > Some(0) {
            rig.send(now, id);
        }
        rig.sender.ready(now, id, &round_trip, &mut rig.timers);
        now = rig.timers.next().expect("it has an alarm").max(now);
        while rig.timers.pop(now).is_some() {}
        match rig.sender.attend(now, id, &mut rig.timers) {
            Some(Step::Abandon(reason)) => break reason,
            Some(Step::Query) => {
                reports += 1;
                let state = ProgressState::UnderWay { missing: 1 };
                let sent_us = (now.as_nanos() / 1_000) as u32;
                let (report, known) = ((state, sent_us), (&paths, Framing::PLAIN));
                rig.sender.progressed(now, id, report, known, &rig.config);
            }
            _ => {}
        }
    };
    assert_eq!(reason, Reason::BudgetSpent);
    assert_eq!(reason.to_string(), "the budget of symbols is spent");
    assert!((4..10).contains(&reports), "{reports}");
}

#[test]
fn a_quota_of_messages_is_kept() {
    let mut rig = Rig::new();
    rig.config.quotas.outgoing_messages = 2;
    let sent: Vec<_> = (0..3).map(|_| rig.accept(Time::ZERO, &[7; 10])).collect();
    assert!(matches!(
        sent[2],
        Err(SendRefused::Full { messages: 2, .. })
    ));
    assert!(sent[0].as_ref().is_ok_and(|it| it.is_first));
    assert!(sent[1].as_ref().is_ok_and(|it| !it.is_first));
    let all: Vec<_> = rig.sender.under_way(PEER).collect();
    assert_eq!(all.len(), 2);
    assert_eq!(rig.sender.update_oldest(PEER), 1_000);
}

/// When a message is abandoned of which the first symbol goes out then, and nothing is ever heard.
fn abandoned_at(options: SendOptions, sent_at: Option<Duration>) -> Duration {
    abandoned_by(Rig::new(), options, sent_at)
}

fn abandoned_by(mut rig: Rig, options: SendOptions, sent_at: Option<Duration>) -> Duration {
    rig.config.budget.symbols_factor = 1e6;
    let accepted = rig.accept_with(Time::ZERO, &[7; 5_000], options);
    let id = accepted.unwrap().id;
    let round_trip = RoundTripEstimator::default();
    rig.sender
        .ready(Time::ZERO, id, &round_trip, &mut rig.timers);
    let sent_at = sent_at.map(|at| Time::ZERO + at);
    let mut now = Time::ZERO;
    loop {
        let alarm = rig.timers.next().expect("it has an alarm");
        let may_send = sent_at.filter(|_| rig.remaining(id) > Some(0));
        now = may_send.map_or(alarm, |at| at.min(alarm)).max(now);
        if may_send.is_some_and(|at| at <= now) {
            rig.send(now, id);
            continue;
        }
        while rig.timers.pop(now).is_some() {}
        if let Some(Step::Abandon(reason)) = rig.sender.attend(now, id, &mut rig.timers) {
            assert_eq!(reason, Reason::TimedOut);
            return now.since(Time::ZERO);
        }
        rig.sender.ready(now, id, &round_trip, &mut rig.timers);
    }
}

#[test]
fn a_lifetime_runs_from_the_first_symbol_and_a_deadline_from_the_call() {
    let second = Duration::from_secs;
    let lifetime = TransportConfig::unprotected().budget.lifetime;
    let plain = SendOptions::new();
    assert_eq!(abandoned_at(plain, Some(Duration::ZERO)), lifetime);
    assert_eq!(abandoned_at(plain, Some(second(25))), second(25) + lifetime);
    assert_eq!(abandoned_at(plain, None), second(60), "its turn never came");
    let urgent = plain.with_deadline(second(3));
    for sent_at in [Some(Duration::ZERO), Some(second(1)), None] {
        assert_eq!(abandoned_at(urgent, sent_at), second(3));
    }
    let late = plain.with_deadline(second(30));
    assert_eq!(abandoned_at(late, Some(Duration::ZERO)), lifetime);
    assert_eq!(abandoned_at(late, Some(second(25))), second(30));
}

/// It is asked something else first, and does not answer.
#[test]
fn a_peer_that_is_not_there_is_told_while_messages_wait_for_their_turn() {
    let lifetime = TransportConfig::unprotected().budget.lifetime;
    let second = Duration::from_secs;
    for (asked_at, expected) in [(second(0), lifetime), (second(4), second(4) + lifetime)] {
        for sent_at in [None, Some(second(8))] {
            let mut rig = Rig::new();
            rig.sender.asked(Time::ZERO + asked_at, PEER, 1);
            let took = abandoned_by(rig, SendOptions::new(), sent_at);
            assert_eq!(took, expected, "asked at {asked_at:?}, sent at {sent_at:?}");
        }
    }
}

#[test]
fn nothing_is_sent_of_a_message_that_is_past_its_deadline() {
    let mut rig = Rig::new();
    let options = SendOptions::new().with_deadline(Duration::from_secs(1));
    let accepted = rig.accept_with(Time::ZERO, &[7; 5_000], options);
    let id = accepted.unwrap().id;
    let paths = PathStatistics::default();
    for (ms, ends) in [(999, false), (1_000, true)] {
        let now = Time::ZERO + Duration::from_millis(ms);
        let lengths = (1_200, Framing::PLAIN);
        let burst = rig.sender.burst((now, id), lengths, &paths, &rig.config);
        assert_eq!(burst.unwrap().is_err(), ends);
    }
}

/// What a message costs besides its bytes.
#[test]
fn a_message_under_way_takes_what_is_documented() {
    assert!(size_of::<Outgoing>() <= 344, "{}", size_of::<Outgoing>());
}

/// Somebody on the way has held a datagram back: what is sent next seems to take as long.
#[test]
fn a_message_is_looked_at_soon_however_long_its_path_seems_to_take() {
    let mut rig = Rig::new();
    let id = rig.accept(Time::ZERO, &[7; 5_000]).unwrap().id;
    let count = rig.remaining(id).expect("it is under way");
    let late = Time::ZERO + Duration::from_secs(54);
    let (path, round_trip) = (ChosenPath::sample(), RoundTripEstimator::default());
    let sent = (count, &path, late);
    rig.sender
        .sent(Time::ZERO, id, sent, &round_trip, &mut rig.timers);
    let due = rig.timers.next().expect("its alarm is set");
    assert!(due <= Time::ZERO + MAX_ACK_TIMEOUT, "{due:?}");
}

#[test]
fn symbols_of_a_shared_message_are_the_same_for_all_and_computed_once() {
    let mut rig = Rig::new();
    let message = SharedMessage::new(&[7; 20_000]);
    let ids = [PEER, OTHER].map(|peer| rig.accept_shared(peer, &message).unwrap().id);
    assert_ne!(ids[0].as_u64(), ids[1].as_u64());
    let datagrams = ids.map(|id| {
        let symbols = rig.sender.symbols(id, 1, Schedule::Mds).unwrap();
        let write = |sequence| {
            let mut body = vec![0; 2_000];
            let written = symbols.write(sequence, &mut body).unwrap();
            // Behind the message's number.
            body[8..written.bytes()].to_vec()
        };
        (0..60).map(write).collect::<Vec<_>>()
    });
    assert_eq!(datagrams[0], datagrams[1]);
    assert_eq!(message.kept_bytes(), 32 * datagrams[0][0].len());
    let own = rig.accept(Time::ZERO, &[7; 20_000]).unwrap().id;
    let own = rig.sender.symbols(own, 1, Schedule::Mds).unwrap();
    let mut body = vec![0; 2_000];
    own.write(59, &mut body).unwrap();
    assert_eq!(message.kept_bytes(), 32 * datagrams[0][0].len());
}

#[test]
fn bytes_of_a_shared_message_count_once_until_the_last_of_its_peers_is_done() {
    let mut rig = Rig::new();
    rig.config.quotas.outgoing_bytes = 30_000;
    let [message, another] = [1, 2].map(|_| SharedMessage::new(&[7; 20_000]));
    let ids = [PEER, OTHER, PEER].map(|it| rig.accept_shared(it, &message).unwrap().id);
    let held = |rig: &Rig| {
        let counted = rig.statistics;
        (counted.outgoing_now, counted.outgoing_bytes_now)
    };
    assert_eq!(held(&rig), (3, 20_017));
    let full = rig.accept_shared(OTHER, &another).unwrap_err();
    assert!(matches!(full, SendRefused::Full { .. }), "{full:?}");
    for (id, left) in ids.into_iter().zip([(2, 20_017), (1, 20_017), (0, 0)]) {
        let (reason, statistics) = (Reason::Cancelled, &mut rig.statistics);
        assert!(rig.sender.abandon(id, reason, statistics).is_some());
        assert_eq!(held(&rig), left);
    }
    rig.accept_shared(OTHER, &another).unwrap();
    assert_eq!(held(&rig), (1, 20_017));
    let full = rig.accept_shared(PEER, &message).unwrap_err();
    assert!(matches!(full, SendRefused::Full { .. }), "it has ended");
}
