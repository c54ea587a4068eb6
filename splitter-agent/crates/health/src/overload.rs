//! Overload of this machine: when a missing answer proves nothing about a tunnel.
//!
//! A border that is itself busy loses answers that have arrived, or reads them late. Three things
//! show that: how late this process was woken, what the kernel says of each CPU's input queue
//! (`softnet_stat`), and what it dropped at the probes' sockets. No clock and no file: what they
//! say comes in as arguments.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A CPU that drops a tenth of what comes to it, or more, is overloaded. Where fewer are lost, some
/// of the 25 probes that a suspect gets are answered: all are lost once in 10^25 times.
const DROPPED_PART: u64 = 10;

/// A queue in which packets wait, and from which none is taken for so long, is stuck: a softirq that
/// nobody holds off begins at once, or within a few turns of the scheduler.
const STUCK_AFTER: Duration = Duration::from_millis(50);

/// How often the queues are to be looked at.
pub const BACKLOG_INTERVAL: Duration = Duration::from_millis(100);

/// What was seen holds until it could have been seen again two times.
const HOLDS: Duration = Duration::from_millis(250);

/// Names what shows that this machine is overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverloadReason {
    /// This process was woken late.
    AgentLate,
    /// The kernel dropped packets for want of room in a CPU's input queue.
    BacklogDropped,
    /// Packets wait in a CPU's input queue, and none is taken out.
    BacklogStuck,
    /// The kernel dropped datagrams at the probes' sockets.
    SocketDropped,
}

impl OverloadReason {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 4] = [
        Self::AgentLate,
        Self::BacklogDropped,
        Self::BacklogStuck,
        Self::SocketDropped,
    ];

    /// The value of the `reason` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AgentLate => "agent_late",
            Self::BacklogDropped => "backlog_dropped",
            Self::BacklogStuck => "backlog_stuck",
            Self::SocketDropped => "socket_dropped",
        }
    }
}

/// One sign of overload, with its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overload {
    /// This process was woken so late.
    AgentLate(Duration),
    /// A CPU dropped so many packets while it took so many.
    BacklogDropped {
        /// The CPU's number.
        cpu: u32,
        /// Packets that found no room.
        dropped: u64,
        /// Packets that were taken out.
        processed: u64,
    },
    /// So many packets wait in a CPU's queue, and none was taken out for so long.
    BacklogStuck {
        /// The CPU's number.
        cpu: u32,
        /// Packets in the queue.
        waiting: u32,
        /// Since it was looked at before.
        time: Duration,
    },
    /// So many datagrams found no room at a socket.
    SocketDropped(u32),
}

impl Overload {
    /// Returns the kind of sign.
    #[must_use]
    pub fn reason(&self) -> OverloadReason {
        match self {
            Self::AgentLate(_) => OverloadReason::AgentLate,
            Self::BacklogDropped { .. } => OverloadReason::BacklogDropped,
            Self::BacklogStuck { .. } => OverloadReason::BacklogStuck,
            Self::SocketDropped(_) => OverloadReason::SocketDropped,
        }
    }
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentLate(by) => write!(f, "the agent was woken {} ms late", by.as_millis()),
            Self::BacklogDropped {
                cpu,
                dropped,
                processed,
            } => {
                let arrived = dropped + processed;
                write!(
                    f,
                    "CPU {cpu} dropped {dropped} of {arrived} packets that had arrived"
                )
            }
            Self::BacklogStuck { cpu, waiting, time } => write!(
                f,
                "{waiting} packets wait at CPU {cpu}, which took none for {} ms",
                time.as_millis()
            ),
            Self::SocketDropped(count) => {
                write!(f, "{count} datagrams found no room at the probes' socket")
            }
        }
    }
}

/// A CPU's input queue, as a line of `softnet_stat` has it. The totals wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuBacklog {
    /// The CPU's number.
    pub cpu: u32,
    /// Packets that it has taken, ever.
    pub processed: u32,
    /// Packets for which its queue had no room, ever.
    pub dropped: u32,
    /// Packets that wait now.
    pub waiting: u32,
}

impl CpuBacklog {
    /// Reads `/proc/net/softnet_stat`, a line for each CPU (`softnet_seq_show` in the kernel's
    /// net/core/net-procfs.c). What is no such line is passed over; columns that an older kernel
    /// does not have count as nothing.
    #[must_use]
    pub fn parse_all(text: &str) -> Vec<Self> {
        const WAITING: usize = 11;
        const CPU: usize = 12;
        let lines = (0..).zip(text.lines());
        let parse = |(number, line): (u32, &str)| {
            let columns = line.split_ascii_whitespace();
            let columns: Option<Vec<u32>> =
                columns.map(|it| u32::from_str_radix(it, 16).ok()).collect();
            let columns = columns?;
            Some(Self {
                cpu: columns.get(CPU).copied().unwrap_or(number),
                processed: *columns.first()?,
                dropped: *columns.get(1)?,
                waiting: columns.get(WAITING).copied().unwrap_or(0),
            })
        };
        lines.filter_map(parse).collect()
    }

    /// What happened at this CPU since it was looked at `before`, `time` ago, if that is a sign of
    /// overload.
    fn overload_since(&self, before: &Self, time: Duration) -> Option<Overload> {
        let Self { cpu, waiting, .. } = *self;
        let dropped = u64::from(self.dropped.wrapping_sub(before.dropped));
        let processed = u64::from(self.processed.wrapping_sub(before.processed));
        if dropped > 0 && dropped * DROPPED_PART >= dropped + processed {
            return Some(Overload::BacklogDropped {
                cpu,
                dropped,
                processed,
            });
        }
        let is_stuck = processed == 0 && before.waiting > 0 && waiting > 0;
        (is_stuck && time >= STUCK_AFTER).then_some(Overload::BacklogStuck { cpu, waiting, time })
    }
}

/// Counts the signs of overload, in the order of [`OverloadReason::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverloadCounts(pub [u64; OverloadReason::ALL.len()]);

/// Knows whether this machine is overloaded.
#[derive(Debug, Clone, Default)]
pub struct OverloadDetector {
    backlogs: Vec<CpuBacklog>,
    /// When the queues were looked at.
    looked: Option<Duration>,
    last: Option<(Duration, Overload)>,
    counts: OverloadCounts,
}

impl OverloadDetector {
    /// This process was woken so late. It counts where that alone could make a suspect of a tunnel,
    /// which takes `suspect_after`; a shorter time [is no silence](super::TunnelWatch::excuse), and
    /// no more than that.
    pub fn late(&mut self, by: Duration, suspect_after: Duration, now: Duration) {
        if by >= suspect_after {
            self.saw(Overload::AgentLate(by), now);
        }
    }

    /// Returns true where the queues are to be looked at again.
    #[must_use]
    pub fn wants_backlogs(&self, now: Duration) -> bool {
        let due = |looked| now.saturating_sub(looked) >= BACKLOG_INTERVAL;
        self.looked.is_none_or(due)
    }

    /// The CPUs' queues, as they are now. None where the kernel does not say.
    pub fn backlogs(&mut self, backlogs: Vec<CpuBacklog>, now: Duration) {
        let time = now.saturating_sub(self.looked.unwrap_or(now));
        let worst = backlogs.iter().find_map(|found| {
            let mut before = self.backlogs.iter();
            let before = before.find(|it| it.cpu == found.cpu)?;
            found.overload_since(before, time)
        });
        self.backlogs = backlogs;
        self.looked = Some(now);
        if let Some(overload) = worst {
            self.saw(overload, now);
        }
    }

    /// The kernel dropped so many datagrams at a socket since it was asked before.
    pub fn socket_dropped(&mut self, count: u32, now: Duration) {
        if count > 0 {
            self.saw(Overload::SocketDropped(count), now);
        }
    }

    /// The latest sign, while it holds.
    #[must_use]
    pub fn current(&self, now: Duration) -> Option<Overload> {
        self.within(HOLDS, now)
    }

    /// The latest sign, if it is no older than that.
    #[must_use]
    pub fn within(&self, time: Duration, now: Duration) -> Option<Overload> {
        let (at, overload) = self.last?;
        (now.saturating_sub(at) < time).then_some(overload)
    }

    /// How often there was a sign.
    #[must_use]
    pub fn counts(&self) -> OverloadCounts {
        self.counts
    }

    fn saw(&mut self, overload: Overload, now: Duration) {
        self.counts.0[overload.reason() as usize] += 1;
        self.last = Some((now, overload));
    }
}

#[cfg(test)]
#[path = "overload_tests.rs"]
mod tests;
