//! What is known of one tunnel, and which evidence counts at present.
//!
//! The peer's echo is the best evidence, for it passes the whole tunnel. It is not to be had where
//! no peer is configured, and not to be trusted to tell a dead tunnel from a peer whose agent does
//! not run. So echo decides only while the peer is [present](PeerPresence); else the link and the
//! neighbour do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use splitter_policy::histogram::Histogram;

use super::link_state::{LinkState, Start};
use super::machine::{Cause, Change, Grade, Machine, Timing};
use super::prober::Prober;
use super::round_trip::Stamp;
use super::wire::{DATAGRAM_BYTES, Refusal};

/// How long a refusal by the peer's host (port unreachable) means that its agent does not run.
/// Linux sends one a second at most.
pub const ABSENT_AFTER_REFUSAL: Duration = Duration::from_secs(3);

/// Names what shows whether a tunnel is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// The peer's answers to probes.
    Echo,
    /// The next hop's answers to address resolution (ARP or neighbour discovery), and the link.
    Neighbour,
    /// That the device is up and sees its other end.
    Link,
}

impl Evidence {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Neighbour => "neighbour",
            Self::Link => "link",
        }
    }
}

/// Knows whether the peer's agent is there at all: an answer over any tunnel says so for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerPresence {
    /// It has not answered since this agent started: not set up yet, or another key or port.
    Unconfirmed,
    /// It has answered.
    Confirmed,
}

/// One tunnel as it is watched. Neither sends nor waits by itself.
#[derive(Debug, Clone)]
pub struct TunnelWatch {
    machine: Machine,
    prober: Option<Prober>,
    has_neighbour: bool,
    link: LinkState,
    refused_at: Option<Duration>,
    last_probe: Option<Duration>,
}

impl TunnelWatch {
    /// Watches a tunnel that starts so.
    #[must_use]
    pub fn new(
        timing: Timing,
        prober: Option<Prober>,
        has_neighbour: bool,
        start: Start,
        now: Duration,
    ) -> Self {
        Self {
            machine: Machine::starting(start, timing, now),
            prober,
            has_neighbour,
            link: LinkState::Absent,
            refused_at: None,
            last_probe: None,
        }
    }

    /// Begins to judge now: what happened before, while nobody listened, does not count.
    pub fn restart(&mut self, timing: Timing, start: Start, now: Duration) {
        self.machine = Machine::starting(start, timing, now);
    }

    /// Returns true where there is a neighbour that the kernel asks; one whose address was entered by hand is
    /// none.
    pub fn asks_neighbour(&mut self, asks: bool) {
        self.has_neighbour = asks;
    }

    /// Returns the evidence that decides at present.
    #[must_use]
    pub fn evidence(&self, presence: PeerPresence, now: Duration) -> Evidence {
        let has_refused = self
            .refused_at
            .is_some_and(|at| now.saturating_sub(at) < ABSENT_AFTER_REFUSAL);
        if self.prober.is_some() && presence == PeerPresence::Confirmed && !has_refused {
            Evidence::Echo
        } else if self.has_neighbour {
            Evidence::Neighbour
        } else {
            Evidence::Link
        }
    }

    /// The kernel reported the state of the device.
    pub fn link(&mut self, link: LinkState, now: Duration) -> Option<Change> {
        self.link = link;
        match link {
            LinkState::Up(_) => None,
            LinkState::NoAddress(_) => self.machine.fail(Cause::NoAddress, now),
            LinkState::Down(_) => self.machine.fail(Cause::LinkDown, now),
            LinkState::Absent => self.machine.fail(Cause::NoDevice, now),
        }
    }

    /// The state of the device, as it was reported last.
    #[must_use]
    pub fn link_state(&self) -> LinkState {
        self.link
    }

    /// The probe to send if one is due, and whether one is due at all; so is a look at the
    /// neighbour then, where that decides.
    pub fn due(&mut self, now: Duration) -> Option<Option<[u8; DATAGRAM_BYTES]>> {
        if self.next_probe(now) > now || !self.is_up() {
            return None;
        }
        self.last_probe = Some(now);
        Some(self.prober.as_mut().map(|prober| prober.probe(now)))
    }

    /// The probe that was due is being sent now, from when on its round trip counts.
    pub fn leaves(&mut self, now: Duration) {
        if let Some(prober) = &mut self.prober {
            prober.leaves(now);
        }
    }

    /// The kernel gave back a probe that it saw leave at this time.
    pub fn left(&mut self, bytes: &[u8], at: Duration) {
        if let Some(prober) = &mut self.prober {
            prober.left(bytes, at);
        }
    }

    /// A datagram came to the prober's socket. It is taken `now`, which is not before it arrived.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        arrived: impl Into<Stamp>,
        now: Duration,
    ) -> Result<Option<Change>, Refusal> {
        let prober = self.prober.as_mut().ok_or(Refusal::Unasked)?;
        prober.receive(bytes, arrived)?;
        self.refused_at = None;
        // What was on its way when the link went down proves nothing.
        Ok(match self.is_up() {
            true => self.machine.answer(now),
            false => None,
        })
    }

    /// The peer's host said that nobody listens.
    pub fn refused(&mut self, now: Duration) {
        self.refused_at = Some(now);
    }

    /// A sign of life that is no echo came: from the neighbour or, without one, the link. Counts
    /// only where it decides.
    pub fn alive(&mut self, presence: PeerPresence, now: Duration) -> Option<Change> {
        if self.evidence(presence, now) == Evidence::Echo || !self.is_up() {
            return None;
        }
        match self.prober {
            Some(_) => self.machine.answer_meanwhile(now),
            None => self.machine.answer(now),
        }
    }

    /// This machine is overloaded, so that a missing answer proves nothing.
    pub fn overloaded(&mut self, now: Duration) -> Option<Change> {
        self.machine.overloaded(now)
    }

    /// Notes that time has passed.
    pub fn tick(&mut self, now: Duration) -> Option<Change> {
        if let Some(prober) = &mut self.prober {
            prober.tick(now);
        }
        self.machine.tick(now)
    }

    /// Returns the time at which there is something to do next.
    #[must_use]
    pub fn deadline(&self, now: Duration) -> Duration {
        let probe = self.next_probe(now);
        self.machine.deadline().map_or(probe, |at| at.min(probe))
    }

    /// Does what [`Machine::excuse`] does.
    pub fn excuse(&mut self, missed: Duration) {
        self.machine.excuse(missed);
    }

    /// Returns what [`Machine::grade`] does.
    #[must_use]
    pub fn grade(&self, now: Duration) -> Grade {
        self.machine.grade(now)
    }

    /// Returns the tunnel's state machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The prober, if there is a peer.
    #[must_use]
    pub fn prober(&self) -> Option<&Prober> {
        self.prober.as_ref()
    }

    /// Takes the differences between one round trip of a probe and the next, since they were last taken: the
    /// tunnel's jitter. Without a peer there are none.
    #[must_use]
    pub fn take_jitter(&mut self) -> Histogram {
        let prober = self.prober.as_mut();
        prober.map_or(Histogram::EMPTY, Prober::take_differences)
    }

    fn next_probe(&self, now: Duration) -> Duration {
        let interval = self.machine.probe_interval(now);
        self.last_probe.map_or(now, |at| at + interval)
    }

    fn is_up(&self) -> bool {
        matches!(self.link, LinkState::Up(_))
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
