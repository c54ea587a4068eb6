//! The main table, as far as it matters for what is split: which of its prefixes it reaches through
//! a tunnel of ours.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use splitter_config::Config;
use splitter_netlink::{Family, Interfaces, Netlink, NetlinkError, NextHopObjects};

use super::message::ip;
use super::probe::{Hop, hops};
use super::{snapshot, wanted};

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;
/// What the kernel takes for IPv6 where a route names none (`IP6_RT_PRIO_USER`); for IPv4 it is 0.
const METRIC_V6: u32 = 1024;

/// A route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MainRoute {
    pub(super) destination: IpNet,
    /// The kernel takes the route with the lowest one.
    pub(super) metric: u32,
    /// It leaves by tunnels of ours alone, and to their next hops.
    pub(super) is_by_tunnel: bool,
}

/// Reads the routes of a family.
pub(super) async fn read(
    netlink: &Netlink,
    config: &Config,
    interfaces: &Interfaces,
    family: Family,
) -> Result<Vec<MainRoute>, NetlinkError> {
    let messages = snapshot::routes(netlink, family, TABLE_MAIN).await?;
    // Asked for only where the kernel leaves out what they stand for.
    let objects = match messages.iter().any(|it| object_of(it).is_some()) {
        true => NextHopObjects::read().map_err(|source| NetlinkError::Refused {
            request: "list the next hop objects".to_owned(),
            source,
            explanation: None,
        })?,
        false => NextHopObjects::default(),
    };
    let tunnels = Tunnels::of(config, interfaces, family);
    let routes = messages.iter();
    Ok(routes
        .filter_map(|it| main_route(it, family, &tunnels, &objects))
        .collect())
}

/// The ends of our tunnels: devices, and the next hops on them where they have one.
struct Tunnels(Vec<(u32, Option<IpAddr>)>);

impl Tunnels {
    fn of(config: &Config, interfaces: &Interfaces, family: Family) -> Self {
        let tunnels = config.tunnels().filter_map(|(_, tunnel)| {
            let device = interfaces.named(&tunnel.device).ok()?.index;
            Some((device, tunnel.gateway.of(family)))
        });
        Self(tunnels.collect())
    }

    fn have(&self, hop: &Hop) -> bool {
        let mut tunnels = self.0.iter();
        tunnels.any(|(device, gateway)| {
            *device == hop.device && gateway.is_none_or(|own| leads_to(hop.gateway, own))
        })
    }
}

/// BGP has routers on a link use each other's link-local addresses, which no configuration names.
fn leads_to(gateway: Option<IpAddr>, own: IpAddr) -> bool {
    match gateway {
        Some(IpAddr::V6(v6)) if v6.is_unicast_link_local() => true,
        gateway => gateway == Some(own),
    }
}

/// `None` for a route that packets do not take, or some of them alone.
fn main_route(
    message: &RouteMessage,
    family: Family,
    tunnels: &Tunnels,
    objects: &NextHopObjects,
) -> Option<MainRoute> {
    let header = &message.header;
    let is_of_some = header.tos != 0 || header.source_prefix_length != 0;
    if is_of_some || header.flags.contains(RouteFlags::Dead) {
        return None;
    }
    let mut route = MainRoute {
        destination: wanted::everything(family),
        metric: match family {
            Family::V4 => 0,
            Family::V6 => METRIC_V6,
        },
        is_by_tunnel: false,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                let length = header.destination_prefix_length;
                route.destination = IpNet::new(ip(address)?, length).ok()?;
            }
            RouteAttribute::Priority(metric) => route.metric = *metric,
            _ => {}
        }
    }
    // The kernel's own are to the link of a device, tunnels among them.
    let may_be = header.kind == RouteType::Unicast && header.protocol != RouteProtocol::Kernel;
    if may_be {
        let hops = match object_of(message) {
            Some(id) => of_object(objects, id),
            None => hops(&message.attributes),
        };
        route.is_by_tunnel = !hops.is_empty() && hops.iter().all(|hop| tunnels.have(hop));
    }
    Some(route)
}

/// The number of the next hop object of a route of which the kernel lists nothing else.
fn object_of(message: &RouteMessage) -> Option<u32> {
    let mut object = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(_) | RouteAttribute::MultiPath(_) => return None,
            RouteAttribute::NhId(id) => object = Some(*id),
            _ => {}
        }
    }
    object
}

fn of_object(objects: &NextHopObjects, id: u32) -> Vec<Hop> {
    let hops = objects.hops(id).into_iter();
    let hop = |it: splitter_netlink::ObjectHop| Hop {
        device: it.device,
        gateway: it.gateway,
        weight: 1,
    };
    hops.map(hop).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAN0: u32 = 3;
    const WAN1: u32 = 4;
    const ISP: u32 = 5;

    fn is_by_tunnel(attributes: Vec<RouteAttribute>, family: Family) -> Option<bool> {
        let tunnels = Tunnels(match family {
            Family::V4 => vec![
                (WAN0, Some("192.0.2.1".parse().unwrap())),
                // Point-to-point.
                (WAN1, None),
            ],
            Family::V6 => vec![(WAN0, Some("2001:db8:1::1".parse().unwrap()))],
        });
        let mut message = RouteMessage::default();
        message.header.kind = RouteType::Unicast;
        message.header.protocol = RouteProtocol::Static;
        message.attributes = attributes;
        let route = main_route(&message, family, &tunnels, &NextHopObjects::default());
        route.map(|it| it.is_by_tunnel)
    }

    fn via(device: u32, gateway: &str) -> Vec<RouteAttribute> {
        let gateway: IpAddr = gateway.parse().unwrap();
        vec![
            RouteAttribute::Oif(device),
            RouteAttribute::Gateway(gateway.into()),
        ]
    }

    #[test]
    fn route_is_by_a_tunnel_if_it_leads_to_its_next_hop() {
        let v4 = |attributes| is_by_tunnel(attributes, Family::V4).unwrap();
        assert!(v4(via(WAN0, "192.0.2.1")));
        assert!(!v4(via(WAN0, "192.0.2.7")), "another router on its link");
        assert!(!v4(vec![RouteAttribute::Oif(WAN0)]), "the link itself");
        assert!(v4(vec![RouteAttribute::Oif(WAN1)]));
        assert!(v4(via(WAN1, "10.9.9.9")));
        assert!(!v4(via(ISP, "192.0.2.1")));
        assert!(!v4(vec![]), "nowhere");
        let v6 = |attributes| is_by_tunnel(attributes, Family::V6).unwrap();
        assert!(v6(via(WAN0, "2001:db8:1::1")));
        assert!(v6(via(WAN0, "fe80::1")), "as BGP writes it");
        assert!(!v6(via(ISP, "fe80::1")));
    }

    #[test]
    fn route_that_is_spread_beyond_the_tunnels_is_not_by_a_tunnel() {
        let spread = |devices: [u32; 2]| {
            let hop = |interface_index| {
                let mut hop = netlink_packet_route::route::RouteNextHop::default();
                hop.interface_index = interface_index;
                hop.attributes = via(interface_index, "192.0.2.1").split_off(1);
                hop
            };
            let hops = devices.map(hop).to_vec();
            is_by_tunnel(vec![RouteAttribute::MultiPath(hops)], Family::V4).unwrap()
        };
        assert!(spread([WAN0, WAN1]));
        assert!(!spread([WAN0, ISP]));
    }
}
