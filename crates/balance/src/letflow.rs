//! LetFlow: flowlet switching, where a flow that pauses may change paths.

use super::random::draw;
use super::{Balancer, LastPath, Packet, PathId, Paths, silence_ns};

/// Flowlet switching, LetFlow (Vanini et al., NSDI 2017): each flowlet takes a path at random,
/// weighted. Flowlets on slow paths are cut short by their own gaps, which is how load finds its
/// balance.
///
/// The paper's hardware notices gaps by one bit of age and so at one to two
/// times the setting; here they are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetFlow {
    /// A longer silence ends a flowlet. Where it exceeds the difference in
    /// delay between paths, nothing is reordered.
    pub gap_ns: u64,
    /// Other seeds spread the same flowlets otherwise.
    pub seed: u64,
}

/// The flowlet state of a flow under [`LetFlow`]: 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetFlowFlow {
    last_seen_ns: u64,
    flowlets: u32,
    last: LastPath,
    reserved: [u8; 3],
}

impl LetFlowFlow {
    /// Notes that somebody else has sent a packet of the flow by a path: the flowlet goes on there.
    #[inline(always)]
    pub const fn note(&mut self, path: PathId, now_ns: u64) {
        self.last_seen_ns = now_ns;
        self.last.set(path);
    }
}

impl Balancer for LetFlow {
    type Flow = LetFlowFlow;
    type Shared = ();

    #[inline(always)]
    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        flow: &mut LetFlowFlow,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        let candidates = paths.candidates();
        let silence_ns = silence_ns(packet.now_ns, flow.last_seen_ns);
        flow.last_seen_ns = packet.now_ns;
        match flow.last.within(candidates) {
            Some(last) if silence_ns <= self.gap_ns => last,
            _ => {
                flow.flowlets = flow.flowlets.wrapping_add(1);
                let random = draw(self.seed, packet.flow_hash, flow.flowlets);
                flow.last.set(candidates.pick_weighted(paths, random))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_PATHS, PathSet, PathView, Snapshot};

    const LETFLOW: LetFlow = LetFlow {
        gap_ns: 500_000,
        seed: 4,
    };

    fn ten_paths() -> Snapshot {
        let path = PathView {
            weight: 1,
            ..PathView::default()
        };
        Snapshot::new(&[path; 10])
    }

    fn at(now_ns: u64) -> Packet {
        Packet {
            now_ns,
            bytes: 1_500,
            flow_hash: 2,
        }
    }

    #[test]
    fn flowlet_that_somebody_else_began_goes_on_where_it_is() {
        let paths = ten_paths();
        for path in PathId::all().take(10) {
            let mut flow = LetFlowFlow::default();
            flow.note(path, 1_000_000);
            let chosen = LETFLOW.choose(&mut (), &mut flow, &paths, &at(1_000_000 + 500_000));
            assert_eq!(chosen, path);
        }
    }

    #[test]
    fn only_a_longer_gap_ends_a_flowlet() {
        let (paths, mut flow, mut used) = (ten_paths(), LetFlowFlow::default(), PathSet::EMPTY);
        let mut now_ns = 1_000;
        for _ in 0..100 {
            let first = LETFLOW.choose(&mut (), &mut flow, &paths, &at(now_ns));
            used.insert(first);
            for _ in 0..5 {
                now_ns += LETFLOW.gap_ns;
                assert_eq!(
                    LETFLOW.choose(&mut (), &mut flow, &paths, &at(now_ns)),
                    first
                );
            }
            now_ns += LETFLOW.gap_ns + 1;
        }
        assert_eq!(used, paths.known());
        assert_eq!(flow.flowlets, 100);
    }

    #[test]
    fn a_flowlet_leaves_a_path_that_fails() {
        let (mut paths, mut flow) = (ten_paths(), LetFlowFlow::default());
        let first = LETFLOW.choose(&mut (), &mut flow, &paths, &at(0));
        paths.usable.remove(first);
        let second = LETFLOW.choose(&mut (), &mut flow, &paths, &at(1));
        assert_ne!(first, second);
        assert!(second.index() < MAX_PATHS);
    }
}
