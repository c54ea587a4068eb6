//! Anti-amplification limit (RFC 9000 §8): what is sent to addresses, so that nobody is made to
//! flood another.

use core::{net::IpAddr, time::Duration};
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use cloudburst_wire::Time;

/// An address that has not shown a token is sent no more than this many times
/// what came from it (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;
/// For how long an address is believed that has shown a token.
const VALID_FOR: Duration = Duration::from_secs(3_600);
/// How long before the end of that a peer there is asked for another: many times as long as it
/// takes.
const RENEW_BEFORE: Duration = Duration::from_secs(900);

/// Anti-amplification limits of the addresses that datagrams come from (RFC 9000 §8.1).
#[derive(Debug)]
pub struct Addresses {
    known: HashMap<IpAddr, Address, FixedState>,
    /// Those that have shown no token, in the order in which they came; and those that have, in
    /// the order in which they first did. Apart, so that none is looked at in vain.
    fresh: BTreeMap<u64, IpAddr>,
    validated: BTreeMap<u64, IpAddr>,
    serial: u64,
    /// Addresses of each kind that are kept, at most.
    most: usize,
    answers_per_s: u32,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    received: u64,
    sent: u64,
    valid_until: Time,
    /// Its place in the order of its kind.
    serial: u64,
    /// Answers that may still be sent, at this time.
    answers: f64,
    answers_at: Time,
}

/// Verdict on something that is to be sent to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be sent.
    Go,
    /// It would be more than three times what came from there.
    Amplifies,
    /// More answers than the quota allows.
    Capped,
}

impl Addresses {
    /// Keeps so many addresses of each kind, and grants each so many answers a second.
    pub fn new(most: usize, answers_per_s: u32, seed: u64) -> Self {
        Self {
            known: HashMap::with_hasher(FixedState::with_seed(seed)),
            fresh: BTreeMap::new(),
            validated: BTreeMap::new(),
            serial: 0,
            most,
            answers_per_s,
        }
    }

    /// Counts a datagram that came from there.
    pub fn received(&mut self, now: Time, ip: IpAddr, bytes: usize) {
        if let Some(address) = self.known.get_mut(&ip) {
            // What comes while it is valid earns nothing later: who is there then may be another.
            if !address.is_valid(now) {
                address.received = address.received.saturating_add(bytes as u64);
            }
            return;
        }
        // With nothing received it is sent nothing, so that the oldest may be forgotten.
        if self.fresh.len() >= self.most
            && let Some((_, oldest)) = self.fresh.pop_first()
        {
            self.known.remove(&oldest);
        }
        let serial = self.next_serial();
        self.fresh.insert(serial, ip);
        let address = Address {
            received: bytes as u64,
            sent: 0,
            valid_until: Time::ZERO,
            serial,
            answers: f64::from(self.answers_per_s),
            answers_at: now,
        };
        self.known.insert(ip, address);
    }

    fn next_serial(&mut self) -> u64 {
        self.serial = self.serial.saturating_add(1);
        self.serial
    }

    #[cfg(test)]
    fn is_valid(&self, now: Time, ip: IpAddr) -> bool {
        self.known
            .get(&ip)
            .is_some_and(|address| address.is_valid(now))
    }

    /// Lifts the limit for an hour: a token was shown from there, or we chose it ourselves.
    pub fn validate(&mut self, now: Time, ip: IpAddr) {
        self.received(now, ip, 0);
        let serial = self.next_serial();
        let Some(address) = self.known.get_mut(&ip) else {
            return;
        };
        address.valid_until = now + VALID_FOR;
        if self.fresh.remove(&address.serial).is_none() {
            return;
        }
        address.serial = serial;
        if self.validated.len() >= self.most
            && let Some((_, oldest)) = self.validated.pop_first()
        {
            self.known.remove(&oldest);
        }
        self.validated.insert(serial, ip);
    }

    /// Returns true if it has to show a token again before its address lapses.
    pub fn is_renewal_due(&self, now: Time, ip: IpAddr) -> bool {
        let address = self.known.get(&ip);
        address.is_none_or(|address| address.valid_until < now + RENEW_BEFORE)
    }

    /// Returns the bytes that may be sent there.
    pub fn credit(&self, now: Time, ip: IpAddr) -> u64 {
        match self.known.get(&ip) {
            None => 0,
            Some(address) if address.is_valid(now) => u64::MAX,
            Some(address) => address
                .received
                .saturating_mul(AMPLIFICATION)
                .saturating_sub(address.sent),
        }
    }

    /// Counts what was sent there because of what came from there. What our user sends to a peer
    /// of its own choice does not count: two that send to each other at once would both have
    /// used up what they may answer with. What is sent while the address is valid does not, either:
    /// once that has lapsed nothing could be asked there.
    pub fn sent(&mut self, now: Time, ip: IpAddr, bytes: usize) {
        if let Some(address) = self.known.get_mut(&ip) {
            address.sent(now, bytes);
        }
    }

    /// Judges an answer of so many bytes; if it may go there, it counts.
    pub fn answer(&mut self, now: Time, ip: IpAddr, bytes: usize) -> Verdict {
        if self.credit(now, ip) < bytes as u64 {
            return Verdict::Amplifies;
        }
        let most = f64::from(self.answers_per_s);
        let Some(address) = self.known.get_mut(&ip) else {
            return Verdict::Amplifies;
        };
        let earned = now.since(address.answers_at).as_secs_f64() * most;
        address.answers = (address.answers + earned).min(most);
        address.answers_at = address.answers_at.max(now);
        if address.answers < 1.0 {
            return Verdict::Capped;
        }
        address.answers -= 1.0;
        address.sent(now, bytes);
        Verdict::Go
    }
}

impl Address {
    fn is_valid(&self, now: Time) -> bool {
        self.valid_until > now
    }

    fn sent(&mut self, now: Time, bytes: usize) {
        if !self.is_valid(now) {
            self.sent = self.sent.saturating_add(bytes as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn three_times_and_no_more() {
        let mut addresses = Addresses::new(10, 1_000, 1);
        assert_eq!(addresses.answer(Time::ZERO, IP, 1), Verdict::Amplifies);
        addresses.received(Time::ZERO, IP, 100);
        assert_eq!(addresses.answer(Time::ZERO, IP, 200), Verdict::Go);
        assert_eq!(addresses.answer(Time::ZERO, IP, 101), Verdict::Amplifies);
        assert_eq!(addresses.answer(Time::ZERO, IP, 100), Verdict::Go);
        addresses.validate(Time::ZERO, IP);
        assert_eq!(addresses.credit(Time::ZERO, IP), u64::MAX);
        assert_eq!(addresses.credit(Time::ZERO + VALID_FOR, IP), 0);
    }

    #[test]
    fn what_passed_while_an_address_was_valid_is_neither_debt_nor_credit_later() {
        let mut addresses = Addresses::new(10, 1_000, 1);
        addresses.received(Time::ZERO, IP, 100);
        addresses.validate(Time::ZERO, IP);
        addresses.received(Time::ZERO, IP, 1_000_000);
        addresses.sent(Time::ZERO, IP, 1_000_000);
        assert_eq!(addresses.answer(Time::ZERO, IP, 1_000_000), Verdict::Go);
        let lapsed = Time::ZERO + VALID_FOR;
        assert_eq!(addresses.answer(lapsed, IP, 300), Verdict::Go);
        assert_eq!(addresses.answer(lapsed, IP, 1), Verdict::Amplifies);
    }

    #[test]
    fn answers_are_capped() {
        let mut addresses = Addresses::new(10, 2, 1);
        addresses.received(Time::ZERO, IP, 1_000);
        assert_eq!(addresses.answer(Time::ZERO, IP, 1), Verdict::Go);
        assert_eq!(addresses.answer(Time::ZERO, IP, 1), Verdict::Go);
        assert_eq!(addresses.answer(Time::ZERO, IP, 1), Verdict::Capped);
        let later = Time::ZERO + Duration::from_millis(500);
        assert_eq!(addresses.answer(later, IP, 1), Verdict::Go);
        assert_eq!(addresses.answer(later, IP, 1), Verdict::Capped);
    }

    #[test]
    fn memory_is_bounded_and_the_valid_stay() {
        let mut addresses = Addresses::new(10, 1, 1);
        addresses.validate(Time::ZERO, IP);
        for number in 0..1_000u32 {
            addresses.received(Time::ZERO, core::net::Ipv4Addr::from_bits(number).into(), 1);
            assert!(addresses.known.len() <= 11);
        }
        assert!(addresses.is_valid(Time::ZERO, IP));
        for number in 0..1_000u32 {
            let ip = core::net::Ipv4Addr::from_bits(number).into();
            addresses.validate(Time::ZERO, ip);
            assert!(addresses.is_valid(Time::ZERO, ip));
            assert!(addresses.known.len() <= 20);
            let kinds = addresses.fresh.len() + addresses.validated.len();
            assert_eq!(kinds, addresses.known.len());
        }
    }
}
