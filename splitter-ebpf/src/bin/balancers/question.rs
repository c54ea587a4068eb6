//! A question to the balancers of the kernel: a packet, the paths as it finds them, and all
//! settings there are. User space writes it, whose side includes this file by path.

use flow_balance::ServiceTime;
use flow_balance::{MAX_PATHS, Packet, PathId, PathSet, PathView, Paths};

/// One question; the value of the map `QUESTION`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) settings: Settings,
    /// The packet's time; raised by [`Settings::between_ns`] after each packet.
    pub(crate) now_ns: u64,
    pub(crate) flow_hash: u64,
    pub(crate) bytes: u64,
    /// Paths there are, and those that forward packets: a bit for each.
    pub(crate) known: u64,
    pub(crate) usable: u64,
    pub(crate) views: [View; MAX_PATHS],
}

/// The settings of all balancers; each reads its own.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) cell_bytes: u64,
    pub(crate) gap_ns: u64,
    pub(crate) threshold_bytes: u64,
    pub(crate) guard_ns: u64,
    pub(crate) slack_ns: u64,
    /// 0 or 1.
    pub(crate) counts_serialisation: u64,
    /// How much later each packet is than the one before, where a program is run
    /// over and over without being asked again.
    pub(crate) between_ns: u64,
}

/// A [`PathView`] whose fields lie where both compilers put them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct View {
    pub(crate) propagation_ns: u64,
    pub(crate) local_backlog_ns: u64,
    pub(crate) remote_backlog_ns: u64,
    pub(crate) service: ServiceTime,
    pub(crate) weight: u64,
}

impl Question {
    /// What the balancers look at in the packet.
    #[inline(always)]
    pub(crate) fn packet(&self) -> Packet {
        Packet {
            now_ns: self.now_ns,
            bytes: self.bytes as u32,
            flow_hash: self.flow_hash,
        }
    }
}

impl Paths for Question {
    #[inline(always)]
    fn known(&self) -> PathSet {
        PathSet::from_bits(self.known as u16)
    }

    #[inline(always)]
    fn usable(&self) -> PathSet {
        PathSet::from_bits(self.usable as u16)
    }

    #[inline(always)]
    fn view(&self, path: PathId) -> PathView {
        let view = &self.views[path.index()];
        PathView {
            propagation_ns: view.propagation_ns,
            local_backlog_ns: view.local_backlog_ns,
            remote_backlog_ns: view.remote_backlog_ns,
            service: view.service,
            weight: view.weight as u32,
            ..PathView::default()
        }
    }
}
