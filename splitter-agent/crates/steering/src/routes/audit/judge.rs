//! What an answer of the kernel means: split, meant otherwise, or a finding with its remedy.

use std::collections::BTreeMap;

use ipnet::IpNet;
use splitter_config::{Config, Tunnel};
use splitter_netlink::{Family, Interfaces, NetlinkError};
use splitter_policy::flow::Class;

use super::found::{Exempt, RouteAudit, Unsplit, UnsplitReason};
use super::{TABLE_MAIN, without_next_hop};
use crate::routes::destinations::Cover;
use crate::routes::foreign_rule::{ForeignRule, Forwarded, command};
use crate::routes::probe::Answer;

pub(super) const TABLE_LOCAL: u32 = 255;

/// All that an answer is judged by.
pub(super) struct Judge<'a> {
    /// With the tunnels of all sites.
    pub(super) whole: &'a Config,
    /// As it would be for the site alone that the packet goes to.
    pub(super) config: &'a Config,
    pub(super) interfaces: &'a Interfaces,
    pub(super) family: Family,
    pub(super) rules: &'a [ForeignRule<'a>],
    /// What our rules take from the main table.
    pub(super) cover: &'a Cover,
    pub(super) is_carried: bool,
    pub(super) is_up: bool,
}

/// What becomes of a packet of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It leaves by a tunnel of its class, or will.
    Split,
    /// Somebody's more specific route leads it by these devices, none of them a tunnel; or, without
    /// any, it is for the router itself.
    Elsewhere(Vec<String>),
    /// It should have left by a tunnel of its class.
    Unsplit {
        reason: UnsplitReason,
        problem: String,
        remedy: String,
    },
}

impl Verdict {
    /// Tells whether a route that nobody listed may have been found, so that another address of the
    /// prefix tells more.
    pub(super) fn may_be_of_another_prefix(&self) -> bool {
        let reason = UnsplitReason::Dropped;
        matches!(self, Self::Elsewhere(_))
            || matches!(self, Self::Unsplit { reason: it, .. } if *it == reason)
    }
}

impl Judge<'_> {
    pub(super) fn verdict(
        &self,
        packet: &Forwarded<'_>,
        tunnels: &[&Tunnel],
        answer: Result<Answer, NetlinkError>,
    ) -> Verdict {
        let answer = match answer {
            Ok(answer) if !answer.is_dropping => answer,
            Ok(_) => return self.dropped(packet, "a route says so"),
            Err(error) => return self.dropped(packet, &os_words(&error)),
        };
        let mut devices: Vec<_> = answer
            .devices()
            .map(|it| self.interfaces.name_of(it).unwrap_or("?").to_owned())
            .collect();
        devices.sort_unstable();
        devices.dedup();
        let is_tunnel = |device: &String| tunnels.iter().any(|it| it.device.as_str() == device);
        if !devices.is_empty() && devices.iter().all(is_tunnel) {
            return Verdict::Split;
        }
        if answer.table == TABLE_LOCAL {
            return Verdict::Elsewhere(Vec::new());
        }
        let deciding = self.deciding_rule(packet, &answer);
        if let Some(rule) = deciding.filter(|it| self.is_in_front(it)) {
            return self.by_rule(rule, &format!("sends it to table {}", name(answer.table)));
        }
        let length = self.cover.length_for(packet.destination).unwrap_or(0);
        if answer.table == TABLE_MAIN && answer.prefix_length > length {
            return self.by_specific_route(devices);
        }
        let by = devices.join(" and ");
        match (self.is_carried, self.is_up) {
            (false, _) => self.without_next_hop(&by),
            // Our rules will come first.
            (true, false) => Verdict::Split,
            (true, true) => Verdict::Unsplit {
                reason: UnsplitReason::NoRoute,
                problem: format!(
                    "the table of its class has no route to it, and table {} sends it by {by}",
                    name(answer.table)
                ),
                remedy:
                    "see `splitter plan` for what is missing, and `splitter status` for the tunnels"
                        .to_owned(),
            },
        }
    }

    /// Finds the rule by which the kernel came to an answer: the first that selects the packet and
    /// looks up the table where the route was found.
    pub(super) fn deciding_rule(
        &self,
        packet: &Forwarded<'_>,
        answer: &Answer,
    ) -> Option<&ForeignRule<'_>> {
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.selects(packet) && rule.finds(answer.table, answer.prefix_length))
    }

    fn is_in_front(&self, rule: &ForeignRule<'_>) -> bool {
        rule.priority < self.config.routes.rule_priority.specific()
    }

    fn dropped(&self, packet: &Forwarded<'_>, why: &str) -> Verdict {
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.drops() && rule.selects(packet));
        if let Some(rule) = rule.filter(|it| self.is_in_front(it)) {
            return self.by_rule(rule, "drops it");
        }
        // Without a way of its own the family has none to be split; before our rules are there the
        // main table need not have one.
        if !self.is_carried || !self.is_up {
            return Verdict::Split;
        }
        Verdict::Unsplit {
            reason: UnsplitReason::Dropped,
            problem: format!("the kernel would drop it ({why})"),
            remedy: format!(
                "look for an `unreachable` or `blackhole` route with `{} route show table all`, and \
                 at rp_filter",
                command(Some(self.family))
            ),
        }
    }

    fn by_rule(&self, rule: &ForeignRule<'_>, what: &str) -> Verdict {
        let priority = rule.priority;
        let groups = self.whole.rule_groups();
        let needed = self.config.routes.rule_priority.taken_by(groups).count();
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        let remedy = match priority > needed {
            true => format!(
                "set routes.rule_priority to {} or less, or remove that rule",
                priority - needed
            ),
            false => "remove that rule, or give it a larger number than ours".to_owned(),
        };
        Verdict::Unsplit {
            reason: UnsplitReason::Rule,
            problem: format!("rule {priority} {what} ({})", rule.description()),
            remedy,
        }
    }

    fn by_specific_route(&self, devices: Vec<String>) -> Verdict {
        let is_tunnel = |device: &String| {
            let mut tunnels = self.whole.tunnels();
            tunnels.any(|(_, it)| it.device.as_str() == device)
        };
        if !devices.iter().any(is_tunnel) {
            return Verdict::Elsewhere(devices);
        }
        Verdict::Unsplit {
            reason: UnsplitReason::SpecificRoute,
            problem: format!(
                "main has a more specific route by {}",
                devices.join(" and ")
            ),
            remedy: "name it in routes.destinations, or remove that route".to_owned(),
        }
    }

    fn without_next_hop(&self, by: &str) -> Verdict {
        let family = self.family;
        let lacking: Vec<_> = without_next_hop(self.config, family)
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        let other = match family {
            Family::V4 => "::/0",
            Family::V6 => "0.0.0.0/0",
        };
        let have = if lacking.len() == 1 { "has" } else { "have" };
        Verdict::Unsplit {
            reason: UnsplitReason::NoNextHop,
            problem: format!(
                "{} {have} no {family} gateway, so all of it leaves by {by}",
                lacking.join(" and ")
            ),
            remedy: format!(
                "add an {family} gateway to it, or set routes.destinations to \"{other}\" if {family} \
                 is not to be split"
            ),
        }
    }
}

/// Puts what was found into the audit, each prefix and reason once.
pub(super) fn collect(
    verdicts: impl IntoIterator<Item = (IpNet, Class, Verdict)>,
    audit: &mut RouteAudit,
) {
    let mut unsplit: BTreeMap<(IpNet, UnsplitReason, String), Unsplit> = BTreeMap::new();
    let mut exempt: BTreeMap<IpNet, Exempt> = BTreeMap::new();
    for (destination, class, verdict) in verdicts {
        match verdict {
            Verdict::Split => {}
            Verdict::Elsewhere(devices) if devices.is_empty() => {}
            Verdict::Elsewhere(devices) => {
                exempt.entry(destination).or_insert(Exempt {
                    destination,
                    devices,
                });
            }
            Verdict::Unsplit {
                reason,
                problem,
                remedy,
            } => {
                let entry = unsplit.entry((destination, reason, problem.clone()));
                let found = entry.or_insert_with(|| Unsplit {
                    destination,
                    classes: Vec::new(),
                    reason,
                    problem,
                    remedy,
                });
                let class = class.name().to_owned();
                if !found.classes.contains(&class) {
                    found.classes.push(class);
                }
            }
        }
    }
    audit.unsplit.extend(unsplit.into_values());
    audit.exempt.extend(exempt.into_values());
}

/// A table as `ip` names it.
pub(super) fn name(table: u32) -> String {
    match table {
        253 => "default".to_owned(),
        TABLE_MAIN => "main".to_owned(),
        TABLE_LOCAL => "local".to_owned(),
        number => number.to_string(),
    }
}

fn os_words(error: &NetlinkError) -> String {
    match error {
        NetlinkError::Refused { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
