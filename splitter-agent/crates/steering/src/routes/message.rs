//! Rules and routes to and from netlink's messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_core::{DefaultNla, Nla as _};
use splitter_config::Dscp;
use splitter_netlink::{Family, InterfaceName, Interfaces};

use super::PROTOCOL;
use super::item::{NextHop, Route, Rule, Selector};

/// `FRA_DSCP` of linux/fib_rules.h, Linux 6.13; the message library does not know it.
pub(super) const FRA_DSCP: u16 = 25;
/// `FRA_DSCP_MASK`, Linux 6.15, which shows a mask of all six bits where none was given.
const FRA_DSCP_MASK: u16 = 30;
const FULL_DSCP_MASK: u8 = 0x3f;
/// `LOOPBACK_IFINDEX` of net/flow.h: the number of `lo` in every network namespace.
const LOOPBACK: u32 = 1;
/// No suppression, as the kernel writes it.
const NO_SUPPRESSION: u32 = u32::MAX;

impl Rule {
    /// The message that adds or removes it.
    pub(super) fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = splitter_netlink::address_family(self.family);
        message.header.action = RuleAction::ToTable;
        let (in_header, table) = header_table(self.table);
        message.header.table = in_header;
        message.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Iifname(self.interface.to_string()),
            RuleAttribute::Protocol(RouteProtocol::from(PROTOCOL)),
        ];
        message.attributes.extend(table.map(RuleAttribute::Table));
        match self.selector {
            Selector::Any => {}
            Selector::Tos(tos) | Selector::TosUnmarked { tos, .. } => message.header.tos = tos,
            Selector::Mark { value, .. } => message.attributes.push(RuleAttribute::FwMark(value)),
            Selector::Dscp(dscp) | Selector::DscpUnmarked { dscp, .. } => {
                let dscp = DefaultNla::new(FRA_DSCP, vec![dscp.get()]);
                message.attributes.push(RuleAttribute::Other(dscp));
            }
        }
        // Without a mark under it, it is one of 0.
        if let Selector::Mark { mask, .. }
        | Selector::DscpUnmarked { unmarked: mask, .. }
        | Selector::TosUnmarked { unmarked: mask, .. } = self.selector
        {
            message.attributes.push(RuleAttribute::FwMask(mask));
        }
        let suppressed = self.suppressed.map(u32::from);
        message
            .attributes
            .extend(suppressed.map(RuleAttribute::SuppressPrefixLen));
        message
    }

    /// The rule in a message, if it has our protocol number and is of a shape that we make.
    pub(super) fn from_message(message: &RuleMessage) -> Option<Self> {
        let header = &message.header;
        if header.action != RuleAction::ToTable || header.src_len != 0 || header.dst_len != 0 {
            return None;
        }
        let mut rule = PartialRule {
            table: header.table.into(),
            ..PartialRule::default()
        };
        for attribute in &message.attributes {
            rule.add(attribute)?;
        }
        let selector = match (rule.dscp, header.tos, rule.mark) {
            (Some(dscp), 0, None) => Selector::Dscp(dscp),
            (None, 0, None) => Selector::Any,
            (None, tos, None) => Selector::Tos(tos),
            (None, 0, Some(value)) => Selector::Mark {
                value,
                mask: rule.mask.unwrap_or(u32::MAX),
            },
            _ => return None,
        };
        let selector = match (selector, rule.mask) {
            (Selector::Any, Some(_)) => return None,
            (Selector::Mark { .. }, _) | (_, None) => selector,
            (of_class, Some(mask)) => of_class.with_none_of(mask),
        };
        Some(Self {
            family: family(header.family)?,
            priority: rule.priority.filter(|_| rule.is_ours)?,
            interface: rule.interface?,
            selector,
            table: rule.table,
            suppressed: rule.suppressed,
        })
    }
}

#[derive(Default)]
struct PartialRule {
    priority: Option<u32>,
    interface: Option<InterfaceName>,
    dscp: Option<Dscp>,
    mark: Option<u32>,
    mask: Option<u32>,
    table: u32,
    suppressed: Option<u8>,
    is_ours: bool,
}

impl PartialRule {
    /// `None` where an attribute makes the rule something that we do not make.
    fn add(&mut self, attribute: &RuleAttribute) -> Option<()> {
        match attribute {
            RuleAttribute::Priority(priority) => self.priority = Some(*priority),
            RuleAttribute::Iifname(name) => self.interface = Some(name.clone().try_into().ok()?),
            RuleAttribute::Table(table) => self.table = *table,
            RuleAttribute::FwMark(mark) => self.mark = Some(*mark),
            RuleAttribute::FwMask(mask) => self.mask = Some(*mask),
            RuleAttribute::Protocol(protocol) => self.is_ours = u8::from(*protocol) == PROTOCOL,
            RuleAttribute::SuppressPrefixLen(NO_SUPPRESSION) => {}
            RuleAttribute::SuppressPrefixLen(length) => {
                self.suppressed = Some((*length).try_into().ok()?);
            }
            RuleAttribute::SuppressIfGroup(group) if *group == NO_SUPPRESSION => {}
            RuleAttribute::Other(other) if other.kind() == FRA_DSCP => {
                self.dscp = Some(first_byte(other)?.try_into().ok()?);
            }
            RuleAttribute::Other(other)
                if other.kind() == FRA_DSCP_MASK && first_byte(other) == Some(FULL_DSCP_MASK) => {}
            _ => return None,
        }
        Some(())
    }
}

impl Route {
    /// The message that adds or removes it.
    pub(super) fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = splitter_netlink::address_family(Family::of(&self.destination));
        header.destination_prefix_length = self.destination.prefix_len();
        header.protocol = RouteProtocol::from(PROTOCOL);
        header.kind = match self.is_throw() {
            true => RouteType::Throw,
            false => RouteType::Unicast,
        };
        let has_gateway = self.next_hops.iter().any(|hop| hop.gateway.is_some());
        header.scope = match (has_gateway, &self.destination) {
            (false, IpNet::V4(_)) if !self.is_throw() => RouteScope::Link,
            _ => RouteScope::Universe,
        };
        let (in_header, table) = header_table(self.table);
        header.table = in_header;
        if self.destination.prefix_len() > 0 {
            let address = self.destination.network().into();
            message
                .attributes
                .push(RouteAttribute::Destination(address));
        }
        message.attributes.extend(table.map(RouteAttribute::Table));
        match &self.next_hops[..] {
            // IPv6 takes the first route to a prefix for meant where no device is named, and IPv4
            // refuses one.
            [] if self.destination.addr().is_ipv6() => {
                message.attributes.push(RouteAttribute::Oif(LOOPBACK));
            }
            [] => {}
            [only] => {
                let device = RouteAttribute::Oif(only.device_index);
                message.attributes.push(device);
                message.attributes.extend(only.gateway_attribute());
            }
            several => {
                let hops = several.iter().map(NextHop::message).collect();
                message.attributes.push(RouteAttribute::MultiPath(hops));
            }
        }
        message
    }

    /// The route in a message, if it has our protocol number and is of a shape that we make.
    pub(super) fn from_message(message: &RouteMessage, interfaces: &Interfaces) -> Option<Self> {
        let header = &message.header;
        let is_throw = header.kind == RouteType::Throw;
        let plain = (is_throw || header.kind == RouteType::Unicast)
            && u8::from(header.protocol) == PROTOCOL
            && header.source_prefix_length == 0
            && header.tos == 0;
        if !plain {
            return None;
        }
        let (mut address, mut gateway, mut device_index) = (None, None, None);
        let mut next_hops = Vec::new();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(destination) => address = ip(destination),
                RouteAttribute::Gateway(hop) => gateway = Some(ip(hop)?),
                RouteAttribute::Oif(index) => device_index = Some(*index),
                RouteAttribute::MultiPath(hops) => {
                    let hops = hops
                        .iter()
                        .map(|hop| NextHop::from_message(hop, interfaces));
                    next_hops = hops.collect::<Option<_>>()?;
                }
                RouteAttribute::Via(_) | RouteAttribute::NhId(_) => return None,
                _ => {}
            }
        }
        let unspecified = match family(header.address_family)? {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let address = address.unwrap_or(unspecified);
        if next_hops.is_empty() && !is_throw {
            next_hops.push(NextHop {
                gateway,
                device: name_of(device_index?, interfaces),
                device_index: device_index?,
                weight: 1,
            });
        }
        Some(Self {
            destination: IpNet::new(address, header.destination_prefix_length).ok()?,
            table: table_of(message),
            next_hops,
        })
    }
}

impl NextHop {
    fn message(&self) -> RouteNextHop {
        let mut message = RouteNextHop::default();
        // The kernel counts from 0.
        message.hops = u8::try_from(self.weight.saturating_sub(1)).unwrap_or(u8::MAX);
        message.interface_index = self.device_index;
        message.attributes.extend(self.gateway_attribute());
        message
    }

    fn from_message(message: &RouteNextHop, interfaces: &Interfaces) -> Option<Self> {
        let mut gateway = None;
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Gateway(address) => gateway = Some(ip(address)?),
                RouteAttribute::Via(_) | RouteAttribute::Encap(_) => return None,
                _ => {}
            }
        }
        let device_index = message.interface_index;
        Some(Self {
            gateway,
            device: name_of(device_index, interfaces),
            device_index,
            weight: u16::from(message.hops) + 1,
        })
    }

    fn gateway_attribute(&self) -> Option<RouteAttribute> {
        let gateway = self.gateway?;
        Some(RouteAttribute::Gateway(gateway.into()))
    }
}

fn name_of(device_index: u32, interfaces: &Interfaces) -> String {
    interfaces.name_of(device_index).unwrap_or("?").to_owned()
}

/// The table of a route message.
pub(super) fn table_of(message: &RouteMessage) -> u32 {
    let attribute = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    attribute.unwrap_or(message.header.table.into())
}

/// How a table is reported: small ones in the header, any in an attribute.
fn header_table(table: u32) -> (u8, Option<u32>) {
    match u8::try_from(table) {
        Ok(small) => (small, None),
        Err(_) => (RouteHeader::RT_TABLE_UNSPEC, Some(table)),
    }
}

/// One of the two families that rules and routes of interest are in.
pub(super) fn family(family: AddressFamily) -> Option<Family> {
    match family {
        AddressFamily::Inet => Some(Family::V4),
        AddressFamily::Inet6 => Some(Family::V6),
        _ => None,
    }
}

/// The address in an attribute, if it is one of IP.
pub(super) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

/// The value of a one-byte attribute.
pub(super) fn first_byte(attribute: &DefaultNla) -> Option<u8> {
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    value.first().copied()
}
