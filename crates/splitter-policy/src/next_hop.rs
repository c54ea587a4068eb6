//! Records of next hops: what the kernel's FIB lookup has answered lately, so that it need not be asked
//! for each packet.
//!
//! A lookup costs more than all the rest of the path. So its answer is kept, on each CPU, under the
//! whole question: what routing may look at. It is believed while three things hold, and else the
//! kernel is asked as if there were no record:
//!
//! | it is | because |
//! |---|---|
//! | of the *generation* that is in force | the agent draws another one whenever a rule, a route, a neighbour, a device or an address has changed |
//! | asked within [`NextHop::LIFETIME_NS`] | the kernel learns a path's MTU, or stops forwarding, without telling anybody |
//! | vouched for: [`NextHopTrust::until_ns`] lies ahead | an agent that has died, or hangs, draws no generation |
//!
//! A record holds answers only: what leads a packet to the stack is asked for anew each time.

use crate::buffer::BufferMut;
use crate::flow::TunnelRole;
use crate::forward::{FibLookup, Mac, decrement_hops};

/// Tells how far records may be believed; the one value of its map, which the agent writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHopTrust {
    /// The generation of records that are right. Never the same twice.
    pub generation: u64,
    /// `CLOCK_MONOTONIC` until which the agent vouches for it; 0 where nobody does.
    pub until_ns: u64,
    /// All ones where routing may look at more of a packet than its destination and its traffic class:
    /// rules by source or port, paths chosen by hash. Else 0.
    pub looks_beyond: u64,
}

impl NextHopTrust {
    /// Routing may look at everything.
    pub const ALL: u64 = u64::MAX;

    /// Tells if anybody vouches for records now.
    #[inline(always)]
    pub const fn is_given(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }
}

/// The question that a record answers: all that the kernel is asked, but the packet's length, in words;
/// with the tunnel that the packet is for, and the link address that it came to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question([u64; 7]);

impl Question {
    /// Records on each CPU.
    pub const RECORDS: u32 = 1 << Self::INDEX_BITS;
    const INDEX_BITS: u32 = 10;

    /// Family and protocol, without ports.
    const KIND: u64 = 0xffff;
    /// Above the numbers of address families.
    const LONG: u64 = 1 << 7;
    /// Of the word with the device, and above it the first bytes of the header: the traffic class of
    /// either family, without IPv6's flow label.
    const DEVICE_AND_CLASS: u64 = 0x0000_f0ff_ffff_ffff;

    /// The question of a packet for a tunnel, as far as routing looks.
    #[inline(always)]
    pub const fn new(asked: &FibLookup, role: TunnelRole, to: Mac, looks_beyond: u64) -> Self {
        let [
            kind,
            place,
            source,
            source_low,
            destination,
            destination_low,
        ] = asked.words();
        let role = Self::LONG * role as u64;
        Self([
            kind & (Self::KIND | looks_beyond) | role,
            place & (Self::DEVICE_AND_CLASS | looks_beyond),
            source & looks_beyond,
            source_low & looks_beyond,
            destination,
            destination_low,
            to.bits(),
        ])
    }

    /// The index of the record that may answer it.
    #[inline(always)]
    pub const fn index(&self) -> u32 {
        // Odd numbers without a pattern: the words of two packets differ in any of their bits.
        const FACTORS: [u64; 3] = [
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
        ];
        let [kind, place, a, b, c, d, _] = self.0;
        let mixed = (kind ^ place.wrapping_mul(FACTORS[0]))
            .wrapping_add((a ^ b).wrapping_mul(FACTORS[1]))
            .wrapping_add((c ^ d).wrapping_mul(FACTORS[2]));
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(FACTORS[0]);
        (mixed >> (64 - Self::INDEX_BITS)) as u32
    }

    /// Zero when both are the same.
    #[inline(always)]
    const fn differs(&self, other: &Self) -> u64 {
        let ([a, b, c, d, e, f, g], [h, i, j, k, l, m, n]) = (self.0, other.0);
        (a ^ h) | (b ^ i) | (c ^ j) | (d ^ k) | (e ^ l) | (f ^ m) | (g ^ n)
    }
}

/// A record: a question, and the kernel's answer to it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHop {
    question: Question,
    generation: u64,
    /// When the kernel was asked.
    asked_ns: u64,
    /// The link addresses of the frame that leaves, as they lie in it: the next hop's, then ours.
    link: [u8; 12],
    /// The largest packet that fits the path.
    mtu: u16,
    /// The place of the device among those that packets are put into.
    slot: u16,
}

impl NextHop {
    /// How long an answer is believed: what changes without notice is noticed after that.
    pub const LIFETIME_NS: u64 = 250_000_000;

    /// A record of what the kernel has answered; `trust` is as it was before the kernel was asked.
    #[inline(always)]
    pub const fn new(
        question: Question,
        answer: &FibLookup,
        slot: u16,
        trust: &NextHopTrust,
        now_ns: u64,
    ) -> Self {
        Self {
            question,
            generation: trust.generation,
            asked_ns: now_ns,
            link: answer.link_addresses(),
            mtu: answer.mtu(),
            slot,
        }
    }

    /// Tells if the record answers the question for a packet of so many bytes now.
    #[inline(always)]
    pub const fn answers(
        &self,
        question: &Question,
        packet_bytes: u16,
        trust: &NextHopTrust,
        now_ns: u64,
    ) -> bool {
        let differs = self.question.differs(question) | (self.generation ^ trust.generation);
        // Another program's clock may be ahead of this one's.
        let age_ns = now_ns.wrapping_sub(self.asked_ns);
        differs == 0 && age_ns < Self::LIFETIME_NS && packet_bytes <= self.mtu
    }

    /// The place of the device among those that packets are put into.
    #[inline(always)]
    pub const fn slot(&self) -> u32 {
        self.slot as u32
    }

    /// Makes of the frame what leaves towards the next hop: one hop less to go, and other link
    /// addresses. `None` when it cannot be written.
    #[inline(always)]
    pub fn forward<B: BufferMut + ?Sized>(&self, frame: &mut B) -> Option<()> {
        decrement_hops(frame)?;
        frame.write(0, self.link)
    }
}

/// The name of a neighbour that packets are sent to: its link address, and above it the place of the
/// device.
#[inline(always)]
pub const fn neighbour(link_address: Mac, slot: u32) -> u64 {
    link_address.bits() | (slot as u64) << 48
}

const _: () = assert!(size_of::<NextHop>() == 88);

#[cfg(test)]
mod tests;
