//! `[routes]`: what the agent puts into the kernel's routing policy.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use splitter_netlink::Family;

use crate::Config;
use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::Reload;
use crate::kind::{boolean, list, prefix, whole};
use crate::source::Source;
use crate::values::{RulePriority, TableId};

section! {
    /// Says what the agent puts into the kernel's routing policy.
    pub struct Routes, GivenRoutes {
        /// These destinations lie behind the tunnels. A route of the main table that is more
        /// specific than the destination in which it lies comes first.
        destinations: Option<Vec<IpNet>> = key(
            "destinations",
            Reload,
            list(
                prefix(),
                "prefixes, each once, no bits beyond their length",
                [
                    "without a destination nothing would be routed into the tunnels",
                    "name prefixes, or leave the key out for all that has no more specific route",
                ],
                "name each prefix once",
            ),
        )
        .optional("everything that has no more specific route in the main table")
        .examples(&["[\"10.2.0.0/16\", \"2001:db8:b::/48\"]"])
        .trade_off(
            "With prefixes, only what goes there is routed into the tunnels: between two \
             interfaces of the site, traffic stays at the site. Without, all that would follow the \
             default route.",
        );

        /// Splits what the main table reaches through a tunnel, whoever put the route there (FRR,
        /// BGP, DHCP, WireGuard, by hand), and nothing else. Changes are followed while the agent
        /// runs. With destinations, only what lies inside of them.
        follow: bool = key("follow", Reload, boolean())
            .default(false)
            .trade_off(
                "Prefixes need not be stated, and [come and go](../how-to/follow.md) with the \
                 routes. A route is through a tunnel if it leaves by the tunnel's `device`, and to \
                 its `gateway` where the tunnel has one of that family.",
            );

        /// With balance each tunnel has a routing table of its own, from this one on in their order.
        tunnel_tables: TableId = key(
            "tunnel_tables",
            Reload,
            whole(1..=u32::MAX).except(
                0,
                "table 0 means \"unspecified\" to the kernel",
                "give the first of 16 tables that nothing else uses, such as 10411",
            ),
        )
        .default(TableId::OF_TUNNELS)
        .also("not 238 to 255")
        .off()
        .trade_off("Routes of others in them would be lost in the agent's.");

        /// The agent's rules take this priority and the two after it; where destinations have
        /// prefixes of several lengths, three for each length.
        rule_priority: RulePriority = key(
            "rule_priority",
            Reload,
            whole(1..=RulePriority::MAX),
        )
        .default(RulePriority::DEFAULT)
        .trade_off(
            "Rules of others in front of them that select the same traffic are a conflict.",
        );
    }
}

impl Config {
    /// Returns the lengths that the prefixes of the destinations have in a family, each once and the
    /// longest first.
    #[must_use]
    pub fn prefix_lengths(&self, family: Family) -> Vec<u8> {
        let Some(destinations) = self.destinations() else {
            return vec![0];
        };
        let of_family = destinations.iter().filter(|it| Family::of(it) == family);
        let lengths: BTreeSet<_> = of_family.map(IpNet::prefix_len).collect();
        lengths.into_iter().rev().collect()
    }

    /// Lists the table of each tunnel, in the order of [`Config::tunnels`]; none without `balance`.
    #[must_use]
    pub fn tunnel_tables(&self) -> Vec<TableId> {
        let first = self.routes.tunnel_tables;
        let all = (0..).zip(self.tunnel_marks());
        all.filter_map(|(index, _)| first.after(index)).collect()
    }

    /// Returns how many groups of three rules there are: one for each of those lengths, in the family
    /// that has more of them. What follows the main table has one.
    #[must_use]
    pub fn rule_groups(&self) -> u8 {
        if self.routes.follow {
            return 1;
        }
        let lengths = [Family::V4, Family::V6].map(|family| self.prefix_lengths(family).len());
        let most = lengths.into_iter().max().unwrap_or(1).max(1);
        u8::try_from(most).unwrap_or(u8::MAX)
    }
}

impl RulePriority {
    /// Returns all priorities that so many groups of rules take.
    #[must_use]
    pub fn taken_by(self, groups: u8) -> RangeInclusive<u32> {
        let last = self.group(u32::from(groups.max(1)) - 1);
        self.specific()..=last.short()
    }
}

/// Also where there are several groups, all rules come before the one for the main table.
pub(super) fn priorities_suffice(source: &Source<'_>, config: &Config) {
    let groups = config.rule_groups();
    let taken = config.routes.rule_priority.taken_by(groups);
    if *taken.end() < RulePriority::MAIN {
        return;
    }
    let largest = RulePriority::MAIN - u32::from(groups) * RulePriority::GROUP;
    source.section("routes").contradiction(
        "rule_priority",
        format!(
            "the destinations have prefixes of {groups} lengths, whose rules need {} numbers below {}",
            u32::from(groups) * RulePriority::GROUP,
            RulePriority::MAIN
        ),
        &format!("give {largest} or less"),
    );
}
