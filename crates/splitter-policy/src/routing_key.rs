//! The part of a packet that the kernel's routing may look at, from wherever it is read.

/// The fields of a packet that routing may look at, in words.
pub trait RoutingKey {
    /// The device that it came in by, and above it the first bytes of the header.
    fn place(&self) -> u64;

    /// Its destination, that of IPv4 in the first half of the first word.
    fn destination(&self) -> [u64; 2];

    /// Its address family, protocol and ports, and its source.
    fn beyond(&self) -> [u64; 3];

    /// The protocol that it carries.
    fn protocol(&self) -> u8;

    /// Its bytes, from the IP header on.
    fn packet_bytes(&self) -> usize;
}
