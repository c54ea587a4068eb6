//! What happened, summed up in a number, and in words if asked for.

use std::fmt;

use super::random::mix;

/// The words are printed with `CLOUDBURST_TRACE=1`.
#[derive(Debug)]
pub(crate) struct Log {
    hash: u64,
    verbose: bool,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            hash: 0,
            verbose: std::env::var_os("CLOUDBURST_TRACE").is_some(),
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.hash = mix(self.hash ^ number);
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut hash = self.hash ^ bytes.len() as u64;
        for word in words {
            let word = u64::from_le_bytes(*word);
            hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        for byte in rest {
            hash = (hash.rotate_left(23) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.hash = mix(hash);
    }

    pub(crate) fn say(&self, now: u64, what: fmt::Arguments<'_>) {
        if self.verbose {
            println!("{:>14.6} ms  {what}", now as f64 / 1e6);
        }
    }
}
