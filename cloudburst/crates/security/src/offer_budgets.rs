//! Budgets of offers: how many are read before anything is known of who makes them.

use core::{hash::BuildHasher as _, net::IpAddr};

use cloudburst_wire::Time;
use foldhash::fast::FixedState;

/// Offers a second that are read without a token: some 0.3 ms of a processor each.
const OFFERS_PER_S: f64 = 500.0;
/// Offers a second that are read in all.
const OFFERS_WITH_TOKEN_PER_S: f64 = 2_000.0;

/// Of those, from addresses that fall into the same of so many classes: who floods from an address
/// of its own is in the way of few others.
const OFFERS_PER_CLASS_PER_S: f64 = 50.0;
const CLASSES: usize = 256;

/// Limits how often something costly is done.
#[derive(Debug)]
struct Budget {
    per_s: f64,
    left: f64,
    at: Time,
}

impl Budget {
    fn new(per_s: f64, now: Time) -> Self {
        let (left, at) = (per_s, now);
        Self { per_s, left, at }
    }

    fn take(&mut self, now: Time) -> bool {
        let earned = now.since(self.at).as_secs_f64() * self.per_s;
        self.left = (self.left + earned).min(self.per_s);
        self.at = self.at.max(now);
        let is_enough = self.left >= 1.0;
        self.left -= f64::from(u8::from(is_enough));
        is_enough
    }
}

/// Limits of what is done for offers before anything is known of who makes them: 500 a second without a
/// token, 2,000 with one, and 50 of those from addresses of a class.
#[derive(Debug)]
pub struct OfferBudgets {
    without_token: Budget,
    with_token: Budget,
    classes: Vec<Budget>,
    hasher: FixedState,
}

impl OfferBudgets {
    /// Makes budgets that are full. Nobody may know by which seed addresses fall into classes.
    pub fn new(now: Time, hash_seed: u64) -> Self {
        let class = || Budget::new(OFFERS_PER_CLASS_PER_S, now);
        Self {
            without_token: Budget::new(OFFERS_PER_S, now),
            with_token: Budget::new(OFFERS_WITH_TOKEN_PER_S, now),
            classes: (0..CLASSES).map(|_| class()).collect(),
            hasher: FixedState::with_seed(hash_seed),
        }
    }

    /// Returns true if an offer without a token may be read, which is counted.
    pub fn take_without_token(&mut self, now: Time) -> bool {
        self.without_token.take(now)
    }

    /// Returns true if an offer with a token may be read, which is counted.
    pub fn take_with_token(&mut self, now: Time, ip: IpAddr) -> bool {
        // A host has all of a /64 (RFC 4291 §2.5.4).
        let network = match ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        };
        let class = self.hasher.hash_one(network) as usize % CLASSES;
        self.classes[class].take(now) && self.with_token.take(now)
    }
}

#[cfg(test)]
mod tests {
    use core::{net::Ipv4Addr, time::Duration};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_floods_from_one_address_is_in_the_way_of_few() {
        let mut budgets = OfferBudgets::new(Time::ZERO, 1);
        let flood = IpAddr::from([192, 0, 2, 1]);
        let taken = (0..10_000).filter(|_| budgets.take_with_token(Time::ZERO, flood));
        assert_eq!(taken.count(), OFFERS_PER_CLASS_PER_S as usize);
        let others = (0..1_000).map(|number| IpAddr::from(Ipv4Addr::from_bits(number)));
        let heard = others.filter(|ip| budgets.take_with_token(Time::ZERO, *ip));
        assert!(heard.count() > 980);
        let later = Time::ZERO + SECOND;
        assert!(budgets.take_with_token(later, flood));
    }

    #[test]
    fn a_host_with_a_network_of_its_own_has_the_share_of_one() {
        let mut budgets = OfferBudgets::new(Time::ZERO, 1);
        let host = |number: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number]);
        let taken = (0..1_000).filter(|it| budgets.take_with_token(Time::ZERO, host(*it)));
        assert_eq!(taken.count(), OFFERS_PER_CLASS_PER_S as usize);
    }

    #[test]
    fn offers_without_a_token_have_a_budget_of_their_own_that_a_pause_does_not_swell() {
        let mut budgets = OfferBudgets::new(Time::ZERO, 1);
        let mut taken = |now| {
            (0..10_000)
                .filter(|_| budgets.take_without_token(now))
                .count()
        };
        assert_eq!(taken(Time::ZERO), OFFERS_PER_S as usize);
        assert_eq!(taken(Time::ZERO + SECOND / 10), OFFERS_PER_S as usize / 10);
        assert_eq!(taken(Time::ZERO + SECOND * 10), OFFERS_PER_S as usize);
        assert_eq!(taken(Time::ZERO), 0, "time does not go back");
        let others = (0..10_000).map(|number| IpAddr::from(Ipv4Addr::from_bits(number)));
        let heard = others.filter(|ip| budgets.take_with_token(Time::ZERO, *ip));
        assert_eq!(heard.count(), OFFERS_WITH_TOKEN_PER_S as usize);
    }
}
