//! The flows that frames are of, and how long frames are.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1, Zipf};

/// Packets of the list, as the yardstick has it.
pub(crate) const LISTED: u32 = 1 << 20;

/// The flows that there are.
const FLOWS: u32 = 1 << 20;

/// Gaps of the list, as the yardstick has it.
pub(crate) const GAPS: u32 = 1 << 16;

/// Whose packets follow each other, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) mix: Mix,
    pub(crate) size: Size,
}

/// Whose packets follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// One flow for each core.
    OneFlow,
    /// 2^20 flows by Zipf's law (1.0).
    Zipf,
    /// 2^20 flows, all equally often.
    Uniform,
}

/// How long frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Smallest,
    /// The simple IMIX.
    Imix,
}

impl Traffic {
    pub(crate) const ALL: [Self; 6] = [
        Self::new(Mix::OneFlow, Size::Smallest),
        Self::new(Mix::Zipf, Size::Smallest),
        Self::new(Mix::Uniform, Size::Smallest),
        Self::new(Mix::OneFlow, Size::Imix),
        Self::new(Mix::Zipf, Size::Imix),
        Self::new(Mix::Uniform, Size::Imix),
    ];

    pub(crate) const fn new(mix: Mix, size: Size) -> Self {
        Self { mix, size }
    }

    pub(crate) const fn name(self) -> &'static str {
        match (self.mix, self.size) {
            (Mix::OneFlow, Size::Smallest) => "one_flow_64b",
            (Mix::Zipf, Size::Smallest) => "zipf_64b",
            (Mix::Uniform, Size::Smallest) => "uniform_1m_64b",
            (Mix::OneFlow, Size::Imix) => "one_flow_imix",
            (Mix::Zipf, Size::Imix) => "zipf_imix",
            (Mix::Uniform, Size::Imix) => "uniform_1m_imix",
        }
    }
}

/// Bytes of frames without their checksum, by the two bits that a packet of the list has.
pub(crate) const BYTES: [u32; 4] = [60, 590, 1_514, 1_514];

/// Out of twelve packets, how many are of each length.
const IMIX: [u32; 3] = [7, 4, 1];

/// A list of packets, the same in each run: a part for each core, one after the other, each with
/// flows of its own, as a card spreads them by their hash.
pub(crate) fn list(traffic: Traffic, cores: u32) -> Vec<u32> {
    let mut random = SmallRng::seed_from_u64(17);
    let zipf = Zipf::new(f64::from(FLOWS), 1.0).expect("more than one");
    let mut packet = |core: u32| {
        let mut draw = || match traffic.mix {
            Mix::OneFlow => core,
            Mix::Zipf => zipf.sample(&mut random) as u32 - 1,
            Mix::Uniform => random.random_range(0..FLOWS),
        };
        let flow = loop {
            let flow = draw();
            if flow % cores == core {
                break flow;
            }
        };
        let length = match traffic.size {
            Size::Smallest => 0,
            Size::Imix => imix(random.random_range(0..12)),
        };
        length << 30 | flow
    };
    (0..cores)
        .flat_map(|core| (0..part(cores)).map(move |_| core))
        .map(&mut packet)
        .collect()
}

/// Packets of one core's part of the list: a power of two.
pub(crate) fn part(cores: u32) -> u32 {
    LISTED / cores.next_power_of_two()
}

/// Gaps between packets that come by chance, so many a second, in nanoseconds.
pub(crate) fn gaps(packets_a_second: f64) -> Vec<u32> {
    let mut random = SmallRng::seed_from_u64(18);
    let mean_ns = 1e9 / packets_a_second;
    let gap = |_| {
        let drawn: f64 = Exp1.sample(&mut random);
        (drawn * mean_ns).round() as u32
    };
    (0..GAPS).map(gap).collect()
}

fn imix(number: u32) -> u32 {
    let [small, medium, _] = IMIX;
    match number {
        it if it < small => 0,
        it if it < small + medium => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: u32 = 0x3fff_ffff;

    #[test]
    fn cores_have_flows_of_their_own() {
        for mix in [Mix::OneFlow, Mix::Zipf, Mix::Uniform] {
            let list = list(Traffic::new(mix, Size::Smallest), 2);
            assert_eq!(list.len(), LISTED as usize);
            let (first, second) = list.split_at(part(2) as usize);
            assert!(first.iter().all(|it| it & FLOW & 1 == 0), "{mix:?}");
            assert!(second.iter().all(|it| it & FLOW & 1 == 1), "{mix:?}");
        }
    }

    #[test]
    fn the_first_flow_of_zipfs_law_has_one_packet_in_fourteen() {
        let list = list(Traffic::new(Mix::Zipf, Size::Smallest), 1);
        let first = list.iter().filter(|it| **it & FLOW == 0).count();
        // One over the harmonic number of 2^20, which is 14.44.
        let expected = f64::from(LISTED) / 14.44;
        assert!(
            (first as f64 / expected - 1.0).abs() < 0.02,
            "{first} of {expected}"
        );
    }

    #[test]
    fn lengths_are_those_of_the_imix() {
        let list = list(Traffic::new(Mix::OneFlow, Size::Imix), 1);
        let bytes = |it: &u32| u64::from(BYTES[(it >> 30) as usize]);
        let mean = list.iter().map(bytes).sum::<u64>() as f64 / list.len() as f64;
        let expected = (7.0 * 60.0 + 4.0 * 590.0 + 1_514.0) / 12.0;
        assert!((mean / expected - 1.0).abs() < 0.01, "{mean} of {expected}");
    }

    #[test]
    fn gaps_have_the_rate_that_is_asked_for() {
        let gaps = gaps(1_000_000.0);
        let mean_ns = gaps.iter().map(|it| f64::from(*it)).sum::<f64>() / f64::from(GAPS);
        assert!((mean_ns / 1_000.0 - 1.0).abs() < 0.02, "{mean_ns}");
    }
}
