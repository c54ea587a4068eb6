//! The word that says whose a slot is, and stamps, in which it tells time.

use crate::flow::{FlowKey, TunnelRole};
use crate::packet::protocol;

/// The word that says whose a slot is, and in which state. It changes in one
/// step, so that the one who replaces a flow sees whether a packet of it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub(super) u64);

impl Owner {
    const OCCUPIED: u64 = 1 << 32;
    pub(super) const ON_LONG_TUNNEL: u64 = 1 << 33;
    const FINISHED: u64 = 1 << 34;
    const PLACED: u64 = 1 << 35;
    pub(super) const LONG: u64 = 1 << 36;
    pub(super) const WIDE: u64 = 1 << 37;
    /// Of the first slot of a line: flows of the line lie elsewhere in the group.
    pub(super) const OVERFLOW: u64 = 1 << 38;
    const PROTOCOL_SHIFT: u32 = 39;
    const PROTOCOL: u64 = 3 << Self::PROTOCOL_SHIFT;
    pub(super) const STAMP_SHIFT: u32 = 41;
    const PORTS: u64 = 0xffff_ffff;
    /// What names a flow, besides the addresses.
    pub(super) const NAME: u64 = Self::PORTS | Self::OCCUPIED | Self::PROTOCOL;

    /// The part that names a flow.
    #[inline(always)]
    pub(super) const fn of(key: &FlowKey) -> Self {
        let (ports, number) = match key {
            FlowKey::V4(key) => (key.ports, key.protocol),
            FlowKey::V6(key) => (key.ports, key.protocol),
        };
        Self::named(ports, number as u8)
    }

    /// The same by ports and protocol.
    #[inline(always)]
    pub(super) const fn named(ports: u32, protocol: u8) -> Self {
        let code = protocol_code(protocol) << Self::PROTOCOL_SHIFT;
        Self(ports as u64 | code | Self::OCCUPIED)
    }

    /// Zero when both name the same flow, given the same addresses.
    #[inline(always)]
    pub(super) const fn differs(self, wanted: Self) -> u64 {
        (self.0 ^ wanted.0) & Self::NAME
    }

    #[cfg(not(target_arch = "bpf"))]
    pub(super) const fn is_occupied(self) -> bool {
        self.0 & Self::OCCUPIED != 0
    }

    /// Whether a CPU is about to write a new flow into the slot.
    #[inline(always)]
    pub(super) const fn is_claimed(self) -> bool {
        self.0 & (Self::OCCUPIED | Self::WIDE) == Self::WIDE
    }

    /// Nobody has the slot or is about to.
    #[inline(always)]
    pub(super) const fn is_free(self) -> bool {
        self.0 & (Self::OCCUPIED | Self::WIDE) == 0
    }

    #[inline(always)]
    pub(super) const fn has_overflow(self) -> bool {
        self.0 & Self::OVERFLOW != 0
    }

    #[inline(always)]
    pub(super) const fn occupied_bit(self) -> u64 {
        (self.0 / Self::OCCUPIED) & 1
    }

    #[inline(always)]
    pub(super) const fn finished_bit(self) -> u64 {
        (self.0 / Self::FINISHED) & 1
    }

    #[inline(always)]
    pub(super) const fn wide_bit(self) -> u64 {
        (self.0 / Self::WIDE) & 1
    }

    #[inline(always)]
    pub(super) const fn claimed_bit(self) -> u64 {
        self.wide_bit() & !self.occupied_bit()
    }

    #[inline(always)]
    pub(super) const fn is_wide(self) -> bool {
        self.0 & Self::WIDE != 0
    }

    /// Tells if the flow is one of TCP, long, and stays where it is: in the long tunnel, if
    /// that is for long flows alone.
    #[inline(always)]
    pub(super) const fn is_settled(self, is_shared: bool) -> bool {
        const PLACED: u64 = Owner::OCCUPIED | Owner::LONG | Owner::PLACED;
        let wanted = if is_shared {
            PLACED
        } else {
            PLACED | Self::ON_LONG_TUNNEL
        };
        self.upper(wanted | Self::PROTOCOL) == (wanted >> 32) as u32
    }

    /// Bits of the upper half.
    #[inline(always)]
    const fn upper(self, bits: u64) -> u32 {
        self.upper_half() & (bits >> 32) as u32
    }

    /// The stamp, with flags below it. Most that is asked of the word is asked of this half, in which a
    /// stamp wraps by itself.
    #[inline(always)]
    const fn upper_half(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) const fn tunnel(self) -> TunnelRole {
        TunnelRole::numbered(self.0 / Self::ON_LONG_TUNNEL)
    }

    /// Tells if the flow is one of TCP, short, in the short tunnel, and its record narrow.
    #[inline(always)]
    pub(super) const fn is_plainly_short(self) -> bool {
        const OTHERS: u64 = Owner::PROTOCOL | Owner::LONG | Owner::ON_LONG_TUNNEL | Owner::WIDE;
        self.upper(OTHERS | Self::OCCUPIED) == (Self::OCCUPIED >> 32) as u32
    }

    #[inline(always)]
    pub(super) const fn seen_at(self, now_ns: u64) -> Self {
        const BELOW: u64 = (1 << Owner::STAMP_SHIFT) - 1;
        let stamp = stamp(now_ns) << Self::STAMP_SHIFT;
        Self(stamp ^ (self.0 & BELOW))
    }

    /// The bits of the stamp that are others now, from the lowest; 0 where it is the same.
    #[inline(always)]
    const fn stamp_changes(self, now_ns: u64) -> u32 {
        (self.upper_half() ^ upper_of(now_ns)) >> UPPER_STAMP_SHIFT
    }

    /// The word as it is after a packet, if that is another than before.
    #[inline(always)]
    pub(super) const fn renewed_at(self, now_ns: u64) -> Option<Self> {
        match self.stamp_changes(now_ns) {
            0 => None,
            changes => Some(Self(self.0 ^ (changes as u64) << Self::STAMP_SHIFT)),
        }
    }

    #[inline(always)]
    pub(super) const fn with_overflow(self) -> Self {
        Self(self.0 | Self::OVERFLOW)
    }

    #[inline(always)]
    pub(super) const fn with_overflow_of(self, other: Self) -> Self {
        Self(self.0 | (other.0 & Self::OVERFLOW))
    }

    /// Nobody's for now; the overflow bit stays with the slot.
    #[inline(always)]
    pub(super) const fn claimed(self, now_ns: u64) -> Self {
        Self(Self::WIDE | (stamp(now_ns) << Self::STAMP_SHIFT)).with_overflow_of(self)
    }

    /// The time of the last packet, to a stamp. That may lie ahead of `now_ns`, which is coarse
    /// where the packet's time was precise; what a record tells by that stamp must not come out
    /// too early.
    #[inline(always)]
    pub(super) const fn last_seen_ns(self, now_ns: u64) -> u64 {
        let latest = (now_ns >> STAMP_BITS).wrapping_add(CLOCK_SKEW_STAMPS);
        let before = latest.wrapping_sub(self.0 >> Self::STAMP_SHIFT) & STAMP_MASK;
        latest.wrapping_sub(before) << STAMP_BITS
    }

    /// Stamps since the last packet, and [`CLOCK_SKEW_STAMPS`]: another CPU's clock may be ahead of
    /// ours.
    #[inline(always)]
    pub(super) const fn age_stamps(self, now_ns: u64) -> u64 {
        (stamp(now_ns) + CLOCK_SKEW_STAMPS).wrapping_sub(self.0 >> Self::STAMP_SHIFT) & STAMP_MASK
    }

    /// Tells if the last packet may be as long ago as `duration_ns`. Says so of one that is younger by up to
    /// three stamps, too: neither what lies below a stamp in the word nor what does in the duration is
    /// taken off.
    #[inline(always)]
    pub(super) const fn may_be_as_old_as(self, duration_ns: u64, now_ns: u64) -> bool {
        const SKEW: u32 = (CLOCK_SKEW_STAMPS as u32) << UPPER_STAMP_SHIFT;
        const LESS: u64 = 2 << UPPER_STAMP_SHIFT;
        let age = upper_of(now_ns)
            .wrapping_sub(self.upper_half())
            .wrapping_add(SKEW);
        age as u64 >= (duration_ns >> BELOW_UPPER) + (SKEW as u64 - LESS)
    }

    #[inline(always)]
    pub(super) const fn ports(self) -> u32 {
        self.0 as u32
    }

    pub(super) const fn protocol(self) -> u32 {
        PROTOCOLS[((self.0 & Self::PROTOCOL) >> Self::PROTOCOL_SHIFT) as usize] as u32
    }
}

/// In the order of their codes.
const PROTOCOLS: [u8; 4] = [protocol::TCP, protocol::UDP, protocol::ESP, protocol::GRE];

#[inline(always)]
const fn protocol_code(number: u8) -> u64 {
    match number {
        protocol::UDP => 1,
        protocol::ESP => 2,
        protocol::GRE => 3,
        _ => 0,
    }
}

pub(super) const STAMP_BITS: u32 = 24;
pub(super) const WITHIN_STAMP: u64 = (1 << STAMP_BITS) - 1;
/// Of the 23 bits that are kept.
const STAMP_MASK: u64 = (1 << 23) - 1;
pub(super) const CLOCK_SKEW_STAMPS: u64 = 1 << 16;

#[inline(always)]
pub(super) const fn stamp(time_ns: u64) -> u64 {
    (time_ns >> STAMP_BITS) & STAMP_MASK
}

/// Where the stamp begins in the upper half.
const UPPER_STAMP_SHIFT: u32 = Owner::STAMP_SHIFT - 32;
/// The bits of a time that the upper half has no place for.
const BELOW_UPPER: u32 = STAMP_BITS - UPPER_STAMP_SHIFT;

/// A time as the upper half has it, with more of it where flags are there.
#[inline(always)]
const fn upper_of(time_ns: u64) -> u32 {
    (time_ns >> BELOW_UPPER) as u32
}

/// The whole stamps in a duration.
#[inline(always)]
pub(super) const fn stamps_between(duration_ns: u64) -> u64 {
    duration_ns >> STAMP_BITS
}
