//! Presto: cells of a fixed size are sprayed over the paths in turn.

use super::random::draw;
use super::{Balancer, LastPath, Packet, PathId, Paths};

/// Presto (He et al., SIGCOMM 2015, Algorithm 1): a flow is cut into cells, and
/// each takes the path after that of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presto {
    /// The most that a cell may hold.
    pub cell_bytes: u32,
    /// Decides where each flow starts.
    pub seed: u64,
}

impl Presto {
    /// 64 KB, the largest segment that a network card cuts into packets.
    pub const DEFAULT_CELL_BYTES: u32 = 64 * 1024;
}

impl Default for Presto {
    fn default() -> Self {
        Self {
            cell_bytes: Self::DEFAULT_CELL_BYTES,
            seed: 0,
        }
    }
}

/// The cell state of a flow under [`Presto`]: 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrestoFlow {
    cell_bytes: u32,
    last: LastPath,
    reserved: [u8; 3],
}

impl Balancer for Presto {
    type Flow = PrestoFlow;
    type Shared = ();

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        flow: &mut PrestoFlow,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        let candidates = paths.candidates();
        let Some(last) = flow.last.get() else {
            flow.cell_bytes = packet.bytes;
            let random = draw(self.seed, packet.flow_hash, 0);
            return flow.last.set(candidates.pick(random));
        };
        let filled = flow.cell_bytes.saturating_add(packet.bytes);
        if filled <= self.cell_bytes && candidates.contains(last) {
            flow.cell_bytes = filled;
            return last;
        }
        flow.cell_bytes = packet.bytes;
        flow.last.set(candidates.after(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathView, Snapshot};

    #[test]
    fn a_cell_holds_64_kb() {
        let paths = Snapshot::new(&[PathView::default(); 4]);
        let (presto, mut flow) = (Presto::default(), PrestoFlow::default());
        let mut send = || {
            let packet = Packet {
                now_ns: 0,
                bytes: 1_500,
                flow_hash: 9,
            };
            presto.choose(&mut (), &mut flow, &paths, &packet).index()
        };
        let start = send();
        for packet in 1..43 * 8 {
            assert_eq!(send(), (start + packet / 43) % 4);
        }
    }
}
