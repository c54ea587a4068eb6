//! Randomness: the system's, expanded by ChaCha20, a stream for each purpose.
//!
//! What is public (session and message numbers) says nothing of what is secret, nor of what else is
//! public: each stream of the cipher is as good as a key of its own (RFC 8439 §2.3).

use core::fmt;

use chacha20::ChaCha20Rng;
use rand_core::SeedableRng;
use zeroize::Zeroizing;

/// Source of all that is random in a transport.
pub struct Randomness(Zeroizing<[u8; 32]>);

/// Why there is no randomness to draw secrets from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RandomnessError {
    /// The system's generator has failed.
    #[cfg(not(all(target_arch = "wasm32", target_os = "unknown")))]
    #[error("cannot draw random numbers from the system: {0}")]
    System(#[from] getrandom::Error),
    /// WebAssembly has no system here: its host has to hand random bytes over.
    #[error(
        "there is no system to draw random numbers from; draw 32 bytes from the host of the program and start with Transport::seeded"
    )]
    NoSystem,
}

/// Purpose that numbers are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// The secret that tokens are made with.
    TokenSecret = 1,
    /// The seed of hashes, so that nobody outside can tell what meets in a bucket.
    HashSeed = 2,
    /// Session numbers, which are public.
    Sessions = 3,
    /// The numbers that messages to a peer begin with, which its datagrams bear.
    Messages = 4,
    /// Ephemeral keys and early secrets, and indices, which are public.
    Handshakes = 5,
    /// The number of a transport, which is in the ids of its peers and never sent.
    Transports = 6,
}

impl Randomness {
    /// Draws a key from the system.
    ///
    /// # Errors
    ///
    /// If the system has no randomness to give, or there is none, as in WebAssembly that no system runs
    /// (`wasm32-unknown-unknown`).
    pub fn from_system() -> Result<Self, RandomnessError> {
        let mut key = Zeroizing::new([0; 32]);
        fill(&mut key)?;
        Ok(Self(key))
    }

    /// Takes a key that the caller has drawn from a generator fit for cryptography, anew for each start
    /// and known to nobody else. From the same key comes the same each time: for tests and simulations.
    pub fn from_key(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// Returns the numbers for a purpose, from the first.
    pub fn stream(&self, purpose: Purpose) -> ChaCha20Rng {
        let mut random = ChaCha20Rng::from_seed(*self.0);
        random.set_stream(purpose as u64);
        random
    }
}

#[cfg(not(all(target_arch = "wasm32", target_os = "unknown")))]
fn fill(key: &mut [u8; 32]) -> Result<(), RandomnessError> {
    Ok(getrandom::fill(key)?)
}

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
fn fill(_: &mut [u8; 32]) -> Result<(), RandomnessError> {
    Err(RandomnessError::NoSystem)
}

impl fmt::Debug for Randomness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Randomness")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand_core::Rng;

    use super::*;

    #[test]
    fn no_purpose_draws_what_another_does_and_each_start_draws_anew() {
        let mut seen = HashSet::new();
        let [one, other] = [(); 2].map(|()| Randomness::from_system().expect("it has some"));
        for source in [one, other, Randomness::from_key([7; 32])] {
            for purpose in [
                Purpose::TokenSecret,
                Purpose::HashSeed,
                Purpose::Sessions,
                Purpose::Messages,
                Purpose::Handshakes,
                Purpose::Transports,
            ] {
                let mut stream = source.stream(purpose);
                assert!((0..1_000).all(|_| seen.insert(stream.next_u64())));
            }
        }
    }

    #[test]
    fn a_stream_is_the_cipher_s_own() {
        // RFC 8439 has no vector for an all-zero key with stream 0 as rand_core has it; the
        // original cipher's, of draft-strombergson-chacha-test-vectors-01 TC1.
        let mut random = ChaCha20Rng::from_seed([0; 32]);
        let mut first = [0; 8];
        random.fill_bytes(&mut first);
        assert_eq!(first, [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
    }
}
