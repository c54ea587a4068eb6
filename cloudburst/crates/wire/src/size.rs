//! How long datagrams are.

use super::header::HEADER_BYTES;
use cloudburst_code::wire;

/// Bytes that sealing adds to a datagram.
pub const TAG_BYTES: usize = 16;
/// Bytes that the check adds to a datagram that is neither sealed nor a symbol.
pub const CHECK_BYTES: usize = 8;
/// Shorter symbols are not sent and not taken: a datagram must be at least as
/// long as the answer to it. Messages that are shorter get zeros by the code.
pub const MIN_SYMBOL_BYTES: usize = 64;
/// The shortest body of an [`Query`](super::Query), [`Ping`](super::Ping) or token:
/// as long as a [`Challenge`](super::Challenge), which answers all of them.
pub const MIN_QUESTION_BYTES: usize = 48;

/// The message's number and the code's header.
pub(super) const SYMBOL_OVERHEAD: usize = 8 + wire::HEADER_BYTES;

/// Length of the datagram with a symbol of `symbol_bytes`: 44 bytes more, or 60
/// if it is `sealed`.
pub const fn symbol_datagram_bytes(symbol_bytes: usize, sealed: bool) -> usize {
    symbol_bytes + overhead(sealed)
}

/// How long symbols can be in datagrams of `datagram_bytes`, or `None` if that
/// is below [`MIN_SYMBOL_BYTES`].
pub const fn symbol_bytes(datagram_bytes: usize, sealed: bool) -> Option<usize> {
    match datagram_bytes.checked_sub(overhead(sealed)) {
        Some(bytes) if bytes >= MIN_SYMBOL_BYTES => Some(bytes),
        _ => None,
    }
}

/// Length of the shortest datagram of an [`Query`](super::Query), [`Ping`](super::Ping) or token:
/// 80 bytes, or 88 if it is `sealed`.
pub const fn question_datagram_bytes(sealed: bool) -> usize {
    HEADER_BYTES + MIN_QUESTION_BYTES + if sealed { TAG_BYTES } else { CHECK_BYTES }
}

const fn overhead(sealed: bool) -> usize {
    HEADER_BYTES + SYMBOL_OVERHEAD + if sealed { TAG_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_each_others_inverse() {
        for sealed in [false, true] {
            for bytes in MIN_SYMBOL_BYTES..9_000 {
                let datagram = symbol_datagram_bytes(bytes, sealed);
                assert_eq!(symbol_bytes(datagram, sealed), Some(bytes));
            }
            let least = symbol_datagram_bytes(MIN_SYMBOL_BYTES, sealed);
            assert_eq!(symbol_bytes(least - 1, sealed), None);
            assert_eq!(symbol_bytes(0, sealed), None);
        }
    }

    #[test]
    fn sizes_are_those_of_the_documentation() {
        assert_eq!(symbol_datagram_bytes(64, false), 108);
        assert_eq!(symbol_datagram_bytes(64, true), 124);
        assert_eq!(question_datagram_bytes(false), 80);
        assert_eq!(question_datagram_bytes(true), 88);
        assert_eq!(symbol_bytes(1_472, true), Some(1_412));
    }
}
