//! A route of the main table, as far as it matters for what is split: whether it leads by tunnels of
//! ours, and to which site.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType,
};
use splitter_config::Config;
use splitter_netlink::{Family, Interfaces, NextHopObjects};

use super::message::ip;
use super::probe::hops;
use super::wanted;

/// What the kernel takes for IPv6 where a route names none (`IP6_RT_PRIO_USER`); for IPv4 it is 0.
const METRIC_V6: u32 = 1024;

/// The place of a site in the configuration.
pub(super) type SiteIndex = u16;

/// A route of the main table that packets take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MainRoute {
    pub(super) destination: IpNet,
    /// It leaves by tunnels to this site alone, and to their next hops.
    pub(super) by_tunnel_to: Option<SiteIndex>,
}

/// A route of the main table, before it is known whose devices it leads by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundRoute {
    pub(super) destination: IpNet,
    /// The kernel takes the route with the lowest one.
    pub(super) metric: u32,
    pub(super) egress: RouteEgress,
}

/// Where a route leads, as the kernel says it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RouteEgress {
    Hops(Vec<Way>),
    /// To wherever the next hop object with this number does, of which the kernel lists nothing else.
    Object(u32),
    /// It drops, or is one that the kernel has made for the link of a device.
    Nowhere,
}

/// One of the ways that a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Way {
    pub(super) device: u32,
    pub(super) gateway: Option<IpAddr>,
}

impl FoundRoute {
    /// `None` for a route that packets do not take, or some of them alone.
    pub(super) fn of(message: &RouteMessage, family: Family) -> Option<Self> {
        let header = &message.header;
        let is_of_some = header.tos != 0 || header.source_prefix_length != 0;
        if is_of_some || header.flags.contains(RouteFlags::Dead) {
            return None;
        }
        let mut route = Self {
            destination: wanted::everything(family),
            metric: match family {
                Family::V4 => 0,
                Family::V6 => METRIC_V6,
            },
            egress: RouteEgress::of(message),
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
        Some(route)
    }
}

impl RouteEgress {
    fn of(message: &RouteMessage) -> Self {
        let header = &message.header;
        // The kernel's own are to the link of a device, tunnels among them.
        if header.kind != RouteType::Unicast || header.protocol == RouteProtocol::Kernel {
            return Self::Nowhere;
        }
        match object_of(message) {
            Some(id) => Self::Object(id),
            None => {
                let way = |it: super::probe::Hop| Way {
                    device: it.device,
                    gateway: it.gateway,
                };
                Self::Hops(hops(&message.attributes).into_iter().map(way).collect())
            }
        }
    }
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

/// The ends of our tunnels that carry a family: devices, the next hops on them where they have one, and the
/// site that they lead to. No two sites share a device.
pub(super) struct Tunnels(Vec<(Way, SiteIndex)>);

impl Tunnels {
    pub(super) fn of(config: &Config, interfaces: &Interfaces, family: Family) -> Self {
        let mut ends = Vec::new();
        for (index, site) in (0..).zip(config.by_site()) {
            // What leads to a site in a family that is not split there leads elsewhere. A single site
            // has no rules of such a family.
            let is_split = !config.has_several_sites() || site.families().any(|it| it == family);
            let tunnels = site.tunnels().filter(|_| is_split);
            let tunnels = tunnels.filter_map(|(_, tunnel)| {
                let device = interfaces.named(&tunnel.device).ok()?.index;
                let gateway = tunnel.gateway.of(family);
                Some((Way { device, gateway }, index))
            });
            ends.extend(tunnels);
        }
        Self(ends)
    }

    /// The site that a route leads to by its tunnels alone.
    pub(super) fn site_of(
        &self,
        egress: &RouteEgress,
        objects: &NextHopObjects,
    ) -> Option<SiteIndex> {
        let ways = match egress {
            RouteEgress::Hops(ways) => ways.clone(),
            RouteEgress::Object(id) => ways_of(objects, *id),
            RouteEgress::Nowhere => return None,
        };
        let (first, others) = ways.split_first()?;
        let site = self.site_by(first)?;
        let are_alike = others.iter().all(|way| self.site_by(way) == Some(site));
        are_alike.then_some(site)
    }

    fn site_by(&self, way: &Way) -> Option<SiteIndex> {
        let mut ends = self.0.iter();
        let (_, site) = ends.find(|(end, _)| {
            end.device == way.device && end.gateway.is_none_or(|own| leads_to(way.gateway, own))
        })?;
        Some(*site)
    }
}

/// BGP has routers on a link use each other's link-local addresses, which no configuration names.
fn leads_to(gateway: Option<IpAddr>, own: IpAddr) -> bool {
    match gateway {
        Some(IpAddr::V6(v6)) if v6.is_unicast_link_local() => true,
        gateway => gateway == Some(own),
    }
}

fn ways_of(objects: &NextHopObjects, id: u32) -> Vec<Way> {
    let hops = objects.hops(id).into_iter();
    let way = |it: splitter_netlink::ObjectHop| Way {
        device: it.device,
        gateway: it.gateway,
    };
    hops.map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAN0: u32 = 3;
    const WAN1: u32 = 4;
    const ISP: u32 = 5;
    /// To another site.
    const WAN2: u32 = 6;

    fn site(attributes: Vec<RouteAttribute>, family: Family) -> Option<SiteIndex> {
        let end = |device, gateway: Option<&str>, site| {
            let gateway = gateway.map(|it| it.parse().unwrap());
            (Way { device, gateway }, site)
        };
        let tunnels = Tunnels(match family {
            Family::V4 => vec![
                end(WAN0, Some("192.0.2.1"), 0),
                // Point-to-point.
                end(WAN1, None, 0),
                end(WAN2, None, 1),
            ],
            Family::V6 => vec![end(WAN0, Some("2001:db8:1::1"), 0)],
        });
        let mut message = RouteMessage::default();
        message.header.kind = RouteType::Unicast;
        message.header.protocol = RouteProtocol::Static;
        message.attributes = attributes;
        let route = FoundRoute::of(&message, family).unwrap();
        tunnels.site_of(&route.egress, &NextHopObjects::default())
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
        let v4 = |attributes| site(attributes, Family::V4);
        assert_eq!(v4(via(WAN0, "192.0.2.1")), Some(0));
        assert_eq!(
            v4(via(WAN0, "192.0.2.7")),
            None,
            "another router on its link"
        );
        assert_eq!(v4(vec![RouteAttribute::Oif(WAN0)]), None, "the link itself");
        assert_eq!(v4(vec![RouteAttribute::Oif(WAN1)]), Some(0));
        assert_eq!(v4(via(WAN1, "10.9.9.9")), Some(0));
        assert_eq!(v4(via(ISP, "192.0.2.1")), None);
        assert_eq!(v4(vec![]), None, "nowhere");
        let v6 = |attributes| site(attributes, Family::V6);
        assert_eq!(v6(via(WAN0, "2001:db8:1::1")), Some(0));
        assert_eq!(v6(via(WAN0, "fe80::1")), Some(0), "as BGP writes it");
        assert_eq!(v6(via(ISP, "fe80::1")), None);
    }

    #[test]
    fn route_that_is_spread_beyond_the_tunnels_of_a_site_is_not_by_a_tunnel() {
        let spread = |devices: [u32; 2]| {
            let hop = |interface_index| {
                let mut hop = netlink_packet_route::route::RouteNextHop::default();
                hop.interface_index = interface_index;
                hop.attributes = via(interface_index, "192.0.2.1").split_off(1);
                hop
            };
            let hops = devices.map(hop).to_vec();
            site(vec![RouteAttribute::MultiPath(hops)], Family::V4)
        };
        assert_eq!(spread([WAN0, WAN1]), Some(0));
        assert_eq!(spread([WAN0, ISP]), None);
        assert_eq!(spread([WAN1, WAN2]), None, "two sites");
        assert_eq!(spread([WAN2, WAN2]), Some(1));
    }
}
