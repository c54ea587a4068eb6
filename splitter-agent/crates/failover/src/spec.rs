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
    /// True where packets choose by the delays that probes measure, for which the kernel notes times.
    pub(super) is_timed: bool,
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
        is_timed: config.balancers().is_some(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_timed_where_some_class_chooses_wherever_that_stands() {
        let is_timed = |top: &str, short: &str, long: &str| {
            let text = format!(
                "lan = 'l'\n{top}\n[short]\ndevice = 'a'\nrate_mbit = 9\n{short}\n[long]\ndevice = 'b'\nrate_mbit = 9\n{long}\n[steering]\nmode = 'mark'\n"
            );
            let config = Config::parse(&text, "t").unwrap();
            specs(&config).iter().all(|it| it.is_timed)
        };
        assert!(is_timed("balance = 'tr'", "", ""));
        assert!(is_timed("", "", "balance = 'tr'"));
        assert!(is_timed("balance = 'placement'", "", ""));
        assert!(!is_timed("", "", ""));
    }
}
