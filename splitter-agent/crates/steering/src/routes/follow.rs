//! What has to change when the destinations do: only that, and so that no packet misses its way.

use std::sync::Arc;

use splitter_config::Config;
use splitter_netlink::{Interfaces, Netlink};

use super::destinations::Destinations;
use super::item::{Item, Route};
use super::plan::{Action, Plan, PlanError, Replacement, difference};
use super::{matching, wanted};
use crate::Placements;

/// Plans the way from the rules and routes of some destinations, which the kernel has, to those of
/// others. What is the same is not looked at. Changes nothing.
///
/// What leads elsewhere is taken out of the tunnels before what is around it is led into them, new
/// rules come before old ones go, and nothing is removed before its successor is there.
///
/// # Errors
/// When the kernel does not answer, or a tunnel that is to be used has no device.
pub async fn plan_follow(
    netlink: &Netlink,
    config: &Config,
    placements: &Placements,
    interfaces: &Interfaces,
    from: &Arc<Destinations>,
    to: &Arc<Destinations>,
) -> Result<Plan, PlanError> {
    let matching = matching::decide(netlink, config).await?;
    let routes = |destinations: &Destinations| {
        wanted::all_routes(config, placements, interfaces, destinations)
    };
    let rules = |destinations| wanted::all_rules(config, matching, destinations);
    let mut actions = difference(routes(&to.without(from))?, routes(&from.without(to))?);
    actions.extend(difference(rules(to), rules(from)));
    actions.retain(|action| !matches!(action, Action::Keep(_)));
    actions.sort_by_key(turn);
    Ok(Plan {
        matching: matching.into(),
        placements: placements.clone(),
        destinations: Arc::clone(to),
        actions,
        notes: Vec::new(),
    })
}

/// The turn of a step among the others.
fn turn(action: &Action) -> u8 {
    match action {
        Action::Add(Item::Route(route)) => arriving(route),
        Action::Replace(Replacement { to, .. }) => arriving(to),
        Action::Add(Item::Rule(_)) | Action::Keep(_) => 2,
        // The last rule came first.
        Action::Remove(Item::Rule(_)) => 3,
        Action::Remove(Item::Route(route)) if route.is_throw() => 5,
        Action::Remove(Item::Route(_)) => 4,
    }
}

fn arriving(route: &Route) -> u8 {
    if route.is_throw() { 0 } else { 1 }
}
