//! Order in which datagrams of two paths arrive: whether one queue can have left them in it.
//!
//! A datagram that comes into a queue first leaves it first, however long it is and whatever else goes through it. So of two datagrams
//! through one queue the later one arrives later, but for a constant by which one path is longer than the other: their delays
//! bound that constant, each two datagrams from one side. Where two queues rise and fall by themselves no constant is within all
//! bounds, and they contradict each other again and again; where a path becomes longer, they do so once. How often a path's own
//! datagrams overtake each other (RFC 4737) tells how much of that is for nothing, as where a radio delays each datagram by itself.

use cloudburst_wire::Time;

use super::BELIEVED_FOR;

/// Datagrams further apart than this bound nothing that is worth it.
const CLOSE_US: u32 = 8_000;
/// Bounds contradict each other by more than so many µs: hosts' timers and interrupts are not more regular.
const CONTRADICTS_US: f32 = 500.0;
/// A path's own datagrams overtake each other by more than half of that, for one of two bounds is off by as much then.
const OVERTAKES_US: f32 = CONTRADICTS_US / 2.0;
/// Time in which comparisons of two paths are one event, in µs: queues change little meanwhile, and a host that was late for a
/// moment puts all in another order that it carries then.
const EVENT_US: u64 = 20_000;
/// Events of two paths that are remembered, and datagrams of one.
const MEMORY: u16 = 128;
const OWN_MEMORY: u16 = 64;
const ALL_MEMORY: u16 = 256;
/// Datagrams of any path that have followed each other as closely, before it is known how often such overtake each other;
/// and those of one path, before its own count.
const ENOUGH_OF_ALL: u16 = 32;
const ENOUGH_OF_ONE: u16 = 8;
/// Times between two datagrams are told apart by half of a power of two in µs.
const CLASSES: usize = 2 * (CLOSE_US.ilog2() as usize + 1);

/// Changes of a path's delay that tell how its queue changes are those over such times in µs, and so many of them.
const CHANGE_US: [u32; 2] = [20_000, 200_000];
const CHANGES: u16 = 64;
/// Before that variance is known there are so many: by none of them it would be 0, and nothing in common.
const ENOUGH_CHANGES: u16 = 4;
/// Before anything is decided there are so many events, and of all this part contradicts, and so many of each pair
/// beside, and so many times what a path's own datagrams account for. Measured between namespaces, through queues that TCP fills (12 runs
/// of 11 s, pairs of ports): nine pairs of ten through one queue at most 0.04, which hosts account for, the worst 0.24; nine
/// of ten through two at least 0.18.
const ENOUGH: f32 = 8.0;
const CONTRADICTING: f32 = 0.08;
const OF_FEW: f32 = 2.0;
const USUAL: f32 = 4.0;
/// Least part of the variance of two paths' delays that their difference has where they share no queue. With less, most is in common:
/// queues of their own lie in front of one that they share.
const LEAST_DIFFERENCE: f32 = 0.5;
/// After so many events, of which no more contradict than this, two paths share a queue in all likelihood; of a path beside several,
/// so many tell what is likely.
const ALIKE: u16 = 8;
const LIKE: f32 = 0.05;
const LIKELY: f32 = 4.0;

/// Delay of a datagram on its way there, by the difference of two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelaySample {
    pub(super) sent_at: Time,
    /// From any reference.
    pub(super) delay_us: i32,
}

/// Mean over the last so many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mean {
    pub(super) count: u16,
    pub(super) value: f32,
}

impl Mean {
    fn add(&mut self, value: f32, memory: u16) {
        self.count = self.count.saturating_add(1).min(memory);
        self.value += (value - self.value) / f32::from(self.count);
    }

    /// Forgets such a part of them.
    fn forget(&mut self, part: f32) {
        let forgotten = (part * f32::from(self.count)) as u16;
        self.count = self.count.saturating_sub(forgotten);
    }
}

/// Datagrams of paths that overtake the one before on the same path, by how close behind it they were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overtaking([Mean; CLASSES]);

impl Overtaking {
    /// Returns how often datagrams do that are as close to each other as this, together with closer ones if those are few, if
    /// that is known. Those that are further apart do less often: over the links of a bundle none that are further apart than
    /// the links differ by.
    fn share(&self, elapsed_us: u32) -> Option<f32> {
        let (mut count, mut overtaking) = (0, 0.0);
        for class in self.0[..=class(elapsed_us)].iter().rev() {
            count = class.count.saturating_add(count);
            overtaking += f32::from(class.count) * class.value;
            if count >= ENOUGH_OF_ALL {
                return Some(overtaking / f32::from(count));
            }
        }
        None
    }
}

/// Delays of one path by themselves: the newest, and by how much they change.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnDelays {
    pub(super) latest: DelaySample,
    overtaking: Mean,
    /// The sample that the next change is counted from, and the mean of squares of changes, in µs².
    since: DelaySample,
    changes: Mean,
}

impl OwnDelays {
    pub(super) const fn new(first: DelaySample) -> Self {
        let none = Mean {
            count: 0,
            value: 0.0,
        };
        Self {
            latest: first,
            overtaking: none,
            since: first,
            changes: none,
        }
    }

    /// Takes a sample, and notes among those of all paths whether it has overtaken the one before.
    pub(super) fn note(&mut self, sample: DelaySample, all: &mut Overtaking) {
        let before = core::mem::replace(&mut self.latest, sample);
        let elapsed_us = micros(sample.sent_at, before.sent_at);
        if sample.sent_at > before.sent_at && elapsed_us <= CLOSE_US {
            let ahead_us = difference_us(before.delay_us, sample.delay_us) - elapsed_us as f32;
            let has_overtaken = f32::from(u8::from(ahead_us > OVERTAKES_US));
            self.overtaking.add(has_overtaken, OWN_MEMORY);
            all.0[class(elapsed_us)].add(has_overtaken, ALL_MEMORY);
        }
        let elapsed_us = micros(sample.sent_at, self.since.sent_at);
        if elapsed_us >= CHANGE_US[0] {
            let before = core::mem::replace(&mut self.since, sample);
            let change = difference_us(sample.delay_us, before.delay_us);
            if elapsed_us <= CHANGE_US[1] {
                self.changes.add(change * change, CHANGES);
            }
        }
    }

    /// Returns the variance of delays over the time in which queues change: half of what two of them differ by. What changes more
    /// slowly, as the rise of all queues when transfers begin, is in common anyway.
    pub(super) fn variance(&self) -> Option<f32> {
        (self.changes.count >= ENOUGH_CHANGES).then_some(self.changes.value / 2.0)
    }

    fn overtaking(&self) -> f32 {
        if self.overtaking.count >= ENOUGH_OF_ONE {
            self.overtaking.value
        } else {
            0.0
        }
    }
}

/// Comparisons of two paths within a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Event {
    /// Its number, which comes again after two years.
    number: u32,
    has_contradicted: bool,
    /// The probability of that, as each path's own datagrams overtake each other.
    usual: f32,
}

/// Two paths beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pair {
    /// By how much longer the first is, in µs: bounds since the last time that they contradicted each other.
    lower_us: f32,
    upper_us: f32,
    /// The share of events in which they have done so.
    contradicting: Mean,
    /// And the one that would be expected, as each path's own datagrams overtake each other.
    usual: f32,
    /// The event under way.
    event: Event,
    /// Comparisons that the following are of.
    compared: u16,
    /// By how much their delays differ, in µs, and the mean of squares of what they differ by beside that.
    mean_us: f32,
    variance: f32,
    /// Time at which the later datagram of the last comparison was sent.
    compared_at: Time,
}

impl Pair {
    pub(super) const fn compared_at(&self) -> Time {
        self.compared_at
    }

    /// Tells if both share a queue in all likelihood.
    pub(super) fn is_alike(&self) -> bool {
        self.contradicting.count >= ALIKE && self.contradicting.value <= LIKE + self.usual
    }

    /// Takes the latest samples of both.
    pub(super) fn compare(&mut self, one: &OwnDelays, other: &OwnDelays, all: &Overtaking) {
        let (a, b) = (one.latest, other.latest);
        let elapsed_us = micros(a.sent_at, b.sent_at);
        // Nobody knows which of those was in front that have left together.
        if elapsed_us == 0 || elapsed_us > CLOSE_US {
            return;
        }
        let Some(usual) = all.share(elapsed_us) else {
            return;
        };
        let usual = usual.max(one.overtaking()).max(other.overtaking());
        let difference_us = difference_us(a.delay_us, b.delay_us);
        // Where comparisons are few, routes change between them.
        let at = a.sent_at.max(b.sent_at);
        let elapsed = at.since(self.compared_at);
        self.compared_at = at;
        self.contradicting
            .forget(elapsed.as_secs_f32() / BELIEVED_FOR.as_secs_f32());
        if self.contradicting.count == 0 {
            (self.lower_us, self.upper_us) = (f32::NEG_INFINITY, f32::INFINITY);
            self.mean_us = difference_us;
            self.compared = 0;
        }
        let has_contradicted = self.bound(difference_us, elapsed_us as f32, a.sent_at > b.sent_at);
        self.count(at, has_contradicted, usual);
        self.compared = self.compared.saturating_add(1).min(MEMORY);
        let weight = 1.0 / f32::from(self.compared);
        let off = difference_us - self.mean_us;
        self.mean_us += off * weight;
        self.variance += (off * off - self.variance) * weight;
    }

    /// Counts a comparison: with the event under way, which contradicts if any of its comparisons does, or as another one.
    fn count(&mut self, at: Time, has_contradicted: bool, usual: f32) {
        let number = (at.since(Time::ZERO).as_micros() as u64 / EVENT_US) as u32;
        if self.contradicting.count == 0 || number != self.event.number {
            self.contradicting.add(0.0, MEMORY);
            self.usual -= self.usual / f32::from(self.contradicting.count);
            self.event = Event {
                number,
                ..Event::default()
            };
        }
        let weight = 1.0 / f32::from(self.contradicting.count);
        if has_contradicted && !self.event.has_contradicted {
            self.event.has_contradicted = true;
            self.contradicting.value += weight;
        }
        let usual = usual.min(1.0 - self.event.usual);
        self.event.usual += usual;
        self.usual += usual * weight;
    }

    /// Takes a bound of the constant, an upper one where the first came later. Tells if it contradicts the others, of which none
    /// counts any more then.
    fn bound(&mut self, difference_us: f32, elapsed_us: f32, is_upper: bool) -> bool {
        let (mut lower_us, mut upper_us) = (f32::NEG_INFINITY, f32::INFINITY);
        if is_upper {
            upper_us = difference_us + elapsed_us;
        } else {
            lower_us = difference_us - elapsed_us;
        }
        let both_us = (self.lower_us.max(lower_us), self.upper_us.min(upper_us));
        let is_contradicting = both_us.0 > both_us.1 + CONTRADICTS_US;
        (self.lower_us, self.upper_us) = if is_contradicting {
            (lower_us, upper_us)
        } else {
            both_us
        };
        is_contradicting
    }
}

/// Sums over the comparisons of one path with those of a group that shares a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    count: f32,
    contradicting: f32,
    usual: f32,
    /// One late datagram contradicts with every path: so many it can.
    pairs: f32,
    /// Number of comparisons of paths whose variance is known; what follows is summed over these.
    known: f32,
    pub(super) difference: f32,
    /// Sum of what the differences would be if the paths had nothing in common.
    pub(super) variance: f32,
    compared_at: Time,
}

impl Evidence {
    /// Time at which the latest of the compared datagrams was sent.
    pub(super) const fn compared_at(&self) -> Time {
        self.compared_at
    }

    /// Adds a comparison with a path, both of whose delays have this variance together, if that is known.
    pub(super) fn add(&mut self, pair: &Pair, variance: Option<f32>) {
        let count = f32::from(pair.contradicting.count);
        self.count += count;
        self.pairs += f32::from(u8::from(pair.contradicting.count > 0));
        self.contradicting += count * pair.contradicting.value;
        self.usual += count * pair.usual;
        if let Some(variance) = variance {
            self.difference += count * pair.variance;
            self.variance += count * variance;
            self.known += count;
        }
        self.compared_at = self.compared_at.max(pair.compared_at);
    }

    /// Tells if no constant fits, and most of what changes is not in common.
    pub(super) fn is_apart(&self) -> bool {
        self.known >= ENOUGH
            && self.contradicting
                > USUAL * self.usual + CONTRADICTING * self.count + OF_FEW * self.pairs
            && self.difference > LEAST_DIFFERENCE * self.variance
    }

    /// Tells if the path misses the queue in all likelihood, though that is not known.
    pub(super) fn is_unlike(&self) -> bool {
        self.count >= LIKELY && self.contradicting > USUAL * self.usual + CONTRADICTING * self.count
    }

    /// Tells if the path goes through the queue in all likelihood.
    pub(super) fn is_like(&self) -> bool {
        self.count >= LIKELY && self.contradicting < LIKE * self.count + self.usual
    }
}

fn class(elapsed_us: u32) -> usize {
    let whole = elapsed_us.checked_ilog2().unwrap_or(0);
    let half = elapsed_us.checked_shr(whole.saturating_sub(1)).unwrap_or(0) & 1;
    let class = whole.saturating_mul(2).saturating_add(half);
    (class as usize).min(CLASSES - 1)
}

fn micros(one: Time, other: Time) -> u32 {
    let elapsed = one.since(other).max(other.since(one));
    u32::try_from(elapsed.as_micros()).unwrap_or(u32::MAX)
}

fn difference_us(one_us: i32, other_us: i32) -> f32 {
    i64::from(one_us).saturating_sub(other_us.into()) as f32
}
