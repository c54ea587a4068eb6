//! The datagrams by which two agents probe a tunnel.
//!
//! Request and reply have the same 68 bytes, so that no reply is larger than what asked for it:
//!
//! | bytes | |
//! |---|---|
//! | 0-3 | `SPH` and the version, 2 |
//! | 4 | 1 request, 2 reply |
//! | 5 | the prober's number of the tunnel, which the reply repeats |
//! | 6-7 | zero |
//! | 8-15 | the prober's nonce, new at each start of its agent |
//! | 16-23 | the responder's nonce; in a request 0 while it is not known |
//! | 24-31 | sequence number, from 1 |
//! | 32-35 | for how many ns the request was with the responder, which is no part of the path; in a request and where the responder does not know, 0 |
//! | 36-67 | BLAKE3 of all that, keyed |
//!
//! Numbers are big-endian. Another version is refused for what it is, before its code is looked at.

use std::time::Duration;

use splitter_config::MAX_TUNNELS;

use super::key::{CODE_BYTES, KeyRing, ProbeKey};

/// The length of every datagram.
pub const DATAGRAM_BYTES: usize = HEAD_BYTES + CODE_BYTES;

const HEAD_BYTES: usize = 36;
const MAGIC: [u8; 3] = *b"SPH";
const VERSION: u8 = 2;
const REQUEST: u8 = 1;
const REPLY: u8 = 2;

/// Identifies a run of an agent: a random number that nobody else chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub(super) u64);

impl Nonce {
    /// That of a responder that has not answered yet.
    pub(super) const UNKNOWN: Self = Self(0);

    /// Draws a new random number.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random::<u64>().max(1))
    }
}

/// A question or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Reply,
}

/// A datagram that its code has proved to be from a holder of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) kind: Kind,
    pub(super) tunnel: u8,
    pub(super) prober: Nonce,
    pub(super) responder: Nonce,
    pub(super) sequence: u64,
    /// For how long the request was with the responder; none where nobody knows.
    pub(super) stay: Option<Duration>,
}

/// Why a datagram was refused. None is ever answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It has another length or form.
    Malformed,
    /// Its code is not that of any key.
    Forged,
    /// It is one of our own that came back.
    Reflected,
    /// It was there before, or is too old to tell.
    Replayed,
    /// It answers nothing that was asked: another run of the agent, another tunnel, or long ago.
    Unasked,
    /// Its source has sent too many.
    RateLimited,
    /// It is of another version of these datagrams.
    Version,
}

impl Refusal {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 7] = [
        Self::Malformed,
        Self::Forged,
        Self::Reflected,
        Self::Replayed,
        Self::Unasked,
        Self::RateLimited,
        Self::Version,
    ];

    /// The value of the `reason` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Forged => "forged",
            Self::Reflected => "reflected",
            Self::Replayed => "replayed",
            Self::Unasked => "unasked",
            Self::RateLimited => "rate_limited",
            Self::Version => "version",
        }
    }
}

impl Datagram {
    /// The bytes to send.
    pub(super) fn seal(&self, key: &ProbeKey) -> [u8; DATAGRAM_BYTES] {
        let mut bytes = [0; DATAGRAM_BYTES];
        let (head, code) = bytes.split_at_mut(HEAD_BYTES);
        head[..3].copy_from_slice(&MAGIC);
        head[3] = VERSION;
        head[4] = match self.kind {
            Kind::Request => REQUEST,
            Kind::Reply => REPLY,
        };
        head[5] = self.tunnel;
        head[8..16].copy_from_slice(&self.prober.0.to_be_bytes());
        head[16..24].copy_from_slice(&self.responder.0.to_be_bytes());
        head[24..32].copy_from_slice(&self.sequence.to_be_bytes());
        head[32..36].copy_from_slice(&stay_ns(self.stay).to_be_bytes());
        code.copy_from_slice(&key.code(head));
        bytes
    }

    /// Reads what arrived, with the key that it was sealed with; form first, since that costs least.
    pub(super) fn open(bytes: &[u8], keys: &KeyRing) -> Result<(Self, ProbeKey), Refusal> {
        if bytes.starts_with(&MAGIC) && bytes.get(3).is_some_and(|it| *it != VERSION) {
            return Err(Refusal::Version);
        }
        let bytes: &[u8; DATAGRAM_BYTES] = bytes.try_into().map_err(|_| Refusal::Malformed)?;
        let (head, code) = bytes
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(Refusal::Malformed)?;
        let code: &[u8; CODE_BYTES] = code.try_into().map_err(|_| Refusal::Malformed)?;
        let datagram = Self::parse(head).ok_or(Refusal::Malformed)?;
        let key = keys.of_code(head, code).ok_or(Refusal::Forged)?;
        Ok((datagram, key))
    }

    fn parse(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = head.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        if head[..3] != MAGIC || head[3] != VERSION || head[6..8] != [0, 0] {
            return None;
        }
        let stay_ns = u32::from_be_bytes(head[32..36].try_into().ok()?);
        Some(Self {
            kind: match head[4] {
                REQUEST if stay_ns == 0 => Kind::Request,
                REPLY => Kind::Reply,
                _ => return None,
            },
            stay: (stay_ns > 0).then(|| Duration::from_nanos(stay_ns.into())),
            tunnel: Some(head[5]).filter(|it| usize::from(*it) < 2 * MAX_TUNNELS)?,
            prober: Nonce(number(8)?),
            responder: Nonce(number(16)?),
            sequence: number(24)?,
        })
    }
}

/// The time on the wire: 0 for none, and for one that does not fit, which an answer in time cannot have.
fn stay_ns(stay: Option<Duration>) -> u32 {
    let known = stay.map(|it| it.max(Duration::from_nanos(1)).as_nanos());
    known.and_then(|it| u32::try_from(it).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datagram() -> impl Strategy<Value = Datagram> {
        let parts = (any::<bool>(), 0..32_u8, any::<[u64; 3]>(), any::<u32>());
        parts.prop_map(|(request, tunnel, numbers, stay)| Datagram {
            kind: if request { Kind::Request } else { Kind::Reply },
            tunnel,
            prober: Nonce(numbers[0]),
            responder: Nonce(numbers[1]),
            sequence: numbers[2],
            stay: (!request && stay > 0).then(|| Duration::from_nanos(stay.into())),
        })
    }

    proptest! {
        #[test]
        fn opened_is_what_was_sealed(datagram in datagram()) {
            let key = ProbeKey::of(1);
            let opened = Datagram::open(&datagram.seal(&key), &KeyRing::of(&[2, 1]));
            prop_assert_eq!(opened, Ok((datagram, key.clone())));
            let other = Datagram::open(&datagram.seal(&key), &KeyRing::of(&[2]));
            prop_assert_eq!(other, Err(Refusal::Forged));
        }

        #[test]
        fn every_changed_bit_is_noticed(datagram in datagram(), bit in 0..DATAGRAM_BYTES * 8) {
            let key = ProbeKey::of(1);
            let mut bytes = datagram.seal(&key);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Datagram::open(&bytes, &KeyRing::of(&[1])).is_err());
        }

        #[test]
        fn whatever_arrives_is_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            begins_well: bool,
        ) {
            let mut bytes = bytes;
            if begins_well && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(b"SPH\x02\x02\x00\x00\x00");
                bytes.resize(DATAGRAM_BYTES, 0);
                prop_assert_eq!(Datagram::open(&bytes, &KeyRing::of(&[1])), Err(Refusal::Forged));
            } else {
                prop_assert!(Datagram::open(&bytes, &KeyRing::of(&[1])).is_err());
            }
        }
    }

    #[test]
    fn stay_that_does_not_fit_is_one_that_nobody_knows() {
        let written = |stay| stay_ns(Some(stay));
        assert_eq!(stay_ns(None), 0);
        // Not known and no time at all differ.
        assert_eq!(written(Duration::ZERO), 1);
        assert_eq!(written(Duration::from_secs(4)), 4_000_000_000);
        assert_eq!(written(Duration::from_secs(5)), 0);
    }

    #[test]
    fn lengths_versions_and_kinds_that_are_not_ours_are_malformed() {
        let key = ProbeKey::of(1);
        let datagram = Datagram {
            kind: Kind::Request,
            tunnel: 0,
            prober: Nonce(1),
            responder: Nonce::UNKNOWN,
            sequence: 1,
            stay: None,
        };
        let sealed = datagram.seal(&key);
        let open = |bytes: &[u8]| Datagram::open(bytes, &KeyRing::of(&[1]));
        assert_eq!(open(&sealed[..DATAGRAM_BYTES - 1]), Err(Refusal::Malformed));
        assert_eq!(open(&[&sealed[..], &[0]].concat()), Err(Refusal::Malformed));
        for (at, value) in [(0, 1), (4, 3), (5, 32), (6, 1), (7, 1), (35, 1)] {
            let mut bytes = sealed;
            bytes[at] = value;
            assert_eq!(open(&bytes), Err(Refusal::Malformed), "byte {at}");
        }
        // Of whatever length.
        assert_eq!(open(b"SPH\x01"), Err(Refusal::Version));
        for version in [0, 1, 3, 255] {
            let mut bytes = sealed;
            bytes[3] = version;
            assert_eq!(open(&bytes), Err(Refusal::Version), "{version}");
            assert_eq!(open(&bytes[..64]), Err(Refusal::Version), "{version}");
        }
    }
}
