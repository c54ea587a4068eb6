//! Earlier totals, for rates and for what happened of late. Bounded.

use std::collections::VecDeque;

use splitter_instance::Chosen;
use splitter_netlink::DeviceTraffic;
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::EgressCounts;

/// "Of late" is so long at most.
const WINDOW_NS: u64 = 60_000_000_000;
/// Totals that are kept for the window are so far apart at least, so that there are 61 at most.
const SPACING_NS: u64 = 1_000_000_000;

/// Everything counted at one time.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    /// When, on `CLOCK_MONOTONIC`.
    pub(super) at_ns: u64,
    /// The program that counts: another one has counters of its own.
    pub(super) program_id: u32,
    pub(super) counters: Counters,
    /// By tunnel, in the order of the configuration; `None` where there is no such device.
    pub(super) devices: Vec<Option<DeviceTraffic>>,
    /// What left by them; `None` where it is not counted.
    pub(super) left: Vec<Option<EgressCounts>>,
    /// What packets have chosen, in the same order and beyond it; nothing where they do not.
    pub(super) chosen: Vec<Chosen>,
}

impl Totals {
    pub(super) fn seconds_since(&self, earlier: &Self) -> f64 {
        self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9
    }

    /// How fast a count has risen since `earlier`.
    pub(super) fn rate(&self, earlier: &Self, count: &dyn Fn(&Self) -> u64) -> Option<f64> {
        let seconds = self.seconds_since(earlier);
        let risen = count(self).saturating_sub(count(earlier));
        (seconds > 0.0).then(|| risen as f64 / seconds)
    }
}

/// Totals of the last minute and a little before, the newest last.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    spaced: VecDeque<Totals>,
    latest: Option<Totals>,
}

impl History {
    /// Remembers `totals`, the newest so far. Those of another program are forgotten.
    pub(super) fn add(&mut self, totals: Totals) {
        if self
            .latest
            .as_ref()
            .is_some_and(|it| it.program_id != totals.program_id)
        {
            *self = Self::default();
        }
        let age_ns = |it: &Totals| totals.at_ns.saturating_sub(it.at_ns);
        // The first one that is out of the window stands for its begin.
        while self
            .spaced
            .get(1)
            .is_some_and(|second| age_ns(second) >= WINDOW_NS)
        {
            self.spaced.pop_front();
        }
        if self
            .spaced
            .back()
            .is_none_or(|last| age_ns(last) >= SPACING_NS)
        {
            self.spaced.push_back(totals.clone());
        }
        self.latest = Some(totals);
    }

    /// The latest totals that are at least so old: rates over a shorter time would jump about.
    pub(super) fn basis(&self, now: &Totals, at_least_ns: u64) -> Option<&Totals> {
        self.latest
            .iter()
            .chain(self.spaced.iter().rev())
            .filter(|it| it.program_id == now.program_id)
            .find(|it| now.at_ns.saturating_sub(it.at_ns) >= at_least_ns.max(1))
    }

    /// The totals with which the last minute begins, or what is known of it.
    pub(super) fn oldest(&self, now: &Totals) -> Option<&Totals> {
        let age_ns = |it: &Totals| now.at_ns.saturating_sub(it.at_ns);
        let of_program = self
            .spaced
            .iter()
            .filter(|it| it.program_id == now.program_id);
        let begin = of_program.clone().rev().find(|it| age_ns(it) >= WINDOW_NS);
        // After a pause the last one before it would make of late a long time ago.
        let fresh = |it: &&Totals| age_ns(it) < 2 * WINDOW_NS;
        begin
            .filter(fresh)
            .or_else(|| of_program.clone().find(|it| age_ns(it) < WINDOW_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(at_ms: u64, program_id: u32) -> Totals {
        Totals {
            at_ns: at_ms * 1_000_000,
            program_id,
            counters: Counters::ZERO,
            devices: vec![None; 2],
            left: vec![None; 2],
            chosen: Vec::new(),
        }
    }

    fn at_ms(totals: Option<&Totals>) -> Option<u64> {
        totals.map(|it| it.at_ns / 1_000_000)
    }

    #[test]
    fn is_bounded_and_reaches_back_a_minute() {
        let mut history = History::default();
        for step in 0..3_000 {
            history.add(totals(step * 100, 1));
        }
        assert!(history.spaced.len() <= 62, "{}", history.spaced.len());
        let now = totals(300_000, 1);
        assert_eq!(at_ms(history.basis(&now, 80_000_000)), Some(299_900));
        assert_eq!(at_ms(history.basis(&now, 900_000_000)), Some(299_000));
        assert_eq!(at_ms(history.oldest(&now)), Some(240_000));
    }

    #[test]
    fn another_program_has_no_past() {
        let mut history = History::default();
        history.add(totals(1_000, 1));
        let now = totals(2_000, 2);
        assert!(history.basis(&now, 0).is_none() && history.oldest(&now).is_none());
        history.add(now);
        let later = totals(3_000, 2);
        assert_eq!(at_ms(history.basis(&later, 0)), Some(2_000));
        assert_eq!(at_ms(history.oldest(&later)), Some(2_000));
    }

    #[test]
    fn after_a_long_pause_nothing_is_of_late() {
        let mut history = History::default();
        history.add(totals(1_000, 1));
        assert!(history.oldest(&totals(500_000, 1)).is_none());
    }
}
