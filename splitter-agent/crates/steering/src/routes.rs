//! Policy routing, which steers the two classes: rules by mark, and a table for each tunnel.
//!
//! Everything is one [`Plan`]: the difference between what the configuration wants and what the
//! kernel has. Each rule and route carries [`PROTOCOL`], so that what is ours is known by looking
//! at it, also after a crash and without a state file. Nothing else is ever changed.
//!
//! For each LAN interface and each family that all tunnels carry, three rules:
//!
//! ```text
//! 1600: from all iif eth0 lookup main suppress_prefixlength 0   specific routes come first
//! 1601: from all iif eth0 dscp 2 lookup 10402                   long flows
//! 1602: from all iif eth0 lookup 10401                          short flows and the rest
//! ```
//!
//! With `steering.mode = "mark"` the second selects `fwmark` instead. Where the tunnels are shared there is another 1601, for the mark of short flows in the long
//! tunnel.
//!
//! Where destinations are configured, the first suppresses up to the length of their prefixes, so that
//! the way to another interface of the site, which is more specific, stays. Prefixes of several
//! lengths have such a group of rules each, the longest first, whose other rules suppress what the
//! tables hold for the shorter ones: so a route of the main table is held against the destination in
//! which it lies, and not against another one that happens to be longer. With `10.0.0.0/8` and
//! `10.2.0.0/24`:
//!
//! ```text
//! 1600: from all iif eth0 lookup main suppress_prefixlength 24
//! 1601: from all iif eth0 dscp 2 lookup 10402 suppress_prefixlength 8
//! 1602: from all iif eth0 lookup 10401 suppress_prefixlength 8
//! 1603: from all iif eth0 lookup main suppress_prefixlength 8
//! 1604: from all iif eth0 dscp 2 lookup 10402
//! 1605: from all iif eth0 lookup 10401
//! ```
//!
//! Destinations that follow the main table come and go, of all lengths, and have one group of rules,
//! whose first suppresses up to the longest of their prefixes. What leads elsewhere and is not longer
//! than that has a `throw` route in both tables ([`Destinations`]).
//!
//! Where packets choose among all tunnels (`balance`) each of these has a table of its own and a rule
//! for its number in the kernel's mark, at the priority of the long class:
//!
//! ```text
//! 1601: from all iif eth0 fwmark 0x4/0xffe lookup 10402        of no tunnel
//! 1601: from all iif eth0 fwmark 0x80/0xf80 lookup 10411
//! 1601: from all iif eth0 fwmark 0x100/0xf80 lookup 10412
//! ```
//!
//! When the long tunnel's device goes away its routes go with it, and the lookup falls through to the
//! short tunnel. A class with several tunnels has routes with a next hop for each that is alive, and
//! their weights. While all of them are dead the routes in its table have the next hops of the
//! other class ([`Placement`](crate::Placement)); rules stay as they are.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use splitter_config::{Config, RulePriority, TableId};
use splitter_netlink::InterfaceName;

mod apply;
mod audit;
mod conflict;
mod destinations;
mod follow;
mod foreign_rule;
mod inside;
mod item;
mod leftovers;
mod main_table;
mod matching;
mod message;
mod other_rules;
mod picture;
mod plan;
mod probe;
mod regions;
mod snapshot;
mod spread;
mod suppressed;
mod verify;
mod wanted;

pub use apply::{Applied, ApplyError, Undone, remove_all};
pub use audit::{Arrival, NotTaken, RuleInUse, Trace, TracedPacket, arrival, trace};
pub use audit::{AuditPace, Exempt, RouteAudit, Unsplit, UnsplitReason, audit, audit_paced};
pub use conflict::Conflict;
pub use destinations::{Destinations, FollowedPrefixes};
pub use follow::plan_follow;
pub use item::{Item, NextHop, Route, Rule, Selector};
pub use leftovers::{our_rules, remove_leftovers};
pub use matching::supports_exact_dscp;
pub use other_rules::{OtherRule, other_rules};
pub use picture::MainTables;
pub use plan::{Action, Plan, PlanError, Replacement};
pub use plan::{plan, plan_move, plan_move_with, plan_placed, plan_with};
pub use spread::{Hindrance, hindrances};
pub use suppressed::{SuppressedRoute, suppressed_routes};
pub use verify::{Probe, Verification, VerifyError};
pub use wanted::{tunnels_of, tunnels_open_to};

/// The number in the protocol field of our rules and routes (`proto 94` in `ip rule` and
/// `ip route`). It is not in iproute2's `rt_protos`, and no routing daemon uses it.
pub const PROTOCOL: u8 = 94;

/// Says where an instance's rules and routes are found. Kept with the instance's state, it lets
/// `down` and the next plan clean up after a configuration that has changed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Interfaces that the rules select.
    pub lan: Vec<InterfaceName>,
    /// The tables that hold the routes.
    pub tables: Vec<TableId>,
    /// The first of the priorities of the rules.
    pub rule_priority: RulePriority,
    /// How many groups of three rules there are.
    #[serde(default = "one_group")]
    pub rule_groups: u8,
}

/// What there was before there could be several.
const fn one_group() -> u8 {
    1
}

impl Footprint {
    /// Returns where an instance with this configuration puts its rules and routes.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self {
            lan: config.lan.clone(),
            tables: wanted::tables(config),
            rule_priority: config.routes.rule_priority,
            rule_groups: config.rule_groups(),
        }
    }

    /// Whether something with our protocol number belongs to this instance.
    fn contains(&self, item: &Item) -> bool {
        match item {
            Item::Rule(rule) => {
                self.has_priority(rule.priority) && self.lan.contains(&rule.interface)
            }
            Item::Route(route) => self.has_table(route.table),
        }
    }

    /// Names what two instances both claim, in words; each would remove what the other one has there.
    pub fn shared_with(&self, other: &Self) -> Option<String> {
        let mut tables = self.tables.iter();
        if let Some(table) = tables.find(|table| other.has_table(table.get())) {
            return Some(format!("table {table}"));
        }
        let priority = self
            .priorities()
            .find(|priority| other.has_priority(*priority))?;
        Some(format!("rule priority {priority}"))
    }

    /// Names what a rule of another instance has that this one claims, in words.
    #[must_use]
    pub fn shared_with_rule(&self, rule: &Rule) -> Option<String> {
        if self.has_table(rule.table) {
            return Some(format!("table {}", rule.table));
        }
        let is_shared = self.has_priority(rule.priority);
        is_shared.then(|| format!("rule priority {}", rule.priority))
    }

    fn has_priority(&self, priority: u32) -> bool {
        self.priorities().contains(&priority)
    }

    fn priorities(&self) -> RangeInclusive<u32> {
        self.rule_priority.taken_by(self.rule_groups)
    }

    fn has_table(&self, table: u32) -> bool {
        self.tables.iter().any(|own| own.get() == table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(tables: [u32; 2], priority: u32) -> Footprint {
        Footprint {
            lan: Vec::new(),
            tables: tables.map(|table| table.try_into().unwrap()).into(),
            rule_priority: priority.try_into().unwrap(),
            rule_groups: 1,
        }
    }

    #[test]
    fn footprints_share_tables_and_overlapping_priorities() {
        let own = footprint([1, 2], 1000);
        let shared = |tables, priority| own.shared_with(&footprint(tables, priority));
        assert_eq!(shared([3, 1], 2000).as_deref(), Some("table 1"));
        assert_eq!(shared([3, 4], 998).as_deref(), Some("rule priority 1000"));
        assert_eq!(shared([3, 4], 1002).as_deref(), Some("rule priority 1002"));
        assert_eq!(shared([3, 4], 997), None);
        assert_eq!(shared([3, 4], 1003), None);
        let two_groups = Footprint {
            rule_groups: 2,
            ..own.clone()
        };
        let shared = two_groups.shared_with(&footprint([3, 4], 1005));
        assert_eq!(shared.as_deref(), Some("rule priority 1005"));
        assert_eq!(two_groups.shared_with(&footprint([3, 4], 1006)), None);
    }

    #[test]
    fn footprint_of_an_earlier_version_has_one_group() {
        let mut written = serde_json::to_value(footprint([1, 2], 1000)).unwrap();
        written.as_object_mut().unwrap().remove("rule_groups");
        let read: Footprint = serde_json::from_value(written).unwrap();
        assert_eq!(read, footprint([1, 2], 1000));
    }
}
