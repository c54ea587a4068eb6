//! By what a tunnel is watched, as the configuration says it.

use std::time::Duration;

use splitter_common::flow::Tunnel;

use super::key::ProbeKey;
use super::line::Line;
use super::machine::Timing;
use super::watch::TunnelWatch;
use super::wire::Nonce;
use crate::config::{self, Config, Dscp};

pub(super) fn of_config(config: &Config, tunnel: Tunnel) -> &config::Tunnel {
    match tunnel {
        Tunnel::Short => &config.short,
        Tunnel::Long => &config.long,
    }
}

/// The mark that probes bear: that of the tunnel's own class.
fn mark(config: &Config, tunnel: Tunnel) -> Dscp {
    match tunnel {
        Tunnel::Short => config.marks.short,
        Tunnel::Long => config.marks.long,
    }
}

/// All that a tunnel is watched by.
pub(super) fn subject(config: &Config, tunnel: Tunnel) -> impl PartialEq {
    let of_tunnel = of_config(config, tunnel);
    (
        of_tunnel.device.clone(),
        of_tunnel.gateway,
        of_tunnel.peer,
        mark(config, tunnel),
        config.health.clone(),
    )
}

pub(super) fn line(config: &Config, tunnel: Tunnel, identity: Option<&(ProbeKey, Nonce)>) -> Line {
    let identity = identity.map(|(key, nonce)| (key, *nonce));
    let watch = |prober, has_neighbour| {
        TunnelWatch::new(timing(config), prober, has_neighbour, false, Duration::ZERO)
    };
    let (of_tunnel, mark) = (of_config(config, tunnel), mark(config, tunnel));
    Line::new(tunnel, of_tunnel, mark, &config.health, identity, watch)
}

pub(super) fn timing(config: &Config) -> Timing {
    Timing {
        interval: config.health.interval,
        dead_after: config.health.dead_after,
        hold_down: config.health.hold_down,
        max_hold_down: config.health.max_hold_down,
    }
}
