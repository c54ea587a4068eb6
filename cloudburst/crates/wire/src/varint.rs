//! Integers of variable length, as QUIC has them (RFC 9000 §16): the two highest bits say how many bytes.

/// Bytes of the longest.
const MOST_BYTES: usize = 8;

/// A number as it is written.
pub(super) struct Varint {
    bytes: [u8; MOST_BYTES],
    first: usize,
}

impl Varint {
    /// In as few bytes as it takes.
    pub(super) fn new(number: u32) -> Self {
        let number = u64::from(number);
        let (length, prefix) = match number {
            0..=0x3f => (1, 0),
            0x40..=0x3fff => (2, 0x40),
            0x4000..=0x3fff_ffff => (4, 0x80),
            _ => (MOST_BYTES, 0xc0),
        };
        let mut bytes = number.to_be_bytes();
        let first = MOST_BYTES.saturating_sub(length);
        bytes[first] |= prefix;
        Self { bytes, first }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.first..]
    }
}

/// Takes a number from the beginning of `bytes`; nothing, if it is cut off, does not fit, or is written in more bytes than it
/// takes, which QUIC allows: what is read here is written alike.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u32> {
    let length = match bytes.first()? >> 6 {
        0 => 1,
        1 => 2,
        2 => 4,
        _ => MOST_BYTES,
    };
    let (own, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let mut number = [0; MOST_BYTES];
    let place = &mut number[MOST_BYTES.saturating_sub(length)..];
    place.copy_from_slice(own);
    place[0] &= 0x3f;
    let number = u32::try_from(u64::from_be_bytes(number)).ok()?;
    (Varint::new(number).as_bytes() == own).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 9000 §A.1, as far as a number of 32 bits goes.
    #[test]
    fn numbers_are_as_in_the_examples_of_quic() {
        let cases: [(u32, &[u8]); 3] = [
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (15_293, &[0x7b, 0xbd]),
            (37, &[0x25]),
        ];
        for (number, bytes) in cases {
            assert_eq!(Varint::new(number).as_bytes(), bytes);
            assert_eq!(take(&mut &bytes[..]), Some(number));
        }
        let longer_than_it_takes = [0x40, 0x25];
        assert_eq!(take(&mut &longer_than_it_takes[..]), None);
        let too_large = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        assert_eq!(take(&mut &too_large[..]), None);
    }

    proptest! {
        #[test]
        fn numbers_come_back_and_none_that_is_cut_off(number: u32, rest: [u8; 3]) {
            let mut bytes = Varint::new(number).as_bytes().to_vec();
            prop_assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
            bytes.extend(rest);
            let mut left = &bytes[..];
            prop_assert_eq!(take(&mut left), Some(number));
            prop_assert_eq!(left, &rest[..]);
        }
    }
}
