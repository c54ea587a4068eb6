//! What the configuration wants the kernel to have.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_route::route::RouteHeader;
use splitter_config::{Config, Dscp, DscpMatch, TableId, Tunnel};
use splitter_netlink::{Family, InterfaceName, Interfaces, NoSuchInterface};
use splitter_policy::flow::Class;
use splitter_policy::fwmark::MarkBits;

use super::destinations::Destinations;
use super::item::{Item, NextHop, Route, Rule, Selector};
use crate::{Egress, Placement, Placements};

/// Everything wanted, in the order in which it is safe to add: routes before the rules that use
/// them, and the rule for specific routes before the one that would send them to a tunnel. A rule for
/// an interface that is not there counts once it is.
pub(super) fn items(
    config: &Config,
    placements: &Placements,
    interfaces: &Interfaces,
    matching: Matching,
    destinations: &Destinations,
) -> Result<Vec<Item>, NoSuchInterface> {
    if config.shadow {
        return Ok(Vec::new());
    }
    let mut items = all_routes(config, placements, interfaces, destinations)?;
    items.extend(all_rules(config, matching, destinations));
    Ok(items)
}

/// The routes to all sites.
pub(super) fn all_routes(
    config: &Config,
    placements: &Placements,
    interfaces: &Interfaces,
    destinations: &Destinations,
) -> Result<Vec<Item>, NoSuchInterface> {
    let mut items = Vec::new();
    if config.has_several_sites() {
        items.extend(handed_back(config, destinations));
    }
    for site in config.by_site() {
        let own = destinations.of_site(config, &site);
        if own.is_empty() {
            continue;
        }
        let placement = placements.of(&site.site_name());
        items.extend(routes_of_site(&site, placement, interfaces, &own)?);
    }
    Ok(items)
}

/// What the tables hand back to the main table, for all sites together.
fn handed_back(config: &Config, destinations: &Destinations) -> Vec<Item> {
    let mut items = Vec::new();
    if config.shadow {
        return items;
    }
    for table in tables(config) {
        for family in config.families() {
            let thrown = destinations.thrown(family).iter();
            items.extend(thrown.map(|net| {
                Item::Route(Route {
                    destination: *net,
                    table: table.get(),
                    next_hops: Vec::new(),
                })
            }));
        }
    }
    items
}

/// The rules of both families.
pub(super) fn all_rules(
    config: &Config,
    matching: Matching,
    destinations: &Destinations,
) -> Vec<Item> {
    let mut items = Vec::new();
    if config.shadow {
        return items;
    }
    for family in config.families() {
        for lan in &config.lan {
            let rules = rules(config, lan, family, matching, destinations);
            items.extend(rules.into_iter().map(Item::Rule));
        }
    }
    items
}

/// The routes of both tables to one site: all sites' are in the same two, so that a packet is looked
/// up there once, however many sites there are. A class without a tunnel has none, so that its packets
/// fall through to the next rule and in the end to the main table. The device of a tunnel that carries
/// nothing need not be there. What is inside comes before what is around it.
pub(super) fn routes_of_site(
    config: &Config,
    placement: &Placement,
    interfaces: &Interfaces,
    destinations: &Destinations,
) -> Result<Vec<Item>, NoSuchInterface> {
    let mut items = Vec::new();
    if config.shadow {
        // Its tunnels need not exist yet.
        return Ok(items);
    }
    for (table, egress) in [
        (config.short.table, placement.short),
        (config.long.table, placement.long),
    ] {
        let tunnels = tunnels_of(config, placement, egress);
        let routes = routes(config, table, &tunnels, interfaces, destinations)?;
        items.extend(routes.into_iter().map(Item::Route));
    }
    // Those that carry nothing have no route, so that what was sent to them falls through to the
    // tables of the classes.
    let chosen = config.tunnels().zip(config.tunnel_tables());
    let chosen = chosen.filter(|((role, it), _)| placement.uses(*role, &it.device));
    for ((_, tunnel), table) in chosen {
        let routes = routes(config, table, &[tunnel], interfaces, destinations)?;
        items.extend(routes.into_iter().map(Item::Route));
    }
    Ok(items)
}

/// All tables that are filled: one for each class, and one for each tunnel where packets choose.
pub(super) fn tables(config: &Config) -> Vec<TableId> {
    let of_classes = [config.short.table, config.long.table];
    of_classes
        .into_iter()
        .chain(config.tunnel_tables())
        .collect()
}

/// The tunnels that carry a class in this egress, in the order of the configuration: the kernel gives
/// each a range of hash values in this order, so that a tunnel that leaves and comes back finds its
/// flows again.
pub fn tunnels_of<'c>(
    config: &'c Config,
    placement: &Placement,
    egress: Egress,
) -> Vec<&'c Tunnel> {
    let Some(role) = egress.tunnel() else {
        return Vec::new();
    };
    let tunnels = config.tunnels_of(role).iter();
    tunnels
        .filter(|it| placement.uses(role, &it.device))
        .collect()
}

/// The tunnels that packets of a class may leave by, in the order of the configuration: all that are used where they may
/// be found in any, else those that carry the class.
pub fn tunnels_open_to<'c>(
    config: &'c Config,
    placement: &Placement,
    class: Class,
) -> Vec<&'c Tunnel> {
    if !config.balancers().is_some_and(|it| it.may_be_in_any(class)) {
        return tunnels_of(config, placement, placement.of(class));
    }
    let used = config
        .tunnels()
        .filter(|(role, it)| placement.uses(*role, &it.device));
    used.map(|(_, it)| it).collect()
}

/// How rules will match the mark: what [`DscpMatch`] came to on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    Exact,
    Legacy,
    /// By these bits of the kernel's mark.
    Beside(MarkBits),
}

impl From<Matching> for DscpMatch {
    fn from(matching: Matching) -> Self {
        match matching {
            // All bits of an fwmark are looked at, too.
            Matching::Exact | Matching::Beside(_) => Self::Dscp,
            Matching::Legacy => Self::Tos,
        }
    }
}

/// The prefix that all addresses of a family have.
pub(super) fn everything(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0).into(),
        Family::V6 => Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn routes(
    config: &Config,
    table: TableId,
    tunnels: &[&Tunnel],
    interfaces: &Interfaces,
    destinations: &Destinations,
) -> Result<Vec<Route>, NoSuchInterface> {
    let is_alone = tunnels.len() == 1;
    let mut routes = Vec::new();
    for family in config.families() {
        let hop = |tunnel: &&Tunnel| {
            let device = interfaces.named(&tunnel.device)?;
            Ok(NextHop {
                gateway: tunnel.gateway.of(family),
                device: device.name.clone(),
                device_index: device.index,
                weight: if is_alone {
                    1
                } else {
                    tunnel.weight.get().into()
                },
            })
        };
        let next_hops: Vec<_> = tunnels.iter().map(hop).collect::<Result<_, _>>()?;
        if next_hops.is_empty() {
            continue;
        }
        let route = |destination: &IpNet, next_hops| Route {
            destination: *destination,
            table: table.get(),
            next_hops,
        };
        let thrown = destinations.thrown(family).iter();
        routes.extend(thrown.map(|it| route(it, Vec::new())));
        let split = destinations.split(family).iter();
        routes.extend(split.map(|it| route(it, next_hops.clone())));
    }
    Ok(routes)
}

/// Three rules for each length that the prefixes of stated destinations have, the longest first. All
/// but those of the shortest pass over what the tables hold for shorter ones. Where destinations
/// follow the main table, three for all of them: the tables themselves have what is thrown back.
fn rules(
    config: &Config,
    lan: &InterfaceName,
    family: Family,
    matching: Matching,
    destinations: &Destinations,
) -> Vec<Rule> {
    let lengths = match config.routes.follow {
        true => destinations.longest(family).into_iter().collect(),
        false => config.prefix_lengths(family),
    };
    let mut rules = Vec::new();
    for (index, length) in (0..).zip(&lengths) {
        let priority = config.routes.rule_priority.group(index);
        let shorter = lengths.get(index as usize + 1).copied();
        let rule = |priority, selector, table: u32, suppressed| Rule {
            family,
            priority,
            interface: lan.clone(),
            selector,
            table,
            suppressed,
        };
        let main = RouteHeader::RT_TABLE_MAIN.into();
        let (short, long) = (config.short.table.get(), config.long.table.get());
        rules.push(rule(
            priority.specific(),
            Selector::Any,
            main,
            Some(*length),
        ));
        rules.push(rule(priority.short(), Selector::Any, short, shorter));
        let marks = config.long_tunnel_marks().into_iter();
        let tunnels = config.tunnel_mask();
        rules.extend(marks.map(|mark| {
            let selector = selector(mark, family, matching).with_none_of(tunnels);
            rule(priority.long(), selector, long, shorter)
        }));
        let chosen = config
            .tunnel_marks()
            .into_iter()
            .zip(config.tunnel_tables());
        rules.extend(chosen.map(|(value, table)| {
            let selector = Selector::Mark {
                value,
                mask: tunnels,
            };
            rule(priority.long(), selector, table.get(), shorter)
        }));
    }
    rules
}

/// IPv4 rules see three bits of the mark and refuse others; IPv6 rules have always seen all six.
pub(super) fn selector(dscp: Dscp, family: Family, matching: Matching) -> Selector {
    match (matching, family) {
        (Matching::Beside(bits), _) => Selector::Mark {
            value: bits.of(dscp.policy()),
            mask: bits.mask(),
        },
        (Matching::Exact, _) => Selector::Dscp(dscp),
        (Matching::Legacy, Family::V4) => Selector::Tos(dscp.legacy_tos()),
        (Matching::Legacy, Family::V6) => Selector::Tos(dscp.tos()),
    }
}
