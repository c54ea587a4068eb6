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

/// Bytes of a datagram that are not its body: they follow from its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    prefix_bytes: u16,
    is_sealed: bool,
}

impl Framing {
    /// A header, and behind all but symbols a check.
    pub const PLAIN: Self = Self {
        prefix_bytes: 0,
        is_sealed: false,
    };
    /// A header and a tag.
    pub const SEALED: Self = Self::sealed(0);

    /// A header, what stands between it and the body, and a tag.
    pub(super) const fn sealed(prefix_bytes: u16) -> Self {
        Self {
            prefix_bytes,
            is_sealed: true,
        }
    }

    /// Bytes before the body.
    pub(super) const fn start_bytes(self) -> usize {
        HEADER_BYTES.saturating_add(self.prefix_bytes as usize)
    }

    /// Bytes behind a body that is checked if it is not sealed.
    pub(super) const fn trailer_bytes(self, is_checked: bool) -> usize {
        match (self.is_sealed, is_checked) {
            (true, _) => TAG_BYTES,
            (false, true) => CHECK_BYTES,
            (false, false) => 0,
        }
    }
}

/// Length of the datagram with a symbol of `symbol_bytes`: 44 bytes more, or 60
/// if it is sealed with the keys of an association.
pub const fn symbol_datagram_bytes(symbol_bytes: usize, framing: Framing) -> usize {
    symbol_bytes.saturating_add(overhead(framing))
}

/// How long symbols can be in datagrams of `datagram_bytes`, or `None` if that
/// is below [`MIN_SYMBOL_BYTES`].
pub const fn symbol_bytes(datagram_bytes: usize, framing: Framing) -> Option<usize> {
    match datagram_bytes.checked_sub(overhead(framing)) {
        Some(bytes) if bytes >= MIN_SYMBOL_BYTES => Some(bytes),
        _ => None,
    }
}

/// Length of the shortest datagram of an [`Query`](super::Query), [`Ping`](super::Ping) or token:
/// 80 bytes, or 88 if it is sealed with the keys of an association.
pub const fn question_datagram_bytes(framing: Framing) -> usize {
    let own = framing
        .start_bytes()
        .saturating_add(framing.trailer_bytes(true));
    own.saturating_add(MIN_QUESTION_BYTES)
}

const fn overhead(framing: Framing) -> usize {
    let own = framing
        .start_bytes()
        .saturating_add(framing.trailer_bytes(false));
    own.saturating_add(SYMBOL_OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_each_others_inverse() {
        for sealed in [Framing::PLAIN, Framing::SEALED, Framing::sealed(212)] {
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
        assert_eq!(symbol_datagram_bytes(64, Framing::PLAIN), 108);
        assert_eq!(symbol_datagram_bytes(64, Framing::SEALED), 124);
        assert_eq!(question_datagram_bytes(Framing::PLAIN), 80);
        assert_eq!(question_datagram_bytes(Framing::SEALED), 88);
        assert_eq!(symbol_bytes(1_472, Framing::SEALED), Some(1_412));
    }
}
