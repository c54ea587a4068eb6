//! What packets meet that go past the network stack, where that is asked for.

use splitter_config::{Config, SteeringMode};
use splitter_netlink::{Interfaces, Netlink, NetlinkError};
use splitter_policy::flow::TunnelRole;
use splitter_steering::redirection::{Hint, hidden_tags, hindrance, other_ways, unequal_mtus};

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
    let mut takes = Vec::new();
    for (role, tunnel) in config.tunnels() {
        let check = format!("redirecting into {}", tunnel.device);
        let Ok(interface) = interfaces.named(&tunnel.device) else {
            // Another check says that it is not there; what it takes is not known.
            takes.push(role);
            continue;
        };
        checks.push(match hindrance(interface, config.attach.mode).await {
            None => {
                takes.push(role);
                Check::ok(check, "possible")
            }
            Some(problem) => Check::warn(
                check,
                match config.balancers() {
                    Some(_) => format!("{problem}: no packet chooses it, and what is its class's goes by the network stack"),
                    None => format!("{problem}: its packets go by the network stack"),
                },
                "if that is so for all tunnels, set steering.mode = \"dscp\"",
            ),
        });
    }
    let lacking = TunnelRole::ALL.into_iter().find(|it| !takes.contains(it));
    if let Some(class) = lacking.filter(|_| config.balancers().is_some()) {
        checks.push(Check::warn(
            "choice of tunnels",
            format!(
                "packets can be put into no tunnel of the {} class, so that none chooses",
                class.name()
            ),
            "set steering.mode to \"mark\" or \"dscp\", which choose among tunnels of any kind",
        ));
    }
    let warn = |check: &'static str| {
        move |Hint { problem, remedy }: Hint| Check::warn(check, problem, remedy)
    };
    let tags = hidden_tags(interfaces, config).await.into_iter();
    checks.extend(tags.map(warn("VLAN tags")));
    let mtus = unequal_mtus(interfaces, config).await;
    checks.extend(mtus.map(warn("MTU of tunnels")));
    let ways = other_ways(netlink, interfaces, config).await?.into_iter();
    checks.extend(ways.map(warn("redirecting IPv6")));
    Ok(checks)
}
