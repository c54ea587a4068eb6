//! What the kernel says of the tunnels' devices.

use std::net::IpAddr;
use std::time::Duration;

use splitter_config::{Gateways, Tunnel};
use splitter_health::LinkState;
use splitter_netlink::{Netlink, NetlinkError};

use super::announce::{log_change, log_link};
use super::monitored_tunnel::MonitoredTunnel;

/// Looks at each tunnel's device, and tells what has changed since it was looked at before.
pub(super) async fn read_links(
    monitored: &mut [MonitoredTunnel],
    netlink: &Netlink,
    now: Duration,
) {
    for tunnel in monitored {
        let before = tunnel.watch.link_state().kind();
        let link = match look(netlink, &tunnel.spec.tunnel).await {
            Ok(link) => link,
            Err(error) => {
                tracing::debug!(device = %tunnel.device, %error, "cannot look at the tunnel");
                continue;
            }
        };
        let is_first = !std::mem::replace(&mut tunnel.was_looked_at, true);
        match tunnel.watch.link(link, now) {
            _ if is_first => {}
            Some(change) => log_change(tunnel, change),
            None if link.kind() != before => log_link(tunnel, before, link.kind()),
            None => {}
        }
    }
}

/// How a tunnel's device is. It is of no use as long as one of its gateways is no next hop: the
/// kernel takes no route by it.
async fn look(netlink: &Netlink, tunnel: &Tunnel) -> Result<LinkState, NetlinkError> {
    let Some(found) = netlink.interface(&tunnel.device).await? else {
        return Ok(LinkState::Absent);
    };
    if !found.is_up || !found.has_carrier {
        return Ok(LinkState::Down(found.index));
    }
    let Gateways { v4, v6 } = tunnel.gateway;
    for gateway in [v4.map(IpAddr::V4), v6.map(IpAddr::V6)]
        .into_iter()
        .flatten()
    {
        if !netlink.is_on_link(gateway, found.index).await? {
            return Ok(LinkState::NoAddress(found.index));
        }
    }
    Ok(LinkState::Up(found.index))
}
