//! How the agent shapes tunnels that both classes share.

use std::time::Duration;

use splitter_policy::flow::TunnelRole;

use super::super::document::{Document, Section};
use super::super::leaf::integer;
use super::super::tunnels::all_places;
use super::super::{CloudburstQueue, Config, Dscp, Share};

const SHAPE_PERCENT: u32 = 97;
const QUEUE_MS: u32 = 20;
const MAX_QUEUE_MS: u32 = 1_000;
const CLOUDBURST_PACKETS: u32 = 4;
const MAX_CLOUDBURST_PACKETS: u32 = 1_000;
const CLOUDBURST_PERCENT: u32 = 25;

/// Reads the section.
pub(super) fn share(section: &Section<'_, '_>) -> Share {
    let percent = section.optional("shape_percent", |value| {
        integer(value, 50..=100, "percent (the default is 97)")
    });
    let queue_ms = section.optional("queue_ms", |value| {
        integer(value, 1..=MAX_QUEUE_MS, "milliseconds (the default is 20)")
    });
    Share {
        shape_percent: percent.unwrap_or(SHAPE_PERCENT),
        queue: Duration::from_millis(queue_ms.unwrap_or(QUEUE_MS).into()),
        cloudburst: cloudburst(section),
    }
}

fn cloudburst(section: &Section<'_, '_>) -> Option<CloudburstQueue> {
    let dscp = section.optional("cloudburst_dscp", |value| {
        let number = integer(value, 1..=63, "")?;
        Dscp::try_from(u8::try_from(number).unwrap_or(u8::MAX))
    });
    let packets = section.optional("cloudburst_packets", |value| {
        integer(
            value,
            1..=MAX_CLOUDBURST_PACKETS,
            "packets (the default is 4)",
        )
    });
    let percent = section.optional("cloudburst_percent", |value| {
        integer(value, 1..=90, "percent (the default is 25)")
    });
    Some(CloudburstQueue {
        dscp: dscp?,
        packets: packets.unwrap_or(CLOUDBURST_PACKETS),
        percent: percent.unwrap_or(CLOUDBURST_PERCENT),
    })
}

/// What sharing needs of other sections.
pub(super) fn check(document: &Document<'_>, config: &Config) {
    if !config.is_shared() {
        return;
    }
    // Which of several the kernel's hash takes is not known, and so neither is what waits there.
    let is_several = |class| config.tunnels_of(class).are_several();
    for class in TunnelRole::ALL
        .into_iter()
        .filter(|class| is_several(*class))
    {
        document.section(class.name()).contradiction(
            "tunnels",
            "policy = \"share\" shapes a single tunnel for each class, and these are several"
                .to_owned(),
            "leave one of them, or set policy = \"dedicated\"",
        );
    }
    for (place, (class, tunnel)) in all_places(document).iter().zip(config.tunnels()) {
        if tunnel.rate_mbit.is_none() && !is_several(class) {
            place.contradiction(
                "rate_mbit",
                "policy = \"share\" shapes the tunnel, for which its rate must be known".to_owned(),
                "give the rate in Mbit/s, or set policy = \"dedicated\"",
            );
        }
    }
    let marks = config.marks;
    let ours = [
        marks.short,
        marks.long,
        marks.short_on_long,
        marks.long_on_short,
    ];
    if let Some(queue) = config.share.cloudburst
        && ours.contains(&queue.dscp)
    {
        document.section("share").contradiction(
            "cloudburst_dscp",
            format!(
                "{} is one of the marks that the splitter writes itself",
                queue.dscp
            ),
            "give the DSCP that Cloudburst's datagrams carry, which is none of those under [marks]",
        );
    }
}
