//! Link failures during a run, and the recovery of links.

use flow_balance::PathId;

use super::Network;
use crate::scenario::{FabricSettings, Outage};

/// The link failures and recoveries of a run.
#[derive(Debug)]
pub(crate) struct Outages {
    /// Changes in order of time.
    steps: Vec<Step>,
    next: usize,
    /// By port: how many reasons there are for it to be down, and how many of them policies know.
    reasons: Vec<Reasons>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reasons {
    down: u32,
    known: u32,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at_ns: u64,
    spine: usize,
    /// None stands for all.
    leaf: Option<usize>,
    fails: bool,
    /// Policies learn it; else it happens.
    is_known: bool,
}

impl Outages {
    /// Plans the outages of the fabric that `network` was built from: links down from the start
    /// stay so.
    pub(crate) fn new(fabric: Option<&FabricSettings>, network: &Network) -> Self {
        let reason = |failed| u32::from(failed);
        let reasons = network.ports.iter().map(|it| Reasons {
            down: reason(it.failed),
            known: reason(it.failed),
        });
        let outages = fabric.map_or(&[][..], |it| &it.outage);
        let mut steps: Vec<Step> = outages.iter().flat_map(steps).collect();
        // Stable: of what happens at the same time the file's order decides.
        steps.sort_by_key(|it| it.at_ns);
        Self {
            steps,
            next: 0,
            reasons: reasons.collect(),
        }
    }

    /// Returns the time of the next change.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.steps.get(self.next).map_or(u64::MAX, |it| it.at_ns)
    }

    /// Lets happen what is due.
    pub(crate) fn advance(&mut self, network: &mut Network, now_ns: u64) {
        while let Some(step) = self.steps.get(self.next).copied()
            && step.at_ns <= now_ns
        {
            self.next += 1;
            self.take(step, network);
        }
    }

    /// Lets everything happen at once: what is down then, is for good.
    pub(crate) fn end_all(mut self, network: &mut Network) {
        self.advance(network, u64::MAX);
    }

    fn take(&mut self, step: Step, network: &mut Network) {
        let leaves = match step.leaf {
            Some(leaf) => leaf..leaf + 1,
            None => 0..network.layout.leaves,
        };
        for leaf in leaves {
            let layout = network.layout;
            let both_ways = [
                layout.uplink(leaf, step.spine),
                layout.spine_port(step.spine, leaf),
            ];
            for port in both_ways {
                let reasons = &mut self.reasons[port];
                let count = if step.is_known {
                    &mut reasons.known
                } else {
                    &mut reasons.down
                };
                *count = if step.fails {
                    *count + 1
                } else {
                    count.saturating_sub(1)
                };
                network.ports[port].failed = reasons.down > 0;
            }
        }
        if step.is_known {
            self.announce(step.spine, network);
        }
    }

    /// Announces to policies which paths over a spine work.
    fn announce(&self, spine: usize, network: &mut Network) {
        let Some(path) = PathId::new(spine) else {
            return;
        };
        let layout = network.layout;
        let works = |port: usize| self.reasons[port].known == 0;
        for leaf in 0..layout.leaves {
            for to_leaf in 0..layout.leaves {
                let usable =
                    works(layout.uplink(leaf, spine)) && works(layout.spine_port(spine, to_leaf));
                network.paths.set_path([leaf, to_leaf], path, usable);
            }
        }
    }
}

fn steps(outage: &Outage) -> impl Iterator<Item = Step> {
    let ns = |us: f64| (us * 1e3) as u64;
    let step = |at_ns, fails, is_known| Step {
        at_ns,
        spine: usize::from(outage.spine),
        leaf: outage.leaf.map(usize::from),
        fails,
        is_known,
    };
    let later_ns = ns(outage.known_after_us);
    let at_ns = ns(outage.at_us);
    let fails = [step(at_ns, true, false), step(at_ns + later_ns, true, true)];
    let back = outage.back_us.map(ns);
    let returns = back.map(|at| [step(at, false, false), step(at + later_ns, false, true)]);
    fails.into_iter().chain(returns.into_iter().flatten())
}
