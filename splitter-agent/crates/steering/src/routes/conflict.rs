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
    let catches_mark = rule.mark.filter(|(mark, _)| *mark != 0);
    let catches_mark = catches_mark.and_then(|(mark, mask)| {
        let mut values = kernel_marks(config).into_iter();
        values.find(|value| value & mask == mark)
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

/// What split packets have in the splitter's bits of the kernel's mark: a class, a tunnel, or both.
fn kernel_marks(config: &Config) -> Vec<u32> {
    let marks = config.long_tunnel_marks();
    let marks = std::iter::once(config.marks.short).chain(marks);
    let of_classes: Vec<_> = match config.mark_bits() {
        Some(bits) => marks.map(|mark| bits.of(mark.policy())).collect(),
        None => vec![0],
    };
    let of_tunnels = [vec![0], config.tunnel_marks()].concat();
    let all = of_tunnels.iter();
    all.flat_map(|tunnel| of_classes.iter().map(move |class| class | tunnel))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::rule::RuleAttribute;

    #[test]
    fn rule_in_front_that_selects_the_mark_of_a_tunnel_is_a_conflict() {
        let conflict = |balance: &str, mode: &str, mark, mask| {
            let text = format!(
                "lan = 'l'\n{balance}\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n[steering]\nmode = '{mode}'\n"
            );
            let config = Config::parse(&text, "t").expect("it is whole");
            let mut rule = RuleMessage::default();
            rule.attributes = vec![
                RuleAttribute::Priority(900),
                RuleAttribute::FwMark(mark),
                RuleAttribute::FwMask(mask),
            ];
            rule_conflict(&rule, &config).map(|it| it.problem)
        };
        let selects = |value: &str| {
            Some(format!(
                "it comes before our rules and selects our mark {value} of the kernel's"
            ))
        };
        let balance = "balance = 'rps'";
        // The first tunnel's, alone or with the class of long flows.
        assert_eq!(conflict(balance, "dscp", 0x80, 0xf80), selects("0x80"));
        assert_eq!(conflict(balance, "mark", 0x84, 0xfff), selects("0x84"));
        assert_eq!(conflict(balance, "mark", 0x4, 0xfff), selects("0x4"));
        assert_eq!(conflict("", "mark", 0x4, 0xff), selects("0x4"));
        // There are two tunnels, and no class in the mark beside the DSCP.
        for (balance, mode, mark) in [
            (balance, "dscp", 0x180),
            (balance, "dscp", 0x84),
            (balance, "mark", 0x180),
            ("", "dscp", 0x80),
            ("", "mark", 0x80),
        ] {
            assert_eq!(
                conflict(balance, mode, mark, 0xfff),
                None,
                "{balance} {mode}"
            );
        }
    }
}
