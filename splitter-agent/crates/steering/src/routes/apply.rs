//! Carrying out a plan, all of it or nothing.

use std::fmt;

use futures_util::future::{join_all, try_join_all};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use splitter_netlink::{Netlink, NetlinkError};

use super::item::{Item, Route};
use super::plan::{Action, Plan, Replacement};
use super::{Footprint, snapshot};

/// Requests that wait for the kernel at a time. It takes them in order, so that waiting for each
/// answer gains nothing.
const AT_A_TIME: usize = 64;

/// A plan that was carried out. It can be [verified](Self::verify) and
/// [undone](Self::roll_back); dropping it leaves everything in place.
#[derive(Debug)]
#[must_use = "a plan that was carried out should be verified"]
pub struct Applied {
    pub(super) plan: Plan,
    done: Vec<Action>,
}

/// Why a plan was not carried out. Everything is as it was, but for what `undone` says.
#[derive(Debug, thiserror::Error)]
#[error("step {step} of {steps} failed, `{action}`: {source}; {undone}")]
pub struct ApplyError {
    /// Which step, from 1, not counting what was kept.
    pub step: usize,
    /// How many there were.
    pub steps: usize,
    /// The step.
    pub action: Action,
    /// Why it failed.
    pub source: NetlinkError,
    /// How undoing the steps before went.
    pub undone: Undone,
}

/// Says how undoing a plan went.
#[derive(Debug, Default)]
pub struct Undone {
    /// How many steps were undone.
    pub steps: usize,
    /// The steps that could not be undone, and why.
    pub remaining: Vec<(Action, NetlinkError)>,
}

impl Plan {
    /// Carries the plan out, step by step. When a step fails, those that were carried out are undone.
    /// If the future is dropped half-way, what was done stays: [`remove_all`] or the next plan sees
    /// it.
    ///
    /// # Errors
    /// With the step that failed and why.
    pub async fn apply(self, netlink: &Netlink) -> Result<Applied, ApplyError> {
        let steps = self.actions.iter();
        let steps: Vec<_> = steps.filter(|it| !matches!(it, Action::Keep(_))).collect();
        let mut done = Vec::new();
        for several in turns(&steps) {
            let before = done.len();
            let requests = several.iter().map(|action| carry_out(netlink, action));
            let mut failed = None;
            for (index, result) in join_all(requests).await.into_iter().enumerate() {
                match result {
                    Ok(()) => done.push(several[index].clone()),
                    Err(source) => {
                        if matches!(source, NetlinkError::TimedOut { .. }) {
                            // The kernel may have done it all the same.
                            done.push(several[index].clone());
                        }
                        failed.get_or_insert((index, source));
                    }
                }
            }
            if let Some((index, source)) = failed {
                let undone = undo(netlink, &done).await;
                return Err(ApplyError {
                    step: before + index + 1,
                    steps: steps.len(),
                    action: several[index].clone(),
                    source,
                    undone,
                });
            }
        }
        drop(steps);
        Ok(Applied { plan: self, done })
    }
}

impl Applied {
    /// The plan that was carried out.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Restores what was there before the plan was carried out.
    pub async fn roll_back(self, netlink: &Netlink) -> Undone {
        undo(netlink, &self.done).await
    }
}

/// Removes every rule and route of an instance: those with our protocol number within its
/// footprint. Returns what was removed; a second time that is nothing.
///
/// # Errors
/// When the kernel refuses a request; what has been removed stays removed.
pub async fn remove_all(
    netlink: &Netlink,
    footprint: &Footprint,
) -> Result<Vec<Item>, NetlinkError> {
    let interfaces = netlink.interfaces().await?;
    let mut found = snapshot::take(netlink, &interfaces, &[footprint])
        .await?
        .ours;
    // A rule without its routes does nothing; routes without their rule do nothing either. The
    // rule for specific routes goes last of the rules, as it came first.
    found.sort_by_key(|item| match item {
        Item::Rule(rule) => (0, u32::MAX - rule.priority),
        Item::Route(route) => (1, route.table),
    });
    for several in found.chunks(AT_A_TIME) {
        try_join_all(several.iter().map(|item| remove(netlink, item))).await?;
    }
    Ok(found)
}

async fn undo(netlink: &Netlink, done: &[Action]) -> Undone {
    let mut undone = Undone::default();
    let steps: Vec<_> = done.iter().rev().collect();
    for several in turns(&steps) {
        let requests = several.iter().map(|action| take_back(netlink, action));
        for (action, result) in several.iter().zip(join_all(requests).await) {
            match result {
                Ok(()) => undone.steps += 1,
                Err(error) => undone.remaining.push(((*action).clone(), error)),
            }
        }
    }
    undone
}

/// The steps in groups whose requests may wait for the kernel together: routes, but no rule comes
/// before the answers for the routes that it leads to.
fn turns<'s>(steps: &'s [&'s Action]) -> impl Iterator<Item = &'s [&'s Action]> {
    let is_route = |action: &Action| match action {
        Action::Add(item) | Action::Remove(item) | Action::Keep(item) => {
            matches!(item, Item::Route(_))
        }
        Action::Replace(_) => true,
    };
    let alike = steps.chunk_by(move |a, b| is_route(a) && is_route(b));
    alike.flat_map(|several| several.chunks(AT_A_TIME))
}

async fn take_back(netlink: &Netlink, action: &Action) -> Result<(), NetlinkError> {
    match action {
        Action::Add(item) => remove(netlink, item).await,
        Action::Remove(item) => match add(netlink, item).await {
            // Removing had timed out and has not happened.
            Err(error) if error.os_error() == Some(libc::EEXIST) => Ok(()),
            result => result,
        },
        Action::Replace(Replacement { from, to }) => replace(netlink, to, from).await,
        Action::Keep(_) => Ok(()),
    }
}

async fn carry_out(netlink: &Netlink, action: &Action) -> Result<(), NetlinkError> {
    match action {
        Action::Add(item) => add(netlink, item).await,
        Action::Remove(item) => remove(netlink, item).await,
        Action::Replace(Replacement { from, to }) => replace(netlink, from, to).await,
        Action::Keep(_) => Ok(()),
    }
}

/// In one step, so that no packet finds neither. Only where one has next hops and the other one
/// has none does IPv6 put the new one next to the old one, which then has to go.
async fn replace(netlink: &Netlink, from: &Route, to: &Route) -> Result<(), NetlinkError> {
    let message = RouteNetlinkMessage::NewRoute(to.message());
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    netlink
        .change(&format!("replace {from} with {to}"), message, flags)
        .await?;
    if from.destination.addr().is_ipv4() || from.has_gateways() == to.has_gateways() {
        return Ok(());
    }
    remove(netlink, &Item::Route(from.clone())).await
}

async fn add(netlink: &Netlink, item: &Item) -> Result<(), NetlinkError> {
    let message = match item {
        Item::Rule(rule) => RouteNetlinkMessage::NewRule(rule.message()),
        Item::Route(route) => RouteNetlinkMessage::NewRoute(route.message()),
    };
    netlink
        .change(&format!("add {item}"), message, NLM_F_CREATE | NLM_F_EXCL)
        .await
}

async fn remove(netlink: &Netlink, item: &Item) -> Result<(), NetlinkError> {
    let message = match item {
        Item::Rule(rule) => RouteNetlinkMessage::DelRule(rule.message()),
        Item::Route(route) => RouteNetlinkMessage::DelRoute(route.message()),
    };
    remove_message(netlink, &item.to_string(), message).await
}

/// What is already gone counts as removed: a device that disappears takes its routes along.
pub(super) async fn remove_message(
    netlink: &Netlink,
    shown: &str,
    message: RouteNetlinkMessage,
) -> Result<(), NetlinkError> {
    match netlink.change(&format!("remove {shown}"), message, 0).await {
        Err(error)
            if matches!(
                error.os_error(),
                Some(libc::ENOENT | libc::ESRCH | libc::ENODEV)
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.remaining.is_empty() {
            return write!(f, "the rest was rolled back ({} steps)", self.steps);
        }
        write!(
            f,
            "{} steps were rolled back, but not these, which `splitter down` or you must put right:",
            self.steps
        )?;
        for (action, error) in &self.remaining {
            write!(f, "\n`{action}`: {error}")?;
        }
        Ok(())
    }
}
