//! What the kernel says of the tunnels' devices.
//!
//! It says so when its turn comes: whoever makes and ends devices, as hosts of containers do all the time, keeps
//! everybody else waiting (the kernel's RTNL lock), for tenths of a second and more. So a look goes on beside the probes.

use std::net::IpAddr;
use std::time::Duration;

use splitter_config::{Gateways, Tunnel};
use splitter_health::LinkState;
use splitter_netlink::{Interfaces, Netlink, NetlinkError};

use super::announce::{log_change, log_link};
use super::monitored_tunnel::MonitoredTunnel;

/// How each tunnel's device was found, in the order of the tunnels; none where the kernel did not say.
pub(super) type FoundLinks = Vec<Option<LinkState>>;

/// Results of a look at the tunnels.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Which tunnels there were.
    pub(super) tunnels: Vec<Tunnel>,
    /// How each tunnel's device is.
    pub(super) links: FoundLinks,
    /// All that there are, where packets choose among the tunnels.
    pub(super) interfaces: Option<Interfaces>,
}

/// The tunnels whose devices are to be looked at.
pub(super) fn tunnels_of(monitored: &[MonitoredTunnel]) -> Vec<Tunnel> {
    monitored.iter().map(|it| it.spec.tunnel.clone()).collect()
}

/// Looks at each tunnel's device.
pub(super) async fn find_links(tunnels: &[Tunnel], netlink: &Netlink) -> FoundLinks {
    let mut found = Vec::with_capacity(tunnels.len());
    for tunnel in tunnels {
        let link = look(netlink, tunnel).await;
        if let Err(error) = &link {
            tracing::debug!(device = %tunnel.device, %error, "cannot look at the tunnel");
        }
        found.push(link.ok());
    }
    found
}

/// All interfaces, read on a thread that may wait for the kernel; none where it does not say.
pub(super) async fn find_interfaces() -> Option<Interfaces> {
    let read = tokio::task::spawn_blocking(Interfaces::now).await;
    read.ok()?.ok()
}

/// Takes how the tunnels' devices were found, and tells what has changed since they were looked at before.
pub(super) fn take_links(monitored: &mut [MonitoredTunnel], found: &FoundLinks, now: Duration) {
    for (tunnel, link) in monitored.iter_mut().zip(found) {
        let Some(link) = *link else { continue };
        let before = tunnel.watch.link_state().kind();
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
