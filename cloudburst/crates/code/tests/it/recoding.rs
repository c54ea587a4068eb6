//! Recoding: a relay between two lossy hops that sends sums of what it has, without decoding, beside one that
//! hands on what arrives and one that takes the message and sends it again. The book draws the conclusion.
//!
//! `cargo test -p cloudburst-code --test it recoding -- --nocapture` prints the table.

use std::collections::VecDeque;

use cloudburst_code::wire::{HEADER_BYTES, Header, Row};
use cloudburst_code::{Block, Decoder, Encoder, Schedule, Shape};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::SplitMix64;

use super::support::message;

/// Time that a datagram takes from one end of a hop to the other, in the time that a link takes to send one.
const DELAY: u32 = 10;
const MESSAGES: u16 = 2_000;
const SYMBOL_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Hands on what arrives, as routers do; the sender sums by Cauchy weights, as the transport does.
    Forward,
    /// The same, with the sums that the relay below can add to each other.
    ForwardSets,
    /// Hands on what tells something new; where nothing of the kind arrives, the sum of a random half of all
    /// that has. It tells the sender to stop when it has as much as a receiver needs.
    Recode,
    /// Takes the message and sends it as its own: two transfers.
    SendAgain,
}

impl Policy {
    const ALL: [Self; 4] = [
        Self::Forward,
        Self::ForwardSets,
        Self::Recode,
        Self::SendAgain,
    ];

    const fn only_forwards(self) -> bool {
        matches!(self, Self::Forward | Self::ForwardSets)
    }

    /// Sums of sums are written as sets of bits: the relay that makes them needs a schedule of such.
    const fn schedule(self) -> Schedule {
        match self {
            Self::Recode | Self::ForwardSets => Schedule::Default,
            Self::Forward | Self::SendAgain => Schedule::Mds,
        }
    }
}

/// A link that sends a datagram in each unit of time, or none, and loses some.
struct Hop {
    under_way: VecDeque<Option<Vec<u8>>>,
    loss_percent: u64,
    /// Datagrams sent until each time.
    sent: Vec<u32>,
}

impl Hop {
    fn new(loss_percent: u64) -> Self {
        Self {
            under_way: (0..DELAY).map(|_| None).collect(),
            loss_percent,
            sent: Vec::new(),
        }
    }

    /// Sends a datagram, and returns the one that arrives.
    fn pass(&mut self, given: Option<Vec<u8>>, random: &mut SplitMix64) -> Option<Vec<u8>> {
        let before = self.sent.last().copied().unwrap_or(0);
        self.sent.push(before + u32::from(given.is_some()));
        let kept = given.filter(|_| random.next_u64() % 100 >= self.loss_percent);
        self.under_way.push_back(kept);
        self.under_way.pop_front().flatten()
    }
}

struct Relay {
    policy: Policy,
    shape: Shape,
    decoder: Decoder<Vec<u8>, Vec<Block>>,
    /// Symbols that told something new.
    held: Vec<Vec<u8>>,
    /// How many it has sent of its own.
    sent: u32,
}

impl Relay {
    fn new(policy: Policy, shape: Shape) -> Self {
        Self {
            policy,
            shape,
            decoder: Decoder::for_shape(&shape),
            held: Vec::new(),
            sent: 0,
        }
    }

    /// Says that the sender may stop.
    fn has_all(&self) -> bool {
        !self.policy.only_forwards() && self.decoder.message().is_some()
    }

    /// Takes what arrives, and returns what it sends.
    fn pass(&mut self, arrived: Option<Vec<u8>>, random: &mut SplitMix64) -> Option<Vec<u8>> {
        if self.policy.only_forwards() {
            return arrived;
        }
        let is_new = |datagram: &Vec<u8>| self.decoder.receive(datagram).is_ok();
        let new = arrived.filter(is_new);
        match self.policy {
            Policy::SendAgain => self.send_own(),
            _ => match new {
                Some(datagram) => {
                    self.held.push(datagram.clone());
                    Some(datagram)
                }
                None if self.held.is_empty() => None,
                None => Some(self.sum_of_half(random)),
            },
        }
    }

    fn send_own(&mut self) -> Option<Vec<u8>> {
        let message = self.decoder.message()?;
        let schedule = self.policy.schedule();
        let encoder = Encoder::new(message, self.shape, schedule, 1, 7).unwrap();
        let mut datagram = vec![0; encoder.datagram_bytes()];
        let next = self.sent..self.sent + 1;
        encoder.write(next, &mut datagram).unwrap();
        self.sent += 1;
        Some(datagram)
    }

    fn sum_of_half(&self, random: &mut SplitMix64) -> Vec<u8> {
        loop {
            let half = random.next_u64();
            let chosen = self.held.iter().enumerate();
            let chosen = chosen.filter(|(index, _)| half >> index & 1 == 1);
            let chosen: Vec<_> = chosen.map(|(_, datagram)| &datagram[..]).collect();
            if !chosen.is_empty() {
                return sum(&chosen);
            }
        }
    }
}

/// The sum of symbols, with the set of source symbols that it is the sum of.
fn sum(datagrams: &[&[u8]]) -> Vec<u8> {
    let mut header = Header::parse(datagrams[0]).unwrap().0;
    let mut set = 0;
    let mut symbol = vec![0; datagrams[0].len() - HEADER_BYTES];
    for datagram in datagrams {
        let (own, bytes) = Header::parse(datagram).unwrap();
        let Row::Bits(bits) = own.row else {
            panic!("a row without bits cannot be added to others");
        };
        set ^= bits;
        symbol
            .iter_mut()
            .zip(bytes)
            .for_each(|(sum, byte)| *sum ^= byte);
    }
    header.row = Row::Bits(set);
    [&header.to_bytes()[..], &symbol].concat()
}

/// Fate of a message at the receiver.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Until the receiver had it, without the delay of both hops.
    time: u32,
    /// Datagrams that each hop carried until nothing more was wanted of its sender, but for those that were sent
    /// while a stop was on its way.
    sent: [u32; 2],
}

fn deliver(policy: Policy, n: usize, loss_percent: u64, seed: u16) -> Outcome {
    let random = &mut SplitMix64::seed_from_u64(u64::from(seed) << 32 | loss_percent);
    let content = message(n * SYMBOL_BYTES);
    let shape = Shape::new(content.len(), SYMBOL_BYTES).unwrap();
    let encoder = Encoder::new(&content, shape, policy.schedule(), 1, seed).unwrap();
    let mut hops = [Hop::new(loss_percent), Hop::new(loss_percent)];
    let mut relay = Relay::new(policy, shape);
    let mut receiver = Decoder::for_shape(&shape);
    let mut relay_had_all = None;
    for time in 0.. {
        let mut datagram = vec![0; encoder.datagram_bytes()];
        encoder.write(time..time + 1, &mut datagram).unwrap();
        let arrived = hops[0].pass(Some(datagram), random);
        let handed_on = relay.pass(arrived, random);
        if relay.has_all() {
            relay_had_all.get_or_insert(time);
        }
        if let Some(datagram) = hops[1].pass(handed_on, random) {
            let _ = receiver.receive(&datagram);
        }
        if receiver.message().is_some() {
            assert_eq!(receiver.message(), Some(&content[..]));
            // Each stop asks for nothing that left its sender later than what brought it about.
            let first = relay_had_all.unwrap_or(time - DELAY).min(time - DELAY) - DELAY;
            let sent = [(&hops[0], first), (&hops[1], time - DELAY)];
            return Outcome {
                time: time + 1 - 2 * DELAY,
                sent: sent.map(|(hop, until)| hop.sent[until as usize]),
            };
        }
    }
    unreachable!("the sender sends until it is stopped")
}

/// Figures of many messages.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Median and 99th percentile.
    time: [u32; 2],
    /// Datagrams on each hop for a source symbol.
    sent: [f64; 2],
}

fn measure(policy: Policy, n: usize, loss_percent: u64) -> Figures {
    let outcomes = (0..MESSAGES).map(|seed| deliver(policy, n, loss_percent, seed));
    let outcomes: Vec<_> = outcomes.collect();
    let mut times: Vec<_> = outcomes.iter().map(|it| it.time).collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let sent = [0, 1].map(|hop| {
        let sum: u32 = outcomes.iter().map(|it| it.sent[hop]).sum();
        f64::from(sum) / (outcomes.len() * n) as f64
    });
    Figures {
        time: [at(50), at(99)],
        sent,
    }
}

/// Measures the cells from which the book draws its conclusion.
#[test]
fn recoding_gains_nothing_where_few_are_lost_and_a_fifth_where_many_are() {
    if cfg!(miri) {
        deliver(Policy::Recode, 4, 30, 0);
        return;
    }
    println!("symbols, loss of each hop: time p50 and p99, datagrams of each hop for a symbol");
    for n in [4, 16, 64] {
        for loss in [1, 5, 30] {
            let all = Policy::ALL.map(|policy| measure(policy, n, loss));
            for (policy, Figures { time, sent }) in Policy::ALL.iter().zip(&all) {
                let [first, second] = sent;
                println!("{n:2} {loss:2} % {policy:?}: {time:?} {first:.2} {second:.2}");
            }
            let [forward, _, recode, _] = all;
            if loss <= 5 {
                let is_sooner = [0, 1].map(|at| recode.time[at] < forward.time[at]);
                assert_eq!(is_sooner, [false, false], "{n}, {loss} %");
                let saved = forward.sent[0] - recode.sent[0];
                assert!(saved < 0.06, "{n}, {loss} %: {saved}");
            }
            if (n, loss) == (64, 30) {
                let ratio = f64::from(recode.time[0]) / f64::from(forward.time[0]);
                assert!((0.75..0.82).contains(&ratio), "{ratio}");
            }
        }
    }
}
