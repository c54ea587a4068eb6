//! Queues behind the tunnels of a site, as far as a fabric's spines have reported them (TR, Eq. 1: `sql / sqw`).

use flow_balance::{Ageing, PathId, RemoteBacklogs, silence_ns};

/// Knowledge of the queues behind tunnels, towards the destination of one packet.
pub trait Behind: Copy {
    /// How long a packet that gets there by a tunnel waits behind it, as far as is known at `now_ns`.
    fn backlog_ns(&self, path: PathId, now_ns: u64) -> u64;
}

/// Nothing is known of the queues behind tunnels: a packet is taken to wait there for nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unheard;

impl Behind for Unheard {
    #[inline(always)]
    fn backlog_ns(&self, _: PathId, _: u64) -> u64 {
        0
    }
}

/// The tunnels that are uplinks to spines, and by which numbers these report; 16 bytes. All zeros: none is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UplinkNumbers {
    /// A bit for each tunnel that is one.
    are_uplinks: u64,
    /// Four bits for the number of each.
    numbers: u64,
}

/// The bits of a tunnel's number.
const NUMBER_BITS: usize = 4;

impl UplinkNumbers {
    /// Notes that a tunnel is the uplink of that number.
    pub const fn set(&mut self, path: PathId, uplink: PathId) {
        let at = NUMBER_BITS * path.index();
        self.are_uplinks |= 1 << path.index();
        self.numbers = self.numbers & !(0xf << at) | (uplink.index() as u64) << at;
    }

    /// The number of the uplink that a tunnel is, if it is one.
    #[must_use]
    pub fn get(&self, path: PathId) -> Option<PathId> {
        let is_uplink = self.are_uplinks >> path.index() & 1 != 0;
        is_uplink.then(|| self.number(path))
    }

    /// Tells if no tunnel is an uplink.
    #[inline(always)]
    #[must_use]
    pub const fn are_none(&self) -> bool {
        self.are_uplinks == 0
    }

    #[inline(always)]
    fn number(&self, path: PathId) -> PathId {
        PathId::from_low_bits(self.numbers >> (NUMBER_BITS * path.index()))
    }
}

/// The reports of the spines behind tunnels, on their ports to one leaf.
///
/// What was reported drains as time passes, as the port does if nothing more comes: what was heard longer ago than
/// that takes counts for nothing.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// Which tunnel is which uplink.
    pub uplinks: &'a UplinkNumbers,
    /// By uplinks.
    pub reports: &'a RemoteBacklogs,
}

impl Behind for Heard<'_> {
    /// Without a branch on what cannot be an uplink, for the kernel's verifier would follow both ways at each path.
    #[inline(always)]
    fn backlog_ns(&self, path: PathId, now_ns: u64) -> u64 {
        let report = self.reports.behind(self.uplinks.number(path));
        let is_uplink = self.uplinks.are_uplinks >> path.index() & 1;
        report.at(now_ns, Ageing::Drains) & 0u64.wrapping_sub(is_uplink)
    }
}

/// The leaf that the destination of a flow lies at, as it was looked up last; 16 bytes. All zeros: it was not.
///
/// Where flows share a place, each finds out for itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarLeaf {
    /// The hash of the flow.
    flow: u32,
    /// The number of the leaf plus 2; 1 where the destination lies at none.
    leaf: u32,
    looked_up_ns: u64,
}

impl FarLeaf {
    /// Leaves and what lies at them change seldom, and a look-up costs as much as the choice of a path.
    const LASTS_NS: u64 = 1_000_000_000;

    /// Returns what was looked up for a flow: `None` if it has to be again, and the inner one where the flow's destination
    /// lies at no leaf.
    #[inline(always)]
    #[must_use]
    pub const fn get(&self, flow: u32, now_ns: u64) -> Option<Option<u32>> {
        let is_old = silence_ns(now_ns, self.looked_up_ns) > Self::LASTS_NS;
        match self.leaf {
            0 => None,
            _ if is_old || self.flow != flow => None,
            1 => Some(None),
            leaf => Some(Some(leaf - 2)),
        }
    }

    /// Notes what was looked up for a flow.
    #[inline(always)]
    pub const fn set(&mut self, flow: u32, leaf: Option<u32>, now_ns: u64) {
        *self = Self {
            flow,
            leaf: match leaf {
                Some(leaf) => leaf.wrapping_add(2),
                None => 1,
            },
            looked_up_ns: now_ns,
        };
    }
}

#[cfg(test)]
mod tests;
