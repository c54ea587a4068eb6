//! Path selection and load balancing: which of several paths a packet takes.
//!
//! A [`Balancer`] chooses among at most [`MAX_PATHS`] paths for each packet. It
//! looks at what it remembers of the packet's flow, at what all flows of one set
//! of paths share, and at the paths as its host describes them ([`Paths`]). It
//! has no clock and no source of randomness: what looks random is a hash of the
//! flow, of a count and of a seed, so that the same packets take the same paths
//! on every host.
//!
//! | policy | changes paths | looks at |
//! |---|---|---|
//! | [`Ecmp`] | never | weight |
//! | [`Rps`] | each packet, at random | weight |
//! | [`Drb`] | each packet, in turn | nothing |
//! | [`Presto`] | each cell of 64 KB, in turn | nothing |
//! | [`LetFlow`] | at each gap, at random | weight |
//! | [`Tr`] | each packet, where that keeps the flow in order | delay, backlogs, short flows |
//! | [`TrPaper`] | the same, to the letter of the paper | delay, backlogs, short flows |
//! | [`EarliestArrival`] | each packet, where that keeps the flow in order | delay, backlogs |
//! | [`Placement`] | never; placed once, when it turns long | weight, backlog, flows there |
//! | [`OwnPaths`] | once, to its own | weight, delay, backlogs |
//!
//! All of them keep to usable paths as long as there is one, and fail open: if
//! none is usable they choose as if all were.
//!
//! A host implements [`Paths`] for what it has, a table of queues or a map of
//! the kernel, as seen towards the packet's destination, and keeps a
//! [`Balancer::Flow`] for each flow. It finds the parts for that here:
//! [`VirtualQueue`] for the backlog of its own
//! ports, [`RemoteBacklogs`] and [`ttl`] for that of the next switches.
//!
//! ```
//! use flow_balance::{Balancer, Packet, PathView, Snapshot, Tr, TrFlow, ShortFlows};
//!
//! let slow = PathView { propagation_ns: 175_000, ..PathView::default() };
//! let busy = PathView { propagation_ns: 50_000, local_backlog_ns: 12_000, ..PathView::default() };
//! let idle = PathView { propagation_ns: 50_000, ..PathView::default() };
//! let paths = Snapshot::new(&[slow, busy, idle]);
//!
//! let (mut short_flows, mut flow) = (ShortFlows::new(350_000), TrFlow::default());
//! let packet = Packet { now_ns: 1_000_000, bytes: 1_500, flow_hash: 0x5eed };
//! let path = Tr::paper().choose(&mut short_flows, &mut flow, &paths, &packet);
//! assert_eq!(path.index(), 2);
//! ```
#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod active_flows;
pub mod arithmetic;
mod earliest;
mod ecmp;
mod letflow;
mod own_paths;
mod path;
mod placement;
mod presto;
mod random;
mod remote_backlog;
mod set;
mod short_flows;
mod spray;
mod tr;
pub mod ttl;
mod virtual_queue;

pub use active_flows::{ActiveFlows, Activity};
pub use earliest::{Earliest, EarliestArrival, EarliestFlow};
pub use ecmp::Ecmp;
pub use letflow::{LetFlow, LetFlowFlow};
pub use own_paths::OwnPaths;
pub use path::{PathView, Paths, Snapshot};
pub use placement::{PlacedFlow, Placement, RoundRobin};
pub use presto::{Presto, PrestoFlow};
pub use remote_backlog::{Ageing, RemoteBacklog, RemoteBacklogs};
pub use set::{LastPath, MAX_PATHS, PathId, PathSet};
pub use short_flows::{Presence, ShortFlows};
pub use spray::{Drb, DrbFlow, Rps, RpsFlow};
pub use tr::{Tr, TrFlow, TrPaper};
pub use virtual_queue::{ServiceTime, VirtualQueue};

/// The part of a packet that a balancer looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The time at which it is to be sent; must not run backwards, save for a little between CPUs.
    pub now_ns: u64,
    /// Its length with all headers.
    pub bytes: u32,
    /// A hash of its 5-tuple: the same for all packets of a flow, and spread
    /// over at least 32 bits.
    pub flow_hash: u64,
}

/// The time since a packet was seen, at `now_ns`.
///
/// CPUs and packets of one flow have clocks a little apart, so that one may note a time which another
/// has not reached yet: what was seen later than now was seen just now, and not an age ago.
#[inline(always)]
pub const fn silence_ns(now_ns: u64, seen_ns: u64) -> u64 {
    now_ns.saturating_sub(seen_ns)
}

/// A load-balancing policy, which selects paths; the value itself is its settings.
///
/// Dispatch is static and loops are bounded by [`MAX_PATHS`], so that a kernel
/// program can host it.
pub trait Balancer {
    /// The state that is kept of a flow. The default, all zeros, is a new one.
    type Flow: Copy + Default;
    /// The state that flows over one set of paths have in common.
    type Shared;

    /// Chooses the path of `packet` and notes that it was sent there.
    ///
    /// `paths` are those towards the packet's destination.
    fn choose<P: Paths + ?Sized>(
        &self,
        shared: &mut Self::Shared,
        flow: &mut Self::Flow,
        paths: &P,
        packet: &Packet,
    ) -> PathId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_later_than_now_was_seen_just_now() {
        for (now_ns, seen_ns, silence) in [
            (1_000, 400, 600),
            (1_000, 1_000, 0),
            // Of another CPU, which is ahead.
            (1_000, 1_001, 0),
            (0, u64::MAX, 0),
            // A flow that was never seen.
            (u64::MAX, 0, u64::MAX),
        ] {
            assert_eq!(silence_ns(now_ns, seen_ns), silence, "{now_ns} {seen_ns}");
        }
    }
}
