//! The word that says whose a slot is, and moments, in which it tells time.

use crate::flow::{FlowKey, TunnelRole};
use crate::packet::protocol;

/// The word that says whose a slot is, and in which state. It changes in one
/// step, so that whoever replaces a flow sees whether a packet of it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub(super) u64);

impl Owner {
    const OCCUPIED: u64 = 1 << 32;
    pub(super) const MOVED: u64 = 1 << 33;
    const FINISHED: u64 = 1 << 34;
    const PLACED: u64 = 1 << 35;
    pub(super) const LONG: u64 = 1 << 36;
    pub(super) const WIDE: u64 = 1 << 37;
    /// Of the first slot of a line: flows of the line lie elsewhere in the group.
    pub(super) const MARK: u64 = 1 << 38;
    const PROTOCOL_SHIFT: u32 = 39;
    const PROTOCOL: u64 = 3 << Self::PROTOCOL_SHIFT;
    pub(super) const MOMENT_SHIFT: u32 = 41;
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
        let code = protocol_code(number) << Self::PROTOCOL_SHIFT;
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

    #[inline(always)]
    pub(super) const fn is_marked(self) -> bool {
        self.0 & Self::MARK != 0
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

    /// Whether the flow is long and stays where it is: in the long tunnel, if
    /// that is for long flows alone.
    #[inline(always)]
    pub(super) const fn is_settled(self, is_shared: bool) -> bool {
        const PLACED: u64 = Owner::LONG | Owner::PLACED;
        let wanted = if is_shared {
            PLACED
        } else {
            PLACED | Self::MOVED
        };
        self.0 & wanted == wanted
    }

    #[inline(always)]
    pub(super) const fn tunnel(self) -> TunnelRole {
        TunnelRole::numbered(self.0 / Self::MOVED)
    }

    /// Whether the flow is short, in the short tunnel, and its record narrow.
    #[inline(always)]
    pub(super) const fn is_plainly_short(self) -> bool {
        self.0 & (Self::LONG | Self::MOVED | Self::WIDE) == 0
    }

    #[inline(always)]
    pub(super) const fn seen_at(self, now_ns: u64) -> Self {
        const BELOW: u64 = (1 << Owner::MOMENT_SHIFT) - 1;
        let moment = moment(now_ns) << Self::MOMENT_SHIFT;
        Self(moment ^ (self.0 & BELOW))
    }

    #[inline(always)]
    pub(super) const fn marked(self) -> Self {
        Self(self.0 | Self::MARK)
    }

    #[inline(always)]
    pub(super) const fn with_mark_of(self, other: Self) -> Self {
        Self(self.0 | (other.0 & Self::MARK))
    }

    /// Nobody's for a moment; the mark stays with the slot.
    #[inline(always)]
    pub(super) const fn claimed(self, now_ns: u64) -> Self {
        Self(Self::WIDE | (moment(now_ns) << Self::MOMENT_SHIFT)).with_mark_of(self)
    }

    /// When the last packet came, to a moment. That may lie ahead of `now_ns`,
    /// which is coarse where the packet's time was precise; what a record tells
    /// by that moment must not come out too early.
    #[inline(always)]
    pub(super) const fn last_seen_ns(self, now_ns: u64) -> u64 {
        let latest = (now_ns >> MOMENT_BITS).wrapping_add(CLOCK_SKEW_MOMENTS);
        let before = latest.wrapping_sub(self.0 >> Self::MOMENT_SHIFT) & MOMENT_MASK;
        latest.wrapping_sub(before) << MOMENT_BITS
    }

    /// Moments since the last packet, and [`CLOCK_SKEW_MOMENTS`]: another CPU's
    /// clock may be ahead of ours.
    #[inline(always)]
    pub(super) const fn age_moments(self, now_ns: u64) -> u64 {
        (moment(now_ns) + CLOCK_SKEW_MOMENTS).wrapping_sub(self.0 >> Self::MOMENT_SHIFT)
            & MOMENT_MASK
    }

    /// Whether that may be as long ago as `moments`.
    #[inline(always)]
    pub(super) const fn is_as_old_as(self, moments: u64, now_ns: u64) -> bool {
        self.age_moments(now_ns) >= moments + CLOCK_SKEW_MOMENTS
    }

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
const fn protocol_code(number: u32) -> u64 {
    match number as u8 {
        protocol::UDP => 1,
        protocol::ESP => 2,
        protocol::GRE => 3,
        _ => 0,
    }
}

pub(super) const MOMENT_BITS: u32 = 24;
pub(super) const WITHIN_MOMENT: u64 = (1 << MOMENT_BITS) - 1;
/// Of the 23 bits that are kept.
const MOMENT_MASK: u64 = (1 << 23) - 1;
pub(super) const CLOCK_SKEW_MOMENTS: u64 = 1 << 16;

#[inline(always)]
pub(super) const fn moment(time_ns: u64) -> u64 {
    (time_ns >> MOMENT_BITS) & MOMENT_MASK
}

/// The whole moments in a duration.
#[inline(always)]
pub(super) const fn moments_between(duration_ns: u64) -> u64 {
    duration_ns >> MOMENT_BITS
}
