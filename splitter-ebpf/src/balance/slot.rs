//! What balancers note of a flow.

use core::mem::size_of;

use flow_balance::{EarliestFlow, LetFlowFlow, PathId};
use splitter_policy::paths::BalancerNumber;

use super::{LONG_BALANCER, are_mixed, is_used};

/// What a balancer notes of a flow, when it did so, and by which path the flow's last packet went.
#[repr(C)]
pub(super) struct FlowSlot {
    pub(super) seen_ns: u64,
    state: [u64; FLOW_WORDS],
    /// The path's number plus one; 0 before the first.
    last: u64,
}

/// The largest flow of a balancer, that of TR to the letter.
const FLOW_WORDS: usize = 6;

impl FlowSlot {
    /// Forgets the flow if it was silent at `now_ns` for longer than `idle_ns`, and notes the time.
    #[inline(always)]
    pub(super) fn see(&mut self, now_ns: u64, idle_ns: u64) {
        // As signed numbers: what was seen later than now, by another CPU, was seen just now. One branch, and of a number that
        // is nowhere else: the verifier would follow what it has learnt of the time through the choice.
        if now_ns.wrapping_sub(self.seen_ns).cast_signed() > idle_ns.cast_signed() {
            self.begin_anew();
        }
        self.seen_ns = now_ns;
    }

    /// Forgets the flow. Word by word, for the compiler would call a function, and keep on the stack for it what is at hand.
    #[inline(always)]
    fn begin_anew(&mut self) {
        for word in &mut self.state {
            // SAFETY: valid, as a reference is.
            unsafe { core::ptr::from_mut(word).write_volatile(0) };
        }
        self.last = 0;
    }

    /// What the only balancer has noted of the flow, or TR, of which all zeros are a new one.
    #[inline(always)]
    pub(super) fn flow<F>(&mut self) -> &mut F {
        const { assert!(size_of::<F>() <= FLOW_WORDS * 8 && align_of::<F>() <= 8) };
        // SAFETY: as long and aligned, as checked; balancers' flows are made of integers.
        unsafe { &mut *self.state.as_mut_ptr().cast() }
    }

    /// What a balancer has noted of the flow that may have another one next to it: 16 bytes at most.
    ///
    /// With two of them, the flow's order comes first, which all of them note that know when packets arrive; then
    /// what TR knows of the flow's leaf, or the balancer of short flows; then the one of long flows, or the one next to TR.
    #[inline(always)]
    pub(super) fn flow_next_to_another<F>(&mut self, number: BalancerNumber) -> &mut F {
        const { assert!(size_of::<F>() <= 16 && align_of::<F>() <= 8) };
        let first = if !are_mixed() {
            0
        } else if LONG_BALANCER.load() == number.0 || is_used(BalancerNumber::TR) {
            4
        } else {
            2
        };
        // SAFETY: the last of these places ends with the slot's words; otherwise as above.
        unsafe { &mut *self.state.as_mut_ptr().add(first).cast() }
    }

    /// When the flow's last packet arrives, and by which path.
    #[inline(always)]
    pub(super) fn order(&mut self) -> &mut EarliestFlow {
        self.flow()
    }

    /// Has LetFlow know of a packet that it has not sent, if it has a say in the flow.
    #[inline(always)]
    pub(super) fn note_flowlet(&mut self, path: PathId, now_ns: u64) {
        if are_mixed() && is_used(BalancerNumber::LETFLOW) {
            let flow: &mut LetFlowFlow = self.flow_next_to_another(BalancerNumber::LETFLOW);
            flow.note(path, now_ns);
        }
    }

    /// Notes the path of a packet. Returns true if the flow's last one went by another.
    #[inline(always)]
    pub(super) fn note(&mut self, path: PathId) -> bool {
        let (last, own) = (self.last, path.index() as u64 + 1);
        if last == own {
            return false;
        }
        self.last = own;
        last != 0
    }
}
