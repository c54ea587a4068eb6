//! What was seen of a path's probes, and what that says. No I/O, no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use splitter_policy::flow::Class;

use crate::report::{Delay, PathReport, Verdict};
use crate::survey::{Border, PathPlan};
use crate::way_back::WayBack;

/// What was seen of the probes of a path, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Where each has left first.
    pub(crate) left: BTreeMap<u16, Left>,
    /// The first answer to each.
    pub(crate) answers: BTreeMap<u16, Answer>,
    /// Those that are to have left as packets of the class.
    pub(crate) judged: Vec<u16>,
    /// Those whose answers were waited for.
    pub(crate) asked: Vec<u16>,
    pub(crate) answered_by: Option<&'static str>,
    pub(crate) mtu: Option<u64>,
    pub(crate) mtu_tried: Option<u64>,
    pub(crate) class: ClassReached,
}

/// A probe that has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) device: String,
    /// The mark that it had; `None` for a fwmark that is not known.
    pub(crate) mark: Option<u8>,
    pub(crate) at: Duration,
}

/// An answer that has come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) device: String,
    /// Its DSCP.
    pub(crate) dscp: u8,
    pub(crate) at: Duration,
}

/// Tells whether the flow's packets have become those of the class that is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ClassReached {
    /// They have its mark.
    #[default]
    Yes,
    /// They have not, after so many.
    No(u64),
    /// None was seen leaving, of so many.
    NothingLeft(u64),
    /// It would have taken so many packets.
    TooMany(u64),
}

/// Says what was seen, and whether it is as intended.
pub(crate) fn judge(border: &Border, plan: &PathPlan, observed: &Observed) -> PathReport {
    let way_back = WayBack::of(border, plan, observed);
    let finding = find(plan, observed, &way_back);
    let left = || {
        observed
            .judged
            .iter()
            .filter_map(|it| observed.left.get(it))
    };
    let answers: Vec<_> = observed
        .asked
        .iter()
        .filter_map(|it| Some((observed.left.get(it), observed.answers.get(it)?)))
        .collect();
    let delays_ms: Vec<f64> = answers
        .iter()
        .filter_map(|(left, answer)| Some(answer.at.checked_sub((*left)?.at)?.as_secs_f64() * 1e3))
        .collect();
    let (sent, answered) = (observed.asked.len() as u64, answers.len() as u64);
    let mark = |mark: Option<u8>| mark.map_or_else(|| "none".to_owned(), |it| it.to_string());
    PathReport {
        family: plan.family.to_string(),
        class: plan.class.name(),
        site: plan.site.as_ref().map(ToString::to_string),
        lan: plan.lan.name.to_string(),
        source: plan.source,
        destination: plan.destination,
        port: plan.port,
        intended: plan.marks.intended(plan.class),
        taken: count(left().map(|it| it.device.clone())),
        mark_in: match border.fwmark {
            Some(_) => "fwmark",
            None => "DSCP",
        },
        marked: count(left().map(|it| mark(it.mark))),
        sent,
        answered,
        answered_by: observed.answered_by,
        loss_percent: (answered > 0).then(|| (sent - answered) as f64 * 100.0 / sent as f64),
        delay_ms: Delay::of(&delays_ms),
        mtu: observed.mtu,
        mtu_tried: observed.mtu_tried,
        came_back_by: count(answers.iter().map(|(_, it)| it.device.clone())),
        way_back,
        verdict: finding.verdict,
        why: finding.why,
        remedy: finding.remedy,
    }
}

pub(crate) fn count(names: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

struct Finding {
    verdict: Verdict,
    why: String,
    remedy: Option<String>,
}

impl Finding {
    fn wrong(why: String, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Wrong,
            why,
            remedy: Some(remedy.into()),
        }
    }

    fn unknown(why: impl Into<String>, remedy: Option<String>) -> Self {
        Self {
            verdict: Verdict::Unknown,
            why: why.into(),
            remedy,
        }
    }
}

fn find(plan: &PathPlan, observed: &Observed, way_back: &WayBack) -> Finding {
    let explain = format!("`splitter explain {} {}`", plan.source, plan.destination);
    if plan.marks.intended(plan.class).is_empty() {
        return Finding::unknown(
            "no tunnel carries this class now, so the main table decides",
            Some("see `splitter status` for the tunnels".to_owned()),
        );
    }
    match observed.class {
        ClassReached::NothingLeft(packets) => {
            return Finding::wrong(
                format!("none of {packets} packets that were put in was seen leaving the border"),
                format!(
                    "look for what drops them or gives them another source: a firewall (`nft list ruleset`), or a route ({explain})"
                ),
            );
        }
        ClassReached::TooMany(packets) => {
            return Finding::unknown(
                format!("a flow is long after {packets} packets, which are too many to probe with"),
                Some("lower the threshold for the while: `splitter set threshold N`".to_owned()),
            );
        }
        ClassReached::Yes | ClassReached::No(_) => {}
    }
    if let Some(finding) = wrong_device(plan, observed, &explain) {
        return finding;
    }
    match observed.class {
        ClassReached::No(packets) => not_reached(plan.class, packets),
        _ if observed.answered_by.is_none() => Finding::unknown(
            "packets left as intended, but nothing came back",
            Some(format!(
                "if {} is up, name a host that answers ping (--to), or a port that it answers (--tcp)",
                plan.destination
            )),
        ),
        _ if way_back.verdict == Verdict::Wrong => Finding::unknown(
            way_back.why.clone(),
            Some("see `splitter status` at the other border: it may have moved a class".to_owned()),
        ),
        _ => Finding {
            verdict: Verdict::Ok,
            why: as_intended(plan, observed),
            remedy: None,
        },
    }
}

/// Some packets have left by a device that is not one of their mark's; without a mark of ours, not
/// one of the class'.
fn wrong_device(plan: &PathPlan, observed: &Observed, explain: &str) -> Option<Finding> {
    let of_class = plan.marks.intended(plan.class);
    let is_wrong = |left: &&Left| match plan.marks.numbered(left.mark) {
        Some(mark) => !mark.devices.contains(&left.device),
        None => !of_class.contains(&left.device),
    };
    let left: Vec<_> = observed
        .judged
        .iter()
        .filter_map(|it| observed.left.get(it))
        .collect();
    let wrong: Vec<_> = left.iter().copied().filter(is_wrong).collect();
    let first = wrong.first()?;
    let (count, all, device) = (wrong.len(), left.len(), &first.device);
    let class = plan.class.name();
    Some(match plan.marks.numbered(first.mark) {
        Some(mark) => Finding::wrong(
            format!(
                "{count} of {all} packets left by {device}, though they have the mark {} of {}",
                mark.number,
                mark.devices.join(" or ")
            ),
            format!("ask which rule or route sends them there: {explain}"),
        ),
        None => {
            let mark = first.mark.map_or_else(
                || "without a mark".to_owned(),
                |it| format!("with DSCP {it}"),
            );
            Finding::wrong(
                format!(
                    "{count} of {all} packets of a {class} flow left by {device} {mark}, which is none of ours"
                ),
                "look for what takes marks away (`nft list ruleset`) or ends the chain of programs \
                 before ours (`bpftool net`)",
            )
        }
    })
}

fn not_reached(class: Class, packets: u64) -> Finding {
    match class {
        Class::Long => Finding::wrong(
            format!("the flow was not treated as long after {packets} packets"),
            "see `splitter status` for the threshold that is in force, and for packets that pass \
             untreated",
        ),
        // A new flow may start in the long tunnel while a long one is about to leave the short one.
        Class::Short => Finding::unknown(
            "new flows start in the long tunnel at present, because a long flow is on its way there",
            Some("try again".to_owned()),
        ),
    }
}

fn as_intended(plan: &PathPlan, observed: &Observed) -> String {
    let mut left = observed
        .judged
        .iter()
        .filter_map(|it| observed.left.get(it));
    let foreign = left.find(|it| plan.marks.numbered(it.mark).is_none());
    let sent = observed.asked.len();
    let is_lost = |it: &&u16| !observed.answers.contains_key(it);
    let lost = observed.asked.iter().filter(is_lost).count();
    match foreign {
        // Echoes of the short class have none, and a firewall may clear marks behind the rules.
        Some(_) if plan.class == Class::Long => {
            "it left as intended; its mark was changed before it left".to_owned()
        }
        _ if lost * 10 > sent => format!("it left as intended; {lost} of {sent} were not answered"),
        _ => "it left as intended and was answered".to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
