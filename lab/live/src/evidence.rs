//! What counters say of the frames of a row: that they took the way which its name and its traffic claim.
//!
//! | rows | each timed frame, but for the part that is allowed |
//! |---|---|
//! | all | arrived where frames end |
//! | `split_drop`, `dscp`, `mark` | was counted in a flow, by the program's counters |
//! | `redirect`, `redirect_tr_4` | was redirected, by the program's counters |
//! | `redirect_tr_4` | chose the nearest of the tunnels, by the program's counters: of a long flow not the one that routing has for it |
//! | these and `nft_split`, of one flow | was long: by the program's counters, or the device of the tunnel for long flows |
//! | `redirect`, `redirect_tr_4` | found a record of its next hop, one for all destinations: the kernel's routing was not asked |
//! | `lru_conntrack` of one flow | was counted in the map's entry of its flow |

use std::ops::RangeInclusive;

use anyhow::Result;
use aya::maps::HashMap;
use splitter_policy::counters::Counters;
use splitter_policy::flow::{Class, TunnelRole};

use crate::choosing;
use crate::generator;
use crate::loaded::Loaded;
use crate::program::{Program, Router, Yardstick};
use crate::rig::TUNNELS;
use crate::traffic::Mix;

/// Counts of frames: so far, or of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) arrived: u64,
    /// What the program says that it did with them, where that is counted.
    pub(crate) treated: Option<u64>,
    /// Those of long flows, where flows have classes.
    long: Option<u64>,
    /// Those that chose the tunnel that they should, where frames choose.
    chose: Option<u64>,
    /// Those for which the kernel's routing was asked, where records may answer.
    asked: Option<u64>,
}

/// Frames that have to arrive, and that have to be treated where no table is short of slots.
const NEARLY_ALL: f64 = 0.999;
/// Of 2^20 flows in tables for as many, a few have no slot.
const ALL_WITH_SLOTS: f64 = 0.98;
/// What is counted while counters are read one after the other may be more than was sent.
const ALL: f64 = 1.001;

impl Evidence {
    /// Reads what was counted so far, of flows of so many cores.
    pub(crate) fn read(
        yardstick: &mut Yardstick,
        router: &Router,
        mix: Mix,
        cores: u32,
    ) -> Result<Self> {
        let program = router.program;
        let counters = match program {
            Program::SplitDrop => Some(yardstick.loaded.counters()),
            _ => router.shipped.as_ref().map(Loaded::counters),
        };
        let treated = match (program, &counters) {
            (it, Some(counters)) if it.is_redirecting() => Some(counters.redirected),
            (_, Some(counters)) => Some(split(counters, &Class::ALL)),
            (Program::LruConntrack, None) if mix == Mix::OneFlow => {
                Some(tracked(&mut yardstick.loaded, cores)?)
            }
            _ => None,
        };
        let long = match (program, &counters) {
            (Program::SplitDrop | Program::RedirectTr, Some(counters)) => {
                Some(split(counters, &[Class::Long]))
            }
            _ if tells_classes(program) => Some(sent_long(router)?),
            _ => None,
        };
        let choosing = router
            .shipped
            .as_ref()
            .filter(|_| program == Program::RedirectTr);
        let asked = counters.filter(|_| program.is_redirecting());
        Ok(Self {
            arrived: generator::arrived(&mut yardstick.loaded)?,
            treated,
            long,
            chose: choosing.map(choosing::chose_nearest),
            asked: asked.map(|it| it.fib_lookups),
        })
    }

    /// What was counted since.
    pub(crate) fn since(self, before: Self) -> Self {
        let rise = |after: Option<u64>, before: Option<u64>| Some(after? - before?);
        Self {
            arrived: self.arrived - before.arrived,
            treated: rise(self.treated, before.treated),
            long: rise(self.long, before.long),
            chose: rise(self.chose, before.chose),
            asked: rise(self.asked, before.asked),
        }
    }

    /// Why so many frames were not what the row says, if so.
    pub(crate) fn problem(&self, sent: u64, program: Program, mix: Mix) -> Option<String> {
        let part = |count: u64| count as f64 / sent as f64;
        let of_one_flow = self.long.filter(|_| mix == Mix::OneFlow);
        let claims = [
            ("arrived", Some(part(self.arrived)), NEARLY_ALL..=ALL),
            (
                "were treated",
                self.treated.map(part),
                treated_part(mix)..=ALL,
            ),
            ("were long", of_one_flow.map(part), NEARLY_ALL..=ALL),
            (
                "chose the nearest tunnel",
                self.chose.map(part),
                treated_part(mix)..=ALL,
            ),
            ("asked the kernel's routing", self.asked_part(), ASKING),
        ];
        claims.into_iter().find_map(|(what, part, allowed)| {
            let part = part?;
            (!allowed.contains(&part)).then(|| {
                format!(
                    "{:.2} % of the frames of {} {what}, not {:.1} to {:.1} %",
                    100.0 * part,
                    program.name(),
                    100.0 * allowed.start(),
                    100.0 * allowed.end().min(1.0)
                )
            })
        })
    }

    /// The part of redirected frames for which routing was asked, where records may answer.
    pub(crate) fn asked_part(&self) -> Option<f64> {
        let (asked, redirected) = (self.asked?, self.treated?);
        (redirected > 0).then(|| asked as f64 / redirected as f64)
    }
}

fn treated_part(mix: Mix) -> f64 {
    match mix {
        Mix::OneFlow => NEARLY_ALL,
        Mix::Zipf | Mix::Uniform => ALL_WITH_SLOTS,
    }
}

/// A record is believed for a quarter of a second, in which a core forwards hundreds of thousands of frames.
const ASKING: RangeInclusive<f64> = 0.0..=0.001;

/// Tells if flows become long there, and take another tunnel then.
const fn tells_classes(program: Program) -> bool {
    matches!(
        program,
        Program::Dscp | Program::Mark | Program::Redirect | Program::NftSplit
    )
}

/// Packets that were counted in a flow of one of these classes.
fn split(counters: &Counters, classes: &[Class]) -> u64 {
    let sent = classes
        .iter()
        .flat_map(|class| TunnelRole::ALL.map(|it| counters.packets(*class, it)));
    sent.sum()
}

fn sent_long(router: &Router) -> Result<u64> {
    let counters = router.rig.router.device_counters(TUNNELS[1])?;
    Ok(counters.sent_packets)
}

/// Packets in the peer's entries of the one flow of each core.
fn tracked(yardstick: &mut Loaded, cores: u32) -> Result<u64> {
    let map: HashMap<_, [u32; 4], [u64; 3]> = yardstick.map("LRU_V4").try_into()?;
    let packets = |core| {
        let entry = map.get(&generator::key(core), 0);
        entry.map_or(0, |[packets, ..]| packets)
    };
    Ok((0..cores).map(packets).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Evidence = Evidence {
        arrived: 10_000,
        treated: Some(9_999),
        long: Some(10_000),
        chose: None,
        asked: Some(2),
    };

    #[track_caller]
    fn refused(evidence: Evidence, mix: Mix, expected: &str) {
        let problem = evidence.problem(10_000, Program::Redirect, mix);
        let problem = problem.expect("it is refused");
        assert!(problem.contains(expected), "{problem}");
    }

    #[test]
    fn frames_that_took_another_way_give_no_figure() {
        let one = Mix::OneFlow;
        assert_eq!(GOOD.problem(10_000, Program::Redirect, one), None);
        let with = |arrived, treated, long, asked| Evidence {
            arrived,
            treated: Some(treated),
            long: Some(long),
            chose: None,
            asked: Some(asked),
        };
        let lost = with(9_000, 10_000, 10_000, 0);
        refused(lost, one, "90.00 % of the frames of redirect arrived");
        let by_stack = with(10_000, 9_900, 10_000, 0);
        refused(
            by_stack,
            one,
            "99.00 % of the frames of redirect were treated",
        );
        let short = with(10_000, 10_000, 5_000, 0);
        refused(short, one, "50.00 % of the frames of redirect were long");
        let asking = with(10_000, 10_000, 10_000, 100);
        refused(asking, one, "1.00 % of the frames of redirect asked");
    }

    #[test]
    fn frames_that_did_not_choose_give_no_figure_where_they_are_to() {
        let problem = |chose| {
            let evidence = Evidence {
                chose: Some(chose),
                ..GOOD
            };
            evidence.problem(10_000, Program::RedirectTr, Mix::OneFlow)
        };
        assert_eq!(problem(10_000), None);
        let problem = problem(9_900).expect("it is refused");
        let expected = "99.00 % of the frames of redirect_tr_4 chose the nearest tunnel";
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn what_many_flows_claim_is_another_thing() {
        let mostly_short = Evidence {
            treated: Some(9_900),
            long: Some(100),
            ..GOOD
        };
        let problem = |mix| mostly_short.problem(10_000, Program::Redirect, mix);
        assert_eq!(problem(Mix::Uniform), None);
        assert_eq!(problem(Mix::Zipf), None);
        // As where each flow has a record of its own.
        let asking = Evidence {
            asked: Some(6_400),
            ..mostly_short
        };
        refused(asking, Mix::Zipf, "64.65 % of the frames of redirect asked");
        let without_slots = Evidence {
            treated: Some(9_000),
            ..mostly_short
        };
        refused(without_slots, Mix::Zipf, "90.00 % of the frames");
    }
}
