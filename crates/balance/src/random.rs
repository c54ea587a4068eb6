//! Hashes that stand in for randomness.

/// Spreads `value` over all 64 bits: the output function of SplitMix64 (Steele,
/// Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[inline(always)]
pub(super) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(GOLDEN_GAMMA);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The `count`-th number of the sequence that belongs to a flow.
#[inline(always)]
pub(super) const fn draw(seed: u64, flow_hash: u64, count: u32) -> u64 {
    // Flows must not share sequences shifted by a few draws, so the flow is
    // mixed before the count comes in.
    mix(mix(seed ^ flow_hash) ^ count as u64)
}

/// A number below `bound`, which is below 2^36; 0 if that is 0.
#[inline(always)]
pub(super) const fn below(random: u64, bound: u64) -> u64 {
    // Multiply and shift instead of a division; no bias worth mentioning at
    // bounds this small.
    ((random >> 36) * bound) >> 28
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
