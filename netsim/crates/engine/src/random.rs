//! Random streams: one for each purpose, so that what one consumer draws moves no other one, and
//! schemes compared with the same seed meet the same flows at the same times.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// The consumer that a random stream belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Sizes of the messages.
    Sizes,
    /// Start times of messages.
    Arrivals,
    /// Which hosts send and receive.
    Hosts,
    /// Which paths are slow or broken.
    Paths,
    /// Choices of the balancing policy.
    Policy,
    /// Background traffic: which host the next message goes to.
    Background,
    /// Spines that the paths of endpoints lead over.
    EndpointPaths,
    /// Seeds of endpoints: sessions, ids and rows of codes.
    Endpoints,
    /// Pauses between credits.
    Credits,
}

/// Random numbers that are the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Opens a stream; `part` distinguishes those of the same purpose.
    pub fn new(seed: u64, purpose: Purpose, part: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8] = purpose as u8;
        bytes[16..24].copy_from_slice(&part.to_le_bytes());
        Self(ChaCha8Rng::from_seed(bytes))
    }

    /// Draws a number of 32 bits.
    #[inline]
    pub fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Less than `bound`, which must not be 0. Multiplies instead of rejecting (Lemire 2019): the
    /// bias of 2^-32 * `bound` is far below what any run could notice.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.bits()) * u64::from(bound)) >> 32) as u32
    }

    /// Draws from (0, 1], with 53 bits, exactly.
    pub fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1. The logarithm is `libm`'s, which is the same code on
    /// every machine, where the platform's may differ in the last bit.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// `count` different ones of `0..from`, in random order (Fisher-Yates).
    pub fn sample(&mut self, from: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..from).collect();
        let count = count.min(from);
        for index in 0..count {
            let other = index + self.below((from - index) as u32) as usize;
            all.swap(index, other);
        }
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_apart_and_repeatable() {
        let draw = |purpose, part| Random::new(1, purpose, part).bits();
        assert_eq!(draw(Purpose::Sizes, 0), draw(Purpose::Sizes, 0));
        assert_ne!(draw(Purpose::Sizes, 0), draw(Purpose::Sizes, 1));
        assert_ne!(draw(Purpose::Sizes, 0), draw(Purpose::Arrivals, 0));
    }

    #[test]
    fn draws_are_distributed_as_said() {
        let mut random = Random::new(1, Purpose::Arrivals, 0);
        let mean = (0..20_000).map(|_| random.exponential()).sum::<f64>() / 20_000.0;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert!((0..1000).all(|_| random.below(7) < 7));
        let mut sample = random.sample(10, 10);
        sample.sort_unstable();
        assert_eq!(sample, (0..10).collect::<Vec<_>>());
    }
}
