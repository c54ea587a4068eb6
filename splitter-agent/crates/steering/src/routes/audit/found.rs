//! The findings of an audit: what is not split, and why.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use splitter_netlink::Family;

/// More specific routes of a family that are asked about; the rest is counted. A border with so many
/// routes into its tunnels has a routing daemon, whose routes all lead one way.
pub(super) const MOST_ROUTES: usize = 20_000;

/// Says where the kernel sends what should be split, as far as that is not a tunnel of its class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAudit {
    /// Prefixes of which a class does not leave by its tunnels, by family and address.
    pub unsplit: Vec<Unsplit>,
    /// Prefixes inside the destinations that somebody's more specific route leads elsewhere than into
    /// a tunnel: they keep that meaning, and are not split.
    pub exempt: Vec<Exempt>,
    /// How many questions the kernel answered.
    pub questions: usize,
    /// More specific routes that were not asked about, because there are too many.
    pub unasked: usize,
}

/// A prefix of which a class does not leave by the tunnels that it is placed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsplit {
    /// The prefix; all of a family where the family is not split.
    pub destination: IpNet,
    /// Classes of which this is so: `short`, `long` or both.
    pub classes: Vec<String>,
    /// Why, in a word.
    pub reason: UnsplitReason,
    /// Why, in words.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// Names why a prefix is not split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsplitReason {
    /// The main table has a more specific route, by a tunnel of the other class.
    SpecificRoute,
    /// Somebody's rule comes before ours.
    Rule,
    /// A tunnel has no next hop of the family.
    NoNextHop,
    /// The table of the class has no route for it.
    NoRoute,
    /// The kernel would drop it.
    Dropped,
}

impl UnsplitReason {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 5] = [
        Self::SpecificRoute,
        Self::Rule,
        Self::NoNextHop,
        Self::NoRoute,
        Self::Dropped,
    ];

    /// The value of the `reason` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpecificRoute => "specific_route",
            Self::Rule => "rule",
            Self::NoNextHop => "no_next_hop",
            Self::NoRoute => "no_route",
            Self::Dropped => "dropped",
        }
    }
}

/// A prefix inside the destinations that leads to none of the tunnels, as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exempt {
    /// The prefix.
    pub destination: IpNet,
    /// The devices that it leads by.
    pub devices: Vec<String>,
}

impl Unsplit {
    /// Returns the family that it belongs to.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(&self.destination)
    }
}

impl fmt::Display for Unsplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.destination.prefix_len() {
            0 => self.family().fmt(f)?,
            _ => self.destination.fmt(f)?,
        }
        write!(f, " NOT split: {}", self.problem)
    }
}

impl fmt::Display for Exempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            destination,
            devices,
        } = self;
        let devices = devices.join(" and ");
        write!(
            f,
            "{destination} is not split: a more specific route leads by {devices}, which is no tunnel"
        )
    }
}

impl RouteAudit {
    /// Returns true where all that is meant to be split is.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unsplit.is_empty()
    }

    /// Says what is not split in at most `most` lines, and how much more there is.
    #[must_use]
    pub fn lines(&self, most: usize) -> Vec<String> {
        let unsplit = self.unsplit.iter().map(|it| format!("{it}; {}", it.remedy));
        let exempt = self.exempt.iter().map(ToString::to_string);
        let mut lines: Vec<_> = unsplit.chain(exempt).collect();
        let more = lines.len().saturating_sub(most);
        lines.truncate(most);
        if more > 0 {
            lines.push(format!(
                "and {more} more; `splitter status --json` has them all"
            ));
        }
        if self.unasked > 0 {
            lines.push(format!(
                "{} more specific routes were not looked at, beyond {MOST_ROUTES}",
                self.unasked
            ));
        }
        lines
    }
}
