//! Next hops of tunnels that packets are redirected into.

use std::net::IpAddr;

use splitter_config::{Config, Gateways, SteeringMode, Tunnel};
use splitter_health::LinkState;
use splitter_netlink::{NeighbourState, Netlink, NetlinkError};

use super::links::FoundLinks;

/// Tells if packets are redirected, so that the next hops of tunnels have to be known.
///
/// A program that redirects asks nobody; it leaves the packet to the network stack, which may choose
/// another tunnel of the class for it and so never ask for this one's next hop.
pub(super) fn has_to_resolve(config: &Config) -> bool {
    config.steering.mode == SteeringMode::Redirect && !config.shadow
}

/// Has the kernel ask the tunnels' next hops whose link addresses it does not know.
pub(super) async fn resolve_next_hops(tunnels: &[Tunnel], links: &FoundLinks, netlink: &Netlink) {
    for (tunnel, link) in tunnels.iter().zip(links) {
        if let Some(LinkState::Up(index)) = *link {
            resolve_those_of(tunnel, index, netlink).await;
        }
    }
}

async fn resolve_those_of(tunnel: &Tunnel, index: u32, netlink: &Netlink) {
    let Gateways { v4, v6 } = tunnel.gateway;
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
