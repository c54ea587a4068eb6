//! Transfers, of which collective operations consist.

/// One transfer between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transfer {
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// Bytes that it carries.
    pub bytes: u64,
    /// Which one of the operation's it is: a step of a ring, a chunk of a tree with its direction, a distance.
    pub tag: u32,
}

/// One of `parts` parts of a buffer: the first ones have a byte more where it cannot be divided evenly.
pub(crate) fn part_of(bytes: u64, parts: u32, index: u32) -> u64 {
    let parts = u64::from(parts);
    bytes / parts + u64::from(u64::from(index) < bytes % parts)
}
