//! What others see of the tunnels' health: metrics, `splitter status`, and the file between.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU8;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use splitter_health::{Condition, Evidence, OverloadCounts, Refusal};
use splitter_netlink::{InterfaceName, list_names};
use splitter_policy::flow::TunnelRole;
use splitter_steering::Egress;

use splitter_instance::files::{FileError, write_private};
use splitter_instance::health_report;

/// How many moves are remembered.
const MOVES: usize = 20;

/// A report that is older is from an agent that has ended: one that runs writes it every second.
const FRESH: Duration = Duration::from_secs(5);

/// How the tunnels are, and where the classes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// When it was written, in milliseconds since 1970.
    pub written_unix_ms: u64,
    /// All tunnels, those of the short class first.
    pub tunnels: Vec<TunnelReport>,
    /// Both classes, the short one first.
    pub classes: Vec<ClassReport>,
    /// The last moves of classes, the newest last.
    pub moves: VecDeque<Move>,
    /// Why a class is not where it should be.
    pub problem: Option<String>,
    /// Datagrams that were refused, in the order of [`Refusal::ALL`].
    #[serde(default)]
    pub refused: [u64; Refusal::ALL.len()],
    /// For which tunnels packets are marked that leave by others, in words, by class.
    #[serde(default)]
    pub misrouted: BTreeMap<String, String>,
    /// What showed within the last 10 s that this machine is overloaded.
    #[serde(default)]
    pub overload: Option<String>,
    /// How often something did.
    #[serde(default)]
    pub overloads: OverloadCounts,
}

/// Reports how one tunnel is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TunnelReport {
    /// `short` or `long`: the class that it is for.
    pub tunnel: String,
    /// Its device.
    pub device: InterfaceName,
    /// Its share of the flows of its class, relative to the weights of the others.
    #[serde(default = "lightest")]
    pub weight: NonZeroU8,
    /// Whether it carries packets.
    #[serde(default)]
    pub in_use: bool,
    /// How it stands.
    pub condition: Condition,
    /// Since when, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// By what that is known.
    pub evidence: Evidence,
    /// How often it went down.
    pub downs: u64,
    /// Probes that were sent.
    pub probes_sent: u64,
    /// Probes that were not answered in time.
    pub probes_lost: u64,
    /// The lost share of the last 100 probes, 0 to 1.
    pub loss: Option<f64>,
    /// Smoothed round-trip time in seconds.
    pub round_trip_s: Option<f64>,
    /// Smoothed difference between one round trip and the next, in seconds.
    pub jitter_s: Option<f64>,
}

/// Reports where one class goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassReport {
    /// `short` or `long`.
    pub class: String,
    /// Where its packets go.
    pub tunnel: Egress,
    /// How often it was moved there, in the order of [`Egress::ALL`].
    pub moves: [u64; Egress::ALL.len()],
}

/// A class went to other tunnels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// `short` or `long`.
    pub class: String,
    /// Where it was.
    pub from: Egress,
    /// Where it is; the same where it only left or took up some of the tunnels there.
    pub to: Egress,
    /// The tunnels that it left, where others there go on.
    #[serde(default)]
    pub left: Vec<InterfaceName>,
    /// The tunnels that it took up next to others.
    #[serde(default)]
    pub taken_up: Vec<InterfaceName>,
    /// Why.
    pub reason: String,
}

impl Move {
    /// Describes the move and its reason in a sentence.
    #[must_use]
    pub fn description(&self) -> String {
        let (class, reason) = (&self.class, &self.reason);
        if self.from != self.to {
            let (from, to) = (self.from, self.to);
            return format!("the {class} class goes from {from} to {to}: {reason}");
        }
        let part = |verb: &str, devices: &[InterfaceName]| match devices {
            [] => None,
            devices => Some(format!("{verb} {}", list_names(devices))),
        };
        let parts = [part("leaves", &self.left), part("takes up", &self.taken_up)];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        format!("the {class} class {}: {reason}", parts.join(" and "))
    }
}

fn lightest() -> NonZeroU8 {
    NonZeroU8::MIN
}

impl Report {
    /// The report of the instance whose directory this is, if there is one that can be read.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(health_report(directory)).ok()?).ok()
    }

    /// Returns true while an agent is watching.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        unix_ms().abs_diff(self.written_unix_ms) < FRESH.as_millis() as u64
    }
}

/// The report, as the loop that writes it and the scrapes that read it share it.
#[derive(Debug, Clone, Default)]
pub struct SharedReport(Arc<Mutex<Report>>);

impl SharedReport {
    /// Returns what the report says now.
    #[must_use]
    pub fn snapshot(&self) -> Report {
        self.lock().clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.lock());
    }

    /// Says what was found of packets that are marked for the tunnels of a class.
    pub(crate) fn set_misrouted(&self, role: TunnelRole, words: Option<String>) {
        let misrouted = &mut self.lock().misrouted;
        match words {
            Some(words) => misrouted.insert(role.name().to_owned(), words),
            None => misrouted.remove(role.name()),
        };
    }

    /// All that was found of such packets.
    pub(crate) fn misrouted(&self) -> Vec<String> {
        self.lock().misrouted.values().cloned().collect()
    }

    /// Counts a datagram that was refused.
    pub(super) fn refused(&self, refusal: Refusal) {
        self.lock().refused[refusal as usize] += 1;
    }

    /// Counts and remembers a move.
    pub(super) fn moved(&self, moved: Move) {
        let mut report = self.lock();
        let mut classes = report.classes.iter_mut();
        if moved.from != moved.to
            && let Some(class) = classes.find(|it| it.class == moved.class)
        {
            class.tunnel = moved.to;
            class.moves[moved.to as usize] += 1;
        }
        if report.moves.len() == MOVES {
            report.moves.pop_front();
        }
        report.moves.push_back(moved);
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), FileError> {
        let report = Report {
            written_unix_ms: unix_ms(),
            ..self.snapshot()
        };
        write_private(&health_report(directory), &report)
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        // A panic elsewhere does not make plain numbers wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since 1970, by a clock that may jump: for people alone.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_survives_the_file_and_a_damaged_one_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let shared = SharedReport::default();
        shared.change(|report| {
            report.classes.push(ClassReport {
                class: "short".to_owned(),
                tunnel: Egress::Short,
                moves: [0; 3],
            });
        });
        for turn in 0..30 {
            shared.moved(Move {
                unix_ms: turn,
                class: "short".to_owned(),
                from: Egress::Short,
                to: Egress::Main,
                left: Vec::new(),
                taken_up: Vec::new(),
                reason: "both are dead".to_owned(),
            });
        }
        shared.refused(Refusal::Forged);
        shared.write(directory.path()).unwrap();
        let read = Report::read(directory.path()).unwrap();
        assert!(read.is_fresh());
        assert_eq!(read.moves.len(), MOVES);
        assert_eq!(read.classes[0].moves, [0, 0, 30]);
        assert_eq!(read.refused, [0, 1, 0, 0, 0, 0]);
        std::fs::write(directory.path().join("health.json"), "{").unwrap();
        assert!(Report::read(directory.path()).is_none());
    }
}
