//! Paths as a host describes them: delay, backlog, weight, flows.

use super::arithmetic::{min, saturating_add, select};
use super::{MAX_PATHS, Packet, PathId, PathSet};
use crate::ServiceTime;

/// The state of a path now, towards one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathView {
    /// From this switch to the one before the destination, on idle links: `pd` of TR.
    pub propagation_ns: u64,
    /// What waits in front of the path here takes so long to leave: `lql / lqw` of TR.
    pub local_backlog_ns: u64,
    /// The same at the next switch: `sql / sqw` of TR.
    pub remote_backlog_ns: u64,
    /// What a byte takes to be serialised on all hops that
    /// [`propagation_ns`](Self::propagation_ns) spans, added up.
    pub service: ServiceTime,
    /// Its share of what is spread by weight, usually its rate in Mbit/s.
    pub weight: u32,
    /// How many long flows send there, as far as the host counts them.
    pub flows: u32,
}

/// The paths towards one destination as a host knows them.
///
/// Policies ask for what they need and no more, so let [`view`](Self::view) be
/// cheap and inlined: what a policy does not read is then not computed.
pub trait Paths {
    /// The set of paths that there are; not empty.
    fn known(&self) -> PathSet;

    /// The set of paths that forward packets, as far as is known.
    fn usable(&self) -> PathSet;

    /// The state of a path that is in [`known`](Self::known). A host in the kernel is asked of
    /// others, too; what it answers means nothing.
    fn view(&self, path: PathId) -> PathView;

    /// The weight of a path's [`view`](Self::view). A host whose views have to be read from
    /// memory that others write to may have the weight without them.
    #[inline(always)]
    fn weight(&self, path: PathId) -> u32 {
        self.view(path).weight
    }

    /// Predicts when a packet that is sent at `now_ns` would reach the switch before its
    /// destination, on each path: the time, and all delays of its [`view`](Self::view); less than
    /// `u64::MAX`. What it is where there is no path means nothing.
    ///
    /// A host that keeps sums of these delays may have it at less; the numbers
    /// must be the same.
    #[inline(always)]
    fn arrivals_ns(&self, now_ns: u64) -> [u64; MAX_PATHS] {
        let known = self.known();
        let mut arrivals_ns = [u64::MAX; MAX_PATHS];
        for path in known.iter_loosely() {
            let view = self.view(path);
            let mut arrival_ns = now_ns;
            for delay_ns in [
                view.propagation_ns,
                view.local_backlog_ns,
                view.remote_backlog_ns,
            ] {
                arrival_ns = saturating_add(arrival_ns, delay_ns);
            }
            let is_known = u64::from(known.bits() >> path.index() & 1);
            arrivals_ns[path.index()] = select(is_known, min(arrival_ns, u64::MAX - 1), u64::MAX);
        }
        arrivals_ns
    }

    /// Predicts when `packet` would reach the switch before its destination by a path that is in
    /// [`known`](Self::known): all delays of its [`view`](Self::view) after the packet's time, and its own
    /// time on the wire.
    ///
    /// A host may have it at less than a view, or without looking for what overflows: the numbers must be
    /// the same where nothing does.
    #[inline(always)]
    fn arrival_ns(&self, path: PathId, packet: &Packet) -> u64 {
        let view = self.view(path);
        let mut arrival_ns = packet.now_ns;
        for delay_ns in [
            view.propagation_ns,
            view.local_backlog_ns,
            view.remote_backlog_ns,
            view.service.of(packet.bytes as u64),
        ] {
            arrival_ns = saturating_add(arrival_ns, delay_ns);
        }
        min(arrival_ns, u64::MAX - 1)
    }

    /// How long after its time a packet [arrives](Self::arrival_ns). Where that is longer than `most_ns` a host may
    /// answer `None`, as soon as it sees so.
    #[inline(always)]
    fn delay_within_ns(&self, path: PathId, packet: &Packet, most_ns: u64) -> Option<u64> {
        let _ = most_ns;
        Some(self.arrival_ns(path, packet).wrapping_sub(packet.now_ns))
    }

    /// The paths to choose among: the usable ones, and all if none is.
    #[inline(always)]
    fn candidates(&self) -> PathSet {
        let (known, usable) = (self.known(), self.usable().and(self.known()));
        if usable.is_empty() { known } else { usable }
    }
}

/// Paths written down one by one, for tests and hosts with few of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    views: [PathView; MAX_PATHS],
    known: PathSet,
    /// Those that forward packets.
    pub usable: PathSet,
}

impl Snapshot {
    /// A snapshot of these paths, all usable; those beyond [`MAX_PATHS`] are left out.
    pub fn new(paths: &[PathView]) -> Self {
        let mut views = [PathView::default(); MAX_PATHS];
        for (view, path) in views.iter_mut().zip(paths) {
            *view = *path;
        }
        let known = PathSet::first(paths.len());
        Self {
            views,
            known,
            usable: known,
        }
    }

    /// To change what is known of a path.
    #[inline(always)]
    pub fn view_mut(&mut self, path: PathId) -> &mut PathView {
        &mut self.views[path.index()]
    }
}

impl Paths for Snapshot {
    #[inline(always)]
    fn known(&self) -> PathSet {
        self.known
    }

    #[inline(always)]
    fn usable(&self) -> PathSet {
        self.usable
    }

    #[inline(always)]
    fn view(&self, path: PathId) -> PathView {
        self.views[path.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_no_usable_path_all_are_candidates() {
        let mut paths = Snapshot::new(&[PathView::default(); 3]);
        paths.usable = PathSet::from_bits(0b1000);
        assert_eq!(paths.candidates(), PathSet::first(3));
        paths.usable = PathSet::from_bits(0b1010);
        assert_eq!(paths.candidates(), PathSet::from_bits(0b10));
    }
}
