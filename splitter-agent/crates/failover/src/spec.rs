//! By what a tunnel is watched, as the configuration says it.

use splitter_config::{Config, Dscp, Health, Tunnel};
use splitter_health::Timing;
use splitter_policy::flow::TunnelRole;

/// All that a tunnel is watched by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MonitorSpec {
    /// Its place among all tunnels, by which the peer's answers are distinguished.
    pub(super) number: u8,
    pub(super) role: TunnelRole,
    pub(super) tunnel: Tunnel,
    /// The mark that probes bear: that of the tunnel's own class.
    pub(super) mark: Dscp,
    pub(super) health: Health,
}

/// Every tunnel of a configuration.
pub(super) fn specs(config: &Config) -> Vec<MonitorSpec> {
    let numbered = (0..).zip(config.tunnels());
    let specs = numbered.map(|(number, (role, tunnel))| MonitorSpec {
        number,
        role,
        tunnel: Tunnel {
            // Neither has to do with how it is watched.
            weight: std::num::NonZeroU8::MIN,
            rate_mbit: None,
            peer: tunnel.peer.filter(|_| config.health.enabled),
            ..tunnel.clone()
        },
        mark: match role {
            TunnelRole::Short => config.marks.short,
            TunnelRole::Long => config.marks.long,
        },
        health: config.health.clone(),
    });
    specs.collect()
}

pub(super) fn timing(health: &Health) -> Timing {
    Timing {
        interval: health.interval,
        dead_after: health.dead_after,
        hold_down: health.hold_down,
        max_hold_down: health.max_hold_down,
    }
}
