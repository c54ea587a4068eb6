//! How many leading bits of a destination routing looks at, so that one [record] serves all
//! destinations for which the kernel has the same answer.
//!
//! Routing looks for the longest prefix that holds a destination. Two destinations that agree in as many
//! bits as the longest prefix near them has are therefore routed alike, in every table at once:
//! whatever prefix holds one of them holds the other. With nothing but a default route that is no bit
//! at all, and with a full table of the Internet most of the time 24. Where the answer says more than the prefix, as on
//! a link whose stations are the next hops themselves, the whole destination counts, and where a
//! route spreads flows, all of the packet.
//!
//! What lies near a destination is looked up in two steps. Its first octet says how many bits count, or
//! that they differ within: then a *granule* does, the destination's first 24 bits (IPv6: 64) by their
//! hash. Granules of one hash, and prefixes that hold too many granules to list, only make the
//! number larger. A larger number is right, too: it splits destinations that are routed alike.
//!
//! [record]: crate::next_hop

use core::net::IpAddr;

/// Names what the answer of routing depends on below a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The prefix alone: all of it has one next hop, or none.
    Prefix,
    /// The destination: it is its own next hop, or the path to it has an MTU of its own.
    Destination,
    /// The whole packet: flows are spread by a hash, or told apart by their source.
    Flow,
}

/// The number of leading bits of a destination that routing looks at, or more than that, with the family
/// that the destination is of.
///
/// Zero is the whole packet, so that what nobody has written tells everything apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchedBits(u8);

impl MatchedBits {
    /// The bits of the whole packet, which routing may look at.
    pub const EVERYTHING: Self = Self(EVERYTHING);

    /// All of the destination.
    #[cfg(test)]
    pub(crate) const DESTINATION: Self = Self(V6.all);

    /// Reads a [number](Self::number) in the lower bits of a byte.
    #[inline(always)]
    pub(crate) const fn numbered(byte: u8) -> Self {
        Self(byte & Self::LARGEST)
    }

    /// The largest number: no bit above it is ever set.
    pub(crate) const LARGEST: u8 = 0x7f;

    /// Tells if routing looks at the whole packet.
    #[inline(always)]
    pub const fn is_everything(self) -> bool {
        self.0 == EVERYTHING
    }

    /// The number as it is noted: not the bits themselves, but another one for each of their numbers in each
    /// family.
    #[inline(always)]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The bits of a destination that count, as its bytes lie in two words.
    #[inline(always)]
    pub const fn masks(self) -> [u64; 2] {
        // One load each; to make them takes three times as many instructions.
        MASKS[(self.0 & Self::LARGEST) as usize]
    }
}

/// No `static`: the name of one in an object would depend on the directory that it was built in.
const MASKS: &[[u64; 2]; MatchedBits::LARGEST as usize + 1] = &{
    let mut masks = [[u64::MAX; 2]; MatchedBits::LARGEST as usize + 1];
    let mut bits = 0;
    while bits <= 64 {
        let high = match u64::MAX.checked_shr(bits) {
            Some(below) => !below,
            None => u64::MAX,
        };
        if bits <= 32 {
            masks[V4.no_bit as usize + bits as usize] = [high.to_be(), 0];
        }
        masks[V6.no_bit as usize + bits as usize] = [high.to_be(), 0];
        bits += 1;
    }
    masks
};

const EVERYTHING: u8 = 0;
/// In the place of an octet: see the granule.
const SEE_GRANULE: u8 = MatchedBits::LARGEST;

/// The numbers of a family: after that of no bit those of more.
struct Numbers {
    no_bit: u8,
    /// Up to so many bits are told apart.
    counted_bits: u8,
    /// The number of more bits than these, which count as all.
    all: u8,
}

const V4: Numbers = Numbers {
    no_bit: 1,
    counted_bits: 32,
    all: 33,
};
const V6: Numbers = Numbers {
    no_bit: 40,
    counted_bits: 64,
    all: 105,
};
const FAMILIES: [Numbers; 2] = [V4, V6];

/// The numbers of granules' hashes.
const GRANULES: usize = 1 << GRANULE_BITS;
const GRANULE_BITS: u32 = 14;
/// The bits of a granule, of either family.
const GRANULE_LENGTHS: [u8; 2] = [24, 64];
/// Prefixes of more granules than 2^8 are not listed by them.
const LISTED_BITS: u8 = 8;

/// The number of bits by destination; a value of the map that the agent writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLengths {
    /// By the first octet, of IPv4 and of IPv6.
    octets: [[u8; 256]; 2],
    granules: [[u8; GRANULES]; 2],
}

impl PrefixLengths {
    /// Routing may look at everything. Made of zeros, as what nobody has written: so each byte of it, and of
    /// what is written over it, is right while others are yet to come.
    pub const EVERYTHING: Self = Self {
        octets: [[EVERYTHING; 256]; 2],
        granules: [[EVERYTHING; GRANULES]; 2],
    };

    /// The number for a destination as its bytes lie in two words, those of IPv4 in the first half of the first.
    #[inline(always)]
    pub const fn of(&self, is_v6: bool, destination: u64) -> MatchedBits {
        let (octets, granules, granule) = if is_v6 {
            (&self.octets[1], &self.granules[1], destination)
        } else {
            let granule = destination & V4_GRANULE;
            (&self.octets[0], &self.granules[0], granule)
        };
        let [octet, ..] = destination.to_ne_bytes();
        let bits = match octets[octet as usize] {
            SEE_GRANULE => granules[granule_index(granule)],
            bits => bits,
        };
        MatchedBits(bits)
    }
}

/// Where the first three bytes of a word lie.
const V4_GRANULE: u64 = u64::from_ne_bytes([255, 255, 255, 0, 0, 0, 0, 0]);

#[inline(always)]
const fn granule_index(granule: u64) -> usize {
    // An odd number without a pattern.
    let mixed = granule.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - GRANULE_BITS)) as usize
}

/// Collects the prefixes of all tables and rules that packets may meet.
#[derive(Clone, Debug)]
pub struct PrefixLengthsBuilder {
    /// The numbers so far, by octets and granules.
    near: [[u8; 256]; 2],
    granules: [[u8; GRANULES]; 2],
    /// Of prefixes that are not listed by their granules.
    wide: [u8; 2],
}

/// While they are collected, the largest number is that of everything.
const EVERYTHING_YET: u8 = u8::MAX;

impl PrefixLengthsBuilder {
    /// Begins without any prefix.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            near: [[V4.no_bit; 256], [V6.no_bit; 256]],
            granules: [[V4.no_bit; GRANULES], [V6.no_bit; GRANULES]],
            wide: [V4.no_bit, V6.no_bit],
        }
    }

    /// Adds a prefix: of a route, whatever it does with packets, or of a rule. Bits behind its `length` do
    /// not matter, and a length beyond the address counts as all of it.
    pub fn add(&mut self, address: IpAddr, length: u8, reach: Reach) {
        let (family, first, all) = match address {
            IpAddr::V4(v4) => (0, u64::from(v4.to_bits()) << 32, 32),
            IpAddr::V6(v6) => (1, (v6.to_bits() >> 64) as u64, 128),
        };
        let length = length.min(all);
        let numbers = &FAMILIES[family];
        let number = match reach {
            Reach::Prefix if length <= numbers.counted_bits => numbers.no_bit + length,
            Reach::Prefix | Reach::Destination => numbers.all,
            Reach::Flow => EVERYTHING_YET,
        };
        let near = &mut self.near[family];
        for octet in parts(first, length, 8) {
            raise(&mut near[(octet >> 56) as usize], number);
        }
        let granule_length = GRANULE_LENGTHS[family];
        if length.saturating_add(LISTED_BITS) < granule_length {
            raise(&mut self.wide[family], number);
            return;
        }
        let granules = &mut self.granules[family];
        for granule in parts(first, length, granule_length) {
            raise(&mut granules[granule_index(granule.to_be())], number);
        }
    }

    /// Returns the numbers for all destinations.
    #[must_use]
    pub fn build(mut self) -> PrefixLengths {
        for (address, length) in KNOWN_WITHOUT_A_ROUTE {
            self.add(address, length, Reach::Prefix);
        }
        let Self {
            near: mut octets,
            mut granules,
            wide,
        } = self;
        for ((octets, granules), wide) in octets.iter_mut().zip(&mut granules).zip(wide) {
            for number in granules.iter_mut() {
                raise(number, wide);
                *number = noted(*number);
            }
            for number in octets.iter_mut() {
                // Granules tell of no fewer.
                *number = if *number > wide {
                    SEE_GRANULE
                } else {
                    noted(*number)
                };
            }
        }
        PrefixLengths { octets, granules }
    }
}

impl Default for PrefixLengthsBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// The kernel's lookup for programs passes over routes for these (`rt6_need_strict` of net/ipv6/route.c).
const KNOWN_WITHOUT_A_ROUTE: [(IpAddr, u8); 3] = {
    use core::net::Ipv6Addr;
    const fn v6(first: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0))
    }
    [
        (v6(0xfe80), 10),
        (v6(0xff00), 8),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    ]
};

/// The parts of `part_length` bits that have something in common with a prefix, at the upper end of a
/// word: the one that it lies in, or all that lie in it.
fn parts(first: u64, length: u8, part_length: u8) -> impl Iterator<Item = u64> {
    let beside = 64 - u32::from(part_length);
    let count = 1 << part_length.saturating_sub(length);
    let begin = (first >> beside) & !(count - 1);
    (begin..=begin + (count - 1)).map(move |part| part << beside)
}

fn raise(number: &mut u8, to: u8) {
    *number = (*number).max(to);
}

const fn noted(number: u8) -> u8 {
    match number {
        EVERYTHING_YET => EVERYTHING,
        number => number,
    }
}

#[cfg(test)]
mod tests;
