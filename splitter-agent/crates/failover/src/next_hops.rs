//! Next hops of tunnels that packets are redirected into.

use std::net::IpAddr;

use splitter_config::{Config, Gateways, SteeringMode};
use splitter_health::LinkState;
use splitter_netlink::{NeighbourState, Netlink, NetlinkError};

use super::monitored_tunnel::MonitoredTunnel;

/// Where packets are redirected, has the kernel ask the tunnels' next hops whose link addresses it does
/// not know.
///
/// A program that redirects asks nobody; it leaves the packet to the network stack, which may choose
/// another tunnel of the class for it and so never ask for this one's next hop.
pub(super) async fn resolve_next_hops(
    config: &Config,
    monitored: &[MonitoredTunnel],
    netlink: &Netlink,
) {
    if config.steering.mode != SteeringMode::Redirect || config.shadow {
        return;
    }
    for tunnel in monitored {
        resolve_those_of(tunnel, netlink).await;
    }
}

async fn resolve_those_of(tunnel: &MonitoredTunnel, netlink: &Netlink) {
    let LinkState::Up(index) = tunnel.watch.link_state() else {
        return;
    };
    let Gateways { v4, v6 } = tunnel.spec.tunnel.gateway;
    let addresses = [v4.map(IpAddr::V4), v6.map(IpAddr::V6)];
    for address in addresses.into_iter().flatten() {
        if let Err(error) = find(netlink, index, address).await {
            tracing::debug!(device = %tunnel.device, %error, "cannot find a next hop");
        }
    }
}

async fn find(netlink: &Netlink, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
    match netlink.neighbour(index, address).await? {
        known @ NeighbourState::Unknown => netlink.solicit(index, address, known).await,
        _ => Ok(()),
    }
}
