//! What answers tell of the way back, which the other border splits. No I/O, no clock.
//!
//! Each direction of a connection is a flow of its own. A border that runs our agent and marks by DSCP
//! shows in the mark of what it sends: it has to come in by a tunnel that this mark is for. Where no agent
//! of ours is known to be, marks tell nothing: hosts reset connections and answer echoes with the DSCP that
//! they were asked with.

use std::collections::BTreeMap;

use serde::Serialize;

use splitter_policy::flow::Class;

use crate::judge::{Answer, Observed, count};
use crate::marks::Mark;
use crate::report::Verdict;
use crate::survey::{Border, PathPlan};

/// Sums up what was seen of the answers to a path's probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WayBack {
    /// The DSCP that answers had, and how many had it.
    pub marked: BTreeMap<String, u64>,
    /// The class that the other border sends them as: that of most marks of ours; null where none had
    /// one.
    pub class: Option<&'static str>,
    /// `ok` where each came in by a tunnel that its mark is for, `wrong` where one did not, `unknown`
    /// where they do not tell.
    pub verdict: Verdict,
    /// The same in words.
    pub why: String,
}

impl WayBack {
    pub(crate) fn of(border: &Border, plan: &PathPlan, observed: &Observed) -> Self {
        let answers: Vec<_> = { observed.asked.iter() }
            .filter_map(|it| {
                let probe = observed.left.get(it).and_then(|it| it.mark);
                Some((observed.answers.get(it)?, probe))
            })
            .collect();
        let marked = count(answers.iter().map(|(it, _)| it.dscp.to_string()));
        let (class, verdict, why) = if answers.is_empty() {
            (None, Verdict::Unknown, "nothing was answered".to_owned())
        } else if border.fwmark.is_some() {
            let why = "answers do not tell: marks are beside packets".to_owned();
            (None, Verdict::Unknown, why)
        } else if !plan.has_far_agent {
            let why =
                "answers do not tell: no agent is known there, and hosts answer with the mark \
                       that they are asked with"
                    .to_owned();
            (None, Verdict::Unknown, why)
        } else {
            judged(border, &answers)
        };
        Self {
            marked,
            class,
            verdict,
            why,
        }
    }
}

/// Each answer comes with the mark that its probe had.
fn judged(
    border: &Border,
    answers: &[(&Answer, Option<u8>)],
) -> (Option<&'static str>, Verdict, String) {
    // The other border may lead to several of the sites.
    let marked = answers.iter().filter_map(|(answer, probe)| {
        let mark = border.marks.numbered(Some(answer.dscp))?;
        Some((*answer, mark, *probe == Some(answer.dscp)))
    });
    let (right, astray): (Vec<_>, Vec<_>) =
        marked.partition(|(answer, mark, _)| mark.devices.contains(&answer.device));
    let came_back = |(answer, mark): (&Answer, &Mark)| {
        let (device, number) = (&answer.device, mark.number);
        let devices = mark.devices.join(" or ");
        format!("answers came back by {device}, though they have the mark {number} of {devices}")
    };
    let mut set_there = astray.iter().filter(|(.., is_reflected)| !is_reflected);
    if let Some((answer, mark, _)) = set_there.next() {
        return (
            Some(mark.class.name()),
            Verdict::Wrong,
            came_back((*answer, *mark)),
        );
    }
    if let Some((answer, mark, _)) = astray.first() {
        let why = came_back((*answer, *mark));
        let why = format!(
            "{why}: it is that of the probes, with which a host answers that nobody splits, or the other \
             border has moved the class"
        );
        return (None, Verdict::Unknown, why);
    }
    let long = right
        .iter()
        .filter(|(_, mark, _)| mark.class == Class::Long);
    let class = match 2 * long.count() > right.len() {
        true => Class::Long.name(),
        false => Class::Short.name(),
    };
    if right.is_empty() {
        let why = "answers bear no mark of ours: the other border does not split them".to_owned();
        return (None, Verdict::Unknown, why);
    }
    let why = format!("the other border sends answers as a {class} flow, by the tunnel of that");
    (Some(class), Verdict::Ok, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::{answered, border, plan};
    #[test]
    fn mark_of_an_answer_tells_the_tunnel_that_it_should_come_by() {
        let cases = [
            ("wan0", 4, Verdict::Ok, Some("short")),
            ("wan1", 2, Verdict::Ok, Some("long")),
            // The probes had that, too.
            ("wan0", 2, Verdict::Unknown, None),
            ("wan1", 4, Verdict::Wrong, Some("short")),
            ("wan0", 0, Verdict::Unknown, None),
        ];
        for (device, dscp, verdict, class) in cases {
            let back = WayBack::of(&border(), &plan(Class::Long), &answered(device, dscp));
            assert_eq!((back.verdict, back.class), (verdict, class), "{}", back.why);
            assert_eq!(back.marked, [(dscp.to_string(), 2)].into());
        }
    }

    #[test]
    fn mark_that_a_host_may_have_reflected_tells_nothing() {
        let mut plan = plan(Class::Long);
        plan.has_far_agent = false;
        let back = WayBack::of(&border(), &plan, &answered("wan0", 2));
        assert_eq!((back.verdict, back.class), (Verdict::Unknown, None));
    }

    #[test]
    fn marks_beside_packets_tell_nothing_of_the_way_back() {
        let mut border = border();
        border.fwmark = splitter_policy::fwmark::MarkBits::new(0xff00);
        let back = WayBack::of(&border, &plan(Class::Long), &answered("wan0", 2));
        assert_eq!((back.verdict, back.class), (Verdict::Unknown, None));
    }
}
