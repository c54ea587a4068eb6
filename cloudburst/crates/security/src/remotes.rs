//! Path validation (RFC 9000 §8.2): which addresses a peer has been shown to receive at.
//!
//! Of each peer by itself: that one peer receives at an address says nothing of what another
//! claims. Those that we chose need none: it is our user who says where they are.

use core::{net::SocketAddr, time::Duration};

use cloudburst_wire::Time;

/// Addresses of a peer that are kept, at most: as many as it has paths.
const MAX_REMOTES: usize = 72;
/// An address that is not validated is sent no more than this many times
/// what came from it (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;
/// For how long an address stays valid; it is asked again after half of that.
const VALID_FOR: Duration = Duration::from_secs(600);
const RENEW_AFTER: Duration = Duration::from_secs(VALID_FOR.as_secs() / 2);
/// How often an address is asked.
const CHALLENGE_PAUSE: Duration = Duration::from_millis(50);

/// Addresses that a peer has sent from, the one heard from last in front.
#[derive(Debug, Default)]
pub struct Remotes(Vec<Remote>);

#[derive(Debug)]
struct Remote {
    address: SocketAddr,
    received: u64,
    sent: u64,
    valid_until: Option<Time>,
    challenged_at: Option<Time>,
}

impl Remotes {
    /// Counts an authentic datagram that came from there.
    pub fn received(&mut self, now: Time, address: SocketAddr, bytes: usize) {
        let index = match self.position(address) {
            Some(index) => index,
            None => self.add(now, address),
        };
        let remote = &mut self.0[index];
        // What came while it was valid earns nothing later: who is there then may be another.
        if !remote.is_valid(now) {
            remote.received = remote.received.saturating_add(bytes as u64);
        }
        // The list is short, and mostly nothing moves far.
        self.0[..=index].rotate_right(1);
    }

    fn add(&mut self, now: Time, address: SocketAddr) -> usize {
        if self.0.len() >= MAX_REMOTES {
            // What was received from there is forgotten too, so that nothing is gained by it.
            let unproven = self.0.iter().rposition(|remote| !remote.is_valid(now));
            self.0.remove(unproven.unwrap_or(MAX_REMOTES - 1));
        }
        let index = self.0.len();
        self.0.push(Remote {
            address,
            received: 0,
            sent: 0,
            valid_until: None,
            challenged_at: None,
        });
        index
    }

    fn position(&self, address: SocketAddr) -> Option<usize> {
        self.0.iter().position(|remote| remote.address == address)
    }

    fn get(&self, address: SocketAddr) -> Option<&Remote> {
        self.0.iter().find(|remote| remote.address == address)
    }

    /// Lifts the limit for a while: the peer has answered a challenge that was sent there.
    pub fn validate(&mut self, now: Time, address: SocketAddr) {
        self.received(now, address, 0);
        if let Some(remote) = self.0.first_mut() {
            remote.valid_until = Some(now + VALID_FOR);
        }
    }

    /// Returns true if the peer is to be asked to show that it receives there; if so, it is taken to be asked.
    pub fn is_challenge_due(&mut self, now: Time, address: SocketAddr) -> bool {
        let Some(index) = self.position(address) else {
            return false;
        };
        let remote = &mut self.0[index];
        let is_proven = remote
            .valid_until
            .is_some_and(|until| now + RENEW_AFTER < until);
        let is_asked = remote
            .challenged_at
            .is_some_and(|at| now.since(at) < CHALLENGE_PAUSE);
        let is_due = !is_proven && !is_asked;
        if is_due {
            remote.challenged_at = Some(now);
        }
        is_due
    }

    /// Returns the bytes that may be sent there.
    pub fn credit(&self, now: Time, address: SocketAddr) -> u64 {
        match self.get(address) {
            None => 0,
            Some(remote) if remote.is_valid(now) => u64::MAX,
            Some(remote) => remote
                .received
                .saturating_mul(AMPLIFICATION)
                .saturating_sub(remote.sent),
        }
    }

    /// Returns true if an answer of `bytes` may go there; then it counts.
    pub fn take(&mut self, now: Time, address: SocketAddr, bytes: usize) -> bool {
        let may_go = self.credit(now, address) >= bytes as u64;
        if may_go {
            self.sent(now, address, bytes);
        }
        may_go
    }

    /// Counts what was sent there, unless it was valid: a peer that was sent much could be asked for nothing
    /// once that has lapsed.
    pub fn sent(&mut self, now: Time, address: SocketAddr, bytes: usize) {
        if let Some(index) = self.position(address)
            && !self.0[index].is_valid(now)
        {
            let remote = &mut self.0[index];
            remote.sent = remote.sent.saturating_add(bytes as u64);
        }
    }
}

impl Remote {
    fn is_valid(&self, now: Time) -> bool {
        self.valid_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], number))
    }

    #[test]
    fn three_times_what_came_until_it_is_validated() {
        let mut remotes = Remotes::default();
        assert_eq!(remotes.credit(Time::ZERO, address(1)), 0);
        remotes.received(Time::ZERO, address(1), 100);
        remotes.sent(Time::ZERO, address(1), 250);
        assert_eq!(remotes.credit(Time::ZERO, address(1)), 50);
        remotes.validate(Time::ZERO, address(1));
        assert_eq!(remotes.credit(Time::ZERO, address(1)), u64::MAX);
        // Another port may be another host, behind a translator of addresses.
        assert_eq!(remotes.credit(Time::ZERO, address(2)), 0);
    }

    #[test]
    fn what_passed_while_an_address_was_valid_is_neither_debt_nor_credit_later() {
        let mut remotes = Remotes::default();
        remotes.received(Time::ZERO, address(1), 100);
        remotes.validate(Time::ZERO, address(1));
        remotes.received(Time::ZERO, address(1), 1_000_000);
        remotes.sent(Time::ZERO, address(1), 1_000_000);
        assert!(remotes.take(Time::ZERO, address(1), 1_000_000));
        let lapsed = Time::ZERO + VALID_FOR;
        assert!(remotes.take(lapsed, address(1), 300));
        assert!(!remotes.take(lapsed, address(1), 1));
    }

    #[test]
    fn validation_is_renewed_before_it_ends() {
        let mut remotes = Remotes::default();
        let mut now = Time::ZERO;
        remotes.received(now, address(1), 100);
        for _ in 0..50 {
            assert!(remotes.is_challenge_due(now, address(1)));
            assert!(
                !remotes.is_challenge_due(now, address(1)),
                "it is asked already"
            );
            remotes.validate(now, address(1));
            assert!(!remotes.is_challenge_due(now + VALID_FOR / 3, address(1)));
            now = now + VALID_FOR / 2;
            assert_eq!(remotes.credit(now, address(1)), u64::MAX);
        }
        assert!(remotes.credit(now + VALID_FOR, address(1)) < u64::MAX);
    }

    #[test]
    fn memory_is_bounded_and_the_valid_stay() {
        let mut remotes = Remotes::default();
        remotes.validate(Time::ZERO, address(1));
        for port in 2..2_000 {
            remotes.received(Time::ZERO, address(port), 1);
            assert!(remotes.0.len() <= MAX_REMOTES);
        }
        assert_eq!(remotes.credit(Time::ZERO, address(1)), u64::MAX);
    }
}
