//! More specific routes of the main table inside the destinations: they come before our rules.

use std::collections::BTreeMap;

use ipnet::IpNet;
use netlink_packet_route::route::{RouteHeader, RouteProtocol};
use splitter_config::Config;
use splitter_netlink::{Family, Netlink, NetlinkError};

use super::snapshot;
use super::suppressed::{SuppressedRoute, route};
use super::wanted::destinations;

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// Lists the routes of the main table that lie inside a destination and are more specific than it,
/// but for those to the links of devices. Where no destinations are stated, those by our
/// tunnels alone: what else leads elsewhere is meant to.
pub(super) async fn inside_destinations(
    netlink: &Netlink,
    config: &Config,
    family: Family,
) -> Result<Vec<SuppressedRoute>, NetlinkError> {
    let wanted = destinations(config, family);
    let mut messages = Vec::new();
    match config.destinations() {
        Some(_) => messages = snapshot::routes(netlink, family, TABLE_MAIN).await?,
        None => {
            for (_, tunnel) in config.tunnels() {
                let device = netlink.interface(&tunnel.device).await?;
                let Some(device) = device.map(|it| it.index) else {
                    continue;
                };
                let by = snapshot::routes_by(netlink, family, TABLE_MAIN, Some(device));
                messages.extend(by.await?);
            }
        }
    }
    let is_specific = |route: &SuppressedRoute| {
        let is_inside = wanted.iter().any(|net| net.contains(&route.destination));
        is_inside && !wanted.contains(&route.destination)
    };
    let others = messages
        .iter()
        .filter(|it| it.header.protocol != RouteProtocol::Kernel)
        .filter_map(|it| route(it, family));
    let mut found: BTreeMap<IpNet, SuppressedRoute> = BTreeMap::new();
    for specific in others.filter(is_specific) {
        found.entry(specific.destination).or_insert(specific);
    }
    Ok(found.into_values().collect())
}
