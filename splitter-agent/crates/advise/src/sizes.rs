//! How large flows were: counted in logarithmic buckets, older ones counting less.

use std::time::Duration;

use crate::ThresholdUnit;

/// Buckets to each doubling, so that a bound is within an eighth of any size.
const PER_DOUBLING_LOG2: u32 = 3;
const BUCKETS: usize = 496;

/// After so long a flow counts half: long enough for thousands of flows on a quiet line, short
/// enough to follow a working day.
const HALF_LIFE: Duration = Duration::from_secs(1_800);

/// A flow that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowSize {
    /// Its packets, SYN and FIN among them.
    pub packets: u64,
    /// Its bytes with all headers.
    pub bytes: u64,
}

impl FlowSize {
    /// That of a TCP flow which carries so many bytes in segments of 1448, with SYN, ACK and FIN
    /// and 66 bytes of headers a packet.
    #[must_use]
    pub fn of_payload(bytes: u64) -> Self {
        const SEGMENT: u64 = 1_448;
        const HEADERS: u64 = 66;
        let packets = bytes.div_ceil(SEGMENT).saturating_add(3);
        Self {
            packets,
            bytes: bytes.saturating_add(packets.saturating_mul(HEADERS)),
        }
    }

    fn units(self, unit: ThresholdUnit) -> u64 {
        match unit {
            ThresholdUnit::Packets => self.packets,
            ThresholdUnit::Bytes => self.bytes,
        }
    }
}

/// Flows by size in one unit. Takes 12 KiB, however many there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    buckets: Vec<Bucket>,
}

/// Flows of about one size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Bucket {
    /// How many, weighted by age.
    pub(super) flows: f64,
    /// Sum of their units.
    pub(super) units: f64,
    /// Sum of their bytes.
    pub(super) bytes: f64,
    /// The largest size that falls into it, in units.
    pub(super) upper: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            buckets: vec![Bucket::default(); BUCKETS],
        }
    }
}

impl Sample {
    /// Adds `weight` flows of a size.
    pub fn add(&mut self, units: u64, bytes: u64, weight: f64) {
        if let Some(bucket) = self.buckets.get_mut(index(units)) {
            bucket.flows += weight;
            bucket.units += weight * units as f64;
            bucket.bytes += weight * bytes as f64;
        }
    }

    /// How many flows there are, weighted by age.
    #[must_use]
    pub fn flows(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.flows).sum()
    }

    /// The buckets with flows, by size.
    pub(super) fn filled(&self) -> Vec<Bucket> {
        let filled = self.buckets.iter().enumerate();
        filled
            .filter(|(_, bucket)| bucket.flows > 0.0)
            .map(|(index, bucket)| Bucket {
                upper: upper(index),
                ..*bucket
            })
            .collect()
    }

    fn scale(&mut self, factor: f64) {
        for bucket in &mut self.buckets {
            bucket.flows *= factor;
            bucket.units *= factor;
            bucket.bytes *= factor;
        }
    }
}

/// The largest size that falls into the same bucket.
pub(super) fn bucket_end(units: u64) -> u64 {
    upper(index(units))
}

fn index(units: u64) -> usize {
    let octave = units.max(1).ilog2().saturating_sub(PER_DOUBLING_LOG2);
    ((octave as usize) << PER_DOUBLING_LOG2) + (units >> octave) as usize
}

fn upper(index: usize) -> u64 {
    const WITHIN: usize = 1 << PER_DOUBLING_LOG2;
    if index < 2 * WITHIN {
        return index as u64;
    }
    let octave = index / WITHIN - 1;
    let next = (index % WITHIN + WITHIN + 1) as u128;
    u64::try_from((next << octave) - 1).unwrap_or(u64::MAX)
}

/// Sizes that an agent has seen of flows that ended, older ones counting less.
#[derive(Debug, Clone, Default)]
pub struct Sizes {
    packets: Sample,
    bytes: Sample,
    /// Seconds of watching, weighted as the flows are.
    seconds: f64,
    /// Flows whose size was not seen, weighted.
    missed: f64,
    until: Option<Duration>,
}

impl Sizes {
    /// Lets time pass up to `now`, on any clock that does not go back.
    pub fn advance(&mut self, now: Duration) {
        let passed = self
            .until
            .map_or(Duration::ZERO, |until| now.saturating_sub(until));
        self.until = Some(now);
        let half_lives = passed.as_secs_f64() / HALF_LIFE.as_secs_f64();
        let factor = (-half_lives).exp2();
        self.packets.scale(factor);
        self.bytes.scale(factor);
        self.missed *= factor;
        // The integral of the weight over what has passed.
        let weight = HALF_LIFE.as_secs_f64() / std::f64::consts::LN_2;
        self.seconds = self.seconds * factor + weight * (1.0 - factor);
    }

    /// Counts a flow that has ended.
    pub fn add(&mut self, flow: FlowSize) {
        self.packets.add(flow.packets, flow.bytes, 1.0);
        self.bytes.add(flow.bytes, flow.bytes, 1.0);
    }

    /// Counts flows that ended unseen.
    pub fn miss(&mut self, flows: u64) {
        self.missed += flows as f64;
    }

    /// The flows by size in a unit.
    #[must_use]
    pub fn sample(&self, unit: ThresholdUnit) -> &Sample {
        match unit {
            ThresholdUnit::Packets => &self.packets,
            ThresholdUnit::Bytes => &self.bytes,
        }
    }

    /// How many flows end in a second, those included whose size was not seen.
    #[must_use]
    pub fn flows_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            (self.packets.flows() + self.missed) / self.seconds
        } else {
            0.0
        }
    }

    /// The share of flows whose size was not seen, 0 to 1.
    #[must_use]
    pub fn missed_share(&self) -> f64 {
        let all = self.packets.flows() + self.missed;
        if all > 0.0 { self.missed / all } else { 0.0 }
    }
}

impl FromIterator<(FlowSize, f64)> for Sizes {
    /// Flows with their weights; no time passes.
    fn from_iter<I: IntoIterator<Item = (FlowSize, f64)>>(flows: I) -> Self {
        let mut sizes = Self::default();
        for (flow, weight) in flows {
            for unit in [ThresholdUnit::Packets, ThresholdUnit::Bytes] {
                let sample = match unit {
                    ThresholdUnit::Packets => &mut sizes.packets,
                    ThresholdUnit::Bytes => &mut sizes.bytes,
                };
                sample.add(flow.units(unit), flow.bytes, weight);
            }
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lie_within_their_buckets() {
        let mut probes: Vec<u64> = (0..200).collect();
        probes.extend((0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + power / 8, power + power / 2]
        }));
        probes.push(u64::MAX);
        for units in probes {
            let bucket = index(units);
            assert!(bucket < BUCKETS, "{units}");
            assert!(units <= upper(bucket), "{units}");
            assert!(bucket == 0 || units > upper(bucket - 1), "{units}");
            // Within an eighth.
            assert!(
                upper(bucket) as f64 <= units as f64 * 1.125 + 0.5,
                "{units}"
            );
        }
    }

    #[test]
    fn a_steady_stream_has_its_rate_at_any_age() {
        let mut sizes = Sizes::default();
        sizes.advance(Duration::ZERO);
        for second in 1..=20_000u64 {
            sizes.advance(Duration::from_secs(second));
            for _ in 0..3 {
                sizes.add(FlowSize::of_payload(10_000));
            }
            sizes.miss(1);
            if [100, 2_000, 20_000].contains(&second) {
                let rate = sizes.flows_per_second();
                assert!((3.96..4.04).contains(&rate), "{rate} after {second}");
            }
        }
        assert!((sizes.missed_share() - 0.25).abs() < 0.001);
        // What an hour ago was all has a quarter of its weight.
        let before = sizes.sample(ThresholdUnit::Packets).flows();
        sizes.advance(Duration::from_secs(20_000 + 3_600));
        let after = sizes.sample(ThresholdUnit::Packets).flows();
        assert!((after / before - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_payload_counts_its_handshake_and_headers() {
        let flow = FlowSize::of_payload(40 * 1_448);
        assert_eq!((flow.packets, flow.bytes), (43, 40 * 1_448 + 43 * 66));
    }
}
