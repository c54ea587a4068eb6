//! Explicit congestion notification: marks of datagrams, and counts of those that arrived.

/// Explicit congestion notification (ECN, RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ecn {
    /// Takes no part in it, or nothing is known. ECT(1), which nobody sends here, counts as this: a network that
    /// makes it of ECT(0) is found out so.
    #[default]
    NotCapable,
    /// The datagram may be marked: ECT(0).
    Capable,
    /// Was marked on the way: CE.
    CongestionExperienced,
}

/// Counts datagrams by what they arrived with, for who sent them (RFC 9000 §13.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Datagrams that arrived as ECT(0) or CE so far, modulo 2^32.
    pub capable: u32,
    /// Those of them that arrived as CE, modulo 2^32.
    pub marked: u32,
}

impl EcnCounts {
    /// Counts a datagram that has arrived.
    pub const fn count(&mut self, ecn: Ecn) {
        if matches!(ecn, Ecn::NotCapable) {
            return;
        }
        self.capable = self.capable.wrapping_add(1);
        if matches!(ecn, Ecn::CongestionExperienced) {
            self.marked = self.marked.wrapping_add(1);
        }
    }
}
