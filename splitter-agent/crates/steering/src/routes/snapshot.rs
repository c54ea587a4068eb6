//! What the kernel has now: all rules, and the routes of the tables in question.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use netlink_packet_route::rule::RuleMessage;
use splitter_netlink::{Family, Interfaces, Netlink, NetlinkError, address_family};

use super::Footprint;
use super::item::{Item, Route, Rule};
use super::message::table_of;

/// Rules and routes as found, ours in our words and those of others as they are.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// With our protocol number and within one of the footprints.
    pub(super) ours: Vec<Item>,
    /// All other rules.
    pub(super) foreign_rules: Vec<RuleMessage>,
    /// All other routes in our tables.
    pub(super) foreign_routes: Vec<RouteMessage>,
}

/// Reads what is there, in both families: a configuration that lost its IPv6 next hops leaves
/// IPv6 rules behind.
pub(super) async fn take(
    netlink: &Netlink,
    interfaces: &Interfaces,
    footprints: &[&Footprint],
) -> Result<Snapshot, NetlinkError> {
    let mut snapshot = Snapshot::default();
    let mut tables: Vec<u32> = footprints
        .iter()
        .flat_map(|footprint| &footprint.tables)
        .map(|table| table.get())
        .collect();
    tables.sort_unstable();
    tables.dedup();
    let is_ours = |item: &Item| footprints.iter().any(|footprint| footprint.contains(item));
    for family in [Family::V4, Family::V6] {
        for message in rules(netlink, family).await? {
            match Rule::from_message(&message).map(Item::Rule).filter(is_ours) {
                Some(rule) => snapshot.ours.push(rule),
                None => snapshot.foreign_rules.push(message),
            }
        }
        for &table in &tables {
            for message in routes(netlink, family, table).await? {
                match Route::from_message(&message, interfaces)
                    .map(Item::Route)
                    .filter(is_ours)
                {
                    Some(route) => snapshot.ours.push(route),
                    None => snapshot.foreign_routes.push(message),
                }
            }
        }
    }
    Ok(snapshot)
}

/// All rules of a family, in the order in which packets meet them.
pub(super) async fn rules(
    netlink: &Netlink,
    family: Family,
) -> Result<Vec<RuleMessage>, NetlinkError> {
    let mut ask = RuleMessage::default();
    ask.header.family = address_family(family);
    let request = format!("list the {family} rules");
    let answer = match netlink
        .list(&request, RouteNetlinkMessage::GetRule(ask))
        .await
    {
        Err(error) if family_is_absent(&error) => return Ok(Vec::new()),
        answer => answer?,
    };
    let rules = answer.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRule(rule) => Some(rule),
        _ => None,
    });
    Ok(rules.collect())
}

/// The routes of a table.
pub(super) async fn routes(
    netlink: &Netlink,
    family: Family,
    table: u32,
) -> Result<Vec<RouteMessage>, NetlinkError> {
    routes_by(netlink, family, table, None).await
}

/// The routes of a table by one device, or by any. The kernel leaves the others out, so that of a
/// full table of the internet only some are read.
pub(super) async fn routes_by(
    netlink: &Netlink,
    family: Family,
    table: u32,
    device: Option<u32>,
) -> Result<Vec<RouteMessage>, NetlinkError> {
    let mut ask = RouteMessage::default();
    ask.header.address_family = address_family(family);
    ask.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    ask.attributes.push(RouteAttribute::Table(table));
    ask.attributes.extend(device.map(RouteAttribute::Oif));
    let request = format!("list the {family} routes of table {table}");
    let answer = match netlink
        .list(&request, RouteNetlinkMessage::GetRoute(ask))
        .await
    {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        answer => answer?,
    };
    let routes = answer.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route) if table_of(&route) == table => Some(route),
        _ => None,
    });
    Ok(routes.collect())
}

/// A table without routes does not exist, nor do those of a family that the kernel lacks.
pub(super) fn is_absent(error: &NetlinkError) -> bool {
    error.os_error() == Some(libc::ENOENT) || family_is_absent(error)
}

/// A kernel booted with `ipv6.disable=1` has no IPv6 rules or routes to list.
fn family_is_absent(error: &NetlinkError) -> bool {
    matches!(
        error.os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
    )
}
