//! Tokens: who brings one back receives at the address that it was sent to.
//!
//! They are kept by the peer that is to show them, so that challenging an address
//! costs no memory (compare RFC 9000 §8.1.3).

use std::{fmt, net::IpAddr, time::Duration};

use zeroize::Zeroize;

/// Bytes of a token: 8 of expiry and 32 of authentication code.
pub const TOKEN_BYTES: usize = 40;
/// How long tokens are made with the same secret. As long again they are accepted.
pub const SECRET_PERIOD: Duration = Duration::from_secs(3_600);

const CONTEXT: &str = "cloudburst v1 token secret";
const EXPIRY_BYTES: usize = 8;
const IP_BYTES: usize = 16;

/// Makes stateless retry tokens, and knows them again.
pub struct TokenMint {
    secret: [u8; 32],
    previous: Option<[u8; 32]>,
    /// When the secret was taken into use.
    since_ns: u64,
}

/// Why a token proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Made for another address or session, changed, or older than two secrets.
    #[error("the token was not made here for this address and session, or long ago")]
    Foreign,
    /// The token is too old.
    #[error("the token has expired")]
    Expired,
}

impl TokenMint {
    /// With 32 random bytes as its first secret. `now_ns` here and below is
    /// nanoseconds since any origin, always the same.
    ///
    /// An endpoint that starts again must take another secret: then tokens show
    /// that their bearer has been heard since.
    pub const fn new(secret: [u8; 32], now_ns: u64) -> Self {
        Self {
            secret,
            previous: None,
            since_ns: now_ns,
        }
    }

    /// A token for who sends from this address, under this session number. It is valid for
    /// `lifetime`, though no longer than its secret is remembered: for one to
    /// two times [`SECRET_PERIOD`]. A minute is plenty: it need only outlive the
    /// way there and back, and as long as it is valid it can be played again, with
    /// what came after it, to a receiver that has forgotten the session since.
    pub fn mint(
        &mut self,
        now_ns: u64,
        address: IpAddr,
        session: u64,
        lifetime: Duration,
    ) -> [u8; TOKEN_BYTES] {
        self.rotate(now_ns);
        let expiry = now_ns.saturating_add(nanoseconds(lifetime)).to_be_bytes();
        let mut token = [0; TOKEN_BYTES];
        token[..EXPIRY_BYTES].copy_from_slice(&expiry);
        token[EXPIRY_BYTES..]
            .copy_from_slice(code(&self.secret, address, session, expiry).as_bytes());
        token
    }

    /// Tells whether `token` was made for this address and session, and is valid still.
    ///
    /// # Errors
    ///
    /// See [`TokenError`].
    pub fn verify(
        &mut self,
        now_ns: u64,
        address: IpAddr,
        session: u64,
        token: &[u8; TOKEN_BYTES],
    ) -> Result<(), TokenError> {
        self.rotate(now_ns);
        let (expiry, given) = token.split_first_chunk().ok_or(TokenError::Foreign)?;
        let known = [Some(&self.secret), self.previous.as_ref()]
            .into_iter()
            .flatten()
            // Comparing hashes takes the same time wherever they differ.
            .any(|secret| code(secret, address, session, *expiry) == *given);
        if !known {
            return Err(TokenError::Foreign);
        }
        if now_ns > u64::from_be_bytes(*expiry) {
            return Err(TokenError::Expired);
        }
        Ok(())
    }

    /// Returns when a token that was found to be good expires: its lifetime after it was made.
    pub fn expiry_ns(token: &[u8; TOKEN_BYTES]) -> u64 {
        let expiry = token.first_chunk().copied();
        u64::from_be_bytes(expiry.unwrap_or_default())
    }

    /// Takes the secrets that are due into use. A secret follows from the one
    /// before, but not the other way: who learns one cannot make older tokens.
    fn rotate(&mut self, now_ns: u64) {
        let period = nanoseconds(SECRET_PERIOD);
        let due = now_ns.saturating_sub(self.since_ns).checked_div(period);
        let due = due.unwrap_or_default();
        self.since_ns = self.since_ns.saturating_add(due.saturating_mul(period));
        // After two none of the old ones is left.
        for _ in 0..due.min(2) {
            let next = blake3::derive_key(CONTEXT, &self.secret);
            self.previous.zeroize();
            self.previous = Some(self.secret);
            self.secret = next;
        }
    }
}

/// The authentication code of a token.
fn code(
    secret: &[u8; 32],
    address: IpAddr,
    session: u64,
    expiry: [u8; EXPIRY_BYTES],
) -> blake3::Hash {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut bytes = [0; IP_BYTES + 8 + EXPIRY_BYTES];
    bytes[..IP_BYTES].copy_from_slice(&address.octets());
    bytes[IP_BYTES..IP_BYTES + 8].copy_from_slice(&session.to_be_bytes());
    bytes[IP_BYTES + 8..].copy_from_slice(&expiry);
    blake3::keyed_hash(secret, &bytes)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for TokenMint {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.previous.zeroize();
    }
}

impl fmt::Debug for TokenMint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenMint").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const PERIOD: u64 = SECRET_PERIOD.as_nanos() as u64;
    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_token_is_good_for_its_address_and_session() {
        let mut mint = TokenMint::new([1; 32], 0);
        let token = mint.mint(5, HERE, 7, DAY);
        assert_eq!(mint.verify(6, HERE, 7, &token), Ok(()));
        assert_eq!(mint.verify(6, THERE, 7, &token), Err(TokenError::Foreign));
        assert_eq!(mint.verify(6, HERE, 8, &token), Err(TokenError::Foreign));
        let mut after_restart = TokenMint::new([2; 32], 0);
        let elsewhere = after_restart.verify(6, HERE, 7, &token);
        assert_eq!(elsewhere, Err(TokenError::Foreign));
    }

    #[test]
    fn an_address_is_the_same_whichever_way_it_is_written() {
        let IpAddr::V4(address) = HERE else {
            unreachable!()
        };
        let mapped = IpAddr::V6(address.to_ipv6_mapped());
        let mut mint = TokenMint::new([1; 32], 0);
        let token = mint.mint(0, HERE, 7, DAY);
        assert_eq!(mint.verify(0, mapped, 7, &token), Ok(()));
    }

    #[test]
    fn a_token_expires() {
        let mut mint = TokenMint::new([1; 32], 0);
        let token = mint.mint(5, HERE, 7, Duration::from_nanos(10));
        assert_eq!(TokenMint::expiry_ns(&token), 15);
        assert_eq!(mint.verify(15, HERE, 7, &token), Ok(()));
        assert_eq!(mint.verify(16, HERE, 7, &token), Err(TokenError::Expired));
    }

    #[test]
    fn a_changed_token_is_refused() {
        let mut mint = TokenMint::new([1; 32], 0);
        let token = mint.mint(5, HERE, 7, DAY);
        for bit in 0..8 * TOKEN_BYTES {
            let mut changed = token;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(mint.verify(6, HERE, 7, &changed), Err(TokenError::Foreign));
        }
    }

    #[test]
    fn the_previous_secret_is_good_and_the_one_before_is_not() {
        let mut mint = TokenMint::new([1; 32], 0);
        let token = mint.mint(PERIOD - 1, HERE, 7, DAY);
        assert_eq!(mint.verify(PERIOD, HERE, 7, &token), Ok(()));
        assert_ne!(mint.mint(PERIOD, HERE, 7, DAY), token);
        assert_eq!(mint.verify(2 * PERIOD - 1, HERE, 7, &token), Ok(()));
        let old = mint.verify(2 * PERIOD, HERE, 7, &token);
        assert_eq!(old, Err(TokenError::Foreign));
    }

    #[test]
    fn after_a_long_silence_all_secrets_are_new() {
        let mut mint = TokenMint::new([1; 32], 0);
        let token = mint.mint(0, HERE, 7, Duration::MAX);
        let old = mint.verify(u64::MAX, HERE, 7, &token);
        assert_eq!(old, Err(TokenError::Foreign));
        let token = mint.mint(u64::MAX, HERE, 7, DAY);
        assert_eq!(mint.verify(u64::MAX, HERE, 7, &token), Ok(()));
        // A clock that goes back does no harm.
        assert_eq!(mint.verify(0, HERE, 7, &token), Ok(()));
    }
}
