//! A remote queue's length in the TTL of packets that come back from it (TR, "TNL calculation").
//!
//! A packet needs at most seven hops between two hosts, so three bits of its TTL
//! are enough to count them. The other five say how full the far switch's port
//! is, in steps of 1/32. The near switch takes them out and puts back what the
//! TTL would be, so that the host sees nothing of it:
//!
//! ```text
//!    7   6   5   4   3   2   1   0
//!  +-------------------+-----------+
//!  | level of the port | hops left |    hops left = 7 - hops so far
//!  +-------------------+-----------+
//! ```
//!
//! Routers on the path decrement the field as ever. That never borrows from the
//! level, since there are as many hops left as there can be. With the level at 0
//! the seventh hop brings the field to 0, where a router drops the packet; six
//! hops are always safe.
//!
//! Restoring takes knowing the TTL that the packet started with: 64 for most
//! systems. [`Initial`] is that agreement between the two switches. Packets that
//! started with another one have to be kept from the far switch's encoding, and
//! from the near one's restoring, by other means; their TTL alone does not tell.

/// How full a port is, in 32 steps.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// How many there are.
    pub const COUNT: u8 = 1 << (8 - HOP_BITS);

    /// The level `number`, if there is one.
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT {
            Some(Self(number))
        } else {
            None
        }
    }

    /// From 0, less than 1/32 full, to 31.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The scale of levels, which both switches must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    step_ns: u64,
}

impl Scale {
    /// A scale for a port whose full buffer takes `full_ns` to drain.
    pub const fn new(full_ns: u64) -> Self {
        let step_ns = full_ns / Level::COUNT as u64;
        Self {
            step_ns: if step_ns == 0 { 1 } else { step_ns },
        }
    }

    /// The level of a port that is `backlog_ns` from empty, rounded down.
    #[inline(always)]
    pub const fn level(self, backlog_ns: u64) -> Level {
        let steps = backlog_ns / self.step_ns;
        let highest = Level::COUNT as u64 - 1;
        Level(if steps < highest { steps } else { highest } as u8)
    }

    /// The least backlog that this level reports.
    #[inline(always)]
    pub const fn backlog_ns(self, level: Level) -> u64 {
        level.0 as u64 * self.step_ns
    }
}

/// The TTL that packets start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial(pub u8);

impl Initial {
    /// The initial TTL of Linux, macOS and the BSDs.
    pub const COMMON: Self = Self(64);

    /// The TTL field that carries `level` in place of `ttl`; `None` for a packet
    /// that has come further than seven hops or started with another TTL.
    #[inline(always)]
    pub const fn encode(self, ttl: u8, level: Level) -> Option<u8> {
        let hops = self.0.wrapping_sub(ttl);
        if ttl > self.0 || hops > MAX_HOPS {
            return None;
        }
        Some((level.0 << HOP_BITS) | (MAX_HOPS - hops))
    }

    /// The level in an encoded field, and the TTL to put back; that is `None`
    /// for a packet that should have been dropped for its age on the path.
    #[inline(always)]
    pub const fn decode(self, field: u8) -> (Level, Option<u8>) {
        let hops = MAX_HOPS - (field & MAX_HOPS);
        (Level(field >> HOP_BITS), self.0.checked_sub(hops))
    }
}

const HOP_BITS: u32 = 3;
const MAX_HOPS: u8 = (1 << HOP_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All of them: every initial TTL, level, and path of seven hops at most,
    /// encoded after each of these hops.
    #[test]
    fn every_ttl_is_restored_after_every_number_of_hops() {
        for initial in 0..=u8::MAX {
            for hops in 0..=MAX_HOPS.min(initial) {
                for hops_before in 0..=hops {
                    for level in 0..Level::COUNT {
                        let level = Level::new(level).expect("below 32");
                        let codec = Initial(initial);
                        let mut field = codec.encode(initial - hops_before, level).expect("near");
                        field -= hops - hops_before;
                        assert_eq!(codec.decode(field), (level, Some(initial - hops)));
                    }
                }
            }
        }
    }

    #[test]
    fn six_hops_never_bring_the_field_to_zero() {
        for level in 0..Level::COUNT {
            let field = Initial::COMMON.encode(64, Level(level)).expect("near");
            assert!(field > 6);
        }
    }

    proptest! {
        #[test]
        fn another_initial_ttl_is_left_alone(initial: u8, ttl: u8) {
            let is_near = ttl <= initial && initial - ttl <= 7;
            prop_assert_eq!(Initial(initial).encode(ttl, Level(0)).is_some(), is_near);
        }

        #[test]
        fn any_field_can_be_decoded(initial: u8, field: u8) {
            let (level, ttl) = Initial(initial).decode(field);
            prop_assert!(level.number() < Level::COUNT);
            prop_assert!(ttl.is_none_or(|ttl| ttl <= initial && initial - ttl <= 7));
        }

        #[test]
        fn a_level_is_off_by_less_than_a_step(full_ns in 32u64..10_000_000_000, permille in 0u64..1_000) {
            let backlog_ns = full_ns / 1_000 * permille;
            let scale = Scale::new(full_ns);
            let reported_ns = scale.backlog_ns(scale.level(backlog_ns));
            prop_assert!(reported_ns <= backlog_ns);
            // The last step is longer by what the division leaves.
            prop_assert!(backlog_ns - reported_ns < full_ns / 32 + 32);
        }
    }
}
