//! A message of ours, until the receiver has it or we give it up.

mod answers;
mod source;

use core::{cmp::Reverse, time::Duration};

use cloudburst_congestion::{LossEstimator, MAX_ACK_TIMEOUT, RoundTripEstimator};

use self::source::Source;
use super::{
    config::{Budget, MAX_LIFETIME, TransportConfig},
    event::{MessageKind, Reason, Receipt, SendId, Undelivered},
    packet::{self, Framing, MIN_SYMBOL_BYTES},
    paths::Spread,
    scheduler::Rank,
    send_options::{Priority, SendOptions},
    shared_message::SharedMessage,
    time::Time,
    timers::{Alarm, TimerKey, Timers},
};
use cloudburst_code::{EncodeError, Encoder, Schedule, Shape, ShapeError};

/// Longest pause between two questions for what the receiver has.
const QUERY_PAUSE: Duration = Duration::from_millis(500);

/// What it costs to send all of a message through one bottleneck where losses are uneven, in
/// times that one waits for its stop.
const SPREAD_COST: f64 = 0.25;

/// The reserve is this part of a message at most.
const MOST_RESERVE: u32 = 4;

/// Reports without progress after the last symbol that the budget allows.
const LAST_REPORTS: u8 = 4;
/// A message whose turn does not come is abandoned after so long.
const LONGEST_WAIT: Duration = MAX_LIFETIME;
/// How often it is looked at meanwhile whether its peer is still there, in a lifetime.
const LOOKS: u32 = 4;
/// Symbols that a message begins with if nobody may be there.
const FIRST_CONTACT_SYMBOLS: u32 = 2;
/// A message under way.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) id: SendId,
    source: Source,
    shape: Shape,
    /// Counts how often the message was segmented again.
    generation: u8,
    accepted_at: Time,
    /// Symbols sent of this generation, and of all before.
    sent: u32,
    sent_before: u32,
    /// Symbols that are to be sent for now.
    goal: u32,
    budget: u32,
    /// When it is abandoned; while nothing was sent of it, not before then.
    ends: Time,
    /// For how long it is tried from its first symbol on.
    lifetime: Duration,
    deadline: Time,
    priority: Priority,
    /// Symbols that follow the first burst before the stop can be there, in case that
    /// much of it was lost in one place.
    reserve: u32,
    /// Where its symbols went, if losses are uneven.
    pub(super) spread: Option<Spread>,
    /// Bursts after the first, and the reserve.
    tails: u8,
    queries: u8,
    /// Reports without progress when the budget was spent.
    last_reports: u8,
    /// Bursts in a row of which nothing was heard, and when the next may be sent.
    stalls: u8,
    again_at: Time,
    /// Times in a row that the receiver had no capacity.
    busies: u8,
    have: Option<u32>,
    /// Whether all was sent a second time for want of a token.
    was_again: bool,
    /// To take it twice does no harm.
    pub(super) is_idempotent: bool,
    is_busy: bool,
    /// Whether the receiver said so when it last said anything.
    was_busy: bool,
    /// It waits until something is heard of the peer: nobody may be there.
    awaits_first_contact: bool,
    /// Paths that carried a symbol, a bit for each.
    paths: u64,
    /// When the last symbol was sent.
    last_sent_at: Time,
    /// When the last symbol sent should be there.
    pub(super) expected: Time,
    /// Whether it is among those to be sent.
    pub(super) is_queued: bool,
    pub(super) alarm: Alarm,
}

/// What is to be done for a message whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Symbols are to be sent.
    Send,
    /// The receiver is to be asked what it has.
    Query,
    /// It is abandoned.
    Abandon(Reason),
    Wait,
}

impl Outgoing {
    /// `bytes` is memory that is used again.
    pub(super) fn new(
        now: Time,
        id: SendId,
        (kind, message): (MessageKind, &[u8]),
        bytes: Vec<u8>,
        symbol_bytes: usize,
        config: &TransportConfig,
    ) -> Result<Self, ShapeError> {
        let source = Source::own((kind, message), id, bytes);
        Self::of(now, id, source, symbol_bytes, config)
    }

    /// A message that other peers are sent, too.
    pub(super) fn shared(
        now: Time,
        id: SendId,
        message: SharedMessage,
        symbol_bytes: usize,
        config: &TransportConfig,
    ) -> Result<Self, ShapeError> {
        Self::of(now, id, Source::Shared(message), symbol_bytes, config)
    }

    fn of(
        now: Time,
        id: SendId,
        source: Source,
        symbol_bytes: usize,
        config: &TransportConfig,
    ) -> Result<Self, ShapeError> {
        let shape = shape(source.bytes().len(), symbol_bytes)?;
        Ok(Self {
            id,
            source,
            shape,
            generation: 0,
            accepted_at: now,
            sent: 0,
            sent_before: 0,
            goal: 0,
            budget: config.budget.symbols(shape.symbols()),
            reserve: 0,
            spread: None,
            ends: now + config.budget.lifetime,
            lifetime: config.budget.lifetime,
            deadline: Time::NEVER,
            priority: Priority::Normal,
            tails: 0,
            queries: 0,
            last_reports: 0,
            stalls: 0,
            again_at: now,
            busies: 0,
            have: None,
            was_again: false,
            is_idempotent: false,
            is_busy: false,
            was_busy: false,
            awaits_first_contact: false,
            paths: 0,
            last_sent_at: now,
            expected: now,
            is_queued: false,
            alarm: Alarm::default(),
        })
    }

    pub(super) fn symbols(&self) -> u32 {
        self.shape.symbols() as u32
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.source.bytes().len()
    }

    /// The message, if other peers are sent it, too.
    pub(super) fn shared_message(&self) -> Option<&SharedMessage> {
        self.source.shared_message()
    }

    /// Memory to be used again, if it is its own.
    pub(super) fn into_memory(self) -> Option<Vec<u8>> {
        self.source.into_memory()
    }

    pub(super) fn sent_in_all(&self) -> u32 {
        self.sent_before.saturating_add(self.sent)
    }

    /// Whether nobody can have anything of it.
    pub(super) fn is_unsent(&self) -> bool {
        self.sent_in_all() == 0
    }

    /// When it was accepted, if a receiver may have handed it over since, as enough of it was sent,
    /// and is not to do so again.
    pub(super) fn sent_whole_since(&self) -> Option<Time> {
        let is_enough = self.sent_before > 0 || self.sent >= self.symbols();
        (is_enough && !self.is_idempotent).then_some(self.accepted_at)
    }

    /// Says how it is to be treated, besides to whom it goes.
    pub(super) fn set_options(&mut self, options: SendOptions) {
        self.is_idempotent = options.idempotent;
        self.priority = options.priority;
        if let Some(deadline) = options.deadline {
            self.deadline = self.accepted_at + deadline;
            self.ends = self.ends.min(self.deadline);
        }
    }

    /// Its rank among messages with something to send.
    pub(super) fn rank(&self) -> Rank {
        Rank {
            priority: Reverse(self.priority),
            remaining: self.remaining(),
        }
    }

    /// Whether it is of no use any more, so that nothing is to be sent of it.
    pub(super) fn is_past_deadline(&self, now: Time) -> bool {
        now >= self.deadline
    }

    /// Symbols to be sent now.
    pub(super) fn remaining(&self) -> u32 {
        self.goal.saturating_sub(self.sent)
    }

    pub(super) fn symbol_bytes(&self) -> usize {
        self.shape.symbol_bytes()
    }

    pub(super) fn encoder(&self, schedule: Schedule) -> Result<Encoder<'_>, EncodeError> {
        // Rows must not fit the same losses badly in one message after the other.
        let seed = (self.source.seed(self.id) ^ u64::from(self.generation) << 8) as u16;
        let bytes = self.source.bytes();
        Encoder::new(bytes, self.shape, schedule, self.generation, seed)
    }

    /// Numbers of the next symbols, `count` at most.
    pub(super) fn next(&self, count: u32) -> core::ops::Range<u32> {
        self.sent..self.sent.saturating_add(count.min(self.remaining()))
    }

    /// Symbols were sent by a path, to a peer that has answered nothing since `silent_since`, if it was
    /// asked anything.
    pub(super) fn note_sent(
        &mut self,
        now: Time,
        (count, path, group): (u32, u16, usize),
        silent_since: Option<Time>,
    ) {
        if self.is_unsent() {
            self.ends = self.lifetime_from(silent_since.unwrap_or(now));
        }
        self.sent = self.sent.saturating_add(count);
        self.last_sent_at = now;
        if let Some(spread) = &mut self.spread {
            spread.add(group, count);
        }
        self.paths |= 1 << (path % 64);
    }

    /// Asks for the first burst: what is needed if `loss` goes on.
    pub(super) fn begin(&mut self, loss: &LossEstimator, ack_timeout: Duration) {
        let n = self.symbols();
        let redundancy = loss.redundancy(n);
        self.reserve = loss
            .reserve(n)
            .saturating_sub(redundancy)
            .min(n.div_ceil(MOST_RESERVE));
        if self.reserve > 0 {
            let cost = ack_timeout.mul_f64(SPREAD_COST).checked_div(n);
            self.spread = Some(Spread::new(cost.unwrap_or_default()));
        }
        self.want(n.saturating_add(redundancy));
    }

    /// Asks for little: nobody may be there.
    pub(super) fn open(&mut self) {
        self.awaits_first_contact = true;
        self.want(FIRST_CONTACT_SYMBOLS.min(self.symbols()));
    }

    /// Nobody is there, but may be again: nothing more is sent until then, so that it is not taken
    /// for sent whole.
    pub(super) fn suspend(&mut self) {
        self.awaits_first_contact = true;
        self.goal = self.sent;
    }

    /// Somebody is there: asks for the rest of the first burst, if that has waited.
    pub(super) fn resume(&mut self, loss: &LossEstimator, ack_timeout: Duration) -> bool {
        let waited = core::mem::take(&mut self.awaits_first_contact);
        if waited {
            self.begin(loss, ack_timeout);
            self.goal = self.goal.saturating_sub(self.sent).max(self.sent);
        }
        waited
    }

    pub(super) fn accepted_at(&self) -> Time {
        self.accepted_at
    }

    /// Asks for so many symbols more, within the budget.
    fn want(&mut self, more: u32) {
        let left = self.budget.saturating_sub(self.sent_before);
        self.goal = self.sent.saturating_add(more).min(left);
    }

    fn is_spent(&self) -> bool {
        self.sent_in_all() >= self.budget
    }

    /// When its lifetime is over if it runs from then, or from the call if that was later: from the first
    /// symbol, unless nobody has answered before.
    fn lifetime_from(&self, then: Time) -> Time {
        (then.max(self.accepted_at) + self.lifetime).min(self.deadline)
    }

    /// Lets a message wait for its turn as long as its peer is there. One that is not is known to be gone
    /// as soon as if something had been sent.
    fn wait_for_turn(&mut self, now: Time, silent_since: Option<Time>) {
        let longest = self.accepted_at + LONGEST_WAIT;
        let ends = match silent_since {
            Some(since) => self.lifetime_from(since),
            None => now + self.lifetime.checked_div(LOOKS).unwrap_or_default(),
        };
        self.ends = ends.min(longest).min(self.deadline);
    }

    /// The time of the alarm has come, and the peer has answered nothing since `silent_since`, if it was
    /// asked anything.
    pub(super) fn attend(&mut self, now: Time, silent_since: Option<Time>) -> Step {
        if self.is_unsent() {
            self.wait_for_turn(now, silent_since);
        }
        if now >= self.ends {
            let reason = if self.was_busy {
                Reason::Busy
            } else {
                Reason::TimedOut
            };
            return Step::Abandon(reason);
        }
        if self.remaining() > 0 {
            return if self.is_queued {
                Step::Wait
            } else {
                Step::Send
            };
        }
        if self.awaits_first_contact {
            return Step::Wait;
        }
        let reserve = core::mem::take(&mut self.reserve);
        if reserve > 0 && !self.is_busy {
            self.want(reserve);
            if self.remaining() > 0 {
                return Step::Send;
            }
        }
        let n = self.symbols();
        // From here on it is worth while to know what is missing (§III-D).
        let enough = n.saturating_mul(2).saturating_add(16);
        if self.sent < enough && !self.is_spent() && !self.is_busy {
            let batch = (n.div_ceil(8) << self.tails.min(4)).min(enough.saturating_sub(self.sent));
            self.tails = self.tails.saturating_add(1);
            self.want(batch);
            return Step::Send;
        }
        if self.is_spent() {
            if self.last_reports >= LAST_REPORTS {
                return Step::Abandon(Reason::BudgetSpent);
            }
        } else if core::mem::take(&mut self.is_busy) {
            // One finds out whether there is capacity now.
            self.want(1);
            return Step::Send;
        }
        self.queries = self.queries.saturating_add(1);
        Step::Query
    }

    /// When an answer to its last symbol can be there at the earliest: soon, whatever a path seems to
    /// take, for that is as long as somebody on the way has held a datagram back.
    fn answered_by(&self, round_trip: &RoundTripEstimator) -> Time {
        (self.expected + round_trip.least()).min(self.last_sent_at + MAX_ACK_TIMEOUT)
    }

    /// When it has to be looked at again, if nothing is heard.
    fn next_look(&self, now: Time, round_trip: &RoundTripEstimator) -> Time {
        let ack_timeout = round_trip.ack_timeout();
        let pause = if self.remaining() > 0 || self.awaits_first_contact {
            // Its turn comes by the pacer's leave, or with the peer's first answer.
            return self.ends;
        } else if self.queries > 0 {
            let longer = ack_timeout.saturating_mul(1 << self.queries.min(10));
            longer.min(QUERY_PAUSE)
        } else if self.reserve > 0 || self.spread.is_some() {
            // What was lost together is worth a guess before the stop is overdue.
            ack_timeout.checked_div(3).unwrap_or_default()
        } else if self.tails > 0 {
            ack_timeout.checked_div(2).unwrap_or_default()
        } else {
            ack_timeout
        };
        // What is in the queues now takes its time; round trips were measured with what was in
        // them then.
        (now + pause)
            .max(self.answered_by(round_trip))
            .min(self.ends)
    }

    /// Sets its alarm for when it has to be looked at again.
    pub(super) fn set_alarm(
        &mut self,
        now: Time,
        round_trip: &RoundTripEstimator,
        timers: &mut Timers<TimerKey>,
    ) {
        let look = self.next_look(now, round_trip);
        self.alarm.set(look, TimerKey::Message(self.id), timers);
    }

    /// Whether nothing is known to have arrived.
    pub(super) fn is_unheard_of(&self) -> bool {
        self.have.is_none_or(|have| have == 0)
    }

    /// Segments it again, for datagrams that are shorter. What the receiver has of
    /// it is of no use any more.
    pub(super) fn resegment(
        &mut self,
        symbol_bytes: usize,
        (loss, ack_timeout): (&LossEstimator, Duration),
        budget: &Budget,
    ) -> Result<(), ShapeError> {
        self.shape = shape(self.bytes(), symbol_bytes)?;
        self.generation = self.generation.wrapping_add(1);
        self.sent_before = self.sent_in_all();
        self.sent = 0;
        (self.tails, self.queries, self.have) = (0, 0, None);
        self.budget = budget.symbols(self.shape.symbols());
        if self.awaits_first_contact {
            self.open();
        } else {
            self.begin(loss, ack_timeout);
        }
        Ok(())
    }

    pub(super) fn receipt(&self, now: Time, needed: u32) -> Receipt {
        Receipt {
            completion: now.since(self.accepted_at),
            symbols: self.symbols(),
            sent: self.sent_in_all(),
            needed,
            paths: self.paths.count_ones() as u16,
        }
    }

    pub(super) fn failure(&self, reason: Reason) -> Undelivered {
        Undelivered {
            reason,
            symbols: self.symbols(),
            sent: self.sent_in_all(),
            received: self.have,
        }
    }
}

/// How a message is cut for datagrams that hold symbols of up to `symbol_bytes`.
fn shape(message_bytes: usize, symbol_bytes: usize) -> Result<Shape, ShapeError> {
    let shape = Shape::fitting(message_bytes, symbol_bytes)?;
    if shape.symbol_bytes() < MIN_SYMBOL_BYTES {
        return Shape::new(message_bytes, MIN_SYMBOL_BYTES);
    }
    Ok(shape)
}

/// Symbols that fit into datagrams of this length.
pub(super) fn symbol_bytes(datagram_bytes: usize, framing: Framing) -> usize {
    packet::symbol_bytes(datagram_bytes, framing).unwrap_or(MIN_SYMBOL_BYTES)
}
