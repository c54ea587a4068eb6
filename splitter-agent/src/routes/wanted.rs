//! What the configuration wants the kernel to have.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_route::route::RouteHeader;

use super::item::{Item, Route, Rule, Selector};
use crate::config::{Config, Dscp, DscpMatch, Family, InterfaceName, Tunnel};
use crate::netlink::{Interfaces, NoSuchInterface};

/// Everything wanted, in the order in which it is safe to add: routes before the rules that use
/// them, and the rule for specific routes before the one that would send them to a tunnel.
pub(super) fn items(
    config: &Config,
    interfaces: &Interfaces,
    matching: Matching,
) -> Result<Vec<Item>, NoSuchInterface> {
    for lan in &config.lan {
        interfaces.named(lan)?;
    }
    let mut items = Vec::new();
    if config.shadow {
        // Its tunnels need not exist yet.
        return Ok(items);
    }
    for tunnel in [&config.short, &config.long] {
        items.extend(
            routes(config, tunnel, interfaces)?
                .into_iter()
                .map(Item::Route),
        );
    }
    for family in config.families() {
        for lan in &config.lan {
            items.extend(
                rules(config, lan, family, matching)
                    .into_iter()
                    .map(Item::Rule),
            );
        }
    }
    Ok(items)
}

/// How rules will match the mark: what [`DscpMatch`] came to on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    Exact,
    Legacy,
}

impl From<Matching> for DscpMatch {
    fn from(matching: Matching) -> Self {
        match matching {
            Matching::Exact => Self::Dscp,
            Matching::Legacy => Self::Tos,
        }
    }
}

/// The prefixes of a family that lead into the tunnels.
pub(super) fn destinations(config: &Config, family: Family) -> Vec<IpNet> {
    match &config.routes.destinations {
        Some(list) => list
            .iter()
            .filter(|net| Family::of(net) == family)
            .copied()
            .collect(),
        None => vec![everything(family)],
    }
}

/// The length of the longest of those prefixes. What the main table knows more specifically, such
/// as another interface of the site, stays with the main table.
pub(super) fn longest_destination(config: &Config, family: Family) -> u8 {
    let nets = destinations(config, family);
    nets.iter().map(IpNet::prefix_len).max().unwrap_or(0)
}

fn everything(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0).into(),
        Family::V6 => Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn routes(
    config: &Config,
    tunnel: &Tunnel,
    interfaces: &Interfaces,
) -> Result<Vec<Route>, NoSuchInterface> {
    let device = interfaces.named(&tunnel.device)?;
    let route = |destination: IpNet| Route {
        destination,
        table: tunnel.table.get(),
        gateway: tunnel.gateway.of(Family::of(&destination)),
        device: device.name.clone(),
        device_index: device.index,
    };
    Ok(config
        .families()
        .flat_map(|family| destinations(config, family))
        .map(route)
        .collect())
}

fn rules(config: &Config, lan: &InterfaceName, family: Family, matching: Matching) -> Vec<Rule> {
    if destinations(config, family).is_empty() {
        return Vec::new();
    }
    let priority = config.routes.rule_priority;
    let rule = |priority, selector, table: u32| Rule {
        family,
        priority,
        interface: lan.clone(),
        selector,
        table,
        suppressed: None,
    };
    let specific = Rule {
        suppressed: Some(longest_destination(config, family)),
        ..rule(
            priority.specific(),
            Selector::Any,
            RouteHeader::RT_TABLE_MAIN.into(),
        )
    };
    let short = rule(priority.short(), Selector::Any, config.short.table.get());
    let long = selector(config.marks.long, family, matching);
    let long = rule(priority.long(), long, config.long.table.get());
    vec![specific, short, long]
}

/// IPv4 rules see three bits of the mark and refuse others; IPv6 rules have always seen all six.
pub(super) fn selector(dscp: Dscp, family: Family, matching: Matching) -> Selector {
    match (matching, family) {
        (Matching::Exact, _) => Selector::Dscp(dscp),
        (Matching::Legacy, Family::V4) => Selector::Tos(dscp.legacy_tos()),
        (Matching::Legacy, Family::V6) => Selector::Tos(dscp.tos()),
    }
}
