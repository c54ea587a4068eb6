//! The header in front of every symbol: 12 bytes (Cloudburst §III-A, §IV-A).
//!
//! ```text
//!  bits 0..64                          64..72  72..78  78..95  95
//! +-----------------------------------+-------+-------+-------+------+
//! | row                               | id    | n - 1 | size  | flag |
//! +-----------------------------------+-------+-------+-------+------+
//! ```
//!
//! All in network byte order. `n` is the number of source symbols of the block
//! that the row is of, `size` the message's length in bytes, its lower 17 bits.
//!
//! With flag 0, the paper's format, `row` is a set of bits: bit *i* (counted
//! from the least) tells whether source symbol *i* is part of the sum. A
//! message has one block then. With flag 1 the row has a name instead:
//!
//! ```text
//!  0..4   4..16      16..24       24..32   32..48   48..64
//! +------+----------+------------+--------+--------+--------+
//! | code | reserved | size >> 17 | block  | index  | seed   |
//! +------+----------+------------+--------+--------+--------+
//! ```

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;

const SIZE_BITS: u32 = 17;
const LOW_SIZE: u32 = (1 << SIZE_BITS) - 1;

/// Holds what a header says, once it is known to be well-formed in itself. Whether it
/// fits its message is for the [`Decoder`](crate::Decoder) to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Tells messages of one sender apart; used again after 256 messages.
    pub id: u8,
    /// Source symbols of the row's block, 1 to 64.
    pub block_symbols: u8,
    /// Length of the message in bytes, up to
    /// [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES).
    pub message_bytes: u32,
    /// The sum of source symbols that follows.
    pub row: Row,
}

/// How a header tells which sum of source symbols follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The exclusive or of the source symbols whose bit is set.
    Bits(u64),
    /// Row `index` of a code, of block `block`.
    Named {
        /// The code that the row is of.
        code: Code,
        /// The block, counted from 0.
        block: u8,
        /// Below the block's number of source symbols it is that symbol itself.
        index: u16,
        /// The seed that rows of this message are drawn with.
        seed: u16,
    },
}

/// A code whose rows have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Exclusive or over seeded rows; see [`code::default_row`](crate::default_row).
    Binary,
    /// Sums over GF(256) with a Cauchy matrix.
    Cauchy,
}

impl Code {
    const fn number(self) -> u64 {
        match self {
            Self::Binary => 0,
            Self::Cauchy => 1,
        }
    }
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("a datagram of {0} bytes has no room for a header of {HEADER_BYTES}")]
    Truncated(usize),
    /// The row is of a code that this version does not know.
    #[error("code {0} is not known; the sender may be of a later version")]
    UnknownCode(u8),
    /// Bits are set that mean nothing yet.
    #[error("reserved bits are set; the sender may be of a later version")]
    Reserved,
}

impl Header {
    /// Writes the header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let high = u64::from(self.message_bytes >> SIZE_BITS);
        let (row, flag) = match self.row {
            Row::Bits(bits) => (bits, 0),
            Row::Named {
                code,
                block,
                index,
                seed,
            } => {
                let row = code.number() << 60
                    | high << 40
                    | u64::from(block) << 32
                    | u64::from(index) << 16
                    | u64::from(seed);
                (row, 1)
            }
        };
        let low_size = self.message_bytes & LOW_SIZE;
        let tail = u32::from(self.id) << 24
            | u32::from(self.block_symbols.wrapping_sub(1) & 63) << 18
            | low_size << 1
            | flag;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&row.to_be_bytes());
        bytes[8..].copy_from_slice(&tail.to_be_bytes());
        bytes
    }

    /// Reads the header of a datagram; what follows it is the symbol.
    ///
    /// # Errors
    ///
    /// See [`HeaderError`].
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let truncated = HeaderError::Truncated(datagram.len());
        let (row, rest) = datagram.split_first_chunk().ok_or(truncated)?;
        let (tail, symbol) = rest.split_first_chunk().ok_or(truncated)?;
        let row = u64::from_be_bytes(*row);
        let tail = u32::from_be_bytes(*tail);
        let low_size = (tail >> 1) & LOW_SIZE;
        let (row, high_size) = if tail & 1 == 0 {
            (Row::Bits(row), 0)
        } else {
            named(row)?
        };
        let header = Self {
            id: (tail >> 24) as u8,
            block_symbols: ((tail >> 18 & 63) as u8).saturating_add(1),
            message_bytes: high_size << SIZE_BITS | low_size,
            row,
        };
        Ok((header, symbol))
    }
}

/// The row and the upper bits of the size.
fn named(row: u64) -> Result<(Row, u32), HeaderError> {
    let code = match row >> 60 {
        0 => Code::Binary,
        1 => Code::Cauchy,
        unknown => return Err(HeaderError::UnknownCode(unknown as u8)),
    };
    if row >> 48 & 0xfff != 0 {
        return Err(HeaderError::Reserved);
    }
    let named = Row::Named {
        code,
        block: (row >> 32) as u8,
        index: (row >> 16) as u16,
        seed: row as u16,
    };
    Ok((named, (row >> 40) as u32 & 0xff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows() -> impl Strategy<Value = Row> {
        let code = prop_oneof![Just(Code::Binary), Just(Code::Cauchy)];
        prop_oneof![
            any::<u64>().prop_map(Row::Bits),
            (code, any::<u8>(), any::<u16>(), any::<u16>()).prop_map(
                |(code, block, index, seed)| Row::Named {
                    code,
                    block,
                    index,
                    seed
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn headers_come_back(id: u8, block_symbols in 1u8..=64, bytes in 0u32..1 << 25, row in rows()) {
            let message_bytes = match row {
                Row::Bits(_) => bytes & 0x1_ffff,
                Row::Named { .. } => bytes,
            };
            let header = Header { id, block_symbols, message_bytes, row };
            let bytes = header.to_bytes();
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &[][..])));
        }

        #[test]
        fn whatever_parses_is_written_alike(bytes: [u8; HEADER_BYTES]) {
            if let Ok((header, _)) = Header::parse(&bytes) {
                prop_assert_eq!(header.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn layout_is_that_of_the_documentation() {
        let header = Header {
            id: 0xab,
            block_symbols: 64,
            message_bytes: 93_440,
            row: Row::Bits(0x8000_0000_0000_0001),
        };
        // 93,440 = 0x16d00; (63 << 18 | 0x16d00 << 1) = 0xfeda00
        let expected = [0x80, 0, 0, 0, 0, 0, 0, 1, 0xab, 0xfe, 0xda, 0x00];
        assert_eq!(header.to_bytes(), expected);
    }

    #[test]
    fn a_message_of_the_papers_greatest_size_fits() {
        // 64 symbols of what an Ethernet frame leaves after IP, UDP and this header.
        assert_eq!(1500 - 20 - 8 - HEADER_BYTES, 1460);
        const { assert!(64 * 1460 < 1 << SIZE_BITS) }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(Header::parse(&[0; 11]), Err(HeaderError::Truncated(11)));
        let mut bytes = [0; 12];
        bytes[11] = 1;
        bytes[0] = 0x20;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::UnknownCode(2)));
        bytes[0] = 0x10;
        bytes[1] = 1;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Reserved));
    }
}
