//! What is remembered of a flow, in 24 bytes.
//!
//! | word | bits, from the lowest |
//! |---|---|
//! | owner | ports 32, flags 9, moment of the last packet 23 |
//! | first | start 24, packets 40 |
//! | second | bytes 48, start 16 |
//!
//! A *moment* is 2^24 ns, some 17 ms; 23 bits of them wrap after 39 hours, and
//! a day is the longest idle timeout. The start counts units of 1,024 ns in 40
//! bits and wraps after 13 days.
//!
//! A flow that is not placed yet has sent little, and needs to know besides when
//! that drains and since when it is long. So its *narrow* record has packets in 20 bits and bytes in 28, and in the 20 bits freed of each
//! word the two times, by the moment, in units of 65.5 us up to 68 s (the
//! longest cap is 60 s). One that outgrows that turns *wide* before, and is
//! placed with its first long packet.

use super::Word;
use crate::classify::FlowPacket;
use crate::config::{Config, Unit};
use crate::flow::{FlowEntry, FlowKey, Tunnel};
use crate::packet::protocol;

/// A flow's entry, packed, with the ports.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Record {
    owner: Word,
    first: Word,
    second: Word,
}

/// The word that says whose a slot is, and in which state. It changes in one
/// step, so that whoever replaces a flow sees whether a packet of it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub(super) u64);

impl Owner {
    const OCCUPIED: u64 = 1 << 32;
    const MOVED: u64 = 1 << 33;
    const FINISHED: u64 = 1 << 34;
    const PLACED: u64 = 1 << 35;
    const LONG: u64 = 1 << 36;
    const WIDE: u64 = 1 << 37;
    /// Of the first slot of a line: flows of the line lie elsewhere in the group.
    const MARK: u64 = 1 << 38;
    const PROTOCOL_SHIFT: u32 = 39;
    const PROTOCOL: u64 = 3 << Self::PROTOCOL_SHIFT;
    const MOMENT_SHIFT: u32 = 41;
    const PORTS: u64 = 0xffff_ffff;
    /// What names a flow, besides the addresses.
    const NAME: u64 = Self::PORTS | Self::OCCUPIED | Self::PROTOCOL;

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

    #[inline(always)]
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
    pub(super) const fn tunnel(self) -> Tunnel {
        Tunnel::numbered(self.0 / Self::MOVED)
    }

    /// Whether the flow is short, in the short tunnel, and its record narrow.
    #[inline(always)]
    pub(super) const fn is_plainly_short(self) -> bool {
        self.0 & (Self::LONG | Self::MOVED | Self::WIDE) == 0
    }

    #[inline(always)]
    const fn seen_at(self, now_ns: u64) -> Self {
        const BELOW: u64 = (1 << Owner::MOMENT_SHIFT) - 1;
        Self(self.0 & BELOW | moment(now_ns) << Self::MOMENT_SHIFT)
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
    const fn last_seen_ns(self, now_ns: u64) -> u64 {
        let latest = (now_ns >> MOMENT_BITS).wrapping_add(CLOCK_SKEW_MOMENTS);
        let before = latest.wrapping_sub(self.0 >> Self::MOMENT_SHIFT) & MOMENT_MASK;
        latest.wrapping_sub(before) << MOMENT_BITS
    }

    /// Moments since the last packet.
    #[inline(always)]
    pub(super) const fn age_moments(self, now_ns: u64) -> u64 {
        // Another CPU's clock may be ahead of ours: that much older than all.
        let age = moment(now_ns)
            .wrapping_add(CLOCK_SKEW_MOMENTS)
            .wrapping_sub(self.0 >> Self::MOMENT_SHIFT)
            & MOMENT_MASK;
        let is_ahead = age.wrapping_sub(CLOCK_SKEW_MOMENTS) >> 63;
        age.wrapping_sub(CLOCK_SKEW_MOMENTS) & is_ahead.wrapping_sub(1)
    }

    /// Whether that may be as long ago as `moments`.
    #[inline(always)]
    pub(super) const fn is_as_old_as(self, moments: u64, now_ns: u64) -> bool {
        let age = (moment(now_ns) + CLOCK_SKEW_MOMENTS).wrapping_sub(self.0 >> Self::MOMENT_SHIFT)
            & MOMENT_MASK;
        age >= moments + CLOCK_SKEW_MOMENTS
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

const MOMENT_BITS: u32 = 24;
/// Of the 23 bits that are kept.
const MOMENT_MASK: u64 = (1 << 23) - 1;
const CLOCK_SKEW_MOMENTS: u64 = 1 << 16;

const START_UNIT_BITS: u32 = 10;
const START_MASK: u64 = (1 << 40) - 1;
/// A start may lie this far ahead of a coarse clock: a second.
const START_SLACK: u64 = 1 << 20;

/// The parts of the start in the two words.
const START_LOW: u64 = (1 << 24) - 1;
const START_HIGH: u64 = 0xffff << 48;

const PACKETS_SHIFT: u32 = 24;
const NARROW_PACKETS: u64 = (1 << 20) - 1;
const WIDE_PACKETS: u64 = (1 << 40) - 1;
const WAITED_SHIFT: u32 = 44;

const NARROW_BYTES: u64 = (1 << 28) - 1;
const WIDE_BYTES: u64 = (1 << 48) - 1;
const DRAIN_SHIFT: u32 = 28;

/// More than any packet stands for: counts stop that far from their end.
const MOST_SEGMENTS: u64 = 1 << 20;
const MOST_BYTES: u64 = 1 << 24;

/// Kept as they are, from the owner's lowest flag on.
const FLAGS: u64 = FlowEntry::MOVED | FlowEntry::FINISHED | FlowEntry::PLACED;

/// Units of the times of a narrow record.
const TIME_UNIT_BITS: u32 = 16;
const TIME_MASK: u64 = (1 << 20) - 1;

impl Record {
    #[inline(always)]
    pub(super) fn owner(&self) -> Owner {
        Owner(self.owner.get())
    }

    #[inline(always)]
    pub(super) const fn owner_word(&self) -> &Word {
        &self.owner
    }

    #[inline(always)]
    pub(super) fn narrow_packets(&self) -> u64 {
        (self.first.get() >> PACKETS_SHIFT) & NARROW_PACKETS
    }

    /// Counts a packet in a wide record.
    #[inline(always)]
    pub(super) fn count_wide(&self, owner: Owner, packet: FlowPacket, now_ns: u64) {
        let (first, second) = (self.first.get(), self.second.get());
        if first >> PACKETS_SHIFT <= WIDE_PACKETS - MOST_SEGMENTS {
            self.first.set(first + (packet.segments << PACKETS_SHIFT));
        }
        if second & WIDE_BYTES <= WIDE_BYTES - MOST_BYTES {
            self.second.set(second + packet.bytes);
        }
        self.owner.set(owner.seen_at(now_ns).0);
    }

    /// Counts a packet in a narrow record, unless the flow would become long or
    /// outgrow it; whether it did.
    #[inline(always)]
    pub(super) fn count_narrow(
        &self,
        owner: Owner,
        packet: FlowPacket,
        config: &Config,
        now_ns: u64,
    ) -> bool {
        let (first, second) = (self.first.get(), self.second.get());
        let packets = (first >> PACKETS_SHIFT & NARROW_PACKETS) + packet.segments;
        let bytes = (second & NARROW_BYTES) + packet.bytes;
        let count = if config.unit == Unit::BYTES {
            bytes
        } else {
            packets
        };
        if count > config.threshold || packets > NARROW_PACKETS || bytes > NARROW_BYTES {
            return false;
        }
        let within_moment = now_ns & ((1 << MOMENT_BITS) - 1);
        self.first.set(first & START_LOW | packets << PACKETS_SHIFT);
        self.second
            .set(second & START_HIGH | bytes | (within_moment >> TIME_UNIT_BITS) << DRAIN_SHIFT);
        self.owner.set(owner.seen_at(now_ns).0);
        true
    }

    /// What is known of the flow that `owner` was read of.
    #[inline(always)]
    pub(super) fn unpack(&self, owner: Owner, now_ns: u64) -> FlowEntry {
        let (first, second) = (self.first.get(), self.second.get());
        let last_seen_ns = owner.last_seen_ns(now_ns);
        let start = (first & ((1 << 24) - 1)) | (second >> 48) << 24;
        let (packets, bytes) = (first >> PACKETS_SHIFT, second & WIDE_BYTES);
        let mut entry = FlowEntry {
            packets,
            bytes,
            first_seen_ns: start_ns(start, now_ns),
            last_seen_ns,
            // A wide record knows no better: late, and long ago.
            drained_ns: last_seen_ns + (1 << MOMENT_BITS),
            long_since_ns: (owner.0 & Owner::LONG) / Owner::LONG,
            flags: (owner.0 / Owner::MOVED) & FLAGS,
        };
        if !owner.is_wide() {
            entry.packets = packets & NARROW_PACKETS;
            entry.bytes = bytes & NARROW_BYTES;
            entry.drained_ns = last_seen_ns + ((bytes >> DRAIN_SHIFT) << TIME_UNIT_BITS);
            if owner.0 & Owner::LONG != 0 {
                let waited_ns = (first >> WAITED_SHIFT) << TIME_UNIT_BITS;
                entry.long_since_ns = (last_seen_ns + (1 << MOMENT_BITS))
                    .saturating_sub(waited_ns)
                    .max(1);
            }
        }
        entry
    }

    /// Keeps `entry` under the name and the mark of `owner`. The owner's word
    /// comes last: with it a new flow's slot becomes visible.
    #[inline(always)]
    pub(super) fn pack(&self, owner: Owner, entry: &FlowEntry, now_ns: u64) {
        let start = entry.first_seen_ns >> START_UNIT_BITS;
        let mut first = start & ((1 << 24) - 1);
        let mut second = ((start >> 24) & 0xffff) << 48;
        let mut flags = entry.flags * Owner::MOVED;
        if entry.long_since_ns != 0 {
            flags |= Owner::LONG;
        }
        let is_narrow =
            !entry.is_placed() && entry.packets <= NARROW_PACKETS && entry.bytes <= NARROW_BYTES;
        if is_narrow {
            let seen_ns = (now_ns >> MOMENT_BITS) << MOMENT_BITS;
            first |= entry.packets << PACKETS_SHIFT;
            second |= entry.bytes;
            second |= drain(entry.drained_ns, seen_ns, now_ns) << DRAIN_SHIFT;
            if entry.long_since_ns != 0 {
                let waited_ns = (seen_ns + (1 << MOMENT_BITS)).saturating_sub(entry.long_since_ns);
                first |= up_to_units(waited_ns) << WAITED_SHIFT;
            }
        } else {
            flags |= Owner::WIDE;
            first |= at_most(entry.packets, WIDE_PACKETS) << PACKETS_SHIFT;
            second |= at_most(entry.bytes, WIDE_BYTES);
        }
        let name = owner.0 & (Owner::NAME | Owner::MARK);
        self.first.set(first);
        self.second.set(second);
        self.owner
            .set(name | flags | (moment(now_ns) << Owner::MOMENT_SHIFT));
    }
}

/// In units from the moment of the last packet on; what lies ahead is rather
/// late, so that no flow changes tunnels too early.
#[inline(always)]
const fn drain(drained_ns: u64, seen_ns: u64, now_ns: u64) -> u64 {
    let ahead_ns = drained_ns.saturating_sub(seen_ns);
    if drained_ns > now_ns {
        up_to_units(ahead_ns)
    } else {
        at_most(ahead_ns >> TIME_UNIT_BITS, TIME_MASK)
    }
}

/// Rounded up.
#[inline(always)]
const fn up_to_units(time_ns: u64) -> u64 {
    at_most(
        (time_ns + (1 << TIME_UNIT_BITS) - 1) >> TIME_UNIT_BITS,
        TIME_MASK,
    )
}

#[inline(always)]
const fn at_most(value: u64, limit: u64) -> u64 {
    if value > limit { limit } else { value }
}

#[inline(always)]
const fn start_ns(start: u64, now_ns: u64) -> u64 {
    let latest = (now_ns >> START_UNIT_BITS) + START_SLACK;
    let before = latest.wrapping_sub(start) & START_MASK;
    latest.wrapping_sub(before) << START_UNIT_BITS
}

#[inline(always)]
const fn moment(time_ns: u64) -> u64 {
    (time_ns >> MOMENT_BITS) & MOMENT_MASK
}

/// The whole moments in a duration.
#[inline(always)]
pub(super) const fn moments_between(duration_ns: u64) -> u64 {
    duration_ns >> MOMENT_BITS
}
