//! `[handover]`: when a flow that has become long changes tunnels.

use std::num::NonZeroU32;
use std::time::Duration;

use splitter_policy::config::PolicyConfig;

use super::Tunnels;
use super::share::QUEUE;
use crate::TunnelPolicy;
use crate::config::Given;
use crate::declaration::key;
use crate::declare::{Section as _, section};
use crate::key::Change::Set;
use crate::kind::{microseconds, milliseconds};
use crate::source::Source;

const MARGIN_WITH_RATE: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_DRAIN_MARGIN_NS);
const MARGIN_WITHOUT_RATE: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_GAP_NS);
const MAX_WAIT_WITH_RATES: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_MAX_WAIT_NS);
const MOST_MAX_WAIT_WITH_RATES: Duration = Duration::from_millis(20);
const MAX_WAIT_WITHOUT_RATES: Duration =
    Duration::from_nanos(PolicyConfig::DEFAULT_BLIND_MAX_WAIT_NS);
const MAX_WAIT_SHARED: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_SHARED_MAX_WAIT_NS);
const LONG_QUEUE: Duration = Duration::from_millis(5);

section! {
    /// Says when a flow that has become long is handed over to the long tunnel, without being
    /// reordered; see docs.
    pub struct Handover, GivenHandover {
        /// Limits by how much a packet in the short tunnel may be overtaken by a later one in the
        /// long tunnel. With short.rate_mbit this is added to the computed drain time, without
        /// it this is the gap to wait for.
        drain_margin: Duration = key("drain_margin_us", Set, microseconds(0..=10_000_000))
            .derived(
                "500 with `short.rate_mbit`, else 10000; never more than `max_wait_ms`",
                drain_margin,
            )
            .also("without `short.rate_mbit` not 0, and at most `max_wait_ms`")
            .examples(&["500"])
            .trade_off(
                "Longer: fewer packets out of order, more packets of long flows in the short \
                 tunnel.",
            );

        /// Limits how long a flow waits for a pause to be handed over in. Then it is made to
        /// pause, by drops, where both rates are known; else it goes all the same. With policy =
        /// "share" it stays where it is.
        max_wait: Duration = key("max_wait_ms", Set, milliseconds(1..=60_000))
            .derived(
                "200 divided by `short.rate_mbit`, 2 to 20, with both `rate_mbit` and a single tunnel \
                 for each class; else 12; 5 with `policy = \"share\"`",
                max_wait,
            )
            .examples(&["2"])
            .trade_off(
                "Shorter: short flows are rid of it sooner, and fewer flows find a pause of their \
                 own: more drops, or where a rate is not known more packets out of order. With \
                 `share` a flow stays, too, that has sent as much again as made it long.",
            );

        /// States how much traffic the queue in front of the long tunnel holds at least. Counts
        /// where both rates are known; the more is stated, the sooner flows change tunnels.
        long_queue: Duration = key("long_queue_ms", Set, milliseconds(0..=60_000))
            .derived(
                "5; with `policy = \"share\"` 90 % of `share.queue_ms`",
                long_queue,
            )
            .examples(&["5"])
            .trade_off("More than is true: flows overtake themselves.");
    }
}

/// The rates of the tunnels, as far as a file gives them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// It is known when packets of the short class have drained.
    pub(super) short: bool,
    /// Both classes have a single tunnel whose rate is known.
    pub(super) both: bool,
    /// A class has several tunnels.
    pub(super) has_several: bool,
}

impl Rates {
    pub(super) fn of(given: &Given) -> Self {
        let [short, long] = [&given.short, &given.long].map(Option::as_ref);
        let is_known = |it: &Tunnels| it.slowest_rate_mbit().is_some();
        let is_single = |it: &Tunnels| it.only().is_some() && is_known(it);
        Self {
            short: short.is_some_and(is_known),
            both: short.is_some_and(is_single) && long.is_some_and(is_single),
            has_several: [short, long]
                .into_iter()
                .flatten()
                .any(Tunnels::are_several),
        }
    }
}

fn is_shared(given: &Given) -> bool {
    given.policy == Some(TunnelPolicy::Share)
}

fn drain_margin(given: &Given) -> Duration {
    let margin = match Rates::of(given).short {
        true => MARGIN_WITH_RATE,
        false => MARGIN_WITHOUT_RATE,
    };
    margin.min(given.handover.max_wait.unwrap_or_else(|| max_wait(given)))
}

fn max_wait(given: &Given) -> Duration {
    match Rates::of(given).both {
        _ if is_shared(given) => MAX_WAIT_SHARED,
        true => short_rate_mbit(given).map_or(MAX_WAIT_WITH_RATES, max_wait_at),
        false => MAX_WAIT_WITHOUT_RATES,
    }
}

/// As long as some 16 full packets take, so that a flow which ends just after the threshold is spared.
fn max_wait_at(mbit: NonZeroU32) -> Duration {
    const MBIT_MS: u32 = 200;
    let ms = MBIT_MS.div_ceil(mbit.get());
    Duration::from_millis(ms.into()).clamp(MAX_WAIT_WITH_RATES, MOST_MAX_WAIT_WITH_RATES)
}

fn short_rate_mbit(given: &Given) -> Option<NonZeroU32> {
    given.short.as_ref()?.only()?.rate_mbit
}

fn long_queue(given: &Given) -> Duration {
    match is_shared(given) {
        // A little less than all, for what a packet's header takes.
        true => given.share.queue.unwrap_or(QUEUE) * 9 / 10,
        false => LONG_QUEUE,
    }
}

/// The margin is no gap of 0, and no longer than the longest wait.
pub(super) fn margin_is_within_the_wait(source: &Source<'_>, given: &Given) {
    let Some(handover) = Handover::complete(&given.handover, given) else {
        return;
    };
    let section = source.section("handover");
    if handover.drain_margin.is_zero() && !Rates::of(given).short {
        section.contradiction(
            "drain_margin_us",
            "without short.rate_mbit this is the gap to wait for, and any packet follows a gap of 0"
                .to_owned(),
            "set short.rate_mbit, or leave drain_margin_us out (then it is 10000)",
        );
    }
    if handover.drain_margin > handover.max_wait && !Rates::of(given).short {
        let margin_us = handover.drain_margin.as_micros();
        let max_wait_ms = handover.max_wait.as_millis();
        section.contradiction(
            "drain_margin_us",
            format!(
                "the drain margin of {margin_us} us is longer than the longest wait of \
                 {max_wait_ms} ms, so only that would ever count"
            ),
            "make drain_margin_us smaller or max_wait_ms larger",
        );
    }
}
