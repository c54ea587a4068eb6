//! Liveness with hysteresis: when a tunnel is dead, and when it may be trusted again. No clock and no socket: time comes in
//! as an argument, as the [`Duration`] since any fixed time.
//!
//! ```text
//!         silence                silence
//!   up ------------> suspect ---------------> down
//!    ^ <------------    |  (or link down)      | ^
//!    |     answer       |                answer| | silence, link down
//!    |                                         v |
//!    +--------- quiet for the hold-down --- returning
//! ```
//!
//! While this machine itself is overloaded a missing answer proves nothing: up and suspect become
//! *unknown* instead of down, silence counts from the end of the overload on, and nothing returns
//! without having answered.
//!
//! Two hystereses keep a bad tunnel from flapping. Going down takes a silence in which many probes
//! were lost, for a suspect is probed faster; coming back takes a hold-down with no silence much
//! shorter than that. And each time a tunnel goes down again soon, its hold-down doubles.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::link_state::Start;

/// How many probes a suspect gets, besides those that made it one, before it is given up. At 51 %
/// loss of the round trip (30 % each way) that many in a row are lost once in 20 million times.
const URGENT_PROBES: u32 = 25;

/// No probe follows another one sooner.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The times that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From one probe to the next while all is well.
    pub interval: Duration,
    /// A tunnel that was silent for so long is down.
    pub dead_after: Duration,
    /// A tunnel that answers again must go on doing so for so long.
    pub hold_down: Duration,
    /// What the hold-down grows to while the tunnel keeps failing; a tunnel that stayed up for so
    /// long has its earlier failures forgiven.
    pub max_hold_down: Duration,
}

impl Timing {
    /// The silence that makes a suspect: two missing answers and a half interval of slack.
    #[must_use]
    pub fn suspect_after(&self) -> Duration {
        (self.interval * 5 / 2).min(self.dead_after / 2)
    }

    /// The silence that sends a returning tunnel down again: less than it takes to go down from
    /// up, so that what comes back is better than what may stay.
    #[must_use]
    pub fn return_silence(&self) -> Duration {
        (self.suspect_after() + self.dead_after) / 2
    }

    /// From one probe to the next while a tunnel is suspect.
    #[must_use]
    pub fn urgent_interval(&self) -> Duration {
        let spread = (self.dead_after - self.suspect_after()) / URGENT_PROBES;
        spread.max(SHORTEST_INTERVAL).min(self.interval)
    }
}

/// How a tunnel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// It answers.
    Up,
    /// It has missed answers and is probed faster; still in use.
    Suspect,
    /// It has missed answers while this machine was overloaded, which proves nothing; still in use.
    Unknown,
    /// It does not answer, or its link is down.
    Down,
    /// It answers again and has to prove itself.
    Returning,
}

impl Condition {
    /// Returns true where a tunnel in this condition may carry its class.
    #[must_use]
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Up | Self::Suspect | Self::Unknown)
    }

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Unknown => "unknown",
            Self::Down => "down",
            Self::Returning => "returning",
        }
    }
}

/// Why a tunnel changed its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No answer for too long.
    Silence,
    /// The device is down or does not see its other end.
    LinkDown,
    /// The device has no address in the network of its gateway.
    NoAddress,
    /// The device is not there.
    NoDevice,
    /// An answer came.
    Answer,
    /// The first answer since the agent was started came.
    FirstAnswer,
    /// It answered throughout the hold-down.
    HeldDown,
    /// No answer, and this machine is overloaded.
    Overload,
}

impl Cause {
    /// Describes the cause, as it follows a colon.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Silence => "no answer",
            Self::LinkDown => "link down",
            Self::NoAddress => "no address in the network of its gateway",
            Self::NoDevice => "no such device",
            Self::Answer => "answers again",
            Self::FirstAnswer => "answers for the first time",
            Self::HeldDown => "answered throughout the hold-down",
            Self::Overload => "no answer, which proves nothing while this machine is overloaded",
        }
    }
}

/// Grades what a tunnel may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Nothing.
    Unusable,
    /// Only what would have no tunnel otherwise: it answers, but has not proved itself.
    LastResort,
    /// Everything.
    Usable,
}

/// A change of condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What it was.
    pub from: Condition,
    /// What it is now.
    pub to: Condition,
    /// Why.
    pub cause: Cause,
}

/// The state of one tunnel.
#[derive(Debug, Clone)]
pub struct Machine {
    timing: Timing,
    condition: Condition,
    /// When it took on this condition.
    entered: Duration,
    /// The last sign of life.
    heard: Duration,
    /// When this machine was last overloaded: silence before that does not count.
    overloaded: Duration,
    /// When it last came up.
    up_since: Duration,
    /// How often it went down without having been up long in between.
    setbacks: u32,
    /// How often it went down.
    downs: u64,
    /// Whether it could not be used when it began to be watched, and has not answered since.
    is_unseen: bool,
}

impl Machine {
    /// A tunnel that is taken to be up until it has been silent for twice the usual time: at a
    /// start neighbours and peers may have to be found first.
    #[must_use]
    pub fn new(timing: Timing, now: Duration) -> Self {
        Self {
            timing,
            condition: Condition::Up,
            entered: now,
            heard: now + timing.dead_after,
            overloaded: now,
            up_since: now,
            setbacks: 0,
            downs: 0,
            is_unseen: false,
        }
    }

    /// A tunnel that begins to be watched.
    #[must_use]
    pub fn starting(start: Start, timing: Timing, now: Duration) -> Self {
        match start {
            Start::Trusted => Self::new(timing, now),
            Start::GivenUp => Self::new_down(timing, now),
            Start::Unseen => Self {
                setbacks: 0,
                is_unseen: true,
                ..Self::new_down(timing, now)
            },
        }
    }

    /// A tunnel that an earlier agent had given up. The patience of the start is not for it: it would
    /// outlast a short hold-down, after which a tunnel that only a stand-in has vouched for is up.
    #[must_use]
    pub fn new_down(timing: Timing, now: Duration) -> Self {
        Self {
            condition: Condition::Down,
            heard: now,
            setbacks: 1,
            ..Self::new(timing, now)
        }
    }

    /// A sign of life by what is to judge the tunnel: from now on silence counts, also at a start.
    pub fn answer(&mut self, now: Duration) -> Option<Change> {
        self.heard = now;
        self.revive(now)
    }

    /// A sign of life by a stand-in: the patience of the start goes on.
    pub fn answer_meanwhile(&mut self, now: Duration) -> Option<Change> {
        self.heard = self.heard.max(now);
        self.revive(now)
    }

    /// The tunnel cannot work now, whatever was heard.
    pub fn fail(&mut self, cause: Cause, now: Duration) -> Option<Change> {
        (self.condition != Condition::Down).then(|| self.enter(Condition::Down, cause, now))
    }

    /// This machine is overloaded. To be called before [`tick`](Self::tick), as often as that.
    pub fn overloaded(&mut self, now: Duration) -> Option<Change> {
        self.overloaded = now;
        let is_silent = now.saturating_sub(self.heard) >= self.timing.suspect_after();
        let is_judged = matches!(self.condition, Condition::Up | Condition::Suspect);
        (is_judged && is_silent).then(|| self.enter(Condition::Unknown, Cause::Overload, now))
    }

    /// Time has passed. To be called at [`deadline`](Self::deadline) at the latest.
    pub fn tick(&mut self, now: Duration) -> Option<Change> {
        let silence = now.saturating_sub(self.silent_from());
        let timing = self.timing;
        match self.condition {
            Condition::Up | Condition::Suspect | Condition::Unknown
                if silence >= timing.dead_after =>
            {
                Some(self.enter(Condition::Down, Cause::Silence, now))
            }
            Condition::Up | Condition::Unknown if silence >= timing.suspect_after() => {
                Some(self.enter(Condition::Suspect, Cause::Silence, now))
            }
            Condition::Returning if silence >= timing.return_silence() => {
                Some(self.enter(Condition::Down, Cause::Silence, now))
            }
            Condition::Returning if self.has_held_down(now) => {
                Some(self.enter(Condition::Up, Cause::HeldDown, now))
            }
            _ => None,
        }
    }

    /// Returns the time at which [`tick`](Self::tick) will report something new, if nothing is heard until then.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let timing = self.timing;
        match self.condition {
            Condition::Up | Condition::Unknown => Some(self.silent_from() + timing.suspect_after()),
            Condition::Suspect => Some(self.silent_from() + timing.dead_after),
            Condition::Down => None,
            Condition::Returning => {
                let silent = self.silent_from() + timing.return_silence();
                let held = self.entered + self.hold_down();
                Some(match self.has_held_down(held) {
                    true => silent.min(held),
                    false => silent,
                })
            }
        }
    }

    /// Time in which nobody could have listened, because this process stood still, is no silence.
    pub fn excuse(&mut self, missed: Duration) {
        self.heard += missed;
        self.overloaded += missed;
        if self.condition == Condition::Returning {
            self.entered += missed;
        }
    }

    /// How long to wait from one probe to the next.
    #[must_use]
    pub fn probe_interval(&self, now: Duration) -> Duration {
        let silence = now.saturating_sub(self.heard);
        let answered_lately = silence < self.timing.suspect_after();
        match self.condition {
            Condition::Suspect => self.timing.urgent_interval(),
            Condition::Returning if !answered_lately => self.timing.urgent_interval(),
            _ => self.timing.interval,
        }
    }

    /// Returns what the tunnel may be used for.
    #[must_use]
    pub fn grade(&self, now: Duration) -> Grade {
        match self.condition {
            Condition::Up | Condition::Suspect | Condition::Unknown => Grade::Usable,
            Condition::Returning if now.saturating_sub(self.entered) >= self.timing.dead_after => {
                Grade::LastResort
            }
            Condition::Returning | Condition::Down => Grade::Unusable,
        }
    }

    /// Returns how the tunnel stands.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// Returns true where it could not be used when it began to be watched, and has not answered since.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        self.is_unseen
    }

    /// Since when it has stood so.
    #[must_use]
    pub fn since(&self) -> Duration {
        self.entered
    }

    /// How often it went down.
    #[must_use]
    pub fn downs(&self) -> u64 {
        self.downs
    }

    /// How long it has to answer before it is up again: doubled for each failure that followed
    /// another one soon.
    #[must_use]
    pub fn hold_down(&self) -> Duration {
        let doublings = self.setbacks.saturating_sub(1).min(31);
        self.timing
            .hold_down
            .saturating_mul(1 << doublings)
            .min(self.timing.max_hold_down)
    }

    /// When the silence began that counts.
    fn silent_from(&self) -> Duration {
        self.heard.max(self.overloaded)
    }

    /// Whether a returning tunnel is up at that time. An overload, in which silence does not count, is no answer.
    fn has_held_down(&self, at: Duration) -> bool {
        let is_silent = at.saturating_sub(self.heard) >= self.timing.return_silence();
        !is_silent && at.saturating_sub(self.entered) >= self.hold_down()
    }

    fn revive(&mut self, now: Duration) -> Option<Change> {
        match self.condition {
            Condition::Up | Condition::Returning => None,
            Condition::Suspect | Condition::Unknown => {
                Some(self.enter(Condition::Up, Cause::Answer, now))
            }
            // It has never failed, so there is nothing to prove.
            Condition::Down if self.is_unseen => {
                Some(self.enter(Condition::Up, Cause::FirstAnswer, now))
            }
            Condition::Down => Some(self.enter(Condition::Returning, Cause::Answer, now)),
        }
    }

    fn enter(&mut self, to: Condition, cause: Cause, now: Duration) -> Change {
        let from = self.condition;
        match (from, to) {
            (Condition::Up | Condition::Suspect | Condition::Unknown, Condition::Down) => {
                let was_up_for = now.saturating_sub(self.up_since);
                if was_up_for >= self.timing.max_hold_down {
                    self.setbacks = 0;
                }
                self.setbacks += 1;
                self.downs += 1;
            }
            (Condition::Returning | Condition::Down, Condition::Up) => self.up_since = now,
            _ => {}
        }
        self.condition = to;
        self.entered = now;
        self.is_unseen &= to == Condition::Down;
        Change { from, to, cause }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
