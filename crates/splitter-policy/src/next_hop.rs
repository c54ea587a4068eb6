//! Records of next hops: what the kernel's FIB lookup has answered lately, so that it need not be asked
//! for each packet.
//!
//! A lookup costs more than all the rest of the path. So its answer is kept, on each CPU, under the
//! whole question: what routing looks at, which may be [few bits](crate::prefix_lengths) of the
//! destination. It is believed while these things hold, and else the
//! kernel is asked as if there were no record:
//!
//! | it is | because |
//! |---|---|
//! | of the *generation* that is in force | the agent draws another one whenever a rule, a route, a neighbour, a device or an address has changed |
//! | asked within [`NextHop::LIFETIME_NS`] | the kernel learns a path's MTU without telling anybody |
//! | vouched for: [`NextHopTrust::until_ns`] lies ahead | an agent that has died, or hangs, draws no generation |
//! | older than what the agent has heard of last, where it serves more than one flow | the answer to one of them may be that of a longer route, or of a rule, of which the agent does not know yet |
//!
//! Meanwhile the packets of the flow that was asked for have a record of their own
//! ([`Question::of_one_flow`]), as they have where routing looks at everything.
//!
//! A record holds answers only: what leads a packet to the stack is asked for anew each time.

mod kept;
mod plain;

use crate::buffer::BufferMut;
use crate::flow::TunnelRole;
use crate::forward::{FibLookup, Mac, decrement_hops, readdress};
pub use crate::next_hop::kept::{TunnelHop, TunnelHops};
pub use crate::next_hop::plain::{NextHops, forward_plain};
use crate::prefix_lengths::MatchedBits;
use crate::routing_key::RoutingKey;

/// The generation of records that are right; the one value of its map, which the agent writes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// Makes one of a number that none had before.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Tells how far records may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHopTrust {
    /// The generation of records that are right.
    pub generation: Generation,
    /// `CLOCK_MONOTONIC` until which the agent vouches for it: [`PERIOD_NS`](Self::PERIOD_NS) after the
    /// moment of which it has heard all that had changed by then. 0 where nobody does.
    pub until_ns: u64,
}

impl NextHopTrust {
    /// For so long an agent vouches at a time.
    pub const PERIOD_NS: u64 = 2_000_000_000;

    /// Tells if anybody vouches for records now.
    #[inline(always)]
    pub const fn is_given(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }
}

/// The question that a record answers, in words: what the kernel is asked, but the packet's length, as far
/// as the destination; with the tunnel that the packet is for, and the link address that it came to. Where
/// routing looks at everything, what lies beyond is compared apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The link address; above it the protocol, the number of [`MatchedBits`] and the tunnel.
    head: u64,
    /// The device, and above it the first bytes of the header.
    place: u64,
    destination: [u64; 2],
}

impl Question {
    /// Records on each CPU.
    pub const RECORDS: u32 = 1 << Self::INDEX_BITS;
    const INDEX_BITS: u32 = 10;

    /// Where they begin in the first word.
    const PROTOCOL: u32 = 48;
    const MATCHED: u32 = 56;
    const LONG: u32 = 63;
    /// Of the word with the device, and above it the first bytes of the header: the traffic class of
    /// either family, without IPv6's flow label.
    const DEVICE_AND_CLASS: u64 = 0x0000_f0ff_ffff_ffff;

    /// The question of a packet for a tunnel, as far as routing looks.
    #[inline(always)]
    pub fn new<K: RoutingKey>(asked: &K, role: TunnelRole, to: Mac, matched: MatchedBits) -> Self {
        let (place, [first, second]) = (asked.place(), asked.destination());
        // Of two destinations that have the same bits one may have more of them.
        let head = to.bits()
            | (asked.protocol() as u64) << Self::PROTOCOL
            | (matched.number() as u64) << Self::MATCHED
            | (role as u64) << Self::LONG;
        if matched.is_everything() {
            return Self {
                head,
                place,
                destination: [first, second],
            };
        }
        let [high, low] = matched.masks();
        Self {
            head,
            place: place & Self::DEVICE_AND_CLASS,
            destination: [first & high, second & low],
        }
    }

    /// The question of that packet's flow alone, whatever routing looks at.
    #[inline(always)]
    pub fn of_one_flow<K: RoutingKey>(asked: &K, role: TunnelRole, to: Mac) -> Self {
        Self::new(asked, role, to, MatchedBits::EVERYTHING)
    }

    /// Tells if it is that of a single flow.
    #[inline(always)]
    pub const fn is_of_everything(&self) -> bool {
        MatchedBits::numbered((self.head >> Self::MATCHED) as u8).is_everything()
    }

    /// The index of the record that may answer it, of a packet that was asked for.
    #[inline(always)]
    pub fn index<K: RoutingKey>(&self, asked: &K) -> u32 {
        // Odd numbers without a pattern: the words of two packets differ in any of their bits.
        const FACTORS: [u64; 3] = [
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
        ];
        let [first, second] = self.destination;
        let mut mixed = (self.head ^ self.place.wrapping_mul(FACTORS[0]))
            .wrapping_add((first ^ second).wrapping_mul(FACTORS[2]));
        if self.is_of_everything() {
            let [ports, source, source_low] = asked.beyond();
            let beyond = ports ^ (source ^ source_low).wrapping_mul(FACTORS[1]);
            mixed = mixed.wrapping_add(beyond);
        }
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(FACTORS[0]);
        (mixed >> (64 - Self::INDEX_BITS)) as u32
    }

    /// Zero when both are the same.
    #[inline(always)]
    const fn differs(&self, other: &Self) -> u64 {
        let ([a, b], [c, d]) = (self.destination, other.destination);
        (self.head ^ other.head) | (self.place ^ other.place) | (a ^ c) | (b ^ d)
    }
}

/// A record: a question, and the kernel's answer to it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHop {
    question: Question,
    /// What else the kernel was asked, where routing looks at everything; else zeros.
    beyond: [u64; 3],
    generation: Generation,
    /// When the kernel was asked.
    asked_ns: u64,
    /// It is believed where somebody vouches until then, or for longer.
    vouched_until_ns: u64,
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

    /// So long after a change the kernel has announced it at the latest, a tick of the program's clock
    /// included.
    ///
    /// It does so in the same system call, a moment after it has begun to use what is new. Who makes the
    /// call may be held in between: a control group that has used up its quota for the rest of its period,
    /// which is 100 ms unless somebody has set another (`cpu.max`), before it is put on a processor again.
    pub const ANNOUNCED_NS: u64 = 150_000_000;

    /// The record of what the kernel has answered, in the place of this one; `trust` is as it was before
    /// the kernel was asked.
    ///
    /// What serves more than one flow may be the answer of a longer route, or of a rule, that has come a
    /// moment ago and is no answer to the others: nobody knows until the agent has heard of all that had
    /// changed by then. So the record is believed from then on. One that has said the same before goes on.
    #[inline(always)]
    pub const fn followed_by(
        &self,
        (question, asked): (Question, &FibLookup),
        (answer, slot): (&FibLookup, u16),
        trust: &NextHopTrust,
        now_ns: u64,
    ) -> Self {
        let (beyond, vouched_until_ns) = if question.is_of_everything() {
            (asked.beyond(), 0)
        } else {
            let announced_ns = now_ns.wrapping_add(Self::ANNOUNCED_NS);
            ([0; 3], announced_ns.wrapping_add(NextHopTrust::PERIOD_NS))
        };
        let next = Self {
            question,
            beyond,
            generation: trust.generation,
            asked_ns: now_ns,
            vouched_until_ns,
            link: answer.link_addresses(),
            mtu: answer.mtu(),
            slot,
        };
        if self.said_as_much(&next) {
            Self {
                vouched_until_ns: self.vouched_until_ns,
                ..next
            }
        } else {
            next
        }
    }

    /// Tells if the agent has heard of all that had changed when the kernel was asked, where that matters.
    #[inline(always)]
    pub const fn is_believed(&self, trust: &NextHopTrust) -> bool {
        self.vouched_until_ns <= trust.until_ns
    }

    /// Tells if the record of a single flow may take the place of this one, while another serves many or
    /// will: not of one that does so itself, for it would never be believed where there are many flows.
    #[inline(always)]
    pub const fn yields_to_one_flow(&self, trust: &NextHopTrust, now_ns: u64) -> bool {
        self.question.is_of_everything()
            || self.generation.0 != trust.generation.0
            || now_ns.wrapping_sub(self.asked_ns) >= Self::LIFETIME_NS
    }

    /// Makes it the record of a single flow, with the answer that another has just got: in place, for a kernel
    /// program has no stack for one more.
    #[inline(always)]
    pub const fn take_answer(&mut self, (question, asked): (Question, &FibLookup), from: &Self) {
        self.question = question;
        self.beyond = asked.beyond();
        self.generation = from.generation;
        self.asked_ns = from.asked_ns;
        self.vouched_until_ns = 0;
        self.link = from.link;
        self.mtu = from.mtu;
        self.slot = from.slot;
    }

    /// Tells if the record gave the other one's answer to its question, and let no smaller packets pass.
    #[inline(always)]
    const fn said_as_much(&self, next: &Self) -> bool {
        // In words: of a comparison of arrays the compiler makes a call.
        let ([a, b, c], [d, e, f]) = (words(self.link), words(next.link));
        let differs = self.question.differs(&next.question)
            | differ(self.beyond, next.beyond)
            | (self.generation.0 ^ next.generation.0)
            | ((a ^ d) | (b ^ e) | (c ^ f)) as u64
            | (self.slot ^ next.slot) as u64;
        differs == 0 && next.mtu <= self.mtu
    }

    /// Tells if the record answers the question for the packet that was asked for now.
    #[inline(always)]
    pub fn answers<K: RoutingKey>(
        &self,
        (question, asked): (&Question, &K),
        trust: &NextHopTrust,
        now_ns: u64,
    ) -> bool {
        let differs = self.question.differs(question) | (self.generation.0 ^ trust.generation.0);
        // Another program's clock may be ahead of this one's.
        let age_ns = now_ns.wrapping_sub(self.asked_ns);
        differs == 0
            && (!question.is_of_everything() || differ(self.beyond, asked.beyond()) == 0)
            && age_ns < Self::LIFETIME_NS
            && self.is_believed(trust)
            && asked.packet_bytes() <= usize::from(self.mtu)
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
        readdress(frame, self.link)
    }
}

/// Zero when both are the same.
#[inline(always)]
const fn differ([a, b, c]: [u64; 3], [d, e, f]: [u64; 3]) -> u64 {
    (a ^ d) | (b ^ e) | (c ^ f)
}

#[inline(always)]
const fn words([a, b, c, d, e, f, g, h, i, j, k, l]: [u8; 12]) -> [u32; 3] {
    [
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
        u32::from_ne_bytes([i, j, k, l]),
    ]
}

/// The name of a neighbour that packets are sent to: its link address, and above it the place of the
/// device.
#[inline(always)]
pub const fn neighbour(link_address: Mac, slot: u32) -> u64 {
    link_address.bits() | (slot as u64) << 48
}

const _: () = assert!(size_of::<NextHop>() == 96);

#[cfg(test)]
mod tests;
