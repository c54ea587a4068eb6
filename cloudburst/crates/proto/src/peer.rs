//! Somebody that messages are exchanged with.

use core::time::Duration;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use foldhash::fast::FixedState;

use super::{
    estimate::{DeliveryRate, Overload, RoundTripEstimator},
    inbound::Inbound,
    incoming::Incoming,
    message_window::MessageWindow,
    native::ScheduleSlot,
    pacer::Pacer,
    packet::{Opener, Sealer},
    paths::Paths,
    port_rotation::RotationBudget,
    shared_bottleneck::SharedBottleneckDetector,
    time::Time,
    timers::Alarm,
};

/// How much faster than was measured a peer is sent to, so that more is found
/// out if there is more.
const PROBING_GAIN: f64 = 1.1;
/// The same while even the shortest queue of ours is longer than this.
const DRAINING_GAIN: f64 = 0.8;
const LONG_QUEUE: Duration = Duration::from_millis(3);
/// How much faster after each time that most got through again.
const RECOVERY_GAIN: f64 = 1.25;
/// The least share of the link that is used for a peer.
const LEAST_SHARE: f64 = 1.0 / 4_096.0;
/// And of what its paths carry, if that is known: others who fill queues do not give way to
/// who gives way always.
const LEAST_KNOWN_SHARE: f64 = 0.25;
/// Shortest time over which it is measured how much gets through.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// After this long without messages a peer's paths are not probed any more.
const ACTIVE_FOR: Duration = Duration::from_secs(1);
/// So many datagrams without an answer, for so long, let doubt whether anybody is there: more
/// than the pings that may be lost at the end of a conversation.
const SILENT_DATAGRAMS: u32 = 32;
const SILENT_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Peer {
    /// Seals what it is sent, as our session with it: no two peers see the same.
    pub(super) sealer: Sealer,
    /// Its session, once a datagram of it has come.
    pub(super) session: Option<u64>,
    /// Opens its datagrams, by key; the one used last in front.
    pub(super) openers: Vec<Opener>,
    /// Whether it has taken a message of ours.
    pub(super) is_taken_in: bool,
    /// When it last answered, or sent, anything.
    answered_at: Option<Time>,
    /// Datagrams since then that ask for an answer, and when the first of them was sent.
    unanswered: u32,
    unanswered_since: Time,
    /// The last message was given up without a word of its, or the network says that it is not
    /// there.
    pub(super) is_abandoned: bool,
    /// Messages wait until something is heard of it.
    pub(super) has_pending_messages: bool,
    /// Whether we chose it ourselves: then it stays.
    pub(super) is_ours: bool,
    pub(super) paths: Paths,
    pub(super) inbound: Inbound,
    pub(super) window: MessageWindow,
    pub(super) incoming: HashMap<u64, Incoming, FixedState>,
    pub(super) incoming_bytes: usize,
    /// Whether it counts among those that have shown a token.
    pub(super) is_validated: bool,
    /// When it was asked for a token last.
    pub(super) challenged_at: Option<Time>,
    /// Messages that have symbols to be sent: the shortest rest first, then the oldest.
    pub(super) ready: BinaryHeap<Reverse<(u32, u64)>>,
    /// Where it is among those with something to send.
    pub(super) slot: ScheduleSlot,
    /// Our messages for it that are not delivered.
    pub(super) outgoing: usize,
    /// The number of the next one, and of the oldest that is not delivered.
    pub(super) next_message: u64,
    pub(super) oldest_message: u64,
    pub(super) round_trip: RoundTripEstimator,
    pub(super) shared_bottleneck: SharedBottleneckDetector,
    /// How many pairs of ports may be given up for others.
    pub(super) replacements: RotationBudget,
    pub(super) delivery: DeliveryRate,
    /// Bytes per second that are not exceeded after more than half was lost.
    ceiling: f64,
    pub(super) pacer: Pacer,
    pub(super) heard_at: Time,
    /// When a message was last sent to it.
    pub(super) sent_at: Option<Time>,
    pub(super) alarm: Alarm,
}

impl Peer {
    pub(super) fn new(
        now: Time,
        sealer: Sealer,
        bytes_per_s: f64,
        first_message: u64,
        is_ours: bool,
    ) -> Self {
        let seed = sealer.session();
        Self {
            sealer,
            session: None,
            openers: Vec::new(),
            is_taken_in: false,
            answered_at: None,
            unanswered: 0,
            unanswered_since: now,
            is_abandoned: false,
            has_pending_messages: false,
            is_ours,
            paths: Paths::default(),
            inbound: Inbound::default(),
            window: MessageWindow::default(),
            incoming: HashMap::with_hasher(FixedState::with_seed(seed)),
            incoming_bytes: 0,
            is_validated: is_ours,
            challenged_at: None,
            ready: BinaryHeap::new(),
            slot: ScheduleSlot::default(),
            outgoing: 0,
            next_message: first_message,
            oldest_message: first_message,
            round_trip: RoundTripEstimator::default(),
            shared_bottleneck: SharedBottleneckDetector::new(now),
            replacements: RotationBudget::new(now),
            delivery: DeliveryRate::new(now),
            ceiling: bytes_per_s,
            pacer: Pacer::new(now, bytes_per_s),
            heard_at: now,
            sent_at: None,
            alarm: Alarm::default(),
        }
    }

    /// Our session with it.
    pub(super) fn own_session(&self) -> u64 {
        self.sealer.session()
    }

    /// So many datagrams that ask for an answer are sent to it.
    pub(super) fn asked(&mut self, now: Time, datagrams: u32) {
        if self.unanswered == 0 {
            self.unanswered_since = now;
        }
        self.unanswered = self.unanswered.saturating_add(datagrams);
    }

    /// Something was heard of it. Whether messages have waited for that.
    pub(super) fn answered(&mut self, now: Time) -> bool {
        self.answered_at = Some(now);
        self.unanswered = 0;
        self.is_abandoned = false;
        core::mem::take(&mut self.has_pending_messages)
    }

    /// A message that was accepted then was not delivered in its time.
    pub(super) fn failed(&mut self, accepted_at: Time) {
        self.is_abandoned |= self.answered_at.is_none_or(|at| at < accepted_at);
    }

    /// Whether nobody may be there: then a message begins with little.
    pub(super) fn is_unresponsive(&self, now: Time) -> bool {
        let is_silent =
            self.unanswered >= SILENT_DATAGRAMS && now.since(self.unanswered_since) >= SILENT_FOR;
        self.is_abandoned || is_silent
    }

    /// How long an answer may take that was not lost.
    pub(super) fn ack_timeout(&self) -> Duration {
        self.round_trip.ack_timeout()
    }

    /// Whether it is of interest how its paths are.
    pub(super) fn is_in_use(&self, now: Time) -> bool {
        self.outgoing > 0 || self.sent_at.is_some_and(|at| now.since(at) < ACTIVE_FOR)
    }

    /// Sends as fast as its paths carry, as far as that is known, and no faster
    /// than what gets through if most is lost.
    pub(super) fn adapt(&mut self, now: Time, link: f64) {
        let pause = self.ack_timeout().max(LEAST_PAUSE);
        match self.delivery.judge(now, pause) {
            Some(Overload::Yes(datagrams_per_s)) => {
                let bytes = self.paths.datagram_bytes().unwrap_or(0);
                let rate = self.pacer.bytes_per_s();
                // If there was little to send, what got through is no measure.
                self.ceiling = (datagrams_per_s * bytes as f64).clamp(rate / 2.0, rate);
            }
            Some(Overload::No) => self.ceiling = (self.ceiling * RECOVERY_GAIN).min(link),
            None => {}
        }
        let gain = if self.paths.own_queue() > LONG_QUEUE {
            DRAINING_GAIN
        } else {
            PROBING_GAIN
        };
        let rate = self.paths.rate().map_or(link, |rate| rate * gain);
        let rate = rate.min(self.ceiling);
        let least = self
            .paths
            .rate()
            .map_or(link * LEAST_SHARE, |rate| rate * LEAST_KNOWN_SHARE);
        self.pacer.set_rate(now, rate.clamp(least.min(link), link));
    }

    /// What was lost was refused, and tells nothing of the paths.
    pub(super) fn acquit_paths(&mut self, now: Time, link: f64) {
        self.delivery = DeliveryRate::new(now);
        self.ceiling = link;
    }

    /// Time that a byte takes on one of the paths if nothing is known of it, in ns.
    pub(super) fn default_ns_per_byte(&self, link: f64) -> f64 {
        1e9 / link * self.paths.width() as f64
    }
}
