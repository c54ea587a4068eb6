//! Rules that are not ours, for who asks whose they are.

use netlink_packet_route::rule::RuleAttribute;
use splitter_netlink::{Family, Netlink, NetlinkError};

use super::foreign_rule::ForeignRule;
use super::snapshot::rules;

/// The tables that the kernel has rules for by itself: local, main and default.
const TABLES_OF_THE_KERNEL: [u32; 3] = [255, 254, 253];

/// A rule that somebody else has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherRule {
    /// The rule as `ip` writes it.
    pub description: String,
    /// Its priority; lower numbers come first.
    pub priority: u32,
    /// The table that it sends packets to, if it does that.
    pub table: Option<u32>,
    /// The mark that it selects, with the bits that it looks at.
    pub mark: Option<(u32, u32)>,
    /// The DSCP that it selects, all bits of it.
    pub dscp: Option<u8>,
    /// What it selects of the bits of the former TOS.
    pub tos: Option<u8>,
    /// Whether it selects what its description does not fit.
    pub is_inverted: bool,
    /// Whether it only takes routes of some length (`suppress_prefixlength`).
    pub suppresses: bool,
    /// Whether it is the kernel's rule for the tables of VRFs.
    pub is_of_vrfs: bool,
}

/// Lists the rules of both families that neither the kernel nor an instance of ours has made.
///
/// # Errors
/// When the kernel does not list them.
pub async fn other_rules(netlink: &Netlink) -> Result<Vec<OtherRule>, NetlinkError> {
    let mut others = Vec::new();
    for family in [Family::V4, Family::V6] {
        for message in rules(netlink, family).await? {
            let rule = ForeignRule::of(&message);
            let is_of_vrfs = message
                .attributes
                .iter()
                .any(|it| matches!(it, RuleAttribute::L3MDev(true)));
            let other = OtherRule {
                description: rule.description(),
                priority: rule.priority,
                table: rule.looks_up().filter(|_| !is_of_vrfs),
                mark: rule.mark,
                dscp: rule.dscp,
                tos: rule.tos,
                is_inverted: rule.is_inverted(),
                suppresses: rule.suppresses(),
                is_of_vrfs,
            };
            if !rule.is_ours && !is_default(&other) {
                others.push(other);
            }
        }
    }
    Ok(others)
}

/// Whether the kernel makes it for every network namespace: it selects all, for a table of its own.
fn is_default(rule: &OtherRule) -> bool {
    let table = TABLES_OF_THE_KERNEL
        .into_iter()
        .find(|it| rule.table == Some(*it));
    let priority = match table {
        Some(255) => 0,
        Some(254) => 32_766,
        Some(253) => 32_767,
        _ => return false,
    };
    rule.priority == priority && rule.mark.is_none() && !rule.suppresses
}
