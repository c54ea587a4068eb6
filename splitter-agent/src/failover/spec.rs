//! By what a tunnel is watched, as the configuration says it.

use std::time::Duration;

use splitter_config::{Config, Dscp, Health, Tunnel};
use splitter_health::{Nonce, ProbeKey, Timing, TunnelWatch};
use splitter_policy::flow::TunnelRole;

use super::monitored_tunnel::Line;

/// All that a tunnel is watched by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// Its place among all tunnels, by which the peer's answers are told apart.
    pub(super) number: u8,
    pub(super) home: TunnelRole,
    pub(super) tunnel: Tunnel,
    /// The mark that probes bear: that of the tunnel's own class.
    pub(super) mark: Dscp,
    pub(super) health: Health,
}

/// Every tunnel of a configuration.
pub(super) fn subjects(config: &Config) -> Vec<Subject> {
    let numbered = (0..).zip(config.tunnels());
    let subjects = numbered.map(|(number, (home, tunnel))| Subject {
        number,
        home,
        tunnel: Tunnel {
            // Neither has to do with how it is watched.
            weight: std::num::NonZeroU8::MIN,
            rate_mbit: None,
            ..tunnel.clone()
        },
        mark: match home {
            TunnelRole::Short => config.marks.short,
            TunnelRole::Long => config.marks.long,
        },
        health: config.health.clone(),
    });
    subjects.collect()
}

pub(super) fn line(subject: Subject, identity: Option<&(ProbeKey, Nonce)>) -> Line {
    let timing = timing(&subject.health);
    let watch = |prober, has_neighbour| {
        TunnelWatch::new(timing, prober, has_neighbour, false, Duration::ZERO)
    };
    Line::new(subject, identity, watch)
}

pub(super) fn timing(health: &Health) -> Timing {
    Timing {
        interval: health.interval,
        dead_after: health.dead_after,
        hold_down: health.hold_down,
        max_hold_down: health.max_hold_down,
    }
}
