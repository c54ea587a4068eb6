//! The backlog of the switches behind the paths, as far as was heard of it.

use super::{MAX_PATHS, PathId};

/// What happens to what was learnt when nothing new is heard (A-T3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ageing {
    /// It stays as it is: the paper's way.
    #[default]
    Never,
    /// It drains at the rate of the line, as the queue would if nothing more
    /// arrived: never more than what is there, if the news was true.
    Drains,
}

/// What was last heard of one port of a far switch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarBacklog {
    backlog_ns: u64,
    heard_ns: u64,
}

impl FarBacklog {
    /// At `now_ns` the port was heard to be `backlog_ns` from empty.
    #[inline(always)]
    pub const fn hear(&mut self, backlog_ns: u64, now_ns: u64) {
        self.backlog_ns = backlog_ns;
        self.heard_ns = now_ns;
    }

    /// How far from empty it is taken to be at `now_ns`.
    #[inline(always)]
    pub const fn at(&self, now_ns: u64, ageing: Ageing) -> u64 {
        match ageing {
            Ageing::Never => self.backlog_ns,
            Ageing::Drains => {
                let since_ns = now_ns.saturating_sub(self.heard_ns);
                self.backlog_ns.saturating_sub(since_ns)
            }
        }
    }
}

/// The far ports that lead to one destination, one on each path.
///
/// A host keeps one table for each destination switch: a spine has a queue for
/// each leaf, so what it says of one of them tells nothing of the others (A-T2).
/// What is learnt from an ACK belongs to the leaf that the ACK came from.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarTable {
    ports: [FarBacklog; MAX_PATHS],
}

impl FarTable {
    /// What is known of the port behind `path`.
    #[inline(always)]
    pub const fn behind(&self, path: PathId) -> &FarBacklog {
        &self.ports[path.index()]
    }

    /// To note what was heard from behind `path`.
    #[inline(always)]
    pub const fn behind_mut(&mut self, path: PathId) -> &mut FarBacklog {
        &mut self.ports[path.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServiceTime, VirtualQueue};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_drains_is_a_queue_that_nothing_enters(bytes in 0u64..400_000, after_ns in 0u64..200_000) {
            let (mut queue, mut heard) = (VirtualQueue::default(), FarBacklog::default());
            let now_ns = 1_000;
            queue.send(bytes, now_ns, ServiceTime::from_bits_per_second(40_000_000_000));
            heard.hear(queue.backlog_ns(now_ns), now_ns);
            prop_assert_eq!(heard.at(now_ns + after_ns, Ageing::Drains), queue.backlog_ns(now_ns + after_ns));
            prop_assert_eq!(heard.at(now_ns + after_ns, Ageing::Never), queue.backlog_ns(now_ns));
        }
    }

    #[test]
    fn of_an_unheard_port_nothing_is_assumed() {
        assert_eq!(FarBacklog::default().at(99, Ageing::Never), 0);
    }
}
