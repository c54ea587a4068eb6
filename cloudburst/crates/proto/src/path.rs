//! One path to a peer: health, keepalive, path MTU discovery (DPLPMTUD, RFC 8899), deliveries.

mod deliveries;

use core::time::Duration;

use cloudburst_congestion::{
    BlackHoleDetector, Deliveries, EcnValidation, InFlight, LeastDelay, LossEstimator, OtherPaths,
    PathMtu, RoundTripEstimator, SentDatagram, Totals,
};
use cloudburst_security::Suspicion;

pub(super) use self::deliveries::DeliveryReport;
use super::{
    config::Datagrams,
    event::{FourTuple, Health, PathReport},
    time::Time,
};

/// Datagrams in a row of which nothing is heard that make a path dead.
const UNHEARD_OF_DEAD: u32 = 3;
/// How often a dead path is probed at first, and at last.
const REVALIDATION_PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// After how long a path is probed that nothing is heard of while others are in use, at least.
const REFRESH_MS: u32 = 200;
/// How long after the peer reported on a path in use it is known to deliver, at least.
const FRESH: Duration = Duration::from_secs(1);

/// How long no path may bring an answer before those that are doubted are dead: hosts that are busy
/// let a process wait as long, and then nothing is wrong with any path. On two processors with nine
/// processes that ran all the time `cloudburst serve` stood still for 27 to 160 ms, again and again.
const PEER_SILENCE: Duration = Duration::from_millis(250);

/// Datagrams back that a notice may be about.
const NOTICED: u64 = 65_536;

/// Trains of datagrams that are remembered of a path while it is dead.
const MAX_TRAINS_OF_A_DEAD_PATH: usize = 64;

/// Datagrams that are remembered until the peer tells of them: a power of two.
const REMEMBERED: usize = 16;

/// The place of a datagram among them.
const fn remembered_at(sequence: u64) -> usize {
    sequence as usize & (REMEMBERED - 1)
}

/// Path to a peer, with keepalive, failure detection and path MTU discovery.
#[derive(Debug)]
pub(super) struct Path {
    /// Its name on the wire.
    pub(super) id: u16,
    pub(super) four_tuple: FourTuple,
    health: Health,
    /// It stands for one that did not deliver, and nothing is heard of it yet: it gets pings alone,
    /// as a dead one does.
    is_on_trial: bool,
    black_hole: BlackHoleDetector,
    /// When a datagram of the peer last came by it, if the peer came by itself.
    pub(super) arrived_at: Time,
    /// Datagrams sent.
    sequence: u64,
    /// Datagrams of those that the peer has reported, and when it last did.
    pub(super) deliveries: Deliveries,
    heard_at: Option<Time>,
    ecn: EcnValidation,
    /// Since when nothing was heard of datagrams sent, and how many those are.
    /// Answers do not count: nobody tells of them.
    doubt: Option<Time>,
    unheard: u32,
    loss: LossEstimator,
    round_trip: RoundTripEstimator,
    base_round_trip: LeastDelay<Duration>,
    /// By the difference of two clocks, in µs.
    least_one_way: LeastDelay<i32>,
    in_flight: InFlight,
    /// Which of the peer's bottlenecks it leads through.
    pub(super) group: usize,
    /// The last datagrams with symbols, by their numbers.
    remembered: [(u64, SentDatagram); REMEMBERED],
    probe: Probe,
    /// The pause before a probe while nothing else is heard of it.
    refresh_ms: u32,
    pub(super) mtu: PathMtu,
    suspicion: Suspicion,
    /// What may be sent to where it leads is used up.
    pub(super) is_capped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    sent_at: Time,
    pause: Duration,
}

/// Probe of a path that is due: a keepalive, or an MTU probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathProbe {
    /// To hear whether the path is alive.
    Probe,
    /// To see whether so long a datagram gets through.
    MtuProbe(usize),
}

impl Path {
    pub(super) fn new(
        id: u16,
        four_tuple: FourTuple,
        group: usize,
        now: Time,
        datagrams: &Datagrams,
    ) -> Self {
        Self {
            id,
            four_tuple,
            health: Health::Unknown,
            is_on_trial: false,
            black_hole: BlackHoleDetector::new(now),
            arrived_at: now,
            sequence: 0,
            deliveries: Deliveries::default(),
            heard_at: None,
            ecn: EcnValidation::default(),
            doubt: None,
            unheard: 0,
            loss: LossEstimator::default(),
            round_trip: RoundTripEstimator::default(),
            base_round_trip: LeastDelay::default(),
            least_one_way: LeastDelay::default(),
            in_flight: InFlight::default(),
            group,
            remembered: [(u64::MAX, SentDatagram::default()); REMEMBERED],
            probe: Probe {
                sent_at: now,
                pause: REVALIDATION_PAUSES[0],
            },
            refresh_ms: REFRESH_MS,
            mtu: PathMtu::new(now, datagrams.initial),
            suspicion: Suspicion::default(),
            is_capped: false,
        }
    }

    /// Another in its place, which has to show that it delivers. If no number is left for it, it
    /// goes on with this one's, and with its count of datagrams: no two may have the same.
    pub(super) fn replacement(
        &self,
        id: Option<u16>,
        four_tuple: FourTuple,
        group: usize,
        now: Time,
        datagrams: &Datagrams,
    ) -> Self {
        let new = Self::new(id.unwrap_or(self.id), four_tuple, group, now, datagrams);
        let mut path = Self {
            is_on_trial: true,
            ..new
        };
        if id.is_none() {
            (path.sequence, path.heard_at) = (self.sequence, self.heard_at);
            (path.deliveries, path.ecn) = (self.deliveries.carried_on(), self.ecn);
            path.ecn.restart();
        }
        path
    }

    /// After such a pause it is probed, if nothing is heard of it meanwhile.
    pub(super) fn refresh_after(&mut self, pause: Duration) {
        // As many as fit are weeks.
        self.refresh_ms = (pause.as_millis() as u32).max(REFRESH_MS);
    }

    /// Tells whether the peer has reported on the path in the last second.
    pub(super) fn is_heard(&self, now: Time) -> bool {
        self.heard_at.is_some_and(|at| now.since(at) <= FRESH)
    }

    /// Tells whether the peer has reported nothing of it yet.
    pub(super) fn is_unheard(&self) -> bool {
        !self.deliveries.is_reported()
    }

    fn refresh(&self) -> Duration {
        Duration::from_millis(self.refresh_ms.into())
    }

    /// The number of the next datagram, which the peer will report on.
    pub(super) fn take_sequence(&mut self, now: Time) -> u64 {
        self.doubt.get_or_insert(now);
        self.unheard = self.unheard.saturating_add(1);
        self.take_answer_sequence()
    }

    /// The number of the next datagram, if it is an answer.
    pub(super) fn take_answer_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        // 2^64 datagrams take centuries at any rate.
        self.sequence = sequence.saturating_add(1);
        sequence
    }

    pub(super) fn is_good(&self) -> bool {
        self.health == Health::Good
    }

    pub(super) fn is_dead(&self) -> bool {
        self.health == Health::Dead || self.is_on_trial
    }

    /// Whether it delivers, as far as is known of the last second.
    fn delivers(&self, now: Time) -> bool {
        let fresh = FRESH.max(self.refresh().saturating_mul(2));
        self.is_good() && self.heard_at.is_some_and(|at| now.since(at) <= fresh)
    }

    /// What its being as it is says of others to the same address.
    pub(super) fn as_other(&self, now: Time) -> OtherPaths {
        match (self.delivers(now), self.is_good()) {
            (true, _) => OtherPaths::Deliver,
            (false, true) => OtherPaths::Quiet,
            (false, false) => OtherPaths::Dead,
        }
    }

    /// What is to be known of it before it is abandoned, with what becomes of what goes by others
    /// and the share that is lost of it.
    pub(super) fn black_hole(
        &mut self,
        now: Time,
        others: OtherPaths,
        loss: f64,
    ) -> &mut BlackHoleDetector {
        let is_dead = self.is_dead();
        self.black_hole.look(now, is_dead, others, loss);
        &mut self.black_hole
    }

    /// Whether it is to be abandoned for another. An answer takes `ack_timeout`.
    pub(super) fn has_failed(&self, now: Time, ack_timeout: Duration) -> bool {
        self.black_hole.is_enough(now, ack_timeout)
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss.share()
    }

    pub(super) fn datagram_bytes(&self) -> usize {
        self.mtu.proven()
    }

    /// Decides if a train of so many datagrams, which are the last of its numbers, is sent as capable of ECN. One by a path of
    /// which nothing was heard yet is not, as no SYN is (RFC 3168 §6.1.1), nor one by a dead path: if anything on it drops
    /// what is capable, it would seem to be dead. Questions, probes and answers never are: nothing that they carry is a load.
    pub(super) fn mark(&mut self, now: Time, count: u32) -> bool {
        let may_be = count > 0 && !self.is_dead() && !self.is_unheard();
        may_be && self.ecn.mark(now, count, self.sequence.saturating_sub(1))
    }

    /// Remembers a datagram that is about to be sent.
    pub(super) fn remember(&mut self, datagram: SentDatagram) {
        self.remembered[remembered_at(self.sequence)] = (self.sequence, datagram);
    }

    fn revalidate(&mut self, now: Time) -> Option<FourTuple> {
        let is_news = !self.is_good();
        if is_news {
            self.ecn.revived(now);
        }
        self.health = Health::Good;
        self.is_on_trial = false;
        self.probe.pause = REVALIDATION_PAUSES[0];
        self.suspicion.clear();
        is_news.then_some(self.four_tuple)
    }

    /// Takes the delay of a datagram there, by the difference of two clocks in µs. Returns how much
    /// longer it is than the least of late.
    pub(super) fn one_way(&mut self, now: Time, delay_us: i32) -> Duration {
        let least = self.least_one_way.sample(now, delay_us);
        Duration::from_micros(delay_us.abs_diff(least).into())
    }

    /// A clock was set: delays begin again.
    pub(super) fn forget_delays(&mut self) {
        self.least_one_way = LeastDelay::default();
    }

    /// Takes a round-trip time. Returns the least of late.
    pub(super) fn round_trip(&mut self, now: Time, sample: Duration) -> Duration {
        self.round_trip.sample(sample);
        self.base_round_trip.sample(now, sample)
    }

    /// Bytes sent that nothing was heard of yet.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.bytes()
    }

    /// The datagram of the next number is about to be sent; `before` are the peer's totals without
    /// it.
    pub(super) fn flies(&mut self, now: Time, bytes: usize, before: Totals) {
        // Where all paths are dead no window says how many there may be, and nothing may ever be heard of them.
        if self.is_dead() && self.in_flight.trains() >= MAX_TRAINS_OF_A_DEAD_PATH {
            self.in_flight.clear();
        }
        self.in_flight.sent(now, self.sequence, bytes, before);
    }

    /// Finds the path dead if nothing was heard of the last datagrams for so long, and if what was
    /// sent later has been answered: else it may be the peer that is silent, which takes longer to
    /// tell. Whether it died now.
    pub(super) fn judge(&mut self, now: Time, silence: Duration, answered: Option<Time>) -> bool {
        let doubted = self.doubt.is_some_and(|since| {
            let margin = silence.checked_div(2).unwrap_or_default();
            let is_alone = answered.is_none_or(|sent_at| sent_at >= since + margin);
            let limit = if is_alone {
                silence
            } else {
                silence.max(PEER_SILENCE)
            };
            now.since(since) > limit
        });
        let dies = doubted && self.unheard >= UNHEARD_OF_DEAD && !self.is_dead();
        if dies {
            let probed_for = self.doubt.map(|since| self.probe.sent_at.since(since));
            self.die();
            if answered.is_none() {
                // Who has never answered is probed as seldom as before.
                let [first, last] = REVALIDATION_PAUSES;
                self.probe.pause = probed_for.unwrap_or_default().clamp(first, last);
            }
        }
        dies
    }

    /// Whether a datagram of this number was sent, and not long ago.
    pub(super) fn has_sent(&self, sequence: u64) -> bool {
        let back = self.sequence.checked_sub(sequence);
        back.is_some_and(|back| (1..=NOTICED).contains(&back))
    }

    /// Has probes find out what somebody says, that nobody is at its end: they may take so long in
    /// all.
    pub(super) fn suspect(&mut self, now: Time, wait: Duration) {
        self.suspicion.raise(now, wait);
    }

    /// Finds that nobody is at its end, if it was said and no probe was answered. Whether it was
    /// found now.
    pub(super) fn confirm_suspicion(&mut self, now: Time) -> bool {
        let is_confirmed = self.suspicion.confirm(now);
        if is_confirmed {
            self.die();
        }
        is_confirmed
    }

    pub(super) fn is_unreachable(&self) -> bool {
        self.suspicion.is_confirmed()
    }

    /// Nothing gets through.
    pub(super) fn die(&mut self) {
        if self.health != Health::Dead {
            self.probe.pause = REVALIDATION_PAUSES[0];
        }
        self.health = Health::Dead;
        self.in_flight.clear();
    }

    /// How long nothing has been heard that should have been: for so long at least what is
    /// sent now may take, too.
    pub(super) fn silence(&self, now: Time) -> Duration {
        self.doubt.map_or(Duration::ZERO, |since| {
            now.since(since)
                .saturating_sub(self.round_trip.ack_timeout())
        })
    }

    /// A ping that it is time for, while the peer is sent messages; `longest` is what the path MTU may be
    /// probed for now, if at all.
    pub(super) fn due(
        &mut self,
        now: Time,
        ack_timeout: Duration,
        longest: Option<usize>,
        nonce: u64,
    ) -> Option<PathProbe> {
        if self.suspicion.take_probe(now) {
            return Some(PathProbe::Probe);
        }
        let doubt = self.doubt.filter(|since| now.since(*since) > ack_timeout);
        if now >= self.next_probe(doubt, ack_timeout) {
            self.probe.sent_at = now;
            if self.is_dead() {
                let pause = self.probe.pause.saturating_mul(2);
                self.probe.pause = pause.min(REVALIDATION_PAUSES[1]);
                self.black_hole.probed(now);
            }
            return Some(PathProbe::Probe);
        }
        let mtu = self.is_good().then_some(&mut self.mtu)?;
        let bytes = mtu.take_probe(now, ack_timeout, longest?, nonce)?;
        Some(PathProbe::MtuProbe(bytes))
    }

    /// When the path MTU may be probed, if there is more to find out of a path that delivers.
    pub(super) fn next_mtu_probe(&self, most: usize) -> Option<Time> {
        self.mtu.next_due(most).filter(|_| self.is_good())
    }

    /// The earliest that [`Self::due`] can say something. A path that may fail is looked at as often as if
    /// it were probed.
    pub(super) fn next_due(&self, now: Time, ack_timeout: Duration) -> Time {
        let mut next = self.next_probe(self.doubt, ack_timeout);
        if !self.is_dead() && self.doubt.is_none() {
            next = next.min(now + Duration::from_millis(REFRESH_MS.into()));
        }
        self.suspicion.next_due().map_or(next, |due| next.min(due))
    }

    fn next_probe(&self, doubt: Option<Time>, ack_timeout: Duration) -> Time {
        let probed = self.probe.sent_at;
        if self.is_dead() {
            probed + self.probe.pause
        } else if let Some(since) = doubt {
            // The longer nothing is heard, the more seldom; of a path of which nothing was ever heard nobody knows how
            // long it takes, and the pause doubles (RFC 9002 §6.2.1).
            let elapsed = probed.since(since);
            let pause = elapsed.checked_div(if self.is_unheard() { 1 } else { 2 });
            probed + pause.unwrap_or_default().max(ack_timeout)
        } else {
            self.heard_at.map_or(probed, |at| probed.max(at)) + self.refresh()
        }
    }

    pub(super) fn report(&self, lag: Option<Duration>) -> PathReport {
        PathReport {
            path: self.id,
            four_tuple: self.four_tuple,
            health: self.health,
            sent: self.sequence,
            delivered: self.deliveries.received().into(),
            loss: self.loss(),
            marked: self.ecn.marked(),
            ecn: self.ecn.state(),
            rtt: self.round_trip.smoothed(),
            lag,
            datagram_bytes: self.datagram_bytes(),
        }
    }
}
