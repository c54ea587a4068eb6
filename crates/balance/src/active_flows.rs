//! Active flows of a path, counted without a list of flows.
//!
//! Time is cut into windows. A flow counts in each window in which it sends, and
//! what a path carries is the larger of this window's count and the last one's:
//! so a new window does not begin with empty paths, and a flow that falls silent
//! without a word is gone after two. No list of flows and no timer is needed: the
//! host tells from when it has last seen a flow whether a packet is the flow's
//! first of a window ([`ActiveFlows::is_first_of_window`]), which is one
//! comparison for each packet.

/// The flows that send on one path: 16 bytes, shared by all CPUs.
///
/// Two CPUs may overwrite each other's update; what that miscounts is gone after
/// two windows. A flow that sends more rarely than once a window is counted in
/// some windows and not in others, which is about what it takes of the path.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveFlows {
    window: u64,
    this: u32,
    last: u32,
}

/// The event that a packet means for its flow on a path: it comes, or goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The flow has come to this path.
    pub enters: bool,
    /// It is there already, and this is its first packet of a window.
    pub renews: bool,
}

impl Activity {
    /// The flow comes to the path.
    pub const ENTERS: Self = Self {
        enters: true,
        renews: false,
    };
    /// The flow goes on, with the first packet of a window.
    pub const RENEWS: Self = Self {
        enters: false,
        renews: true,
    };
}

/// A window, 2^27 ns: 134 ms, as long as the longer round trips of the Internet,
/// so that a flow that waits for acknowledgements is seen in each.
const WINDOW_BITS: u32 = 27;

impl ActiveFlows {
    /// Tells if a packet at `now_ns` is the first of a flow in its window, if the flow's last one
    /// before was at `last_seen_ns`.
    #[inline(always)]
    pub const fn is_first_of_window(last_seen_ns: u64, now_ns: u64) -> bool {
        window(last_seen_ns) != window(now_ns)
    }

    /// Tells if a flow whose last packet was at `last_seen_ns` is still counted.
    #[inline(always)]
    pub const fn counts(last_seen_ns: u64, now_ns: u64) -> bool {
        window(last_seen_ns) + 1 >= window(now_ns)
    }

    /// The number of flows that sent lately.
    #[inline(always)]
    pub const fn count(&self, now_ns: u64) -> u32 {
        let Self { this, last, .. } = self.at(now_ns);
        if this > last { this } else { last }
    }

    /// Notes what a packet at `now_ns` says of its flow.
    #[inline(always)]
    pub const fn note(&mut self, activity: Activity, now_ns: u64) {
        let Activity { enters, renews } = activity;
        if !(enters | renews) {
            return;
        }
        let Self { window, this, last } = self.at(now_ns);
        *self = Self {
            window,
            this: this.saturating_add(1),
            // Those that come in the same window see it, too.
            last: last.saturating_add(enters as u32),
        };
    }

    /// Notes that a flow leaves the path with the packet at `now_ns`, or with none; its last one
    /// before was at `last_seen_ns`. One that is counted no more changes nothing.
    #[inline(always)]
    pub const fn leave(&mut self, last_seen_ns: u64, now_ns: u64) {
        let Self { window, this, last } = self.at(now_ns);
        let counted = self::window(last_seen_ns);
        let (is_in_this, is_in_last) = (counted >= window, counted + 1 >= window);
        *self = Self {
            window,
            this: this.saturating_sub(is_in_this as u32),
            last: last.saturating_sub(is_in_last as u32),
        };
    }

    #[inline(always)]
    const fn at(&self, now_ns: u64) -> Self {
        let window = window(now_ns);
        // Another CPU's clock may be a little behind.
        if window <= self.window {
            return *self;
        }
        Self {
            window,
            this: 0,
            last: if window == self.window + 1 {
                self.this
            } else {
                0
            },
        }
    }
}

#[inline(always)]
const fn window(time_ns: u64) -> u64 {
    time_ns >> WINDOW_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW_NS: u64 = 1 << WINDOW_BITS;

    #[test]
    fn flows_that_end_are_gone_at_once_and_silent_ones_after_two_windows() {
        let mut flows = ActiveFlows::default();
        for _ in 0..3 {
            flows.note(Activity::ENTERS, 5);
        }
        flows.leave(5, 6);
        assert_eq!(flows.count(7), 2);
        assert_eq!(flows.count(WINDOW_NS), 2);
        flows.note(Activity::RENEWS, WINDOW_NS);
        assert_eq!(flows.count(WINDOW_NS), 2);
        assert_eq!(flows.count(2 * WINDOW_NS), 1);
        assert_eq!(flows.count(3 * WINDOW_NS), 0);
        assert!(ActiveFlows::counts(WINDOW_NS, 3 * WINDOW_NS - 1));
        assert!(!ActiveFlows::counts(WINDOW_NS, 3 * WINDOW_NS));
    }

    #[test]
    fn a_burst_of_new_flows_is_seen_before_the_window_ends() {
        let mut flows = ActiveFlows::default();
        for _ in 0..5 {
            flows.note(Activity::ENTERS, 0);
        }
        flows.note(Activity::ENTERS, WINDOW_NS);
        assert_eq!(flows.count(WINDOW_NS), 6);
    }

    #[test]
    fn flow_that_leaves_takes_itself_off_and_no_other() {
        let mut flows = ActiveFlows::default();
        flows.note(Activity::ENTERS, 5);
        flows.note(Activity::ENTERS, 5);
        flows.note(Activity::RENEWS, WINDOW_NS);
        // The other was not seen in this window.
        flows.leave(5, WINDOW_NS + 1);
        assert_eq!(flows.count(WINDOW_NS + 1), 1);
        assert_eq!(flows.count(2 * WINDOW_NS), 1);
        // It is counted no more since two windows.
        flows.leave(5, 2 * WINDOW_NS);
        assert_eq!(flows.count(2 * WINDOW_NS), 1);
        flows.leave(WINDOW_NS, 2 * WINDOW_NS);
        assert_eq!(flows.count(2 * WINDOW_NS), 0);
    }

    proptest! {
        /// Flows that send at least once a window are counted exactly from their
        /// second window on, whatever the times of their packets.
        #[test]
        fn steady_flows_are_counted_exactly(
            phases in proptest::collection::vec(0..WINDOW_NS, 1..20),
            period in 1_000_000..WINDOW_NS,
        ) {
            let mut flows = ActiveFlows::default();
            let mut sent: Vec<(u64, bool)> = Vec::new();
            for &phase in &phases {
                let mut last_seen = None;
                let mut at = phase;
                while at < 8 * WINDOW_NS {
                    let renews = last_seen.map(|it| ActiveFlows::is_first_of_window(it, at));
                    if renews != Some(false) {
                        sent.push((at, renews.is_none()));
                    }
                    last_seen = Some(at);
                    at += period;
                }
            }
            sent.sort_unstable();
            for (at, is_new) in sent {
                if is_new { flows.note(Activity::ENTERS, at) } else { flows.note(Activity::RENEWS, at) }
                if at >= 2 * WINDOW_NS {
                    prop_assert_eq!(flows.count(at) as usize, phases.len());
                }
            }
        }
    }

    use std::vec::Vec;
}
