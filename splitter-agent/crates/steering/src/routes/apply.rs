//! Carrying out a plan, all of it or nothing.

use std::fmt;

use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use splitter_netlink::{Change, Netlink, NetlinkError};

use super::item::{Item, Route};
use super::plan::{Action, Plan, Replacement};
use super::{Footprint, snapshot};

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
            let changes = several.iter().map(|action| requests(action)).collect();
            let mut failed = None;
            for (index, result) in make(netlink, changes).await.into_iter().enumerate() {
                match result {
                    Ok(()) => done.push(several[index].clone()),
                    Err(source) => {
                        if source.may_be_done() {
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
    let changes = found.iter().map(|item| vec![removal(item)]).collect();
    let removed = make(netlink, changes).await.into_iter();
    removed.collect::<Result<(), _>>()?;
    Ok(found)
}

async fn undo(netlink: &Netlink, done: &[Action]) -> Undone {
    let mut undone = Undone::default();
    let steps: Vec<_> = done.iter().rev().collect();
    for several in turns(&steps) {
        let changes = several.iter().map(|action| undoing(action)).collect();
        for (action, result) in several.iter().zip(make(netlink, changes).await) {
            match result {
                Ok(()) => undone.steps += 1,
                Err(error) => undone.remaining.push(((*action).clone(), error)),
            }
        }
    }
    undone
}

/// The steps in groups that the kernel is asked for at once, in order: where one fails, so much more
/// may have to be undone. No rule comes before the answers for the routes that it leads to.
fn turns<'s>(steps: &'s [&'s Action]) -> impl Iterator<Item = &'s [&'s Action]> {
    const AT_A_TIME: usize = 1_024;
    let is_route = |action: &Action| match action {
        Action::Add(item) | Action::Remove(item) | Action::Keep(item) => {
            matches!(item, Item::Route(_))
        }
        Action::Replace(_) => true,
    };
    let alike = steps.chunk_by(move |a, b| is_route(a) && is_route(b));
    alike.flat_map(|several| several.chunks(AT_A_TIME))
}

/// What is asked for one step, and which refusals mean that it was so already.
struct Request<'i> {
    verb: Verb<'i>,
    change: Change,
    is_done_by: &'static [i32],
}

enum Verb<'i> {
    Add(&'i Item),
    Remove(Shown<'i>),
    Replace { from: &'i Route, to: &'i Route },
}

enum Shown<'i> {
    Item(&'i Item),
    Route(&'i Route),
}

/// Makes the changes of several steps, in order; returns how each step went. Of a step that fails, what
/// comes after in it is asked for all the same.
async fn make(netlink: &Netlink, steps: Vec<Vec<Request<'_>>>) -> Vec<Result<(), NetlinkError>> {
    let mut results: Vec<_> = steps.iter().map(|_| Ok(())).collect();
    let steps = steps.into_iter().enumerate();
    let requests =
        steps.flat_map(|(step, requests)| requests.into_iter().map(move |it| (step, it)));
    let (mut asked, mut changes) = (Vec::new(), Vec::new());
    for (
        step,
        Request {
            verb,
            change,
            is_done_by,
        },
    ) in requests
    {
        asked.push((step, verb, is_done_by));
        changes.push(change);
    }
    let describe = |index: usize| {
        let (_, verb, _) = &asked[index];
        verb.to_string()
    };
    let answers = netlink.change_all(changes, describe).await;
    for ((step, _, is_done_by), answer) in asked.iter().zip(answers) {
        let is_done = |error: &NetlinkError| {
            error
                .os_error()
                .is_some_and(|code| is_done_by.contains(&code))
        };
        if let Err(error) = answer
            && !is_done(&error)
            && results[*step].is_ok()
        {
            results[*step] = Err(error);
        }
    }
    results
}

fn requests(action: &Action) -> Vec<Request<'_>> {
    match action {
        Action::Add(item) => vec![addition(item, &[])],
        Action::Remove(item) => vec![removal(item)],
        Action::Replace(Replacement { from, to }) => replacement(from, to),
        Action::Keep(_) => Vec::new(),
    }
}

fn undoing(action: &Action) -> Vec<Request<'_>> {
    match action {
        Action::Add(item) => vec![removal(item)],
        // Where it may have been removed, and was not.
        Action::Remove(item) => vec![addition(item, &[libc::EEXIST])],
        Action::Replace(Replacement { from, to }) => replacement(to, from),
        Action::Keep(_) => Vec::new(),
    }
}

/// In one step, so that no packet finds neither. Only where one has next hops and the other one
/// has none does IPv6 put the new one next to the old one, which then has to go.
fn replacement<'i>(from: &'i Route, to: &'i Route) -> Vec<Request<'i>> {
    let change = Change {
        message: RouteNetlinkMessage::NewRoute(to.message()),
        flags: NLM_F_CREATE | NLM_F_REPLACE,
    };
    let mut requests = vec![Request {
        verb: Verb::Replace { from, to },
        change,
        is_done_by: &[],
    }];
    let is_in_place = from.destination.addr().is_ipv4() || from.has_gateways() == to.has_gateways();
    if !is_in_place {
        let message = RouteNetlinkMessage::DelRoute(from.message());
        requests.push(removing(Shown::Route(from), message));
    }
    requests
}

fn addition<'i>(item: &'i Item, is_done_by: &'static [i32]) -> Request<'i> {
    let message = match item {
        Item::Rule(rule) => RouteNetlinkMessage::NewRule(rule.message()),
        Item::Route(route) => RouteNetlinkMessage::NewRoute(route.message()),
    };
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    Request {
        verb: Verb::Add(item),
        change: Change { message, flags },
        is_done_by,
    }
}

fn removal(item: &Item) -> Request<'_> {
    let message = match item {
        Item::Rule(rule) => RouteNetlinkMessage::DelRule(rule.message()),
        Item::Route(route) => RouteNetlinkMessage::DelRoute(route.message()),
    };
    removing(Shown::Item(item), message)
}

fn removing(shown: Shown<'_>, message: RouteNetlinkMessage) -> Request<'_> {
    Request {
        verb: Verb::Remove(shown),
        change: Change { message, flags: 0 },
        is_done_by: &GONE,
    }
}

/// What is already gone counts as removed: a device that disappears takes its routes along.
const GONE: [i32; 3] = [libc::ENOENT, libc::ESRCH, libc::ENODEV];

impl fmt::Display for Verb<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(item) => write!(f, "add {item}"),
            Self::Remove(Shown::Item(item)) => write!(f, "remove {item}"),
            Self::Remove(Shown::Route(route)) => write!(f, "remove {route}"),
            Self::Replace { from, to } => write!(f, "replace {from} with {to}"),
        }
    }
}

/// Asks for the removal of something that is there in no shape that we make.
pub(super) async fn remove_message(
    netlink: &Netlink,
    shown: &str,
    message: RouteNetlinkMessage,
) -> Result<(), NetlinkError> {
    match netlink.change(&format!("remove {shown}"), message, 0).await {
        Err(error) if error.os_error().is_some_and(|code| GONE.contains(&code)) => Ok(()),
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
