//! What the kernel says of its own input queues, for the detection of overload.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use splitter_health::{CpuBacklog, Overload, OverloadCounts, OverloadDetector};

/// A line for each CPU of the machine, in every network namespace.
const SOFTNET_STAT: &str = "/proc/self/net/softnet_stat";

/// What was seen is reported for so long, for people and scrapes that look now and then.
const REPORTED: Duration = Duration::from_secs(10);

/// All that watch tunnels are woken late by one and the same stall, within this time.
const ONE_STALL: Duration = Duration::from_millis(50);

/// Looks for signs that this machine is overloaded. Clones share what they have seen.
#[derive(Debug, Clone, Default)]
pub(super) struct OverloadSigns(Arc<Mutex<Signs>>);

#[derive(Debug, Default)]
struct Signs {
    detector: OverloadDetector,
    has_warned: bool,
    /// When somebody was woken late.
    was_late: Option<Duration>,
}

impl OverloadSigns {
    /// The agent was woken so late; see [`OverloadDetector::late`].
    pub(super) fn late(&self, by: Duration, suspect_after: Duration, now: Duration) {
        if by < suspect_after {
            return;
        }
        let mut signs = self.lock();
        let before = signs.was_late.replace(now);
        if before.is_none_or(|before| now.saturating_sub(before) > ONE_STALL) {
            signs.detector.late(by, suspect_after, now);
        }
    }

    /// So many datagrams found no room at a socket.
    pub(super) fn socket_dropped(&self, count: u32, now: Duration) {
        self.lock().detector.socket_dropped(count, now);
    }

    /// Looks at the kernel's queues where it is time to; the sign that holds now.
    pub(super) fn look(&self, now: Duration) -> Option<Overload> {
        let mut signs = self.lock();
        if signs.detector.wants_backlogs(now) {
            let text = std::fs::read_to_string(SOFTNET_STAT).unwrap_or_else(|error| {
                if !std::mem::replace(&mut signs.has_warned, true) {
                    tracing::warn!(event = "overload_unseen", %error, "cannot read {SOFTNET_STAT}: an overload of this machine may be taken for a dead tunnel");
                }
                String::new()
            });
            signs.detector.backlogs(CpuBacklog::parse_all(&text), now);
        }
        signs.detector.current(now)
    }

    /// The latest sign in words, while it is recent.
    pub(super) fn recent(&self, now: Duration) -> Option<String> {
        let overload = self.lock().detector.within(REPORTED, now)?;
        Some(overload.to_string())
    }

    pub(super) fn counts(&self) -> OverloadCounts {
        self.lock().detector.counts()
    }

    fn lock(&self) -> MutexGuard<'_, Signs> {
        // A panic elsewhere does not make plain numbers wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
