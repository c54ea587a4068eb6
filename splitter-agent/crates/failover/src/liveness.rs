//! Signs of life besides the peer's answers to probes.

use std::net::IpAddr;
use std::time::Duration;

use splitter_health::{Evidence, PeerPresence};
use splitter_netlink::{NeighbourState, Netlink, NetlinkError};

use super::announce::log_change;
use super::monitored_tunnel::MonitoredTunnel;

/// Where echo does not decide: asks the next hop, or takes the link's word.
pub(super) async fn check_liveness(
    tunnel: &mut MonitoredTunnel,
    netlink: &Netlink,
    presence: PeerPresence,
    now: Duration,
) {
    if tunnel.watch.evidence(presence, now) == Evidence::Echo {
        return;
    }
    let (Some(index), Some(neighbour)) = (tunnel.watch.link_state().index(), tunnel.neighbour)
    else {
        let change = tunnel.watch.alive(presence, now);
        return change
            .into_iter()
            .for_each(|change| log_change(tunnel, change));
    };
    let is_alive = match ask_neighbour(netlink, index, neighbour).await {
        Ok(state) => {
            tunnel.watch.asks_neighbour(state != NeighbourState::Fixed);
            matches!(state, NeighbourState::Reachable | NeighbourState::Fixed)
        }
        Err(error) => {
            // Not to be able to ask is no reason to give a tunnel up.
            if !std::mem::replace(&mut tunnel.has_warned, true) {
                tracing::warn!(event = "next_hop_unseen", %error, "the link alone reports whether {} is alive", tunnel.device);
            }
            tunnel.watch.asks_neighbour(false);
            true
        }
    };
    if is_alive && let Some(change) = tunnel.watch.alive(presence, now) {
        log_change(tunnel, change);
    }
}

/// What the neighbour has answered since it was asked last, and asks again.
async fn ask_neighbour(
    netlink: &Netlink,
    index: u32,
    neighbour: IpAddr,
) -> Result<NeighbourState, NetlinkError> {
    let state = netlink.neighbour(index, neighbour).await?;
    netlink.solicit(index, neighbour, state).await?;
    Ok(state)
}
