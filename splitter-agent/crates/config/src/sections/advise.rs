//! `[advise]`: what a threshold is recommended with.

use std::num::NonZeroU32;
use std::time::Duration;

use splitter_advise::ThresholdUnit;

use crate::config::Given;
use crate::declaration::key;
use crate::declare::{Section as _, section};
use crate::key::Change::Set;
use crate::kind::{milliseconds, seconds, whole};
use crate::source::Source;

const PACKETS: [NonZeroU32; 2] = [
    NonZeroU32::new(10).unwrap(),
    NonZeroU32::new(1_000).unwrap(),
];
const BYTES: [NonZeroU32; 2] = [
    NonZeroU32::new(15_000).unwrap(),
    NonZeroU32::new(1_500_000).unwrap(),
];

section! {
    /// Says what a threshold is recommended with (`splitter advise`, threshold = "auto").
    pub struct Advise, GivenAdvise {
        /// No lower threshold is recommended, in flows.unit.
        min: NonZeroU32 = key(
            "min",
            Set,
            whole(1..=u32::MAX).unit("packets or bytes", "in `flows.unit`"),
        )
        .derived("10 packets or 15000 bytes", |given| bounds(given)[0])
        .also("at most `max`")
        .examples(&["10"])
        .trade_off("A bound of what is recommended, whatever the model says.");

        /// No higher threshold is recommended, in flows.unit.
        max: NonZeroU32 = key(
            "max",
            Set,
            whole(1..=u32::MAX).unit("packets or bytes", "in `flows.unit`"),
        )
        .derived("1000 packets or 1500000 bytes", |given| bounds(given)[1])
        .examples(&["1000"])
        .trade_off("A bound of what is recommended, whatever the model says.");

        /// Sets how often a threshold that is "auto" is computed again.
        period: Duration = key("period_s", Set, seconds(1..=86_400))
            .default(Duration::from_secs(60))
            .trade_off("A change takes two periods at least.");

        /// States the round-trip time to the other site without queues.
        rtt: Duration = key("rtt_ms", Set, milliseconds(1..=10_000))
            .default(Duration::from_millis(20))
            .trade_off(
                "Longer: waits count less next to it, and higher thresholds are recommended.",
            );
    }
}

fn bounds(given: &Given) -> [NonZeroU32; 2] {
    match given.flows.unit {
        Some(ThresholdUnit::Bytes) => BYTES,
        Some(ThresholdUnit::Packets) | None => PACKETS,
    }
}

pub(super) fn bounds_are_in_order(source: &Source<'_>, given: &Given) {
    let Some(advise) = Advise::complete(&given.advise, given) else {
        return;
    };
    if advise.min > advise.max {
        source.section("advise").contradiction(
            "min",
            format!(
                "the lowest threshold, {}, is above the highest, {}",
                advise.min, advise.max
            ),
            "make min smaller or max larger",
        );
    }
}
