//! What stands between the header and the body of a datagram with an offer.
//!
//! ```text
//!  24        25       26      28      68     84                          236 or 188
//! +---------+--------+-------+-------+------+--------------------- ... -+------ ... -+-----+
//! | pattern | key id | zeros | token | gate | offer                     | body       | tag |
//! +---------+--------+-------+-------+------+--------------------- ... -+------ ... -+-----+
//! ```

use super::{
    header::{Form, HEADER_BYTES, Header, Malformed},
    identity::PublicKey,
    keyring::SECRET_BYTES,
    noise::{Clear, EPHEMERAL_BYTES, Pattern},
    token::TOKEN_BYTES,
};

/// Bytes of the code that says that the sender knows whom it speaks to.
const GATE_BYTES: usize = 16;
/// What the gate's key is derived for; never to be used for anything else.
const GATE_CONTEXT: &str = "cloudburst v3 offer gate";
/// Bytes before the offer.
const START_BYTES: usize = 4 + TOKEN_BYTES + GATE_BYTES;

/// Bytes between header and body of a datagram with an offer of this pattern.
pub const fn hello_bytes(pattern: Pattern) -> usize {
    START_BYTES.saturating_add(pattern.offer_bytes())
}

/// Code that only who knows the responder's public key, or the shared secret, can make: it costs a
/// hash to refuse others, where reading an offer costs several multiplications on the curve (as
/// `mac1` of WireGuard).
#[derive(Clone)]
pub struct Gate([u8; 32]);

/// An offer as it arrived, of which nothing is known to be true.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'d> {
    /// What the offer's transcript begins with.
    pub clear: Clear,
    gate: &'d [u8; GATE_BYTES],
    /// The first message of the handshake, as long as its pattern has it.
    pub offer: &'d [u8],
}

impl Gate {
    /// Makes the gate of who has this public key.
    pub fn of_public(key: &PublicKey) -> Self {
        Self(blake3::derive_key(GATE_CONTEXT, key.as_bytes()))
    }

    /// Makes the gate of all who have this secret.
    pub fn of_secret(secret: &[u8; SECRET_BYTES]) -> Self {
        Self(blake3::derive_key(GATE_CONTEXT, secret))
    }

    fn code(&self, clear: &Clear, offer: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&[clear.pattern as u8, clear.key_id]);
        hasher.update(&clear.index.to_be_bytes());
        hasher.update(&clear.token).update(offer);
        hasher.finalize()
    }
}

impl<'d> Hello<'d> {
    /// Reads what follows the header of a datagram with an offer.
    ///
    /// # Errors
    ///
    /// [`Malformed::Prefix`] if it is no offer of a known pattern.
    pub fn parse(header: &Header, datagram: &'d [u8]) -> Result<Self, Malformed> {
        let malformed = Malformed::Prefix(Form::Offer);
        let rest = datagram.get(HEADER_BYTES..).ok_or(malformed)?;
        let (&[pattern, key_id, 0, 0], rest) = rest.split_first_chunk().ok_or(malformed)? else {
            return Err(malformed);
        };
        let pattern = Pattern::from_number(pattern).ok_or(malformed)?;
        let (token, rest) = rest.split_first_chunk().ok_or(malformed)?;
        let (gate, rest) = rest.split_first_chunk().ok_or(malformed)?;
        let offer = rest.get(..pattern.offer_bytes()).ok_or(malformed)?;
        let clear = Clear {
            pattern,
            key_id,
            index: header.session,
            token: *token,
        };
        Ok(Self { clear, gate, offer })
    }

    /// Returns the initiator's ephemeral key, which is of this offer alone.
    pub fn ephemeral(&self) -> Option<&'d [u8; EPHEMERAL_BYTES]> {
        self.offer.first_chunk()
    }

    /// Returns true if its sender knows whom it speaks to.
    pub fn passes(&self, gate: &Gate) -> bool {
        let code = gate.code(&self.clear, self.offer);
        // By way of `Hash`, whose comparison takes the same time wherever they differ.
        let mut given = *code.as_bytes();
        given[..GATE_BYTES].copy_from_slice(self.gate);
        code == given
    }

    /// Returns true if it brings a token.
    pub fn has_token(&self) -> bool {
        self.clear.token != [0; TOKEN_BYTES]
    }
}

/// Writes what stands between header and body around an offer.
pub fn write_hello(clear: &Clear, gate: &Gate, offer: &[u8]) -> Box<[u8]> {
    let code = gate.code(clear, offer);
    let mut bytes = Vec::with_capacity(START_BYTES.saturating_add(offer.len()));
    bytes.extend([clear.pattern as u8, clear.key_id, 0, 0]);
    bytes.extend(clear.token);
    bytes.extend(&code.as_bytes()[..GATE_BYTES]);
    bytes.extend(offer);
    bytes.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::{super::header::PacketKind, *};

    const HEADER: Header = Header {
        kind: PacketKind::Ping,
        form: Form::Offer,
        path: 1,
        sent_us: 2,
        session: 3,
        sequence: 4,
    };

    fn hello(pattern: Pattern) -> Vec<u8> {
        let clear = Clear {
            pattern,
            key_id: 5,
            index: HEADER.session,
            token: [6; TOKEN_BYTES],
        };
        let offer = vec![7; pattern.offer_bytes()];
        let written = write_hello(&clear, &Gate::of_secret(&[8; 32]), &offer);
        assert_eq!(written.len(), hello_bytes(pattern));
        [&HEADER.to_bytes()[..], &written].concat()
    }

    #[test]
    fn a_hello_is_read_as_it_was_written() {
        for pattern in [Pattern::KeyPair, Pattern::SharedKey] {
            let datagram = hello(pattern);
            let read = Hello::parse(&HEADER, &datagram).unwrap();
            assert_eq!((read.clear.pattern, read.clear.key_id), (pattern, 5));
            assert!(read.has_token() && read.offer.iter().all(|byte| *byte == 7));
            for shorter in 0..datagram.len() {
                assert!(Hello::parse(&HEADER, &datagram[..shorter]).is_err());
            }
        }
    }

    #[test]
    fn only_who_knows_the_responder_gets_past_its_gate() {
        let gate = Gate::of_secret(&[8; 32]);
        let datagram = hello(Pattern::KeyPair);
        let passes = |datagram: &[u8]| {
            Hello::parse(&HEADER, datagram).is_ok_and(|hello| hello.passes(&gate))
        };
        assert!(passes(&datagram));
        let other = Gate::of_secret(&[9; 32]);
        let read = Hello::parse(&HEADER, &datagram).unwrap();
        assert!(!read.passes(&other));
        for at in HEADER_BYTES..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            assert!(!passes(&changed), "byte {at}");
        }
        let moved = Header {
            session: 4,
            ..HEADER
        };
        assert!(!Hello::parse(&moved, &datagram).unwrap().passes(&gate));
    }
}
