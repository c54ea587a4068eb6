//! The difference between what is wanted and what there is.

use std::fmt;

use serde::Serialize;

use super::conflict::{self, Conflict};
use super::item::Item;
use super::{Footprint, matching, snapshot, wanted};
use crate::config::{Config, DscpMatch, InvalidValue};
use crate::netlink::{Netlink, NetlinkError, NoSuchInterface};

/// What has to be done, in order, for the kernel to have what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// How rules match the mark: `dscp` or `tos`.
    #[serde(rename = "match")]
    pub matching: DscpMatch,
    /// Every step, and what stays.
    pub actions: Vec<Action>,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", content = "item", rename_all = "lowercase")]
pub enum Action {
    /// It is not there yet.
    Add(Item),
    /// It is there.
    Keep(Item),
    /// It is ours and no longer wanted.
    Remove(Item),
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The kernel does not tell what it has.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An interface of the configuration is not there.
    #[error(transparent)]
    NoSuchInterface(#[from] NoSuchInterface),
    /// Others are in the way.
    #[error("{}", conflict_lines(.0))]
    Conflicts(Vec<Conflict>),
    /// `marks.match = "dscp"` on a kernel without it.
    #[error(
        "marks.match = \"dscp\": this kernel has no rules that match a DSCP exactly (Linux 6.13 \
         has); set it to \"auto\" or \"tos\""
    )]
    NoExactMatch,
    /// `marks.match = "auto"` came to `tos`, which cannot tell the marks apart.
    #[error("this kernel has only tos rules: {0}")]
    MarksCollide(InvalidValue),
}

/// Compares what `config` wants with what the kernel has. Changes nothing.
///
/// `previous` is where the same instance put things under an earlier configuration: what is found
/// there and not wanted any more is removed.
///
/// # Errors
/// See [`PlanError`].
pub async fn plan(
    netlink: &Netlink,
    config: &Config,
    previous: Option<&Footprint>,
) -> Result<Plan, PlanError> {
    let interfaces = netlink.interfaces().await?;
    let matching = matching::decide(netlink, &config.marks).await?;
    let wanted = wanted::items(config, &interfaces, matching)?;
    let footprint = Footprint::of(config);
    let footprints: Vec<_> = std::iter::once(&footprint).chain(previous).collect();
    let found = snapshot::take(netlink, &interfaces, &footprints).await?;
    let conflicts = conflict::find(config, &found);
    // A shadow is in nobody's way, and nobody is in its.
    if !conflicts.is_empty() && !config.shadow {
        return Err(PlanError::Conflicts(conflicts));
    }
    Ok(Plan {
        matching: matching.into(),
        actions: difference(wanted, found.ours),
    })
}

/// Rules go before the routes that they use, and what is stale goes before what takes its place,
/// since two routes to one destination cannot stand in a table. In between, packets follow the
/// main table.
fn difference(wanted: Vec<Item>, found: Vec<Item>) -> Vec<Action> {
    let stale = || found.iter().filter(|item| !wanted.contains(item));
    let stale_rules = stale().filter(|item| matches!(item, Item::Rule(_)));
    let stale_routes = stale().filter(|item| matches!(item, Item::Route(_)));
    let mut actions: Vec<_> = stale_rules
        .chain(stale_routes)
        .cloned()
        .map(Action::Remove)
        .collect();
    actions.extend(wanted.into_iter().map(|item| {
        if found.contains(&item) {
            Action::Keep(item)
        } else {
            Action::Add(item)
        }
    }));
    actions
}

impl Plan {
    /// Whether the kernel already has all that is wanted and nothing else of ours.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.actions
            .iter()
            .all(|action| matches!(action, Action::Keep(_)))
    }
}

impl Action {
    /// The rule or route that it is about.
    #[must_use]
    pub fn item(&self) -> &Item {
        match self {
            Self::Add(item) | Self::Keep(item) | Self::Remove(item) => item,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, action) in self.actions.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            action.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(item) => write!(f, "+ {item}"),
            Self::Keep(item) => write!(f, "= {item}"),
            Self::Remove(item) => write!(f, "- {item}"),
        }
    }
}

fn conflict_lines(conflicts: &[Conflict]) -> String {
    let lines: Vec<_> = conflicts.iter().map(Conflict::to_string).collect();
    format!("in conflict with what is not ours:\n{}", lines.join("\n"))
}
