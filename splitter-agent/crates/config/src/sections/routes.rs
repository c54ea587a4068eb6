//! `[routes]`: what the agent puts into the kernel's routing policy.

use ipnet::IpNet;

use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::Reload;
use crate::kind::{list, prefix, whole};
use crate::values::RulePriority;

section! {
    /// Says what the agent puts into the kernel's routing policy.
    pub struct Routes, GivenRoutes {
        /// These destinations lie behind the tunnels. Routes of the main table that are more
        /// specific than the longest of them (of the same family) come first.
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

        /// The agent's rules take this priority and the two after it.
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
