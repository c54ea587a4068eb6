//! A flow's entry, packed into 24 bytes.
//!
//! | word | bits, from the lowest |
//! |---|---|
//! | owner | ports 32, flags 9, stamp of the last packet 23 |
//! | first | start 24, packets 37, changes 3 (of one that is not placed: its stage) |
//! | second | bytes 48, start 16 |
//!
//! A *stamp* is 2^24 ns, some 17 ms; 23 bits of them wrap after 39 hours, and
//! a day is the longest idle timeout. The start counts units of 1,024 ns in 40
//! bits and wraps after 13 days.
//!
//! A flow that is not placed yet has sent little, and needs to know besides when
//! that drains and since when it is long. So its *narrow* record has packets in 20
//! bits and bytes in 28, and in the 20 bits freed of each word the two times, by
//! the stamp, in units of 65.5 us up to 68 s (the longest wait is 60 s). One that
//! outgrows that turns *wide* before, and is placed with its first long packet. Of a short flow the
//! stage as which it counts is kept, too, and its threshold's index: in a narrow record in the lowest
//! eight of the bits that tell how long it has been long; in a wide one that is not placed the stage in
//! those that count changes, and the index in the upper six of those that count packets.

use super::Word;
use super::owner::{Owner, STAMP_BITS, WITHIN_STAMP, stamp};
use crate::flow::FlowEntry;
use crate::thresholds::ThresholdIndex;

/// Both words of a narrow record without its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    first: u64,
    second: u64,
}

/// A flow's entry, packed, with the ports.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Record {
    pub(super) owner: Word,
    pub(super) first: Word,
    pub(super) second: Word,
}

const START_UNIT_BITS: u32 = 10;
const START_MASK: u64 = (1 << 40) - 1;
/// A start may lie this far ahead of a coarse clock: a second.
const START_SLACK: u64 = 1 << 20;

/// The parts of the start in the two words.
const START_LOW: u64 = (1 << 24) - 1;
const START_HIGH: u64 = 0xffff << 48;

const PACKETS_SHIFT: u32 = 24;
const NARROW_PACKETS: u64 = (1 << 20) - 1;
const WIDE_PACKETS: u64 = (1 << 37) - 1;
const CHANGES_SHIFT: u32 = 61;
const WAITED_SHIFT: u32 = 44;
/// Of a short flow's narrow record, above its stage.
const THRESHOLD_SHIFT: u32 = WAITED_SHIFT + 2;
const THRESHOLD_BITS: u64 = ThresholdIndex::MASK << THRESHOLD_SHIFT;
/// Of a wide record that is not placed.
const WIDE_THRESHOLD_SHIFT: u32 = CHANGES_SHIFT - ThresholdIndex::BITS;
const UNPLACED_PACKETS: u64 = (1 << (WIDE_THRESHOLD_SHIFT - PACKETS_SHIFT)) - 1;

const NARROW_BYTES: u64 = (1 << 28) - 1;
const WIDE_BYTES: u64 = (1 << 48) - 1;
const DRAIN_SHIFT: u32 = 28;

/// Kept as they are, from the owner's lowest flag on.
const FLAGS: u64 = FlowEntry::ON_LONG_TUNNEL | FlowEntry::FINISHED | FlowEntry::PLACED;

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

    /// Counts a packet in a wide record; a count that would overflow stops.
    #[inline(always)]
    pub(super) fn count_wide(&self, owner: Owner, packets: u64, bytes: u64, now_ns: u64) {
        let (first, second) = (self.first.get(), self.second.get());
        let counted = first.wrapping_add(packets << PACKETS_SHIFT);
        if (counted ^ first) >> CHANGES_SHIFT == 0 {
            self.first.set(counted);
        }
        let counted = second.wrapping_add(bytes);
        if (counted ^ second) & START_HIGH == 0 {
            self.second.set(counted);
        }
        self.renew(owner, now_ns);
    }

    /// Keeps when the last packet came, where that is not what stands there.
    #[inline(always)]
    fn renew(&self, owner: Owner, now_ns: u64) {
        if let Some(renewed) = owner.renewed_at(now_ns) {
            self.owner.set(renewed.0);
        }
    }

    /// What the narrow record of a short flow counts with this packet; `None` when the flow would
    /// exceed its threshold or outgrow it.
    #[inline(always)]
    pub(super) fn counted_narrow(
        &self,
        packets: u64,
        bytes: u64,
        is_long: impl Fn(ThresholdIndex, u64, u64) -> bool,
    ) -> Option<Counted> {
        let (first, second) = (self.first.get(), self.second.get());
        let packets = (first >> PACKETS_SHIFT & NARROW_PACKETS) + packets;
        let bytes = (second & NARROW_BYTES) + bytes;
        let outgrows = packets > NARROW_PACKETS || bytes > NARROW_BYTES;
        let threshold = ThresholdIndex::numbered(first >> THRESHOLD_SHIFT);
        if is_long(threshold, packets, bytes) || outgrows {
            return None;
        }
        Some(Counted {
            first: first & (START_LOW | THRESHOLD_BITS) | packets << PACKETS_SHIFT,
            second: second & START_HIGH | bytes,
        })
    }

    /// Keeps that in the record of a short flow, with when its packets drain: now, where that is not known.
    #[inline(always)]
    pub(super) fn set_narrow(
        &self,
        owner: Owner,
        to: Counted,
        drained_ns: Option<u64>,
        now_ns: u64,
    ) {
        self.set_counted(to, drained_ns, now_ns);
        self.renew(owner, now_ns);
    }

    #[inline(always)]
    fn set_counted(&self, to: Counted, drained_ns: Option<u64>, now_ns: u64) {
        let drained = match drained_ns {
            Some(drained_ns) => drain(drained_ns, now_ns & !WITHIN_STAMP, now_ns),
            // `drain` of now, which never is too much.
            None => (now_ns & WITHIN_STAMP) >> TIME_UNIT_BITS,
        };
        self.first.set(to.first);
        self.second.set(to.second | drained << DRAIN_SHIFT);
    }

    /// The same of a flow of which this is the first packet.
    #[inline(always)]
    pub(super) fn set_first(
        &self,
        owner: Owner,
        packets: u64,
        bytes: u64,
        drained_ns: Option<u64>,
        now_ns: u64,
    ) {
        let start = now_ns >> START_UNIT_BITS;
        let counted = Counted {
            first: start & START_LOW | packets << PACKETS_SHIFT,
            second: (start >> 24) << 48 | bytes,
        };
        self.set_counted(counted, drained_ns, now_ns);
        self.owner.set(owner.seen_at(now_ns).0);
    }

    /// What is known of the flow that `owner` was read of.
    #[inline(always)]
    pub(super) fn unpack(&self, owner: Owner, now_ns: u64) -> FlowEntry {
        let (first, second) = (self.first.get(), self.second.get());
        let last_seen_ns = owner.last_seen_ns(now_ns);
        let start = (first & ((1 << 24) - 1)) | (second >> 48) << 24;
        let (packets, bytes) = (first >> PACKETS_SHIFT & WIDE_PACKETS, second & WIDE_BYTES);
        let mut entry = FlowEntry {
            packets,
            bytes,
            first_seen_ns: start_ns(start, now_ns),
            last_seen_ns,
            // A wide record knows no better: late, and long ago.
            drained_ns: last_seen_ns + (1 << STAMP_BITS),
            long_since_ns: (owner.0 & Owner::LONG) / Owner::LONG,
            flags: (owner.0 / Owner::ON_LONG_TUNNEL) & FLAGS,
            changes: first >> CHANGES_SHIFT,
        };
        if owner.is_wide() && !entry.is_placed() {
            entry.flags |= entry.changes << FlowEntry::STAGE_SHIFT & FlowEntry::STAGE;
            entry.changes = 0;
            entry.packets = packets & UNPLACED_PACKETS;
            entry.set_threshold(ThresholdIndex::numbered(first >> WIDE_THRESHOLD_SHIFT));
        }
        if !owner.is_wide() {
            entry.changes = 0;
            entry.packets = packets & NARROW_PACKETS;
            entry.bytes = bytes & NARROW_BYTES;
            entry.drained_ns = last_seen_ns + ((bytes >> DRAIN_SHIFT) << TIME_UNIT_BITS);
            let waited = first >> WAITED_SHIFT;
            if owner.0 & Owner::LONG == 0 {
                entry.flags |= waited << FlowEntry::STAGE_SHIFT & FlowEntry::STAGE;
                entry.set_threshold(ThresholdIndex::numbered(first >> THRESHOLD_SHIFT));
            } else {
                let waited_ns = waited << TIME_UNIT_BITS;
                entry.long_since_ns = (last_seen_ns + (1 << STAMP_BITS))
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
        let mut flags = (entry.flags & FLAGS) * Owner::ON_LONG_TUNNEL;
        if entry.long_since_ns != 0 {
            flags |= Owner::LONG;
        }
        let is_narrow =
            !entry.is_placed() && entry.packets <= NARROW_PACKETS && entry.bytes <= NARROW_BYTES;
        if is_narrow {
            let seen_ns = now_ns & !WITHIN_STAMP;
            first |= entry.packets << PACKETS_SHIFT;
            second |= entry.bytes;
            second |= drain(entry.drained_ns, seen_ns, now_ns) << DRAIN_SHIFT;
            if entry.long_since_ns == 0 {
                first |= (entry.stage() as u64) << WAITED_SHIFT;
                first |= entry.threshold().number() << THRESHOLD_SHIFT;
            } else {
                let waited_ns = (seen_ns + (1 << STAMP_BITS)).saturating_sub(entry.long_since_ns);
                first |= up_to_units(waited_ns) << WAITED_SHIFT;
            }
        } else {
            flags |= Owner::WIDE;
            if entry.is_placed() {
                first |= at_most(entry.packets, WIDE_PACKETS) << PACKETS_SHIFT;
                first |= at_most(entry.changes, FlowEntry::MOST_CHANGES) << CHANGES_SHIFT;
            } else {
                first |= at_most(entry.packets, UNPLACED_PACKETS) << PACKETS_SHIFT;
                first |= entry.threshold().number() << WIDE_THRESHOLD_SHIFT;
                first |= (entry.stage() as u64) << CHANGES_SHIFT;
            }
            second |= at_most(entry.bytes, WIDE_BYTES);
        }
        let name = owner.0 & (Owner::NAME | Owner::OVERFLOW);
        self.first.set(first);
        self.second.set(second);
        self.owner
            .set(name | flags | (stamp(now_ns) << Owner::STAMP_SHIFT));
    }
}

/// In units from the stamp of the last packet on; what lies ahead is rather
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
