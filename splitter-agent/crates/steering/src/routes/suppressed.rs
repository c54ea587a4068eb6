//! Routes of the main table that the rules pass over, and that the kernel finds all the same when a
//! program looks a way up in IPv6: there it does not heed `suppress_prefixlength`.

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use splitter_config::Config;
use splitter_netlink::{Family, Netlink, NetlinkError};

use super::destinations::Destinations;
use super::snapshot;

/// Names a route of the main table that redirected packets pass over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuppressedRoute {
    /// What it is for.
    pub destination: IpNet,
    /// The numbers of the devices that it leads by.
    pub devices: Vec<u32>,
}

/// Lists the routes that lead to where the classes' packets go. Reads the whole main table.
///
/// # Errors
/// When the kernel refuses the request.
pub async fn suppressed_routes(
    netlink: &Netlink,
    config: &Config,
    family: Family,
) -> Result<Vec<SuppressedRoute>, NetlinkError> {
    let destinations = Destinations::read(netlink, config).await?;
    let wanted = destinations.split(family);
    let is_in_the_way =
        |route: &SuppressedRoute| wanted.iter().any(|net| route.destination.contains(net));
    let routes = snapshot::routes(netlink, family, RouteHeader::RT_TABLE_MAIN.into()).await?;
    let routes = routes.iter().filter_map(|it| route(it, family));
    Ok(routes.filter(is_in_the_way).collect())
}

pub(super) fn route(message: &RouteMessage, family: Family) -> Option<SuppressedRoute> {
    if message.header.kind != RouteType::Unicast {
        return None;
    }
    let mut route = SuppressedRoute {
        destination: super::wanted::everything(family),
        devices: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                let address = match address {
                    RouteAddress::Inet(v4) => (*v4).into(),
                    RouteAddress::Inet6(v6) => (*v6).into(),
                    _ => return None,
                };
                let length = message.header.destination_prefix_length;
                route.destination = IpNet::new(address, length).ok()?;
            }
            RouteAttribute::Oif(device) => route.devices.push(*device),
            RouteAttribute::MultiPath(hops) => {
                let devices = hops.iter().map(|hop| hop.interface_index);
                route.devices.extend(devices);
            }
            _ => {}
        }
    }
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_has_no_destination_and_may_have_several_devices() {
        let mut message = RouteMessage::default();
        message.header.kind = RouteType::Unicast;
        let hop = |interface_index| {
            let mut hop = netlink_packet_route::route::RouteNextHop::default();
            hop.interface_index = interface_index;
            hop
        };
        message.attributes = vec![RouteAttribute::MultiPath(vec![hop(3), hop(4)])];
        let found = route(&message, Family::V6).expect("it is one");
        assert_eq!(found.destination.to_string(), "::/0");
        assert_eq!(found.devices, [3, 4]);
        message.header.kind = RouteType::Unreachable;
        assert_eq!(route(&message, Family::V6), None);
    }
}
