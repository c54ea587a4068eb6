//! Random numbers of handshakes: ephemeral keys, early secrets, indices.

use chacha20::ChaCha20Rng;
use rand_core::Rng as _;

/// Generator of what handshakes need, of which none tells anything of another.
pub struct Secrets(ChaCha20Rng);

impl Secrets {
    /// Draws from this stream, which nothing else draws from.
    pub fn new(random: ChaCha20Rng) -> Self {
        Self(random)
    }

    /// Returns the next 32 bytes.
    pub fn draw(&mut self) -> [u8; 32] {
        let mut drawn = [0; 32];
        self.0.fill_bytes(&mut drawn);
        drawn
    }

    /// Returns the next number that everybody may see.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }
}

impl core::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Secrets")
    }
}
