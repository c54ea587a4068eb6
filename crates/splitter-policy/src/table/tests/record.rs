//! What a record keeps of a flow.

use super::*;
use crate::flow::{Class, FlowEntry};
use crate::share::Stage;
use crate::thresholds::ThresholdIndex;
use proptest::prelude::*;

/// A record with `entry` packed at [`NOW_NS`].
pub(crate) fn packed(entry: &FlowEntry) -> Record {
    let record = Record::default();
    record.pack(Owner::of(&random_v4(1)), entry, NOW_NS);
    record
}

/// The slot of a known flow with this record.
pub(crate) fn slot(record: &Record) -> SlotGuard<'_> {
    SlotGuard::known(0, record, record.owner())
}

/// Entries as a table may hold them.
pub(crate) fn entries() -> impl Strategy<Value = FlowEntry> {
    let counts = (1u64..1 << 42, 1u64..1 << 50, 0u32..40, 0u32..40);
    let times = (
        0u64..1 << 40,
        0u64..20_000_000_000,
        0u64..20_000_000_000,
        (0u64..8, 0u64..64),
        0u64..8,
    );
    (counts, times).prop_map(
        |((packets, bytes, p, b), (first, drain, waited, (flags, threshold), changes))| {
            let now = NOW_NS;
            FlowEntry {
                packets: (packets >> p).max(1),
                bytes: (bytes >> b).max(1),
                first_seen_ns: now - first,
                last_seen_ns: now,
                drained_ns: now + drain,
                long_since_ns: if waited % 2 == 0 { 0 } else { now - waited },
                flags: flags | threshold << FlowEntry::THRESHOLD_SHIFT,
                changes,
            }
        },
    )
}

/// When they were last seen.
pub(crate) const NOW_NS: u64 = 400_000 * SECOND + 123_456_789;

proptest! {
    #[test]
    fn what_is_packed_is_what_was_known(
        mut entry in entries(),
        stage in 0u64..4,
        threshold in 0u64..64,
        later_ns in 0u64..80_000 * SECOND,
    ) {
        entry.set_stage(Stage::numbered(stage));
        entry.set_threshold(ThresholdIndex::numbered(threshold));
        const UNIT: u64 = 1 << 16;
        const STAMP: u64 = 1 << 24;
        let record = Record::default();
        let owner = Owner::of(&random_v4(1));
        record.pack(owner, &entry, NOW_NS);
        prop_assert_eq!(record.owner().differs(owner), 0);
        let found = record.unpack(record.owner(), NOW_NS + later_ns);

        let packet_bits = if entry.is_placed() { 37 } else { 31 };
        prop_assert_eq!(found.packets, entry.packets.min((1 << packet_bits) - 1));
        prop_assert_eq!(found.bytes, entry.bytes.min((1 << 48) - 1));
        prop_assert_eq!(found.class(), entry.class());
        let is_wide = record.owner().is_wide();
        let has_stage = !entry.is_placed() && (is_wide || entry.class() == Class::Short);
        let of_short = FlowEntry::STAGE | FlowEntry::THRESHOLD;
        let kept = if has_stage { entry.flags } else { entry.flags & !of_short };
        prop_assert_eq!(found.flags, kept);
        prop_assert!(found.last_seen_ns <= NOW_NS && NOW_NS - found.last_seen_ns < STAMP);
        prop_assert!(entry.first_seen_ns - found.first_seen_ns < 1_024);
        let is_narrow = !record.owner().is_wide();
        prop_assert_eq!(found.changes, if entry.is_placed() { entry.changes } else { 0 });
        prop_assert_eq!(is_narrow, !entry.is_placed() && entry.packets < 1 << 20 && entry.bytes < 1 << 28);
        if is_narrow {
            // Never early, and late by a unit at the most.
            prop_assert!(found.drained_ns + UNIT >= entry.drained_ns);
            prop_assert!(entry.drained_ns == NOW_NS || found.drained_ns >= entry.drained_ns);
            prop_assert!(found.drained_ns <= entry.drained_ns + UNIT);
            if entry.class() == Class::Long {
                prop_assert!(entry.long_since_ns.abs_diff(found.long_since_ns) <= UNIT);
            }
        }
    }

    /// A coarse clock lags behind the precise one that a packet was timed by.
    #[test]
    fn a_lagging_clock_makes_no_drain_earlier(now_ns in NOW_NS..NOW_NS + SECOND, lag_ns in 0u64..20_000_000, drain_ns in 0u64..SECOND) {
        let record = Record::default();
        let entry = FlowEntry {
            packets: 50,
            bytes: 50_000,
            first_seen_ns: now_ns,
            last_seen_ns: now_ns,
            drained_ns: now_ns + drain_ns,
            long_since_ns: now_ns,
            flags: 0,
            changes: 0,
        };
        record.pack(Owner::of(&random_v4(1)), &entry, now_ns);
        let found = record.unpack(record.owner(), now_ns - lag_ns);
        prop_assert!(found.drained_ns + (1 << 16) >= entry.drained_ns);
        prop_assert!(found.drained_ns <= entry.drained_ns + (1 << 16));
        prop_assert!(found.long_since_ns.abs_diff(now_ns) <= 1 << 16);
        prop_assert!(found.first_seen_ns.abs_diff(now_ns) < 1_024);
    }
}
