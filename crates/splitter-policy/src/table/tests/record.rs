//! What a record keeps of a flow, and the short cut of steady packets.

use super::*;
use crate::classify::{FlowPacket, classify};
use crate::config::{TunnelUse, Unit};
use crate::flow::{Class, FlowEntry};
use crate::models::TunnelModels;
use crate::packet::TcpFlags;
use crate::share::Ride;
use crate::split::Clock;
use flow_balance::ServiceTime;
use proptest::prelude::*;

fn entries() -> impl Strategy<Value = FlowEntry> {
    let counts = (1u64..1 << 42, 1u64..1 << 50, 0u32..40, 0u32..40);
    let times = (
        0u64..1 << 40,
        0u64..20_000_000_000,
        0u64..20_000_000_000,
        0u64..8,
    );
    (counts, times).prop_map(|((packets, bytes, p, b), (first, drain, waited, flags))| {
        let now = NOW_NS;
        FlowEntry {
            packets: (packets >> p).max(1),
            bytes: (bytes >> b).max(1),
            first_seen_ns: now - first,
            last_seen_ns: now,
            drained_ns: now + drain,
            long_since_ns: if waited % 2 == 0 { 0 } else { now - waited },
            flags,
        }
    })
}

const NOW_NS: u64 = 400_000 * SECOND + 123_456_789;

proptest! {
    #[test]
    fn what_is_packed_is_what_was_known(entry in entries(), later_ns in 0u64..80_000 * SECOND) {
        const UNIT: u64 = 1 << 16;
        const MOMENT: u64 = 1 << 24;
        let record = Record::default();
        let owner = Owner::of(&random_v4(1));
        record.pack(owner, &entry, NOW_NS);
        prop_assert_eq!(record.owner().differs(owner), 0);
        let found = record.unpack(record.owner(), NOW_NS + later_ns);

        prop_assert_eq!(found.packets, entry.packets.min((1 << 40) - 1));
        prop_assert_eq!(found.bytes, entry.bytes.min((1 << 48) - 1));
        prop_assert_eq!(found.class(), entry.class());
        prop_assert_eq!(found.flags, entry.flags);
        prop_assert!(found.last_seen_ns <= NOW_NS && NOW_NS - found.last_seen_ns < MOMENT);
        prop_assert!(entry.first_seen_ns - found.first_seen_ns < 1_024);
        let is_narrow = !record.owner().is_wide();
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
        };
        record.pack(Owner::of(&random_v4(1)), &entry, now_ns);
        let found = record.unpack(record.owner(), now_ns - lag_ns);
        prop_assert!(found.drained_ns + (1 << 16) >= entry.drained_ns);
        prop_assert!(found.drained_ns <= entry.drained_ns + (1 << 16));
        prop_assert!(found.long_since_ns.abs_diff(now_ns) <= 1 << 16);
        prop_assert!(found.first_seen_ns.abs_diff(now_ns) < 1_024);
    }

    /// The short cut says and keeps what the whole policy would.
    #[test]
    fn a_steady_packet_is_counted_as_classify_would(
        entry in entries(),
        later_ns in 0u64..40 * SECOND,
        bytes in 60u64..70_000,
        segments in 1u64..45,
        threshold in 1u64..1 << 21,
        in_bytes: bool,
        (short_rate, long_rate) in (0u64..2, 0u64..2),
        is_shared: bool,
        carries_data: bool,
    ) {
        let config = Config {
            threshold,
            unit: if in_bytes { Unit::BYTES } else { Unit::PACKETS },
            short_service: ServiceTime::from_bits_per_second(short_rate * 100_000_000),
            long_service: ServiceTime::from_bits_per_second(long_rate * 100_000_000),
            tunnel_use: if is_shared { TunnelUse::SHARED } else { TunnelUse::DEDICATED },
            ..Config::default()
        };
        let packet = FlowPacket { segments, bytes, flags: TcpFlags(0x10), payload_bytes: carries_data.into() };
        // Counts that saturate are another matter.
        prop_assume!(entry.packets < 1 << 39 && entry.bytes < 1 << 47);
        let name = Owner::of(&random_v4(1));
        let (steady, whole) = (Record::default(), Record::default());
        steady.pack(name, &entry, NOW_NS);
        whole.pack(name, &entry, NOW_NS);
        let now_ns = NOW_NS + later_ns;
        let opened = |record| Opened::known(0, record, Record::owner(record));
        let (mut models, mut models_whole) = (TunnelModels::default(), TunnelModels::default());
        if let Some(said) = opened(&steady).count_steady(packet, &config, &mut models, &Now(now_ns), now_ns) {
            let opened = opened(&whole);
            let mut entry = opened.entry(now_ns);
            let verdict = classify(&mut entry, packet, &config, &mut models_whole, now_ns);
            opened.store(&entry, now_ns);
            let ride = Ride { moved: verdict.moved, rides: verdict.rides, tunnel: verdict.tunnel };
            prop_assert_eq!(said, match said {
                Steady::Own(_) => Steady::Own(verdict.class),
                Steady::Placed(_) => Steady::Placed(ride),
            });
            prop_assert_eq!(ride.tunnel, if is_shared { ride.tunnel } else { verdict.class.own_tunnel() });
            prop_assert_eq!((verdict.start, verdict.moved, verdict.completed_ns), (None, None, None));
            prop_assert!(!verdict.became_long);
            prop_assert_eq!(models, models_whole);
            prop_assert_eq!(steady.unpack(steady.owner(), now_ns), whole.unpack(whole.owner(), now_ns));
        }
    }
}

/// A clock that stands still.
struct Now(u64);

impl Clock for Now {
    fn coarse_ns(&self) -> u64 {
        self.0
    }

    fn precise_ns(&self) -> u64 {
        self.0
    }
}
