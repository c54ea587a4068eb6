//! `[share]`: how the agent shapes tunnels that both classes share.

use std::time::Duration;

use splitter_policy::flow::TunnelRole;

use super::tunnels::all_places;
use crate::Config;
use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::Reload;
use crate::kind::{enumeration, milliseconds, whole, word};
use crate::source::Source;
use crate::values::Dscp;

/// What the queue of each class holds unless a file says otherwise.
pub(super) const QUEUE: Duration = Duration::from_millis(20);
/// What the queue of each class may hold at most.
const LONGEST_QUEUE_MS: u32 = 1_000;

section! {
    /// Says how tunnels are shaped with policy = "share"; see docs.
    pub struct Share, GivenShare {
        /// Sets the part of its rate_mbit to which each tunnel is shaped. Packets must queue here
        /// and not behind, or priority decides nothing.
        shape_percent: u32 = key(
            "shape_percent",
            Reload,
            whole(50..=100).unit("percent", "%"),
        )
        .default(97)
        .trade_off("More than the tunnel really carries, and priority is lost.");

        /// Limits how much traffic the queue of each class holds, at that rate.
        queue: Duration = key("queue_ms", Reload, milliseconds(1..=LONGEST_QUEUE_MS))
            .default(QUEUE)
            .trade_off("Longer: fewer drops, later feedback to senders.");

        /// The queue of the long class is one of these: "fifo", "fq_codel".
        long_queue: LongQueue = key("long_queue", Reload, word())
            .default(LongQueue::Fifo)
            .trade_off(
                "With `fq_codel` long flows do not wait for each other, and their senders hear of a \
                 queue after some 5 ms, by ECN where they have it. Not every kernel has it.",
            );

        /// Cloudburst's datagrams, known by this DSCP, have a tiny queue of their own.
        cloudburst_dscp: Option<Dscp> = key("cloudburst_dscp", Reload, whole(1..=63))
            .optional("off")
            .also("none of `[marks]`")
            .examples(&["44"])
            .off()
            .trade_off("Cloudburst §III-C.");

        /// Limits how many packets that queue holds.
        cloudburst_packets: u32 = key(
            "cloudburst_packets",
            Reload,
            whole(1..=1_000).unit("packets", "packets"),
        )
        .default(4)
        .off()
        .trade_off("The rest is dropped, as Cloudburst wants it.");

        /// Limits how much of a tunnel that queue gets.
        cloudburst_percent: u32 = key(
            "cloudburst_percent",
            Reload,
            whole(1..=90).unit("percent", "%"),
        )
        .default(25)
        .off()
        .trade_off("More: a burst of datagrams takes more from the other flows.");
    }
}

enumeration! {
    /// The queueing discipline of the long class.
    LongQueue {
        /// One queue for all, which every kernel has.
        Fifo = "fifo",
        /// A queue of its own for each flow, kept short by dropping or marking (RFC 8290).
        FqCodel = "fq_codel",
    }
}

/// The queue of a few packets that Cloudburst's datagrams get (Cloudburst §III-C).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudburstQueue {
    /// The mark of the datagrams.
    pub dscp: Dscp,
    /// The packets that the queue holds at most.
    pub packets: u32,
    /// The part of a tunnel that the queue gets at most, in percent.
    pub percent: u32,
}

impl Share {
    /// The longest queue that a file may ask for.
    pub const LONGEST_QUEUE: Duration = Duration::from_millis(LONGEST_QUEUE_MS as u64);

    /// Returns the queue for Cloudburst's datagrams, where they have one.
    #[must_use]
    pub fn cloudburst(&self) -> Option<CloudburstQueue> {
        Some(CloudburstQueue {
            dscp: self.cloudburst_dscp?,
            packets: self.cloudburst_packets,
            percent: self.cloudburst_percent,
        })
    }
}

/// Sharing needs a single tunnel of known rate for each class.
pub(super) fn tunnels_can_be_shaped(source: &Source<'_>, config: &Config) {
    // Several sites are refused whatever their tunnels.
    if !config.is_shared() || config.has_several_sites() {
        return;
    }
    // Which of several the kernel's hash takes is not known, and so neither is what waits there.
    // With `balance` it is.
    let is_several = |class| config.balancers().is_none() && config.tunnels_of(class).are_several();
    for class in TunnelRole::ALL
        .into_iter()
        .filter(|class| is_several(*class))
    {
        source.section(class.name()).contradiction(
            "tunnels",
            "policy = \"share\" shapes a single tunnel for each class, and these are several"
                .to_owned(),
            "leave one of them, or set policy = \"dedicated\"",
        );
    }
    for (place, (class, tunnel)) in all_places(source).iter().zip(config.tunnels()) {
        if tunnel.rate_mbit.is_none() && !is_several(class) {
            place.contradiction(
                "rate_mbit",
                "policy = \"share\" shapes the tunnel, for which its rate must be known".to_owned(),
                "give the rate in Mbit/s, or set policy = \"dedicated\"",
            );
        }
    }
}

/// The mark of Cloudburst's datagrams is none that the splitter writes.
pub(super) fn cloudburst_has_its_own_mark(source: &Source<'_>, config: &Config) {
    let marks = &config.marks;
    let ours = [
        marks.short,
        marks.long,
        marks.short_on_long,
        marks.long_on_short,
    ];
    if let Some(queue) = config.share.cloudburst()
        && config.is_shared()
        && ours.contains(&queue.dscp)
    {
        source.section("share").contradiction(
            "cloudburst_dscp",
            format!(
                "{} is one of the marks that the splitter writes itself",
                queue.dscp
            ),
            "give the DSCP that Cloudburst's datagrams carry, which is none of those under [marks]",
        );
    }
}
