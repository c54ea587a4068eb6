//! Outbound messages: the sender's, in the order that the scheduler gives them.

use core::time::Duration;

use cloudburst_congestion::{Acknowledged, CongestionControl, PacedQueue, PathRates};

use super::{
    config::TransportConfig,
    event::{Event, MessageKind, PeerId, Reason, SendId, SendRefused},
    outgoing::Step,
    packet::{Body, Framing},
    path_manager::{PathManager, PathStatistics},
    scheduler::Scheduler,
    send_options::SendOptions,
    sender::{Accepted, Content, Progressed, Sender},
    statistics::{TransportStatistics, tally},
    time::Time,
    timers::{TimerKey, Timers},
};

/// Messages under way, and whose turn it is.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) sender: Sender,
    pub(super) scheduler: Scheduler,
    /// Peers that a goodbye is to be said to.
    pub(super) goodbyes: PacedQueue<PeerId>,
    congestion: CongestionControl,
    initial_round_trip: Duration,
}

/// What an answer comes to.
#[derive(Debug, Default)]
pub(super) struct TakenAnswer {
    /// A message's end.
    pub(super) event: Option<Event>,
    /// Datagrams seem too long for the paths.
    pub(super) refutes_mtu: bool,
}

impl Outbound {
    pub(super) fn new(config: &TransportConfig, now: Time, hash_seed: u64) -> Self {
        Self {
            sender: Sender::new(hash_seed),
            scheduler: Scheduler::new(now, config.congestion.bytes_per_s()),
            goodbyes: PacedQueue::default(),
            congestion: config.congestion,
            initial_round_trip: config.initial_round_trip,
        }
    }

    pub(super) fn add_peer(&mut self, now: Time, id: PeerId, first_message: u64) {
        self.sender.add_peer(now, id, first_message);
        let (control, round_trip) = (&self.congestion, self.initial_round_trip);
        self.scheduler.add_peer(now, id, control, round_trip);
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        self.sender.remove_peer(id);
        self.scheduler.remove_peer(id);
    }

    /// When a message may be sent again, or the next goodbye, if any waits.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let messages = self.scheduler.next_deadline();
        messages.into_iter().chain(self.goodbyes.next_at()).min()
    }

    /// The host takes an event: a reply is not awaited any more that has come.
    pub(super) fn taken(&mut self, event: &Event) {
        if let Event::Received { peer, kind, .. } = event
            && matches!(
                kind,
                MessageKind::Reply { .. } | MessageKind::Failure { .. }
            )
            && let Some(keepalive) = self.sender.keepalive(*peer)
        {
            keepalive.replied();
        }
    }

    /// Takes a message, and gives it its place among the others.
    pub(super) fn send(
        &mut self,
        now: Time,
        (peer, options, content): (PeerId, SendOptions, Content<'_>),
        (paths, framing): (Option<PathStatistics>, Framing),
        config: &TransportConfig,
        (timers, statistics): (&mut Timers<TimerKey>, &mut TransportStatistics),
    ) -> Result<Accepted, SendRefused> {
        if self.scheduler.is_broken(peer) {
            return Err(SendRefused::CircuitBroken);
        }
        let message = (peer, options, content);
        let known = (paths, framing);
        let accepted = self
            .sender
            .accept(now, message, known, config, statistics)?;
        if accepted.is_first {
            self.scheduler.restart_measuring(now, peer);
        }
        if let Some(paths) = paths {
            self.enqueue(now, accepted.id, &paths, timers);
        }
        Ok(accepted)
    }

    /// A message has something to send, or has to be looked at again.
    fn enqueue(
        &mut self,
        now: Time,
        id: SendId,
        paths: &PathStatistics,
        timers: &mut Timers<TimerKey>,
    ) {
        let Self {
            sender, scheduler, ..
        } = self;
        if let Some((rank, is_new)) = sender.ready(now, id, &paths.round_trip, timers) {
            scheduler.enqueue(now, id, rank, is_new, sender);
        }
    }

    /// A peer was heard of: sends what has waited for that. Returns whether it seemed to be gone: then
    /// its alarm was set without a keepalive.
    pub(super) fn answered(
        &mut self,
        now: Time,
        peer: PeerId,
        paths: &PathStatistics,
        timers: &mut Timers<TimerKey>,
    ) -> bool {
        let was_abandoned = self.sender.is_abandoned(peer);
        if self.sender.answered(now, peer) {
            for id in self.sender.under_way(peer) {
                if self.sender.resume(id, paths) {
                    self.enqueue(now, id, paths, timers);
                }
            }
        }
        was_abandoned
    }

    /// A peer's datagram has come: it may be sent more now.
    pub(super) fn heard(&mut self, now: Time, peer: PeerId) {
        self.scheduler.heard(now, peer, &mut self.sender);
    }

    /// A peer has reported on datagrams. Returns the share that was lost too long, if its circuit
    /// breaker trips with that.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        peer: PeerId,
        news: &Acknowledged,
        rates: &PathRates,
    ) -> Option<f64> {
        self.scheduler.acknowledged(now, peer, news, rates)
    }

    /// Paths of a peer have died, or are others: what was in flight there is so no longer.
    pub(super) fn count_in_flight(&mut self, now: Time, peer: PeerId, paths: &PathManager) {
        let (in_flight, rates) = (paths.in_flight(peer), paths.rates(peer));
        self.scheduler.set_in_flight(now, peer, in_flight, &rates);
    }

    /// Takes what a receiver answers.
    pub(super) fn take_answer(
        &mut self,
        now: Time,
        (peer, body): (PeerId, &Body<'_>),
        (paths, framing): (Option<PathStatistics>, Framing),
        config: &TransportConfig,
        (timers, statistics): (&mut Timers<TimerKey>, &mut TransportStatistics),
    ) -> TakenAnswer {
        let mut taken = TakenAnswer::default();
        let Some(paths) = paths else {
            return taken;
        };
        match body {
            Body::Stop(stop, _) => {
                taken.event = self.sender.stopped(now, peer, stop, statistics);
                let sender = &self.sender;
                timers
                    .drop_ended(|key| matches!(key, TimerKey::Message(id) if !sender.contains(id)));
            }
            Body::Progress(progress, _) => {
                let id = SendId::new(peer, progress.message);
                let known = (&paths, framing);
                let report = (progress.state, progress.echo.sent_us);
                let progressed = self.sender.progressed(now, id, report, known, config);
                taken.refutes_mtu = progressed.is_too_long();
                if progressed == Progressed::TooLong {
                    taken.event = self.sender.abandon(id, Reason::Unreachable, statistics);
                } else {
                    self.enqueue(now, id, &paths, timers);
                }
            }
            Body::Busy(busy, _) => {
                let pause = Duration::from_millis(busy.retry_after_ms.max(1).into());
                let id = SendId::new(peer, busy.message);
                self.sender.busy(now, id, pause, timers);
            }
            Body::Pong(..) => {}
            _ => tally(&mut statistics.refused.unexpected, 1),
        }
        taken
    }

    /// A peer has asked for a token, and perhaps discarded what was sent, which is sent again.
    pub(super) fn challenged(
        &mut self,
        now: Time,
        (peer, was_discarded): (PeerId, bool),
        paths: &PathManager,
        timers: &mut Timers<TimerKey>,
    ) {
        if was_discarded {
            self.count_in_flight(now, peer, paths);
            self.scheduler.discount_losses(now, peer);
        }
        if was_discarded || !self.sender.has_taken_any(peer) {
            self.repeat(now, peer, paths, timers, Sender::repeat);
        }
    }

    /// A peer was restarted. If it `has_discarded` what was sent, as it has none of the keys, all that was not given up is
    /// sent again.
    pub(super) fn restarted(
        &mut self,
        now: Time,
        (peer, has_discarded): (PeerId, bool),
        paths: &PathManager,
        timers: &mut Timers<TimerKey>,
    ) {
        self.scheduler.discount_silence(now, peer);
        if has_discarded {
            self.count_in_flight(now, peer, paths);
            self.repeat(now, peer, paths, timers, Sender::begin_again);
        }
    }

    /// Sends a peer's messages again that have to be, each as is said.
    fn repeat(
        &mut self,
        now: Time,
        peer: PeerId,
        paths: &PathManager,
        timers: &mut Timers<TimerKey>,
        again: fn(&mut Sender, Time, SendId, &PathStatistics) -> bool,
    ) {
        let Some(statistics) = paths.statistics(peer) else {
            return;
        };
        for id in self.sender.under_way(peer) {
            if again(&mut self.sender, now, id, &statistics) {
                self.enqueue(now, id, &statistics, timers);
            }
        }
    }

    /// A message's time has come. Returns its end, or whether the receiver is to be asked.
    pub(super) fn attend(
        &mut self,
        now: Time,
        id: SendId,
        paths: &PathStatistics,
        (timers, statistics): (&mut Timers<TimerKey>, &mut TransportStatistics),
    ) -> (bool, Option<Event>) {
        let step = self.sender.attend(now, id, timers);
        match step {
            None => return (false, None),
            Some(Step::Abandon(reason)) => {
                return (false, self.sender.abandon(id, reason, statistics));
            }
            Some(Step::Send | Step::Wait | Step::Query) => {}
        }
        self.enqueue(now, id, paths, timers);
        (step == Some(Step::Query), None)
    }

    /// The message whose turn it is.
    pub(super) fn next_message(&mut self, now: Time) -> Option<SendId> {
        self.scheduler.next_message(now, &mut self.sender)
    }

    /// Gives a peer its place again after its turn.
    pub(super) fn requeue(&mut self, now: Time, peer: PeerId) {
        self.scheduler.requeue(now, peer, &mut self.sender);
    }
}
