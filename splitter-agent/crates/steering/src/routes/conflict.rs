//! What others have put where our rules and routes would go.

use std::fmt;

use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol};
use netlink_packet_route::rule::RuleMessage;
use serde::Serialize;
use splitter_config::Config;

use super::Footprint;
use super::foreign_rule::{ForeignRule, command};
use super::message::{family, table_of};
use super::snapshot::Snapshot;

/// Something that is not ours and is in the way. It is never removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The rule or route that is there, as `ip` writes it.
    pub actual: String,
    /// Why it is in the way.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.actual, self.problem, self.remedy)
    }
}

/// All conflicts between the configuration and what others have.
pub(super) fn find(config: &Config, snapshot: &Snapshot) -> Vec<Conflict> {
    let footprint = Footprint::of(config);
    let routes = snapshot
        .foreign_routes
        .iter()
        .filter(|route| footprint.has_table(table_of(route)))
        .map(route_conflict);
    let rules = snapshot
        .foreign_rules
        .iter()
        .filter_map(|rule| rule_conflict(rule, config));
    routes.chain(rules).collect()
}

fn route_conflict(route: &RouteMessage) -> Conflict {
    let table = table_of(route);
    Conflict {
        actual: describe_route(route),
        problem: format!("table {table} already holds a route that is not ours"),
        remedy:
            "give short.table, long.table and routes.tunnel_tables the numbers of unused tables"
                .to_owned(),
    }
}

fn rule_conflict(message: &RuleMessage, config: &Config) -> Option<Conflict> {
    let rule = ForeignRule::of(message);
    let routes = &config.routes;
    let taken = routes.rule_priority.taken_by(config.rule_groups());
    let needed = taken.clone().count();
    let conflict = |problem: String, remedy: &str| {
        let actual = rule.description();
        Some(Conflict {
            actual,
            problem,
            remedy: remedy.to_owned(),
        })
    };
    if Footprint::of(config).has_priority(rule.priority) {
        if rule.is_ours {
            return conflict(
                "this priority is taken by another instance, or by one that crashed with another \
                 configuration"
                    .to_owned(),
                "set routes.rule_priority to other numbers, or run `splitter down` with that \
                 configuration",
            );
        }
        return conflict(
            "this priority is taken".to_owned(),
            &format!("set routes.rule_priority to where {needed} numbers in a row are free"),
        );
    }
    // Priority 0 is the local table's, which only holds this host's own addresses.
    if rule.priority == 0 || rule.priority > *taken.end() {
        return None;
    }
    let remedy = "set routes.rule_priority to a smaller number than that rule's, or remove it";
    let lan = config
        .lan
        .iter()
        .find(|lan| rule.interface == Some(lan.as_str()));
    if let Some(lan) = lan {
        let problem = format!("it comes before our rules and selects what arrives at {lan}");
        return conflict(problem, remedy);
    }
    let catches_mark = config.mark_bits().and_then(|bits| {
        let marks = config.long_tunnel_marks();
        let all = std::iter::once(config.marks.short).chain(marks);
        let mut values = all.map(|mark| bits.of(mark.policy()));
        values.find(|value| {
            rule.mark
                .is_some_and(|(mark, mask)| mark != 0 && value & mask == mark)
        })
    });
    if let Some(value) = catches_mark.filter(|_| rule.interface.is_none()) {
        let problem =
            format!("it comes before our rules and selects our mark {value:#x} of the kernel's");
        return conflict(
            problem,
            "set steering.mark_mask to bits that it does not look at, or routes.rule_priority to a \
             smaller number than that rule's",
        );
    }
    let marks = config.marks;
    let aside = [marks.short_on_long, marks.long_on_short];
    let aside = aside.into_iter().filter(|_| config.is_shared());
    let catches = [marks.short, marks.long]
        .into_iter()
        .chain(aside)
        .filter(|_| config.mark_bits().is_none())
        .find(|mark| {
            rule.dscp == Some(mark.get()) || rule.tos.is_some_and(|tos| tos == mark.tos())
        });
    match catches {
        Some(mark) if rule.interface.is_none() => {
            let problem = format!("it comes before our rules and selects our mark, DSCP {mark}");
            conflict(problem, remedy)
        }
        _ => None,
    }
}

fn describe_route(message: &RouteMessage) -> String {
    let header = &message.header;
    let mut text = format!("{} route", command(family(header.address_family)));
    let destination = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => Some(address),
            _ => None,
        });
    match destination {
        Some(netlink_packet_route::route::RouteAddress::Inet(v4)) => text += &format!(" {v4}"),
        Some(netlink_packet_route::route::RouteAddress::Inet6(v6)) => text += &format!(" {v6}"),
        _ => text += " default",
    }
    if destination.is_some() {
        text += &format!("/{}", header.destination_prefix_length);
    }
    text += &format!(" table {}", table_of(message));
    match header.protocol {
        RouteProtocol::Unspec => text,
        protocol => text + &format!(" proto {}", u8::from(protocol)),
    }
}
