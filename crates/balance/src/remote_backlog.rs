//! Remote backlogs: the queues of the switches behind the paths, as far as they were reported.

use super::arithmetic::less;
use super::{MAX_PATHS, PathId};

/// The ageing of a remote backlog of which nothing new is reported (A-T3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ageing {
    /// It stays as it is, as in the paper.
    #[default]
    Never,
    /// It drains at the rate of the line, as the queue would if nothing more arrived: never more
    /// than what is there, if the report was true.
    Drains,
}

/// The backlog of one port of a remote switch, as last reported.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBacklog {
    backlog_ns: u64,
    heard_ns: u64,
}

impl RemoteBacklog {
    /// Notes a report at `now_ns` that the port is `backlog_ns` from empty.
    #[inline(always)]
    pub const fn report(&mut self, backlog_ns: u64, now_ns: u64) {
        self.backlog_ns = backlog_ns;
        self.heard_ns = now_ns;
    }

    /// Returns for how long nothing has been reported, in ns; none where nothing ever was.
    #[must_use]
    pub const fn silence_ns(&self, now_ns: u64) -> Option<u64> {
        match self.heard_ns {
            0 => None,
            heard_ns => Some(now_ns.saturating_sub(heard_ns)),
        }
    }

    /// The backlog that the port is taken to have at `now_ns`.
    #[inline(always)]
    pub const fn at(&self, now_ns: u64, ageing: Ageing) -> u64 {
        match ageing {
            Ageing::Never => self.backlog_ns,
            // Without a branch, which a kernel's verifier would follow both ways for each path.
            Ageing::Drains => {
                let empty_at_ns = self.heard_ns.wrapping_add(self.backlog_ns);
                let left_ns = empty_at_ns.wrapping_sub(now_ns);
                left_ns & less(now_ns, empty_at_ns).wrapping_neg()
            }
        }
    }
}

/// The remote ports that lead to one destination, one on each path.
///
/// A host keeps one table for each destination switch: a spine has a queue for
/// each leaf, so what it says of one of them tells nothing of the others (A-T2).
/// What is learnt from an ACK belongs to the leaf that the ACK came from.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBacklogs {
    ports: [RemoteBacklog; MAX_PATHS],
}

impl RemoteBacklogs {
    /// The remote backlog behind `path`, as last reported.
    #[inline(always)]
    pub const fn behind(&self, path: PathId) -> &RemoteBacklog {
        &self.ports[path.index()]
    }

    /// The remote backlog behind `path`, to note a report in.
    #[inline(always)]
    pub const fn behind_mut(&mut self, path: PathId) -> &mut RemoteBacklog {
        &mut self.ports[path.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_with_the_last_report() {
        let mut heard = RemoteBacklog::default();
        assert_eq!(heard.silence_ns(9), None);
        heard.report(5, 7);
        assert_eq!(heard.silence_ns(9), Some(2));
        // By the clock of another CPU.
        assert_eq!(heard.silence_ns(6), Some(0));
    }
    use crate::{ServiceTime, VirtualQueue};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_drains_is_a_queue_that_nothing_enters(bytes in 0u64..400_000, after_ns in 0u64..200_000) {
            let (mut queue, mut heard) = (VirtualQueue::default(), RemoteBacklog::default());
            let now_ns = 1_000;
            queue.send(bytes, now_ns, ServiceTime::from_bits_per_second(40_000_000_000));
            heard.report(queue.backlog_ns(now_ns), now_ns);
            prop_assert_eq!(heard.at(now_ns + after_ns, Ageing::Drains), queue.backlog_ns(now_ns + after_ns));
            prop_assert_eq!(heard.at(now_ns + after_ns, Ageing::Never), queue.backlog_ns(now_ns));
        }
    }

    #[test]
    fn of_an_unheard_port_nothing_is_assumed() {
        assert_eq!(RemoteBacklog::default().at(99, Ageing::Never), 0);
    }
}
