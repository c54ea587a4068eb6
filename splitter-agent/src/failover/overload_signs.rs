//! What the kernel says of its own input queues, for the detection of overload.

use std::time::Duration;

use splitter_health::{CpuBacklog, Overload, OverloadCounts, OverloadDetector};

/// A line for each CPU of the machine, in every network namespace.
const SOFTNET_STAT: &str = "/proc/self/net/softnet_stat";

/// What was seen is reported for so long, for people and scrapes that look now and then.
const REPORTED: Duration = Duration::from_secs(10);

/// Looks for signs that this machine is overloaded.
#[derive(Debug, Default)]
pub(super) struct OverloadSigns {
    detector: OverloadDetector,
    has_warned: bool,
}

impl OverloadSigns {
    /// The agent was woken so late; see [`OverloadDetector::late`].
    pub(super) fn late(&mut self, by: Duration, suspect_after: Duration, now: Duration) {
        self.detector.late(by, suspect_after, now);
    }

    /// So many datagrams found no room at a socket.
    pub(super) fn socket_dropped(&mut self, count: u32, now: Duration) {
        self.detector.socket_dropped(count, now);
    }

    /// Looks at the kernel's queues where it is time to; the sign that holds now.
    pub(super) fn look(&mut self, now: Duration) -> Option<Overload> {
        if self.detector.wants_backlogs(now) {
            let text = std::fs::read_to_string(SOFTNET_STAT).unwrap_or_else(|error| {
                if !std::mem::replace(&mut self.has_warned, true) {
                    tracing::warn!(event = "overload_unseen", %error, "cannot read {SOFTNET_STAT}: an overload of this machine may be taken for a dead tunnel");
                }
                String::new()
            });
            self.detector.backlogs(CpuBacklog::parse_all(&text), now);
        }
        self.detector.current(now)
    }

    /// The latest sign in words, while it is recent.
    pub(super) fn recent(&self, now: Duration) -> Option<String> {
        let overload = self.detector.within(REPORTED, now)?;
        Some(overload.to_string())
    }

    pub(super) fn counts(&self) -> OverloadCounts {
        self.detector.counts()
    }
}
