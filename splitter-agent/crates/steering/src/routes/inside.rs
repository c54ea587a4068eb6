//! More specific routes of the main table inside the destinations: they keep their meaning, and may
//! not be meant.

use std::collections::BTreeMap;

use ipnet::IpNet;
use netlink_packet_route::route::{RouteHeader, RouteProtocol};
use splitter_config::Config;
use splitter_netlink::{Family, Netlink, NetlinkError};

use super::destinations::{Cover, Destinations};
use super::snapshot;
use super::suppressed::{SuppressedRoute, route};

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// Lists the routes of the main table that lie inside of a destination and are none themselves, but
/// for those to the links of devices. Where all of a family is a destination because none is stated,
/// those by our tunnels alone: what else leads elsewhere is meant to.
pub(super) async fn inside_destinations(
    netlink: &Netlink,
    config: &Config,
    destinations: &Destinations,
    family: Family,
) -> Result<Vec<SuppressedRoute>, NetlinkError> {
    let are_stated = config.destinations().is_some() || config.routes.follow;
    let mut messages = Vec::new();
    if are_stated {
        messages = snapshot::routes(netlink, family, TABLE_MAIN).await?;
    } else {
        for (_, tunnel) in config.tunnels() {
            let device = netlink.interface(&tunnel.device).await?;
            let Some(device) = device.map(|it| it.index) else {
                continue;
            };
            let by = snapshot::routes_by(netlink, family, TABLE_MAIN, Some(device));
            messages.extend(by.await?);
        }
    }
    let cover = Cover::of(destinations.split(family));
    let others = messages
        .iter()
        .filter(|it| it.header.protocol != RouteProtocol::Kernel)
        .filter_map(|it| route(it, family));
    let mut found: BTreeMap<IpNet, SuppressedRoute> = BTreeMap::new();
    for inside in others.filter(|it| cover.has_around(&it.destination)) {
        if !cover.has(&inside.destination) {
            found.entry(inside.destination).or_insert(inside);
        }
    }
    Ok(found.into_values().collect())
}
