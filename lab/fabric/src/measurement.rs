//! One run of a scheme: flows start for a while before they count, then all of them are waited for.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use aya::sys::{Stats, enable_stats};
use flow_testbed::{
    cpu,
    namespace::Counters,
    order::{Arrivals, Capture},
    traffic::{PORT, Timed, run_transfers},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cell::{Cell, Fault, SizeClass},
    program::{self, RunTime},
    rig::Rig,
    schedule::Schedule,
    scheme::Scheme,
};

/// How long each part of a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Flows start for so long before they count.
    pub(crate) warm_up: Duration,
    /// Those that start then count.
    pub(crate) counting: Duration,
}

/// A flow that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FlowResult {
    pub(crate) class: SizeClass,
    /// Payload.
    pub(crate) bytes: u32,
    /// How long its handshake took; nothing if there was no end of it.
    pub(crate) connected: Option<Duration>,
    /// How long it took, or how long it was waited for.
    pub(crate) took: Duration,
    pub(crate) is_finished: bool,
}

/// What a run came to. All but the flows is of the time from the end of the warm-up to the end.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// All flows of the run, those of the warm-up too.
    pub(crate) schedule: Schedule,
    pub(crate) warm_up: Duration,
    pub(crate) flows: Vec<FlowResult>,
    /// Packets with data that hosts received.
    pub(crate) arrivals: Arrivals,
    /// Segments that hosts have sent again.
    pub(crate) retransmits: u64,
    /// The part of the bytes towards spines that each of these had.
    pub(crate) path_share: Vec<f64>,
    /// What the leaves' programs took a packet.
    pub(crate) ns_per_packet: Option<f64>,
    /// CPU time that the whole machine was busy, in s.
    pub(crate) cpu_s: f64,
    /// What the daemons of all leaves and their maps in the kernel take at the end, in bytes; nothing without them.
    pub(crate) memory_bytes: Option<u64>,
    /// By how much the leaves' models of their queues were wrong when they were held against these.
    pub(crate) prediction_error_us: Option<f64>,
}

/// The longest wait for flows under way at the end.
pub(crate) const DRAIN: Duration = Duration::from_secs(4);

impl Timing {
    pub(crate) const FULL: Self = Self {
        warm_up: Duration::from_secs(1),
        counting: Duration::from_secs(10),
    };
    pub(crate) const QUICK: Self = Self {
        warm_up: Duration::from_millis(500),
        counting: Duration::from_secs(4),
    };

    /// How long flows start, and the half of the longest wait for the last ones.
    pub(crate) fn whole(self) -> Duration {
        self.warm_up + self.counting + DRAIN / 2
    }
}

/// Runs a scheme in a cell, on a fabric built for it.
pub(crate) fn run(
    cell: &Cell,
    scheme: Scheme,
    seed: u64,
    timing: Timing,
    splitter: &Path,
    cancel: &CancellationToken,
) -> Result<Outcome> {
    let schedule = Schedule::draw(cell, timing.warm_up + timing.counting, seed)?;
    let rig = Rig::build(cell)?;
    // For all schemes, those without a program too. Where the kernel does not account, nothing is known.
    let _accounting = enable_stats(Stats::RunTime).ok();
    let mut applied = scheme.apply(&rig, splitter, cancel)?;
    let captures = rig
        .hosts
        .iter()
        .map(|host| Capture::start(&host.namespace, PORT))
        .collect::<Result<Vec<_>, _>>()?;
    let mut before = None;
    let mut trouble = Trouble::new(cell.fault, timing);
    let completions = run_transfers(
        &rig.hosts.iter().collect::<Vec<_>>(),
        &schedule.transfers,
        schedule.length,
        DRAIN,
        cancel,
        &mut |at| {
            if at >= timing.warm_up && before.is_none() {
                captures.iter().for_each(|it| it.count(true));
                before = Some(Reading::take(&rig));
            }
            trouble.make(at, |fault, begins| match (fault, begins) {
                (Fault::SpineDies, begins) => Ok(rig.set_spine(!begins)?),
                (Fault::LeafRestarts, true) => {
                    rig.set_leaf(false)?;
                    applied.stop_first(scheme, &rig, splitter)
                }
                (Fault::LeafRestarts, false) => {
                    rig.set_leaf(true)?;
                    applied.start_first(scheme, &rig, splitter, cancel)
                }
            });
        },
    )?;
    trouble.outcome?;
    let before = before.context("the run ended before flows counted")??;
    let after = Reading::take(&rig)?;
    let prediction_error_us = applied.model_error_us();
    let memory_bytes = applied.memory_bytes(&rig);
    let mut arrivals = Arrivals::default();
    for capture in captures {
        arrivals = arrivals + capture.end()?.context("cannot look at what arrives")?;
    }
    applied.remove(scheme, &rig, splitter)?;
    Ok(Outcome {
        flows: flows(&schedule, &completions, timing.warm_up),
        schedule,
        warm_up: timing.warm_up,
        arrivals,
        retransmits: after.retransmits_since(&before),
        path_share: after.path_share_since(&before),
        ns_per_packet: after.programs.ns_per_run_since(before.programs),
        cpu_s: after.busy.saturating_sub(before.busy).as_secs_f64(),
        memory_bytes,
        prediction_error_us,
    })
}

/// A fault that begins and ends while flows count.
struct Trouble {
    /// What is still to come: when, and whether it begins or ends.
    ahead: Vec<(Duration, bool)>,
    fault: Option<Fault>,
    outcome: Result<()>,
}

impl Trouble {
    fn new(fault: Option<Fault>, timing: Timing) -> Self {
        let third = timing.counting / 3;
        Self {
            ahead: vec![
                (timing.warm_up + 2 * third, false),
                (timing.warm_up + third, true),
            ],
            fault,
            outcome: Ok(()),
        }
    }

    /// Has the fault begin or end if it is time. What failed first stays the outcome.
    fn make(&mut self, now: Duration, mut act: impl FnMut(Fault, bool) -> Result<()>) {
        let Some(fault) = self.fault else {
            return;
        };
        if self.outcome.is_ok()
            && let Some((_, begins)) = self.ahead.pop_if(|(at, _)| *at <= now)
        {
            self.outcome = act(fault, begins);
        }
    }
}

/// What is counted at a time.
struct Reading {
    hosts: Vec<Counters>,
    sent_bytes: Vec<u64>,
    programs: RunTime,
    busy: Duration,
}

impl Reading {
    fn take(rig: &Rig) -> Result<Self> {
        let hosts = rig.hosts.iter().map(|it| it.namespace.counters());
        Ok(Self {
            hosts: hosts.collect::<Result<_, _>>()?,
            sent_bytes: rig.sent_bytes()?,
            programs: program::run_time(rig),
            busy: cpu::busy()?,
        })
    }

    fn retransmits_since(&self, earlier: &Self) -> u64 {
        let hosts = self.hosts.iter().zip(&earlier.hosts);
        hosts
            .map(|(after, before)| after.since(before, "TcpRetransSegs"))
            .sum()
    }

    fn path_share_since(&self, earlier: &Self) -> Vec<f64> {
        let spines = self.sent_bytes.iter().zip(&earlier.sent_bytes);
        let sent: Vec<_> = spines
            .map(|(after, before)| after.saturating_sub(*before) as f64)
            .collect();
        let all: f64 = sent.iter().sum();
        sent.iter().map(|it| it / all.max(1.0)).collect()
    }
}

/// The flows that started after the warm-up. One that has not finished counts as long as it was waited for.
fn flows(schedule: &Schedule, completions: &[Timed], warm_up: Duration) -> Vec<FlowResult> {
    let transfers = schedule.transfers.iter().zip(&schedule.classes);
    transfers
        .zip(completions)
        .filter(|((transfer, _), _)| transfer.at >= warm_up)
        .map(|((transfer, class), timed)| FlowResult {
            class: *class,
            bytes: transfer.bytes,
            connected: timed.connected,
            took: timed
                .completion
                .unwrap_or(schedule.length.saturating_sub(transfer.at) + DRAIN),
            is_finished: timed.completion.is_some(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{self, tests::SHAPE};

    fn counters(segments: u32) -> Counters {
        let text = format!("Tcp: RetransSegs\nTcp: {segments}\n");
        text.parse().expect("as the kernel prints it")
    }

    #[test]
    fn figures_are_what_rose_between_two_readings() {
        let reading = |segments, sent_bytes: [u64; 2]| Reading {
            hosts: vec![counters(segments), counters(1)],
            sent_bytes: sent_bytes.into(),
            programs: RunTime::default(),
            busy: Duration::ZERO,
        };
        let (before, after) = (reading(2, [100, 100]), reading(9, [400, 200]));
        assert_eq!(after.retransmits_since(&before), 7);
        assert_eq!(after.path_share_since(&before), [0.75, 0.25]);
        assert_eq!(before.path_share_since(&before), [0.0, 0.0]);
    }

    #[test]
    fn fault_begins_and_ends_once_while_flows_count() {
        let seconds = Duration::from_secs;
        let timing = Timing {
            warm_up: seconds(1),
            counting: seconds(9),
        };
        let made = |fault| {
            let (mut trouble, mut made) = (Trouble::new(fault, timing), Vec::new());
            for now in 0..12 {
                trouble.make(seconds(now), |fault, begins| {
                    made.push((now, fault, begins));
                    Ok(())
                });
            }
            made
        };
        let fault = Fault::SpineDies;
        assert_eq!(made(Some(fault)), [(4, fault, true), (7, fault, false)]);
        assert_eq!(made(None), []);
    }

    #[test]
    fn flows_of_the_warm_up_do_not_count_and_unfinished_ones_count_as_waited_for() {
        let cell = cell::chosen(SHAPE, Some("asym2.5-web_search-load0.6"), false)[0];
        let length = Duration::from_secs(3);
        let schedule = Schedule::draw(&cell, length, 1).expect("it is built in");
        let completions = vec![Timed::default(); schedule.transfers.len()];
        let warm_up = Duration::from_secs(1);
        let flows = flows(&schedule, &completions, warm_up);
        let early = schedule
            .transfers
            .iter()
            .filter(|it| it.at < warm_up)
            .count();
        assert!(early > 0);
        assert_eq!(flows.len(), schedule.transfers.len() - early);
        for flow in flows {
            assert!(!flow.is_finished && flow.took >= DRAIN && flow.took <= length + DRAIN);
        }
    }
}
