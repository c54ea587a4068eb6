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

    /// A hash of the packet's flow, which only those who know the seed can foresee.
    #[inline(always)]
    fn flow_hash(&self, seed: u64) -> u32 {
        // Odd, and without a pattern.
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |mixed: u64, word: u64| {
            let mixed = (mixed ^ word).wrapping_mul(FACTOR);
            mixed ^ mixed >> 32
        };
        let ([a, b], [ports, c, d]) = (self.destination(), self.beyond());
        let mixed = mix(mix(mix(mix(mix(seed, a), b), c), d), ports);
        (mixed.wrapping_mul(FACTOR) >> 32) as u32
    }
}
