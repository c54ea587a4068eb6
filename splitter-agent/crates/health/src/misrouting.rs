//! Misrouting: what is meant for the tunnels of one class leaves by others.
//!
//! The kernel program at a tunnel's egress counts what the device is handed, by family and by what
//! the mark says. Two things prove that packets stray, in whatever company:
//!
//! - they leave by a tunnel that their class is not in, with the mark of that class: a rule or route
//!   comes before those that the mark selects;
//! - they leave by such a tunnel without a mark, while less than was marked for the class leaves with
//!   its mark: somebody takes marks away.
//!
//! That less leaves than was marked proves nothing by itself: what goes to other places than the
//! remote sites is marked, too, and a firewall may drop. A packet of the site that is split and has
//! no mark proves nothing by itself where its class is: marks may be taken away behind the lookup of
//! routes. No clock and no kernel: what was counted in an interval comes in as an argument.

use std::collections::BTreeMap;

use splitter_policy::egress_counts::{EgressCounts, Marked};
use splitter_policy::flow::TunnelRole;

/// Fewer packets of a family in an interval decide nothing.
const LEAST_PACKETS: u64 = 40;

/// So many intervals in a row that say the same decide; a dead tunnel's class has moved by then.
const DECIDED_AFTER: u32 = 5;

/// After so many intervals that decide nothing an earlier finding says nothing any more.
const FORGOTTEN_AFTER: u32 = 60;

/// One tunnel's counts of an interval, with what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelInterval {
    /// Names the tunnel's device.
    pub device: String,
    /// Tells the tunnels of one remote site from those of others.
    pub site: usize,
    /// Whether packets of the short and of the long class are to leave by it, in the order of
    /// [`TunnelRole::ALL`].
    pub carries: [bool; 2],
    /// What left by it.
    pub left: EgressCounts,
}

impl TunnelInterval {
    fn packets(&self, of: impl Fn(Marked) -> bool, is_v6: bool) -> u64 {
        let marks = Marked::ALL.into_iter().filter(|it| of(*it));
        marks.map(|it| self.left.packets(it, is_v6)).sum()
    }

    fn marked_for(&self, role: TunnelRole, is_v6: bool) -> u64 {
        self.packets(|it| it.tunnel() == Some(role), is_v6)
    }

    fn unmarked(&self, is_v6: bool) -> u64 {
        self.left.packets(Marked::Unmarked, is_v6)
    }
}

/// Which packets stray, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stray {
    /// The device by which they leave.
    pub device: String,
    /// The tunnels that they were meant for.
    pub role: TunnelRole,
    /// They are of IPv6.
    pub is_v6: bool,
    /// They have lost their mark.
    pub is_unmarked: bool,
}

/// A change in what is found of packets that stray.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// They do, so many in the intervals that decided.
    Misrouted(Stray, u64),
    /// They do no more.
    Ended(Stray),
}

/// Decides from one interval after the other whether packets stray.
#[derive(Debug, Clone, Default)]
pub struct MisroutingJudge {
    /// Where there is something to decide, or was lately.
    detectors: BTreeMap<Stray, Detector>,
}

impl MisroutingJudge {
    /// Takes what the tunnels sent in an interval, and how many bytes were marked meanwhile for the
    /// tunnels of each class (in the order of [`TunnelRole::ALL`]) wherever they went. Returns what
    /// has changed.
    pub fn observe(&mut self, marked_bytes: [u64; 2], tunnels: &[TunnelInterval]) -> Vec<Finding> {
        let missing = TunnelRole::ALL.map(|role| {
            let left = tunnels.iter().map(|it| bytes_marked_for(it, role));
            marked_bytes[role as usize].saturating_sub(left.sum())
        });
        let mut seen = BTreeMap::new();
        for tunnel in tunnels {
            for role in TunnelRole::ALL {
                for is_v6 in [false, true] {
                    let missing = missing[role as usize];
                    seen.extend(strays(tunnels, tunnel, role, is_v6, missing));
                }
            }
        }
        // A tunnel that is there no more says nothing.
        for stray in self.detectors.keys() {
            seen.entry(stray.clone()).or_insert(Evidence::None);
        }
        let mut findings = Vec::new();
        for (stray, evidence) in seen {
            let is_new = !self.detectors.contains_key(&stray);
            if is_new && !matches!(evidence, Evidence::Strays(_)) {
                continue;
            }
            let detector = self.detectors.entry(stray.clone()).or_default();
            match detector.observe(evidence) {
                Some(Some(packets)) => findings.push(Finding::Misrouted(stray.clone(), packets)),
                Some(None) => findings.push(Finding::Ended(stray.clone())),
                None => {}
            }
            if detector.is_idle() {
                self.detectors.remove(&stray);
            }
        }
        findings
    }
}

/// What an interval says of packets that may stray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// So many do.
    Strays(u64),
    /// They leave where they should.
    Right,
    /// Nothing.
    None,
}

/// Both kinds of packets of a class and family that may stray by `tunnel`; nothing where the class
/// is in it, or nowhere.
fn strays(
    tunnels: &[TunnelInterval],
    tunnel: &TunnelInterval,
    role: TunnelRole,
    is_v6: bool,
    missing_bytes: u64,
) -> Vec<(Stray, Evidence)> {
    let home: Vec<_> = tunnels
        .iter()
        .filter(|it| it.site == tunnel.site && it.carries[role as usize])
        .collect();
    if tunnel.carries[role as usize] || home.is_empty() {
        return Vec::new();
    }
    let right: u64 = home.iter().map(|it| it.marked_for(role, is_v6)).sum();
    let unmarked_at_home: u64 = home.iter().map(|it| it.unmarked(is_v6)).sum();
    let weigh = |packets: u64, is_proven: bool| {
        if packets >= LEAST_PACKETS && is_proven {
            Evidence::Strays(packets)
        } else if packets < LEAST_PACKETS && right >= LEAST_PACKETS {
            Evidence::Right
        } else {
            Evidence::None
        }
    };
    let unmarked = tunnel.unmarked(is_v6);
    let unmarked_bytes = tunnel.left.bytes(Marked::Unmarked, is_v6);
    // Marks that are taken away behind the lookup of routes are missing at home, too.
    let is_lost_before = unmarked_at_home < unmarked / 4;
    let stray = |is_unmarked| Stray {
        device: tunnel.device.clone(),
        role,
        is_v6,
        is_unmarked,
    };
    vec![
        (stray(false), weigh(tunnel.marked_for(role, is_v6), true)),
        (
            stray(true),
            weigh(
                unmarked,
                missing_bytes >= unmarked_bytes / 2 && is_lost_before,
            ),
        ),
    ]
}

fn bytes_marked_for(tunnel: &TunnelInterval, role: TunnelRole) -> u64 {
    let marks = Marked::ALL
        .into_iter()
        .filter(|it| it.tunnel() == Some(role));
    marks
        .map(|it| tunnel.left.bytes(it, false) + tunnel.left.bytes(it, true))
        .sum()
}

/// Takes intervals of one kind of stray packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Detector {
    is_misrouted: bool,
    /// Intervals in a row that say the contrary.
    contrary: u32,
    /// Intervals in a row that say nothing.
    undecided: u32,
    /// That strayed since the first of those that say the contrary.
    packets: u64,
}

impl Detector {
    /// Returns what was found when that changes: `Some(None)` when all is well again.
    fn observe(&mut self, evidence: Evidence) -> Option<Option<u64>> {
        let (is_wrong, packets) = match evidence {
            Evidence::Strays(packets) => (true, packets),
            Evidence::Right => (false, 0),
            Evidence::None => {
                self.undecided += 1;
                if self.undecided < FORGOTTEN_AFTER {
                    return None;
                }
                let was_misrouted = self.is_misrouted;
                *self = Self::default();
                return was_misrouted.then_some(None);
            }
        };
        self.undecided = 0;
        if is_wrong == self.is_misrouted {
            (self.contrary, self.packets) = (0, 0);
            return None;
        }
        self.contrary += 1;
        self.packets += packets;
        if self.contrary < DECIDED_AFTER {
            return None;
        }
        let packets = self.packets;
        *self = Self {
            is_misrouted: is_wrong,
            ..Self::default()
        };
        Some(is_wrong.then_some(packets))
    }

    /// Nothing is known that the next interval would need.
    fn is_idle(&self) -> bool {
        !self.is_misrouted && self.contrary == 0
    }
}

#[cfg(test)]
#[path = "misrouting_tests.rs"]
mod tests;
