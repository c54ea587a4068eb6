//! What lies between hosts.

use super::random::Random;

pub(crate) const MICRO: u64 = 1_000;
pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Ethernet, IPv4 and UDP around a datagram.
const OVERHEAD_BYTES: usize = 42;

/// Of bulk traffic, queueing included.
const ROUND_TRIP_NS: f64 = 10e6;

/// Loses datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loss {
    Never,
    /// Each with this probability, whatever became of the others.
    Each(f64),
    /// Gilbert and Elliott's two states: probability per datagram to get into
    /// the bad one and out of it, and to be lost in each.
    Bursts {
        enter: f64,
        leave: f64,
        good: f64,
        bad: f64,
    },
}

/// What may befall a datagram, as probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Impairments {
    pub(crate) loss: Loss,
    pub(crate) duplicate: f64,
    /// To be late by up to `reorder_ns`, so that others overtake it.
    pub(crate) reorder: f64,
    pub(crate) reorder_ns: u64,
    /// To have 1 to 8 bits flipped.
    pub(crate) corrupt: f64,
    pub(crate) truncate: f64,
}

impl Impairments {
    pub(crate) const NONE: Self = Self {
        loss: Loss::Never,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_ns: 0,
        corrupt: 0.0,
        truncate: 0.0,
    };
    pub(crate) const DEAD: Self = Self::losing(Loss::Each(1.0));

    pub(crate) const fn losing(loss: Loss) -> Self {
        Self { loss, ..Self::NONE }
    }
}

/// Impairments for a while, instead of those that are usual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spell {
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) impairments: Impairments,
}

/// A wire and the FIFO in front of it; what does not fit is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    bytes_per_ns: f64,
    fifo_bytes: f64,
    backlog_bytes: f64,
    updated: u64,
    bulk: Option<Bulk>,
}

/// Somebody else's traffic: as fast as it can until it overflows the FIFO, then
/// half as fast (additive increase, multiplicative decrease).
#[derive(Clone, Copy, Debug)]
struct Bulk {
    bytes_per_ns: f64,
    increase: f64,
    carried_bytes: f64,
    /// Until when a loss is taken for part of the one before.
    recovers_ns: f64,
}

impl Bulk {
    fn overflow(&mut self) {
        if self.recovers_ns == 0.0 {
            self.bytes_per_ns /= 2.0;
            self.recovers_ns = ROUND_TRIP_NS;
        }
    }
}

impl Link {
    pub(crate) fn new(bits_per_s: u64, fifo_bytes: usize) -> Self {
        Self {
            bytes_per_ns: bits_per_s as f64 / 8e9,
            fifo_bytes: fifo_bytes as f64,
            backlog_bytes: 0.0,
            updated: 0,
            bulk: None,
        }
    }

    pub(crate) fn bits_per_s(&self) -> u64 {
        (self.bytes_per_ns * 8e9) as u64
    }

    /// From now on others use it too, with this share of its rate at first.
    pub(crate) fn fill(&mut self, share: f64) {
        self.bulk = Some(Bulk {
            bytes_per_ns: self.bytes_per_ns * share,
            increase: self.bytes_per_ns / 50.0,
            carried_bytes: 0.0,
            recovers_ns: 0.0,
        });
    }

    /// What others got through, in bytes.
    pub(crate) fn bulk_bytes(&self) -> f64 {
        self.bulk.map_or(0.0, |bulk| bulk.carried_bytes)
    }

    /// Nanoseconds until a datagram that is put in now is out; none if it is dropped.
    pub(crate) fn carry(&mut self, now: u64, bytes: usize) -> Option<u64> {
        self.advance(now);
        let bytes = (bytes + OVERHEAD_BYTES) as f64;
        if self.backlog_bytes + bytes > self.fifo_bytes {
            // What others send finds it full as well.
            if let Some(bulk) = &mut self.bulk {
                bulk.overflow();
            }
            return None;
        }
        self.backlog_bytes += bytes;
        Some((self.backlog_bytes / self.bytes_per_ns) as u64)
    }

    pub(crate) fn backlog_bytes(&self) -> f64 {
        self.backlog_bytes
    }

    fn advance(&mut self, now: u64) {
        // Long gaps need not be told in steps: the bulk has its rhythm by then.
        let first = now.saturating_sub(SECOND);
        self.updated = self.updated.max(first);
        while self.updated < now {
            let step = (now - self.updated).min(MILLI);
            self.updated += step;
            self.step(step as f64);
        }
    }

    fn step(&mut self, ns: f64) {
        let drained = self.bytes_per_ns * ns;
        let Some(bulk) = &mut self.bulk else {
            self.backlog_bytes = (self.backlog_bytes - drained).max(0.0);
            return;
        };
        let offered = bulk.bytes_per_ns * ns;
        bulk.recovers_ns = (bulk.recovers_ns - ns).max(0.0);
        self.backlog_bytes = (self.backlog_bytes + offered - drained).max(0.0);
        bulk.carried_bytes += offered;
        let over = self.backlog_bytes - self.fifo_bytes;
        if over > 0.0 {
            self.backlog_bytes = self.fifo_bytes;
            bulk.carried_bytes -= over;
            bulk.overflow();
        } else {
            bulk.bytes_per_ns += bulk.increase * (ns / ROUND_TRIP_NS);
        }
    }
}

/// What a router does to datagrams that are capable of ECN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EcnTreatment {
    Kept,
    /// The code point is cleared (bleached).
    Cleared,
    Dropped,
}

/// One way of a path.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    pub(crate) link: Link,
    pub(crate) delay_ns: u64,
    pub(crate) usual: Impairments,
    pub(crate) spells: Vec<Spell>,
    /// Marks what finds more than so much in front of it.
    pub(crate) mark_bytes: Option<usize>,
    pub(crate) ecn: EcnTreatment,
    in_burst: bool,
}

/// A datagram that comes out, once for each time.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) arrivals: [Option<u64>; 2],
    pub(crate) marked: bool,
}

impl Direction {
    pub(crate) fn new(bits_per_s: u64, fifo_bytes: usize, delay_ns: u64) -> Self {
        Self {
            link: Link::new(bits_per_s, fifo_bytes),
            delay_ns,
            usual: Impairments::NONE,
            spells: Vec::new(),
            mark_bytes: None,
            ecn: EcnTreatment::Kept,
            in_burst: false,
        }
    }

    /// Has a datagram suffer what there is to suffer.
    pub(crate) fn carry(
        &mut self,
        now: u64,
        random: &mut Random,
        datagram: &mut Vec<u8>,
    ) -> Carried {
        let mut carried = Carried::default();
        let Some(queued) = self.link.carry(now, datagram.len()) else {
            return carried;
        };
        let backlog = self.link.backlog_bytes() as usize;
        carried.marked = self.mark_bytes.is_some_and(|most| backlog > most);
        let impairments = self.impairments(now);
        if self.loses(impairments.loss, random) {
            return carried;
        }
        spoil(&impairments, random, datagram);
        let mut at = now + queued + self.delay_ns;
        if random.chance(impairments.reorder) {
            at += random.below(impairments.reorder_ns + 1);
        }
        carried.arrivals[0] = Some(at);
        if random.chance(impairments.duplicate) {
            carried.arrivals[1] = Some(at + random.below(2 * MILLI));
        }
        carried
    }

    fn impairments(&self, now: u64) -> Impairments {
        let mut spells = self.spells.iter().rev();
        let spell = spells.find(|spell| (spell.from..spell.until).contains(&now));
        spell.map_or(self.usual, |spell| spell.impairments)
    }

    fn loses(&mut self, loss: Loss, random: &mut Random) -> bool {
        match loss {
            Loss::Never => false,
            Loss::Each(probability) => random.chance(probability),
            Loss::Bursts {
                enter,
                leave,
                good,
                bad,
            } => {
                let change = if self.in_burst { leave } else { enter };
                self.in_burst ^= random.chance(change);
                random.chance(if self.in_burst { bad } else { good })
            }
        }
    }
}

fn spoil(impairments: &Impairments, random: &mut Random, datagram: &mut Vec<u8>) {
    if random.chance(impairments.truncate) {
        let left = random.below(datagram.len() as u64 + 1);
        datagram.truncate(left as usize);
    }
    if !datagram.is_empty() && random.chance(impairments.corrupt) {
        for _ in 0..random.between(1, 8) {
            let bit = random.below(datagram.len() as u64 * 8);
            datagram[bit as usize / 8] ^= 1 << (bit % 8);
        }
    }
}

/// One of the ways that the network spreads over.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// From the host with the lower number to the other, and back.
    pub(crate) directions: [Direction; 2],
    pub(crate) mtu: Mtu,
}

/// The longest datagram, as UDP payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mtu {
    pub(crate) bytes: usize,
    /// The sender's host hears of it at once (EMSGSIZE); else what is longer
    /// vanishes.
    pub(crate) told: bool,
}

impl Path {
    pub(crate) fn new(bits_per_s: u64, fifo_bytes: usize, delay_ns: u64) -> Self {
        let direction = Direction::new(bits_per_s, fifo_bytes, delay_ns);
        Self {
            directions: [direction.clone(), direction],
            mtu: Mtu {
                bytes: 1_472,
                told: false,
            },
        }
    }

    /// Both ways alike.
    pub(crate) fn set(&mut self, usual: Impairments) {
        for direction in &mut self.directions {
            direction.usual = usual;
        }
    }

    pub(crate) fn spell(&mut self, from: u64, until: u64, impairments: Impairments) {
        for direction in &mut self.directions {
            direction.spells.push(Spell {
                from,
                until,
                impairments,
            });
        }
    }
}

#[test]
fn a_link_carries_at_its_rate_and_drops_what_does_not_fit() {
    let mut link = Link::new(8_000_000, 2_100);
    assert_eq!(link.carry(0, 958), Some(MILLI));
    assert_eq!(link.carry(0, 958), Some(2 * MILLI));
    assert_eq!(link.carry(0, 958), None);
    assert_eq!(link.carry(MILLI, 958), Some(2 * MILLI));
    assert_eq!(link.carry(SECOND, 958), Some(MILLI));
}

#[test]
fn bulk_takes_what_nobody_else_wants() {
    let mut link = Link::new(50_000_000, 100_000);
    link.fill(0.5);
    for at in 0..5_000 {
        link.carry(at * MILLI, 0);
    }
    let share = link.bulk_bytes() / (5.0 * 50e6 / 8.0);
    assert!((0.8..1.01).contains(&share), "{share}");
}
