//! What packets meet that go past the network stack, where that is asked for.

use splitter_config::{Config, SteeringMode};
use splitter_netlink::{Interfaces, Netlink, NetlinkError};
use splitter_steering::redirection::{Hint, hidden_tags, hindrance, other_ways};

use super::Check;

pub(super) async fn examine(
    netlink: &Netlink,
    interfaces: &Interfaces,
    config: &Config,
) -> Result<Vec<Check>, NetlinkError> {
    let mut checks = Vec::new();
    // A shadow redirects nothing.
    if config.steering.mode != SteeringMode::Redirect || config.shadow {
        return Ok(checks);
    }
    for (_, tunnel) in config.tunnels() {
        let check = format!("redirecting into {}", tunnel.device);
        let Ok(interface) = interfaces.named(&tunnel.device) else {
            continue;
        };
        checks.push(match hindrance(interface, config.attach.mode).await {
            None => Check::ok(check, "possible"),
            Some(problem) => Check::warn(
                check,
                format!("{problem}: its packets go by the network stack"),
                "if that is so for all tunnels, set steering.mode = \"dscp\"",
            ),
        });
    }
    let warn = |check: &'static str| {
        move |Hint { problem, remedy }: Hint| Check::warn(check, problem, remedy)
    };
    let tags = hidden_tags(interfaces, config).await.into_iter();
    checks.extend(tags.map(warn("VLAN tags")));
    let ways = other_ways(netlink, interfaces, config).await?.into_iter();
    checks.extend(ways.map(warn("redirecting IPv6")));
    Ok(checks)
}
