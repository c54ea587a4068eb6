//! The difference between what is wanted and what there is.

use std::fmt;

use serde::Serialize;
use splitter_config::{Config, DscpMatch, InvalidValue};
use splitter_netlink::{Netlink, NetlinkError, NoSuchInterface};

use super::conflict::{self, Conflict};
use super::item::{Item, Route};
use super::spread::hindrances;
use super::{Footprint, matching, snapshot, wanted};
use crate::Placement;

/// Lists what has to be done, in order, for the kernel to have what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// How rules match the mark: `dscp` or `tos`.
    #[serde(rename = "match")]
    pub matching: DscpMatch,
    /// Which tunnels the routes of each class lead to.
    pub placement: Placement,
    /// Every step, and what stays.
    pub actions: Vec<Action>,
    /// What keeps flows from being spread over the tunnels of a class, and what to do. It is left
    /// to the operator: these are settings of the whole system.
    pub notes: Vec<String>,
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
    /// It takes the place of another route of ours, in one step.
    Replace(Replacement),
}

/// A route that takes the place of another one to the same destination, so that there is no time
/// without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replacement {
    /// What is there.
    pub from: Route,
    /// What is wanted.
    pub to: Route,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The kernel does not list what it has.
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

/// Compares what `config` wants with what the kernel has, each class in its own tunnel. Changes
/// nothing.
///
/// # Errors
/// See [`PlanError`].
pub async fn plan(
    netlink: &Netlink,
    config: &Config,
    previous: Option<&Footprint>,
) -> Result<Plan, PlanError> {
    plan_placed(netlink, config, &Placement::PRIMARY, previous.as_slice()).await
}

/// Compares what `config` wants with what the kernel has, the classes placed so. Changes nothing.
///
/// `previous` is where the same instance put things under earlier configurations: what is found
/// there and not wanted any more is removed.
///
/// # Errors
/// See [`PlanError`].
pub async fn plan_placed(
    netlink: &Netlink,
    config: &Config,
    placement: &Placement,
    previous: &[&Footprint],
) -> Result<Plan, PlanError> {
    let interfaces = netlink.interfaces().await?;
    let matching = matching::decide(netlink, config).await?;
    let wanted = wanted::items(config, placement, &interfaces, matching)?;
    let footprint = Footprint::of(config);
    let footprints: Vec<_> = std::iter::once(&footprint)
        .chain(previous.iter().copied())
        .collect();
    let found = snapshot::take(netlink, &interfaces, &footprints).await?;
    let conflicts = conflict::find(config, &found);
    // A shadow is in nobody's way, and nobody is in its.
    if !conflicts.is_empty() && !config.shadow {
        return Err(PlanError::Conflicts(conflicts));
    }
    Ok(Plan {
        matching: matching.into(),
        placement: placement.clone(),
        actions: difference(wanted, found.ours),
        notes: notes(config),
    })
}

/// Plans what moves the classes to where `placement` has them: routes alone. Nothing else is asked for,
/// neither a missing LAN interface nor what others have put in the way keeps a class in a dead
/// tunnel. Changes nothing.
///
/// # Errors
/// When the kernel does not list what it has, or a tunnel that is to be used has no device.
pub async fn plan_move(
    netlink: &Netlink,
    config: &Config,
    placement: &Placement,
) -> Result<Plan, PlanError> {
    let interfaces = netlink.interfaces().await?;
    let wanted = wanted::all_routes(config, placement, &interfaces)?;
    let found = snapshot::take(netlink, &interfaces, &[&Footprint::of(config)]).await?;
    let found = found.ours.into_iter();
    let routes = found.filter(|item| matches!(item, Item::Route(_)));
    Ok(Plan {
        matching: config.marks.matching,
        placement: placement.clone(),
        actions: difference(wanted, routes.collect()),
        notes: Vec::new(),
    })
}

fn notes(config: &Config) -> Vec<String> {
    // A shadow spreads nothing.
    if config.shadow {
        return Vec::new();
    }
    let hindrances = hindrances(config);
    hindrances.iter().map(ToString::to_string).collect()
}

/// Rules go before the routes that they use, and what is stale goes before what takes its place,
/// since two routes to one destination cannot stand in a table; but where one takes the place of
/// another, that is one step.
fn difference(wanted: Vec<Item>, found: Vec<Item>) -> Vec<Action> {
    let replaced = |item: &Item| -> Option<Route> {
        let Item::Route(to) = item else { return None };
        found.iter().find_map(|item| match item {
            Item::Route(from) if from.is_in_the_place_of(to) && from != to => Some(from.clone()),
            _ => None,
        })
    };
    let gives_place = |item: &&Item| {
        let stays_empty = |to: &Item| replaced(to).is_none_or(|from| Item::Route(from) != **item);
        wanted.iter().all(stays_empty)
    };
    let stale = || {
        let stale = found.iter().filter(|item| !wanted.contains(item));
        stale.filter(gives_place)
    };
    let stale_rules = stale().filter(|item| matches!(item, Item::Rule(_)));
    let stale_routes = stale().filter(|item| matches!(item, Item::Route(_)));
    let mut actions: Vec<_> = stale_rules
        .chain(stale_routes)
        .cloned()
        .map(Action::Remove)
        .collect();
    actions.extend(wanted.iter().map(|item| match (item, replaced(item)) {
        _ if found.contains(item) => Action::Keep(item.clone()),
        (Item::Route(to), Some(from)) => Action::Replace(Replacement {
            from,
            to: to.clone(),
        }),
        _ => Action::Add(item.clone()),
    }));
    actions
}

impl Plan {
    /// Returns true where the kernel already has all that is wanted and nothing else of ours.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.actions
            .iter()
            .all(|action| matches!(action, Action::Keep(_)))
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
            Self::Replace(Replacement { from, to }) => write!(f, "~ {to} (instead of {from})"),
        }
    }
}

fn conflict_lines(conflicts: &[Conflict]) -> String {
    let lines: Vec<_> = conflicts.iter().map(Conflict::to_string).collect();
    format!("in conflict with what is not ours:\n{}", lines.join("\n"))
}
