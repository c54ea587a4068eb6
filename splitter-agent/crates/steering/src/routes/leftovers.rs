//! Everything with our protocol number, whoever of ours has put it there.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol,
};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use splitter_netlink::{Family, Interfaces, Netlink, NetlinkError, address_family};

use super::apply::remove_message;
use super::item::{Item, Route, Rule};
use super::message::table_of;
use super::snapshot;
use super::{Footprint, PROTOCOL};

/// Removes every rule and route with our protocol number but those within the footprints of `kept`,
/// also where no state tells of them. Returns in words what was removed.
///
/// # Errors
/// When the kernel refuses a request; what has been removed stays removed.
pub async fn remove_leftovers(
    netlink: &Netlink,
    kept: &[Footprint],
) -> Result<Vec<String>, NetlinkError> {
    let interfaces = netlink.interfaces().await?;
    let mut removed = Vec::new();
    for family in [Family::V4, Family::V6] {
        let rules = snapshot::rules(netlink, family).await?.into_iter();
        let rules =
            rules.filter(|it| is_our_rule(it) && !kept.iter().any(|kept| kept.has_rule(it)));
        let routes = our_routes(netlink, family).await?.into_iter();
        let routes = routes.filter(|it| !kept.iter().any(|kept| kept.has_table(table_of(it))));
        // A rule without its routes does nothing.
        let removals: Vec<_> = rules
            .map(|rule| removal_of_rule(rule, family))
            .chain(routes.map(|route| removal_of_route(route, family, &interfaces)))
            .collect();
        for (shown, message) in removals {
            remove_message(netlink, &shown, message).await?;
            removed.push(shown);
        }
    }
    Ok(removed)
}

/// Lists the rules of both families with our protocol number, whichever instance has made them.
///
/// # Errors
/// When the kernel does not list them.
pub async fn our_rules(netlink: &Netlink) -> Result<Vec<Rule>, NetlinkError> {
    let mut ours = Vec::new();
    for family in [Family::V4, Family::V6] {
        let rules = snapshot::rules(netlink, family).await?;
        let rules = rules.iter().filter(|it| is_our_rule(it));
        ours.extend(rules.filter_map(Rule::from_message));
    }
    Ok(ours)
}

impl Footprint {
    fn has_rule(&self, message: &RuleMessage) -> bool {
        match Rule::from_message(message) {
            Some(rule) => self.contains(&Item::Rule(rule)),
            // Of a shape that this version does not make: by its place alone.
            None => priority_of(message).is_some_and(|priority| self.has_priority(priority)),
        }
    }
}

fn is_our_rule(message: &RuleMessage) -> bool {
    let ours = RouteProtocol::from(PROTOCOL);
    let is_it = |it: &RuleAttribute| matches!(it, RuleAttribute::Protocol(by) if *by == ours);
    message.attributes.iter().any(is_it)
}

fn priority_of(message: &RuleMessage) -> Option<u32> {
    message.attributes.iter().find_map(|it| match it {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    })
}

/// The routes of a family with our protocol number, in all tables. The kernel leaves the others out.
async fn our_routes(netlink: &Netlink, family: Family) -> Result<Vec<RouteMessage>, NetlinkError> {
    let mut ask = RouteMessage::default();
    ask.header.address_family = address_family(family);
    ask.header.protocol = RouteProtocol::from(PROTOCOL);
    ask.header.table = RouteHeader::RT_TABLE_UNSPEC;
    let request = format!("list our {family} routes");
    let asked = RouteNetlinkMessage::GetRoute(ask);
    let answer = match netlink.list(&request, asked).await {
        Err(error) if snapshot::is_absent(&error) => return Ok(Vec::new()),
        answer => answer?,
    };
    let ours = answer.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route) if u8::from(route.header.protocol) == PROTOCOL => {
            Some(route)
        }
        _ => None,
    });
    Ok(ours.collect())
}

fn removal_of_rule(message: RuleMessage, family: Family) -> (String, RouteNetlinkMessage) {
    if let Some(rule) = Rule::from_message(&message) {
        return (
            rule.to_string(),
            RouteNetlinkMessage::DelRule(rule.message()),
        );
    }
    let priority = priority_of(&message).unwrap_or_default();
    let shown = format!("{family} rule {priority} of another version");
    (shown, RouteNetlinkMessage::DelRule(message))
}

fn removal_of_route(
    message: RouteMessage,
    family: Family,
    interfaces: &Interfaces,
) -> (String, RouteNetlinkMessage) {
    if let Some(route) = Route::from_message(&message, interfaces) {
        return (
            route.to_string(),
            RouteNetlinkMessage::DelRoute(route.message()),
        );
    }
    let table = table_of(&message);
    let shown = format!("{family} route of another version in table {table}");
    (shown, RouteNetlinkMessage::DelRoute(as_key(message)))
}

/// The message without what a listing adds.
fn as_key(mut route: RouteMessage) -> RouteMessage {
    let is_key = |it: &RouteAttribute| {
        matches!(
            it,
            RouteAttribute::Destination(_)
                | RouteAttribute::Table(_)
                | RouteAttribute::Oif(_)
                | RouteAttribute::Gateway(_)
                | RouteAttribute::Priority(_)
                | RouteAttribute::MultiPath(_)
        )
    };
    route.attributes.retain(is_key);
    route.header.flags = RouteFlags::empty();
    route
}
