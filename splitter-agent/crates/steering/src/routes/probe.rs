//! Asking the kernel which way it would send a packet, without sending one.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteType, RouteVia,
};
use splitter_config::Dscp;
use splitter_netlink::{Family, Netlink, NetlinkError, address_family};

use super::foreign_rule::Transport;
use super::message::{ip, table_of};

/// A packet that arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) arrives_at: u32,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) mark: Carried,
    /// What rules may see behind the IP header; nothing where none looks.
    pub(super) transport: Option<Transport>,
}

/// Where a packet carries a mark of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carried {
    /// In its header.
    Dscp(Dscp),
    /// Beside it.
    Beside(u32),
}

impl Carried {
    /// The ToS byte of the packet; 0 where its header carries no mark.
    pub(super) fn tos(self) -> u8 {
        match self {
            Self::Dscp(dscp) => dscp.tos(),
            Self::Beside(_) => 0,
        }
    }

    /// The kernel's mark; 0 where the packet has none.
    pub(super) const fn beside(self) -> u32 {
        match self {
            Self::Dscp(_) => 0,
            Self::Beside(mark) => mark,
        }
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dscp(dscp) => write!(f, "DSCP {dscp}"),
            Self::Beside(mark) => write!(f, "mark {mark:#x}"),
        }
    }
}

/// The route that the kernel found for it.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) table: u32,
    pub(super) prefix_length: u8,
    /// More than one where it spreads flows.
    pub(super) hops: Vec<Hop>,
    /// It is one that drops: IPv6 finds such a route, IPv4 reports an error.
    pub(super) is_dropping: bool,
}

/// One way that the route leads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub(super) device: u32,
    pub(super) gateway: Option<IpAddr>,
    pub(super) weight: u16,
}

impl Answer {
    fn of(route: &RouteMessage) -> Self {
        Self {
            table: table_of(route),
            prefix_length: route.header.destination_prefix_length,
            hops: hops(&route.attributes),
            is_dropping: matches!(
                route.header.kind,
                RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit
            ),
        }
    }

    /// The devices that packets leave by.
    pub(super) fn devices(&self) -> impl Iterator<Item = u32> {
        self.hops.iter().map(|hop| hop.device)
    }
}

/// Asks for the route of a forwarded packet, with the table and prefix that it was found by.
pub(super) async fn ask(netlink: &Netlink, question: Question) -> Result<Answer, NetlinkError> {
    let route = exchange(netlink, question.request(), question.message(true)).await?;
    Ok(Answer::of(&route))
}

/// Asks which device the kernel's hash takes for the flow of a forwarded packet, where its route has
/// several.
pub(super) async fn chosen_device(
    netlink: &Netlink,
    question: Question,
) -> Result<Option<u32>, NetlinkError> {
    let route = exchange(netlink, question.request(), question.message(false)).await?;
    Ok(Answer::of(&route).devices().next())
}

/// Asks by which route the kernel itself reaches an address.
pub(super) async fn reach(netlink: &Netlink, address: IpAddr) -> Result<Answer, NetlinkError> {
    let message = message_to(address, true);
    let route = exchange(netlink, format!("ask for the route to {address}"), message).await?;
    Ok(Answer::of(&route))
}

impl Question {
    fn request(&self) -> String {
        format!(
            "ask for the route from {} to {} with {}",
            self.source, self.destination, self.mark
        )
    }

    fn message(&self, wants_route: bool) -> RouteMessage {
        let mut message = message_to(self.destination, wants_route);
        message.header.source_prefix_length = message.header.destination_prefix_length;
        message.attributes.extend([
            RouteAttribute::Source(self.source.into()),
            RouteAttribute::Iif(self.arrives_at),
        ]);
        match self.mark {
            Carried::Dscp(dscp) => message.header.tos = dscp.tos(),
            Carried::Beside(mark) => message.attributes.push(RouteAttribute::Mark(mark)),
        }
        if let Some(transport) = self.transport {
            message.attributes.extend([
                RouteAttribute::IpProto(transport.protocol.into()),
                RouteAttribute::Sport(transport.source_port),
                RouteAttribute::Dport(transport.destination_port),
            ]);
        }
        message
    }
}

/// A question for the route itself, or for what comes of it.
fn message_to(destination: IpAddr, wants_route: bool) -> RouteMessage {
    let family = match destination {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(family);
    message.header.destination_prefix_length = IpNet::from(destination).prefix_len();
    // IPv6 always reports the table, and refuses to be asked for it.
    message.header.flags = match (wants_route, family) {
        (false, _) => RouteFlags::empty(),
        (true, Family::V4) => RouteFlags::LookupTable | RouteFlags::FibMatch,
        (true, Family::V6) => RouteFlags::FibMatch,
    };
    message.attributes = vec![RouteAttribute::Destination(destination.into())];
    message
}

async fn exchange(
    netlink: &Netlink,
    request: String,
    message: RouteMessage,
) -> Result<RouteMessage, NetlinkError> {
    match netlink
        .ask(&request, RouteNetlinkMessage::GetRoute(message))
        .await?
    {
        RouteNetlinkMessage::NewRoute(route) => Ok(route),
        _ => Err(NetlinkError::Unexpected {
            request,
            what: "not a route",
        }),
    }
}

/// The ways that a route leads.
pub(super) fn hops(attributes: &[RouteAttribute]) -> Vec<Hop> {
    let mut hops = Vec::new();
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => hops.push(Hop {
                device: *index,
                gateway: gateway(attributes),
                weight: 1,
            }),
            RouteAttribute::MultiPath(several) => {
                let hop = |it: &RouteNextHop| Hop {
                    device: it.interface_index,
                    gateway: gateway(&it.attributes),
                    // The kernel counts from 0.
                    weight: u16::from(it.hops) + 1,
                };
                hops.extend(several.iter().map(hop));
            }
            _ => {}
        }
    }
    hops
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::Via(RouteVia::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    })
}

/// A few addresses inside a prefix to ask for; of everything, ones that a site hardly has
/// specific routes for.
pub(super) fn candidates(net: &IpNet) -> Vec<IpAddr> {
    const V4: [[u8; 4]; 8] = [
        [203, 0, 113, 77],
        [198, 18, 77, 77],
        [198, 51, 100, 77],
        [192, 0, 2, 77],
        [9, 77, 77, 77],
        [100, 127, 77, 77],
        [172, 31, 177, 77],
        [10, 254, 177, 77],
    ];
    const V6: [[u16; 8]; 4] = [
        [0x2001, 0xdb8, 0xffff, 0x77, 0, 0, 0, 0x77],
        [0x2001, 0xdb8, 0x7777, 0, 0, 0, 0, 0x77],
        [0x2a0f, 0x7777, 0, 0, 0, 0, 0, 0x77],
        [0xfd77, 0x7777, 0x7777, 0, 0, 0, 0, 0x77],
    ];
    match (net, net.prefix_len()) {
        (IpNet::V4(_), 0) => V4.into_iter().map(IpAddr::from).collect(),
        (IpNet::V6(_), 0) => V6.into_iter().map(IpAddr::from).collect(),
        _ => inside(net),
    }
}

/// Addresses spread over a prefix, without its first and last where it has others.
pub(super) fn inside(net: &IpNet) -> Vec<IpAddr> {
    let last = last_bits(net) - bits_of(net.network());
    let offsets: &[u128] = match last {
        0 => &[0],
        1 => &[0, 1],
        _ => &[1, 2, last / 2, last - 1],
    };
    let mut addresses: Vec<_> = offsets.iter().map(|offset| nth(net, *offset)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn nth(net: &IpNet, offset: u128) -> IpAddr {
    address_of(net, bits_of(net.network()) | offset)
}

/// An address as a number.
pub(super) fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The last address of a prefix, as a number.
pub(super) fn last_bits(net: &IpNet) -> u128 {
    bits_of(net.broadcast())
}

/// The address of the family of `net` with this number.
pub(super) fn address_of(net: &IpNet, bits: u128) -> IpAddr {
    match net {
        IpNet::V4(_) => IpAddr::V4(u32::try_from(bits).unwrap_or(u32::MAX).into()),
        IpNet::V6(_) => IpAddr::V6(bits.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_lie_inside() {
        for net in [
            "10.0.0.0/8",
            "10.1.2.4/30",
            "10.1.2.4/31",
            "10.1.2.4/32",
            "2001:db8::/126",
        ] {
            let net: IpNet = net.parse().unwrap();
            let all = inside(&net);
            assert!(
                !all.is_empty() && all.iter().all(|address| net.contains(address)),
                "{all:?}"
            );
        }
    }

    #[test]
    fn network_and_broadcast_addresses_are_left_out() {
        let net: IpNet = "10.1.2.4/30".parse().unwrap();
        assert_eq!(inside(&net), [1, 2].map(|n| nth(&net, n)));
    }
}
