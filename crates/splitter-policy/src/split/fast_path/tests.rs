//! The short cut of steady packets, next to the whole policy.

use super::*;
use crate::classify::classify_by_site;
use crate::config::{PolicyConfig, TunnelUse, Unit};
use crate::counters::Counters;
use crate::models::HostQueues;
use crate::packet::TcpFlags;
use crate::split::tests::FixedClock;
use crate::table::tests::Groups;
use crate::table::tests::record::{NOW_NS, entries, packed, slot};
use crate::table::{Layout, Table};
use crate::thresholds::{ThresholdIndex, Thresholds};
use flow_balance::ServiceTime;
use proptest::prelude::*;

proptest! {
    /// The short cut says and keeps what the whole policy would.
    #[test]
    fn a_steady_packet_is_counted_as_classify_would(
        entry in entries(),
        later_ns in 0u64..40_000_000_000,
        bytes in 60u64..70_000,
        segments in 1u64..45,
        threshold in 1u64..1 << 21,
        own in proptest::option::of(1u64..1 << 21),
        site in 0u64..4,
        in_bytes: bool,
        (short_rate, long_rate) in (0u64..2, 0u64..2),
        is_shared: bool,
        carries_data: bool,
    ) {
        let uniform = Thresholds::uniform(threshold);
        let thresholds = match own {
            Some(own) => uniform.followed_by(threshold, [own]).expect("it fits"),
            None => uniform,
        };
        let config = PolicyConfig {
            thresholds,
            unit: if in_bytes { Unit::BYTES } else { Unit::PACKETS },
            short_service: ServiceTime::from_bits_per_second(short_rate * 100_000_000),
            long_service: ServiceTime::from_bits_per_second(long_rate * 100_000_000),
            tunnel_use: if is_shared { TunnelUse::SHARED } else { TunnelUse::DEDICATED },
            ..PolicyConfig::default()
        };
        let packet = FlowPacket { segments, bytes, flags: TcpFlags(0x10), payload_bytes: carries_data.into() };
        // Counts that saturate are another matter.
        prop_assume!(entry.packets < 1 << 39 && entry.bytes < 1 << 47);
        let (steady, whole) = (packed(&entry), packed(&entry));
        let now_ns = NOW_NS + later_ns;
        let (mut models, mut models_whole) = (HostQueues::default(), HostQueues::default());
        let (layout, mut counters) = (Layout::for_flows(4, [3, 5, 7, 11, 13, 17, 19, 23, 29, 31]), Counters::ZERO);
        let groups = Groups::new(&layout);
        let mut splitter = Splitter {
            config: &config,
            table: Table { memory: &groups, layout: &layout },
            clock: FixedClock(now_ns),
            models: &mut models,
            counters: &mut counters,
        };
        if let Some(said) = splitter.count_steady(&slot(&steady), packet, now_ns) {
            let mut entry = slot(&whole).entry(now_ns);
            let find = || ThresholdIndex::numbered(site);
            let verdict = classify_by_site(&mut entry, packet, &config, &mut models_whole, find, now_ns);
            slot(&whole).commit(&entry, now_ns);
            let egress = Egress { hand_over: verdict.hand_over, queue_class: verdict.queue_class, tunnel: verdict.tunnel };
            prop_assert_eq!(said, match said {
                Steady::Own(_) => Steady::Own(verdict.class),
                Steady::Placed(_) => Steady::Placed(egress),
            });
            prop_assert_eq!(egress.tunnel, if is_shared { egress.tunnel } else { verdict.class.own_tunnel() });
            prop_assert_eq!((verdict.start, verdict.hand_over, verdict.completed_ns), (None, None, None));
            prop_assert!(!verdict.became_long);
            prop_assert_eq!(models, models_whole);
            prop_assert_eq!(slot(&steady).entry(now_ns), slot(&whole).entry(now_ns));
        }
    }
}
