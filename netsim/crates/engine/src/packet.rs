//! Packets and the slab that holds them.
//!
//! A packet on its way has exactly one event pending, its arrival at the other end of the link it
//! is on, so the number of its entry is the event. An entry has 32 bytes, two to a cache line, and
//! lists of queued packets are chained through the entries themselves: nothing is allocated for a
//! packet once the slab has grown to what is in flight.

use flow_balance::ttl::Level;

/// The end of a list, and "no packet".
pub const NONE: u32 = u32::MAX;

/// The kind of an entry of the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// An entry that is free.
    Free,
    /// A data segment of a flow.
    Data,
    /// A cumulative acknowledgement (ACK).
    Ack,
    /// The retransmission timer of `flow`.
    Timer,
    /// The transmitter of port `link` may take its next packet.
    PortFree,
    /// The next message of the workload is due.
    Start,
    /// A datagram of another transport than the simulator's own; `seq` is its index among
    /// datagrams.
    Datagram,
    /// A wake-up that host `to` has asked for.
    Wake,
    /// A credit: leave to send one segment of its flow (ExpressPass).
    Credit,
    /// A sender asks for credits.
    CreditRequest,
    /// A sender has sent all it had, and wants no more credits; `seq` is the number of its segments.
    CreditStop,
}

impl EntryKind {
    /// Returns whether it travels, and is no event.
    #[inline]
    pub fn is_packet(self) -> bool {
        match self {
            Self::Data
            | Self::Ack
            | Self::Datagram
            | Self::Credit
            | Self::CreditRequest
            | Self::CreditStop => true,
            Self::Free | Self::Timer | Self::PortFree | Self::Start | Self::Wake => false,
        }
    }
}

/// A packet, or another event.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Packet {
    /// The next entry of the list that this one is in.
    pub next: u32,
    /// The flow it belongs to.
    pub flow: u32,
    /// Data: the segment's number. Ack: the first segment still missing. Datagram: its index among
    /// datagrams. Credit that is sent again for a loss: the segment that is missing.
    pub seq: u32,
    /// Data, datagrams: ns spent queued in switches so far. Ack: the segment that made the receiver answer.
    pub aux: u32,
    /// Time stamp of the sender, in ns modulo 2^32; an ACK echoes it (RFC 7323), and data that of its credit.
    pub stamp: u32,
    /// On the wire, headers included.
    pub bytes: u16,
    /// The link it is on, named by the port that sends on it.
    pub link: u16,
    /// The host it goes to.
    pub to: u16,
    /// Credit: its number in its flow, modulo 2^16. Data: that of the credit it was sent for. Ack: by which it is known
    /// what it reports beside `aux`.
    pub credit: u16,
    /// The lower bits are [`flag`]s, the upper three the priority.
    flags: u8,
    kind: EntryKind,
    far: Level,
}

/// Bits of a packet's flags.
pub mod flag {
    /// ECN-capable transport (RFC 3168).
    pub const ECT: u8 = 1;
    /// Data: congestion experienced. Ack: the echo of it.
    pub const CE: u8 = 2;
    /// Has been sent before.
    pub const RETRANSMITTED: u8 = 4;
    /// Ack: what made the receiver answer had come before (DSACK, RFC 2883).
    pub const DUPLICATE: u8 = 8;
    pub(super) const ALL: u8 = 0b1_1111;
    pub(super) const PRIORITY_SHIFT: u8 = 5;
}

/// Priorities that fit into a packet; 0 is the most urgent.
pub const PRIORITIES: u8 = 8;

impl Packet {
    /// Creates an entry of that kind, of no flow and in no list.
    #[inline]
    pub fn new(kind: EntryKind) -> Self {
        Self {
            next: NONE,
            flow: NONE,
            seq: 0,
            aux: 0,
            stamp: 0,
            bytes: 0,
            link: 0,
            to: 0,
            credit: 0,
            flags: 0,
            kind,
            far: Level::default(),
        }
    }

    /// Returns the kind of the entry.
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.kind
    }

    /// Returns whether queueing delay in switches is added up in it.
    #[inline]
    pub fn counts_waiting(&self) -> bool {
        matches!(self.kind(), EntryKind::Data | EntryKind::Datagram)
    }

    /// Returns how full the spine's port was, as an ACK carries it in 5 bits of its TTL (TR, A-T2).
    /// The rest of the TTL has no part here: hosts look at nothing of it.
    #[inline]
    pub fn far(&self) -> Level {
        self.far
    }

    /// Writes the level that [`far`](Self::far) reads.
    #[inline]
    pub fn set_far(&mut self, level: Level) {
        self.far = level;
    }

    /// Returns whether it has that [`flag`].
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sets that [`flag`], or takes it away.
    #[inline]
    pub fn set(&mut self, flag: u8, on: bool) {
        self.flags = (self.flags & !flag) | if on { flag } else { 0 };
    }

    /// Returns its priority; 0 is the most urgent.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.flags >> flag::PRIORITY_SHIFT
    }

    /// Writes a priority; beyond the last it is the last.
    #[inline]
    pub fn set_priority(&mut self, priority: u8) {
        let priority = priority.min(PRIORITIES - 1);
        self.flags = (self.flags & flag::ALL) | (priority << flag::PRIORITY_SHIFT);
    }
}

/// All packets and events there are.
#[derive(Debug)]
pub struct Slab {
    entries: Vec<Packet>,
    free: u32,
    used: u32,
}

impl Default for Slab {
    fn default() -> Self {
        Self::new()
    }
}

impl Slab {
    /// Creates an empty slab.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    /// Takes an entry and returns its number.
    #[inline]
    pub fn insert(&mut self, packet: Packet) -> u32 {
        self.used += 1;
        if self.free == NONE {
            self.entries.push(packet);
            self.entries.len() as u32 - 1
        } else {
            let id = self.free;
            let entry = &mut self.entries[id as usize];
            self.free = entry.next;
            *entry = packet;
            id
        }
    }

    /// Gives an entry back; it must be in no list.
    #[inline]
    pub fn remove(&mut self, id: u32) {
        self.used -= 1;
        let entry = &mut self.entries[id as usize];
        debug_assert_ne!(entry.kind(), EntryKind::Free, "entry {id} is freed twice");
        entry.kind = EntryKind::Free;
        entry.next = self.free;
        self.free = id;
    }

    /// Entries of a kind; for checks, it looks at all of them.
    pub fn count(&self, kind: EntryKind) -> u64 {
        self.entries.iter().filter(|it| it.kind() == kind).count() as u64
    }

    /// Entries that are packets, and no events; for checks, it looks at all of them.
    pub fn count_packets(&self) -> u64 {
        let packets = self.entries.iter().filter(|it| it.kind().is_packet());
        packets.count() as u64
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Packet;
    #[inline]
    fn index(&self, id: u32) -> &Packet {
        &self.entries[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Packet {
        &mut self.entries[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_packets_fit_into_a_cache_line() {
        assert_eq!(size_of::<Packet>(), 32);
    }

    #[test]
    fn packed_fields_do_not_touch_each_other() {
        let mut packet = Packet::new(EntryKind::Ack);
        packet.set(flag::ECT, true);
        packet.set_priority(5);
        packet.set_far(Level::new(31).expect("the highest"));
        packet.set(flag::CE, true);
        packet.set(flag::ECT, false);
        assert_eq!(packet.kind(), EntryKind::Ack);
        assert_eq!((packet.far().number(), packet.priority()), (31, 5));
        assert!(packet.has(flag::CE) && !packet.has(flag::ECT));
    }

    #[test]
    fn entries_are_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert(Packet::new(EntryKind::Data));
        let second = slab.insert(Packet::new(EntryKind::Ack));
        slab.remove(first);
        assert_eq!(slab.insert(Packet::new(EntryKind::Timer)), first);
        assert_eq!(slab[second].kind(), EntryKind::Ack);
        assert_eq!(
            (slab.count(EntryKind::Timer), slab.count(EntryKind::Data)),
            (1, 0)
        );
    }
}
