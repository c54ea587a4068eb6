//! The difference between what is wanted and what there is.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;
use splitter_config::{Config, DscpMatch, InvalidValue};
use splitter_netlink::{Netlink, NetlinkError, NoSuchInterface};

use super::conflict::{self, Conflict};
use super::destinations::Destinations;
use super::item::{Item, Route};
use super::spread::hindrances;
use super::{Footprint, matching, snapshot, wanted};
use crate::{Placement, Placements};

/// Lists what has to be done, in order, for the kernel to have what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// How rules match the mark: `dscp` or `tos`.
    #[serde(rename = "match")]
    pub matching: DscpMatch,
    /// Which tunnels the routes of each class lead to, for every remote site.
    #[serde(rename = "placement")]
    pub placements: Placements,
    /// What leads into the tunnels once it is carried out: of the sites that are planned for.
    #[serde(skip)]
    pub destinations: Arc<Destinations>,
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
    plan_placed(netlink, config, &Placements::default(), previous.as_slice()).await
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
    placements: &Placements,
    previous: &[&Footprint],
) -> Result<Plan, PlanError> {
    let destinations = Destinations::read(netlink, config).await?;
    plan_with(netlink, config, placements, previous, destinations.into()).await
}

/// Plans as [`plan_placed`] does, with destinations that were read before.
///
/// # Errors
/// See [`PlanError`].
pub async fn plan_with(
    netlink: &Netlink,
    config: &Config,
    placements: &Placements,
    previous: &[&Footprint],
    destinations: Arc<Destinations>,
) -> Result<Plan, PlanError> {
    let interfaces = netlink.interfaces().await?;
    let matching = matching::decide(netlink, config).await?;
    let wanted = wanted::items(config, placements, &interfaces, matching, &destinations)?;
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
        placements: placements.clone(),
        actions: difference(wanted, found.ours),
        notes: notes(config, &destinations),
        destinations,
    })
}

/// Plans what moves the classes of one site to where `placement` has them: routes alone. `config` is
/// what there is [for that site alone](Config::of_site); the routes to other sites are left as they
/// are. Nothing else is asked for, neither a missing LAN interface nor what others have put in the way
/// keeps a class in a dead tunnel. Changes nothing.
///
/// # Errors
/// When the kernel does not list what it has, or a tunnel that is to be used has no device.
pub async fn plan_move(
    netlink: &Netlink,
    config: &Config,
    placement: &Placement,
) -> Result<Plan, PlanError> {
    let destinations = Destinations::read(netlink, config).await?;
    plan_move_with(netlink, config, placement, destinations.into()).await
}

/// Plans as [`plan_move`] does, with destinations that were read before.
///
/// # Errors
/// When the kernel does not list what it has, or a tunnel that is to be used has no device.
pub async fn plan_move_with(
    netlink: &Netlink,
    config: &Config,
    placement: &Placement,
    destinations: Arc<Destinations>,
) -> Result<Plan, PlanError> {
    let interfaces = netlink.interfaces().await?;
    let wanted = wanted::routes_of_site(config, placement, &interfaces, &destinations)?;
    let found = snapshot::take(netlink, &interfaces, &[&Footprint::of(config)]).await?;
    let found = found.ours.into_iter();
    // What leads elsewhere may be another site's.
    let own = (!config.sites.is_empty()).then(|| destinations.nets());
    let is_own = |item: &Item| match item {
        Item::Route(route) => own
            .as_ref()
            .is_none_or(|own| own.contains(&route.destination)),
        Item::Rule(_) => false,
    };
    let mut placements = Placements::default();
    placements.set(config.site_name(), placement.clone());
    Ok(Plan {
        matching: config.marks.matching,
        placements,
        destinations,
        actions: difference(wanted, found.filter(is_own).collect()),
        notes: Vec::new(),
    })
}

fn notes(config: &Config, destinations: &Destinations) -> Vec<String> {
    // A shadow routes nothing.
    if config.shadow {
        return Vec::new();
    }
    let hindrances = hindrances(config);
    let mut notes: Vec<_> = hindrances.iter().map(ToString::to_string).collect();
    let mut families = config.families();
    if config.routes.follow && families.all(|it| destinations.split(it).is_empty()) {
        notes.push(
            "routes.follow: the main table reaches nothing through a tunnel now, so nothing is \
             split until it does"
                .to_owned(),
        );
    }
    notes
}

/// Rules go before the routes that they use, and what is stale goes before what takes its place,
/// since two routes to one destination cannot stand in a table; but where one takes the place of
/// another, that is one step.
pub(super) fn difference(wanted: Vec<Item>, found: Vec<Item>) -> Vec<Action> {
    // By place, for there may be thousands of routes; of rules there are a few for each interface.
    let mut places: HashMap<_, Vec<usize>> = HashMap::new();
    for (index, item) in found.iter().enumerate() {
        places.entry(place(item)).or_default().push(index);
    }
    let mut is_stale = vec![true; found.len()];
    let mut changes = Vec::new();
    for item in wanted {
        let there = places.get(&place(&item)).map_or(&[][..], Vec::as_slice);
        let same = there.iter().find(|index| found[**index] == item);
        if let Some(same) = same {
            is_stale[*same] = false;
            changes.push(Action::Keep(item));
            continue;
        }
        let mut others = there.iter().map(|index| (*index, &found[*index]));
        changes.push(match (item, others.next()) {
            (Item::Route(to), Some((index, Item::Route(from)))) => {
                is_stale[index] = false;
                let from = from.clone();
                Action::Replace(Replacement { from, to })
            }
            (item, _) => Action::Add(item),
        });
    }
    let stale = found.into_iter().zip(is_stale);
    let stale = stale.filter_map(|(item, is_stale)| is_stale.then_some(item));
    let (rules, routes): (Vec<_>, Vec<_>) = stale.partition(|it| matches!(it, Item::Rule(_)));
    let removed = rules.into_iter().chain(routes).map(Action::Remove);
    removed.chain(changes).collect()
}

/// Where an item stands; of two routes with the same place only one can be there, as a rule.
fn place(item: &Item) -> (u32, Option<IpNet>) {
    match item {
        Item::Rule(rule) => (rule.priority, None),
        Item::Route(route) => (route.table, Some(route.destination)),
    }
}

impl Plan {
    /// Returns the plan where the kernel is known to have all of `self` by now: without a step. It leads
    /// to other `destinations` where those have been followed since.
    #[must_use]
    pub fn carried_out(&self, config: &Config, destinations: Arc<Destinations>) -> Self {
        Self {
            matching: self.matching,
            placements: self.placements.clone(),
            actions: Vec::new(),
            notes: notes(config, &destinations),
            destinations,
        }
    }

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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::item::{NextHop, Rule, Selector};
    use super::*;

    fn rule(priority: u32) -> Item {
        Item::Rule(Rule {
            family: splitter_netlink::Family::V4,
            priority,
            interface: "lan".to_owned().try_into().unwrap(),
            selector: Selector::Any,
            table: 10401,
            suppressed: None,
        })
    }

    fn route(destination: &str, gateway: Option<&str>) -> Item {
        let hop = NextHop {
            gateway: gateway.map(|it| it.parse().unwrap()),
            device: "wan0".to_owned(),
            device_index: 7,
            weight: 1,
        };
        Item::Route(Route {
            destination: destination.parse().unwrap(),
            table: 10401,
            next_hops: vec![hop],
        })
    }

    #[test]
    fn stale_goes_first_and_what_takes_a_place_is_one_step() {
        let (near, far) = (Some("192.0.2.1"), Some("192.0.2.9"));
        let found = vec![
            route("10.4.0.0/16", near),
            route("10.2.0.0/16", near),
            rule(7),
            rule(8),
        ];
        let wanted = vec![
            route("10.2.0.0/16", far),
            route("10.3.0.0/16", far),
            rule(8),
        ];
        let steps = difference(wanted, found).into_iter();
        let signs: String = steps.map(|it| it.to_string().remove(0)).collect();
        assert_eq!(signs, "--~+=");
    }

    #[test]
    fn second_route_to_a_destination_is_stale_where_the_first_is_wanted() {
        let (wanted, other) = (
            route("2001:db8::/48", Some("fe80::1")),
            route("2001:db8::/48", None),
        );
        let steps = difference(vec![wanted.clone()], vec![other.clone(), wanted.clone()]);
        assert_eq!(steps, [Action::Remove(other), Action::Keep(wanted)]);
    }

    #[test]
    fn time_grows_with_the_routes_and_not_with_their_square() {
        let routes = |gateway: &str| -> Vec<_> {
            let nets = (0..20_000_u32).map(|it| format!("10.{}.{}.0/24", it >> 8, it & 255));
            nets.map(|net| route(&net, Some(gateway))).collect()
        };
        let begin = Instant::now();
        let steps = difference(routes("192.0.2.1"), routes("192.0.2.9"));
        assert_eq!(steps.len(), 20_000);
        // The square of it takes minutes, on any machine.
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            begin.elapsed()
        );
    }
}
