//! Probes: how seldom they leave, for they must not congest what they probe.

use core::time::Duration;

/// The share of what is sent to a peer that goes to probes of paths of which nothing else is heard, so
/// that 16 paths are no burden to a slow link.
const REFRESH_SHARE: f64 = 0.015;
/// A lower rate is more often that of an outage than of a link, and then probes are what ends it.
const LEAST_BYTES_PER_S: f64 = 50_000.0;
/// Longest pause between two of a path: what was heard a second ago is no news.
const MOST_REFRESH: Duration = Duration::from_secs(1);

/// The share of what is sent to a peer that goes to probes of the path MTU: those of 16 paths at once are
/// more than the queue of a slow link holds, and probing must not congest (RFC 8899 §3, item 8).
const MTU_PROBES_SHARE: f64 = 0.05;
/// Headers of IPv6 and UDP around one.
const HEADER_BYTES: usize = 48;
/// Longest pause between two: the rate may be back by then.
const MOST_MTU_PAUSE: Duration = Duration::from_secs(60);

/// Share of a peer's rate that may go to probes.
#[derive(Clone, Copy, Debug)]
pub struct ProbeBudget {
    bytes_per_s: f64,
}

impl ProbeBudget {
    /// Begins with the bytes per second that the peer is sent.
    pub const fn of(bytes_per_s: f64) -> Self {
        Self { bytes_per_s }
    }

    /// Returns the pause between two probes of the path MTU, each a datagram of so many bytes, over all paths.
    pub fn mtu_pause(self, datagram_bytes: usize) -> Duration {
        let pause = self.pause(1, datagram_bytes, MTU_PROBES_SHARE);
        pause.map_or(MOST_MTU_PAUSE, |pause| pause.min(MOST_MTU_PAUSE))
    }

    /// Returns the pause between two probes of each of so many paths, of which any `is_heard`: none of its own while the
    /// peer is not, for then they are what finds it again.
    pub fn refresh_pause(self, paths: usize, datagram_bytes: usize, is_heard: bool) -> Duration {
        if !is_heard || self.bytes_per_s < LEAST_BYTES_PER_S {
            return Duration::ZERO;
        }
        let pause = self.pause(paths, datagram_bytes, REFRESH_SHARE);
        pause.map_or(MOST_REFRESH, |pause| pause.min(MOST_REFRESH))
    }

    fn pause(self, datagrams: usize, datagram_bytes: usize, share: f64) -> Option<Duration> {
        let bytes = datagrams as f64 * datagram_bytes.saturating_add(HEADER_BYTES) as f64;
        Duration::try_from_secs_f64(bytes / (share * self.bytes_per_s)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_take_their_share_of_the_rate_and_leave_now_and_then() {
        let budget = ProbeBudget::of(1e6);
        assert_eq!(budget.mtu_pause(1_452), Duration::from_millis(30));
        let sixteen = budget.refresh_pause(16, 72, true);
        assert_eq!(sixteen, Duration::from_millis(128));
        assert_eq!(
            ProbeBudget::of(1e5).refresh_pause(16, 72, true),
            MOST_REFRESH
        );
        assert_eq!(ProbeBudget::of(0.0).mtu_pause(1_452), MOST_MTU_PAUSE);
    }

    #[test]
    fn probes_that_look_for_the_peer_are_not_spared() {
        let pause =
            |bytes_per_s, is_heard| ProbeBudget::of(bytes_per_s).refresh_pause(16, 72, is_heard);
        assert_eq!(pause(1e6, false), Duration::ZERO);
        assert_eq!(pause(LEAST_BYTES_PER_S / 2.0, true), Duration::ZERO);
    }
}
