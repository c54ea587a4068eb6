//! Misrouting: what was meant for the tunnels of one class leaves by those of the other.
//!
//! What the kernel program marks for a tunnel, and what the tunnel's device really sent, are counted
//! by different parts of the kernel. A class is misrouted where both agree over several intervals:
//! its tunnels have sent much less than was marked for them, and the others as much more. A queue
//! that drops explains the first and not the second, other traffic the second and not the first. No
//! clock and no kernel: what was counted in an interval comes in as an argument.

use splitter_policy::flow::TunnelRole;

/// Fewer bytes in an interval decide nothing: some 40 packets of full length.
const LEAST_BYTES: u64 = 60_000;

/// So many intervals in a row that say the same decide; a dead tunnel's class has moved by then.
const DECIDED_AFTER: u32 = 5;

/// After so many intervals that decide nothing an earlier finding says nothing any more.
const FORGOTTEN_AFTER: u32 = 60;

/// Bytes of one interval that belong to the tunnels of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interval {
    /// What was marked for them.
    pub meant: u64,
    /// What their devices sent, of whatever kind.
    pub sent: u64,
}

/// Decides whether the tunnels of a class get what is meant for them.
#[derive(Debug, Clone, Copy, Default)]
pub struct MisroutingDetector {
    is_misrouted: bool,
    /// Intervals in a row that say the contrary.
    contrary: u32,
    /// Intervals in a row that say nothing.
    undecided: u32,
    /// Since the first of these.
    meant: u64,
    sent: u64,
}

/// A class that is misrouted, with what was seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misrouted {
    /// What was marked for its tunnels.
    pub meant: u64,
    /// What these sent.
    pub sent: u64,
}

impl MisroutingDetector {
    /// Takes what was counted in an interval for the tunnels of this class, and of the other one.
    /// Returns what was found when that changes: `Some(None)` when all is well again.
    pub fn observe(&mut self, own: Interval, other: Interval) -> Option<Option<Misrouted>> {
        let Some(is_wrong) = judge(own, other) else {
            self.undecided += 1;
            if self.undecided < FORGOTTEN_AFTER {
                return None;
            }
            let was_misrouted = self.is_misrouted;
            *self = Self::default();
            return was_misrouted.then_some(None);
        };
        self.undecided = 0;
        if is_wrong == self.is_misrouted {
            (self.contrary, self.meant, self.sent) = (0, 0, 0);
            return None;
        }
        self.contrary += 1;
        self.meant += own.meant;
        self.sent += own.sent;
        if self.contrary < DECIDED_AFTER {
            return None;
        }
        let found = Misrouted {
            meant: self.meant,
            sent: self.sent,
        };
        *self = Self {
            is_misrouted: is_wrong,
            ..Self::default()
        };
        Some(is_wrong.then_some(found))
    }
}

/// Whether an interval says that a class is misrouted; `None` where it does not say.
fn judge(own: Interval, other: Interval) -> Option<bool> {
    if own.meant < LEAST_BYTES {
        return None;
    }
    let missing = own.meant.saturating_sub(own.sent);
    let surplus = other.sent.saturating_sub(other.meant);
    let is_missing = missing >= own.meant / 2;
    // Headers that a device does not count are less than a quarter.
    let is_there = missing <= own.meant / 4;
    match (is_missing && surplus >= missing / 2, is_there) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

/// Returns the class whose tunnels the others are.
#[must_use]
pub const fn other(role: TunnelRole) -> TunnelRole {
    match role {
        TunnelRole::Short => TunnelRole::Long,
        TunnelRole::Long => TunnelRole::Short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn interval(meant: u64, sent: u64) -> Interval {
        Interval { meant, sent }
    }

    /// What is found after each of so many such intervals.
    fn run(
        detector: &mut MisroutingDetector,
        count: u32,
        own: Interval,
        other: Interval,
    ) -> Vec<Option<Misrouted>> {
        (0..count)
            .filter_map(|_| detector.observe(own, other))
            .collect()
    }

    #[test]
    fn class_whose_bytes_leave_by_the_other_tunnel_is_misrouted() {
        let mut detector = MisroutingDetector::default();
        let (own, other) = (interval(1_000_000, 3_000), interval(50_000, 1_060_000));
        assert_eq!(run(&mut detector, 4, own, other), []);
        let found = Misrouted {
            meant: 5_000_000,
            sent: 15_000,
        };
        assert_eq!(run(&mut detector, 10, own, other), [Some(found)]);
        // It is well again after as many, and not before.
        let (own, other) = (interval(1_000_000, 1_000_000), interval(0, 500));
        assert_eq!(run(&mut detector, 4, own, other), []);
        assert_eq!(run(&mut detector, 10, own, other), [None]);
    }

    #[test]
    fn drops_alone_and_other_traffic_alone_are_no_misrouting() {
        let mut detector = MisroutingDetector::default();
        let (dropped, calm) = (interval(1_000_000, 100_000), interval(50_000, 60_000));
        assert_eq!(run(&mut detector, 100, dropped, calm), []);
        let (good, busy) = (interval(1_000_000, 1_000_000), interval(0, 9_000_000));
        assert_eq!(run(&mut detector, 100, good, busy), []);
        // A tunnel without Ethernet headers and small packets.
        assert_eq!(
            run(&mut detector, 100, interval(1_000_000, 788_000), busy),
            []
        );
    }

    #[test]
    fn little_traffic_decides_nothing_and_in_the_end_forgets() {
        let mut detector = MisroutingDetector::default();
        let (wrong, other) = (interval(59_999, 0), interval(0, 59_999));
        assert_eq!(run(&mut detector, 1_000, wrong, other), []);
        let (wrong, other) = (interval(90_000, 0), interval(0, 90_000));
        assert_eq!(run(&mut detector, 5, wrong, other).len(), 1);
        let silent = Interval::default();
        assert_eq!(run(&mut detector, 59, silent, silent), []);
        assert_eq!(run(&mut detector, 1, silent, silent), [None]);
        assert_eq!(run(&mut detector, 1_000, silent, silent), []);
    }

    #[test]
    fn one_interval_that_is_well_begins_the_count_again() {
        let mut detector = MisroutingDetector::default();
        let (wrong, right) = (interval(90_000, 0), interval(90_000, 90_000));
        let other = interval(0, 90_000);
        for _ in 0..10 {
            assert_eq!(run(&mut detector, 4, wrong, other), []);
            assert_eq!(run(&mut detector, 1, right, other), []);
        }
    }
}
