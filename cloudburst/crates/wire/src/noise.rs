//! Handshake of an association: Noise (revision 34) with early data.
//!
//! ```text
//! key pairs                            shared key
//! Noise_IK_25519_ChaChaPoly_BLAKE2s    Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s
//!   <- s                                 -> psk, e    offer
//!   -> e, es, s, ss    offer             <- e, ee     acceptance
//!   <- e, ee, se       acceptance
//! ```
//!
//! The first message offers a fresh early secret, by which the datagrams that carry it are sealed;
//! the second ends the exchange. All of it that is sent in clear is in the prologue.

use core::fmt;

use snow::{
    Builder, HandshakeState,
    params::{CipherChoice, DHChoice, HashChoice},
    resolvers::{CryptoResolver, DefaultResolver},
    types::{Cipher, Dh, Hash, Random},
};
use zeroize::Zeroize;

use super::{
    header::VERSION,
    identity::{IDENTITY_BYTES, PublicKey, SecretKey},
    keyring::SECRET_BYTES,
    size::TAG_BYTES,
    token::TOKEN_BYTES,
};

/// Bytes of a public ephemeral key, with which each message of a handshake begins.
pub const EPHEMERAL_BYTES: usize = 32;
/// Bytes of the offer's payload: early secret, time, conversation, age of the oldest message.
const OFFER_PAYLOAD_BYTES: usize = 32 + 8 + 8 + 8;
/// Bytes of the acceptance's payload: index, conversation and uptime of the responder.
const ACCEPTANCE_PAYLOAD_BYTES: usize = 8 + 8 + 8;
/// Bytes of the acceptance, which is as long with either pattern.
pub const ACCEPTANCE_BYTES: usize = EPHEMERAL_BYTES + ACCEPTANCE_PAYLOAD_BYTES + TAG_BYTES;
/// The uptime of a responder before which nobody can have run at its addresses.
pub const NOBODY_BEFORE: u64 = u64::MAX;
/// What the early key is derived for; never to be used for anything else.
const EARLY_CONTEXT: &str = "cloudburst v3 early data";

/// Pattern of a handshake: what the two ends know of each other beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Pattern {
    /// Each end has a key pair, and the initiator knows the responder's public key.
    KeyPair = 1,
    /// Both ends have the same secret.
    SharedKey = 2,
}

impl Pattern {
    /// Returns the pattern of a number on the wire.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::KeyPair),
            2 => Some(Self::SharedKey),
            _ => None,
        }
    }

    /// Bytes of the handshake's first message.
    pub const fn offer_bytes(self) -> usize {
        let bytes = EPHEMERAL_BYTES + OFFER_PAYLOAD_BYTES + TAG_BYTES;
        match self {
            // The initiator's static key, encrypted.
            Self::KeyPair => bytes.saturating_add(IDENTITY_BYTES + TAG_BYTES),
            Self::SharedKey => bytes,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::KeyPair => "Noise_IK_25519_ChaChaPoly_BLAKE2s",
            Self::SharedKey => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        }
    }
}

/// Credentials that an end proves itself by in a handshake.
#[derive(Clone, Copy)]
pub enum Credentials<'k> {
    /// Its key pair; an initiator names the responder besides.
    KeyPair {
        /// The end's own key.
        own: &'k SecretKey,
        /// The responder's key, which an initiator has to know.
        peer: Option<&'k PublicKey>,
    },
    /// The secret that both have.
    SharedKey(&'k [u8; SECRET_BYTES]),
}

/// Fields of an offer that everybody on the way can see, and nobody can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear {
    /// The pattern of the handshake.
    pub pattern: Pattern,
    /// The number of the shared key; 0 with key pairs.
    pub key_id: u8,
    /// Under which the initiator is answered.
    pub index: u64,
    /// What a retry asked for; zeros in a first offer.
    pub token: [u8; TOKEN_BYTES],
}

/// Payload of an offer, which only the responder can read.
#[derive(Clone, PartialEq, Eq)]
pub struct Offer {
    /// What the key of the first flight is derived from; drawn for this offer alone.
    pub early_secret: [u8; 32],
    /// The initiator's clock: µs since 1970, as far as it knows.
    pub unix_us: u64,
    /// What the initiator calls its side of the conversation, over all handshakes of it.
    pub conversation: u64,
    /// How long ago the oldest message was accepted of those that may come with this offer and may
    /// have been sent before, in µs; 0 if there is none.
    pub oldest_us: u64,
}

/// Payload of an acceptance, which only the initiator can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// Under which the responder is sent datagrams from now on.
    pub index: u64,
    /// What the responder calls its side of the conversation.
    pub conversation: u64,
    /// For how long the responder has been running, µs: what was sent to its address before, it does
    /// not know, and who ran there may have taken. [`NOBODY_BEFORE`] if nobody can have.
    pub uptime_us: u64,
}

/// Keys of an association, one for each direction.
#[derive(PartialEq, Eq)]
pub struct TrafficKeys {
    /// Seals what the initiator sends.
    pub to_responder: [u8; 32],
    /// Seals what the responder sends.
    pub to_initiator: [u8; 32],
}

/// The initiator's side, between offer and acceptance.
pub struct Initiator(HandshakeState);

/// The responder's side, between offer and acceptance.
pub struct Responder(HandshakeState);

/// A message of a handshake that is none: it was changed, or made with other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handshake was changed on the way, or made with other keys than ours")]
pub struct NotAuthentic;

impl From<snow::Error> for NotAuthentic {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

impl Initiator {
    /// Begins a handshake: writes the offer to all of `message`, which has the pattern's length.
    /// `ephemeral` is drawn at random for this offer alone.
    ///
    /// # Errors
    ///
    /// [`NotAuthentic`] if the credentials are not those of the pattern, or the length is another.
    pub fn offer(
        credentials: Credentials<'_>,
        clear: &Clear,
        offer: &Offer,
        ephemeral: [u8; 32],
        message: &mut [u8],
    ) -> Result<Self, NotAuthentic> {
        let prologue = prologue(clear);
        let mut state =
            builder(clear.pattern, credentials, &prologue, ephemeral)?.build_initiator()?;
        let mut payload = offer.to_bytes();
        let written = state.write_message(&payload, message);
        payload.zeroize();
        if written? == message.len() {
            Ok(Self(state))
        } else {
            Err(NotAuthentic)
        }
    }

    /// Takes the acceptance, if it is one. Nothing changes if not: anybody could have made it.
    ///
    /// # Errors
    ///
    /// [`NotAuthentic`] if the responder has not made it of this offer.
    pub fn accepted(
        &mut self,
        message: &[u8; ACCEPTANCE_BYTES],
    ) -> Result<(Acceptance, TrafficKeys), NotAuthentic> {
        let mut payload = [0; ACCEPTANCE_BYTES];
        let bytes = self.0.read_message(message, &mut payload)?;
        let acceptance = Acceptance::from_bytes(payload.get(..bytes)).ok_or(NotAuthentic)?;
        Ok((acceptance, split(&mut self.0)))
    }
}

impl Responder {
    /// Reads an offer, and returns who made it where the pattern says so. `ephemeral` is drawn at
    /// random for the answer to this offer alone.
    ///
    /// # Errors
    ///
    /// [`NotAuthentic`] if it was changed, or made for somebody else.
    pub fn read(
        credentials: Credentials<'_>,
        clear: &Clear,
        ephemeral: [u8; 32],
        message: &[u8],
    ) -> Result<(Self, Offer, Option<PublicKey>), NotAuthentic> {
        let prologue = prologue(clear);
        let mut state =
            builder(clear.pattern, credentials, &prologue, ephemeral)?.build_responder()?;
        let mut payload = [0; Pattern::KeyPair.offer_bytes()];
        let bytes = state.read_message(message, &mut payload)?;
        let offer = Offer::from_bytes(payload.get(..bytes)).ok_or(NotAuthentic);
        payload.zeroize();
        let initiator = match clear.pattern {
            Pattern::SharedKey => None,
            Pattern::KeyPair => {
                let key = state.get_remote_static().ok_or(NotAuthentic)?;
                let key = key.try_into().map_err(|_| NotAuthentic)?;
                Some(PublicKey::new(key).map_err(|_| NotAuthentic)?)
            }
        };
        Ok((Self(state), offer?, initiator))
    }

    /// Writes the acceptance, which ends the handshake.
    ///
    /// # Errors
    ///
    /// [`NotAuthentic`] if there is no room for it; then a constant of this module is wrong.
    pub fn accept(
        mut self,
        acceptance: &Acceptance,
    ) -> Result<([u8; ACCEPTANCE_BYTES], TrafficKeys), NotAuthentic> {
        let mut message = [0; ACCEPTANCE_BYTES];
        let bytes = self.0.write_message(&acceptance.to_bytes(), &mut message)?;
        if bytes != message.len() {
            return Err(NotAuthentic);
        }
        Ok((message, split(&mut self.0)))
    }
}

impl Offer {
    /// Derives the key that the first flight is sealed with.
    pub fn early_key(&self) -> [u8; 32] {
        blake3::derive_key(EARLY_CONTEXT, &self.early_secret)
    }

    fn to_bytes(&self) -> [u8; OFFER_PAYLOAD_BYTES] {
        let mut bytes = [0; OFFER_PAYLOAD_BYTES];
        bytes[..32].copy_from_slice(&self.early_secret);
        bytes[32..40].copy_from_slice(&self.unix_us.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.conversation.to_be_bytes());
        bytes[48..].copy_from_slice(&self.oldest_us.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: Option<&[u8]>) -> Option<Self> {
        let (early_secret, numbers) = bytes?.split_first_chunk()?;
        let (numbers, oldest_us) = numbers.split_last_chunk()?;
        let [unix_us, conversation] = two_numbers(numbers)?;
        Some(Self {
            early_secret: *early_secret,
            unix_us,
            conversation,
            oldest_us: u64::from_be_bytes(*oldest_us),
        })
    }
}

impl Acceptance {
    fn to_bytes(self) -> [u8; ACCEPTANCE_PAYLOAD_BYTES] {
        let mut bytes = [0; ACCEPTANCE_PAYLOAD_BYTES];
        bytes[..8].copy_from_slice(&self.index.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.conversation.to_be_bytes());
        bytes[16..].copy_from_slice(&self.uptime_us.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: Option<&[u8]>) -> Option<Self> {
        let (numbers, uptime_us) = bytes?.split_last_chunk()?;
        let [index, conversation] = two_numbers(numbers)?;
        Some(Self {
            index,
            conversation,
            uptime_us: u64::from_be_bytes(*uptime_us),
        })
    }
}

fn two_numbers(bytes: &[u8]) -> Option<[u64; 2]> {
    let numbers = u128::from_be_bytes(bytes.try_into().ok()?);
    Some([(numbers >> 64) as u64, numbers as u64])
}

/// Whatever was sent in clear (Noise §6): who changes any of it makes another handshake of it.
fn prologue(clear: &Clear) -> [u8; 11 + 8 + TOKEN_BYTES] {
    let mut prologue = [0; 11 + 8 + TOKEN_BYTES];
    prologue[..8].copy_from_slice(b"cldburst");
    prologue[8..11].copy_from_slice(&[VERSION, clear.pattern as u8, clear.key_id]);
    prologue[11..19].copy_from_slice(&clear.index.to_be_bytes());
    prologue[19..].copy_from_slice(&clear.token);
    prologue
}

fn builder<'k>(
    pattern: Pattern,
    credentials: Credentials<'k>,
    prologue: &'k [u8],
    ephemeral: [u8; 32],
) -> Result<Builder<'k>, NotAuthentic> {
    let resolver = Box::new(Resolver(ephemeral));
    let builder = Builder::with_resolver(pattern.name().parse()?, resolver).prologue(prologue)?;
    Ok(match (pattern, credentials) {
        (Pattern::KeyPair, Credentials::KeyPair { own, peer }) => {
            let builder = builder.local_private_key(own.as_bytes())?;
            match peer {
                Some(peer) => builder.remote_public_key(peer.as_bytes())?,
                None => builder,
            }
        }
        (Pattern::SharedKey, Credentials::SharedKey(secret)) => builder.psk(0, secret)?,
        _ => return Err(NotAuthentic),
    })
}

/// Datagrams may be lost and overtake each other, so that they are sealed in place under numbers
/// of their own (Noise §11.4) by the cipher of this crate, which neither copies nor allocates.
fn split(state: &mut HandshakeState) -> TrafficKeys {
    let (to_responder, to_initiator) = state.dangerously_get_raw_split();
    TrafficKeys {
        to_responder,
        to_initiator,
    }
}

/// The usual primitives, and an ephemeral key that was drawn by whoever hosts the machine: it has
/// no source of randomness of its own.
struct Resolver([u8; 32]);

/// Gives its 32 bytes, once.
struct Drawn(Option<[u8; 32]>);

impl Random for Drawn {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        let mut drawn = self.0.take().ok_or(snow::Error::Rng)?;
        let bytes = drawn.get(..out.len()).ok_or(snow::Error::Rng)?;
        out.copy_from_slice(bytes);
        drawn.zeroize();
        Ok(())
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Drawn(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.early_secret.zeroize();
    }
}

impl Drop for TrafficKeys {
    fn drop(&mut self) {
        self.to_responder.zeroize();
        self.to_initiator.zeroize();
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Initiator")
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Offer(at {} us)", self.unix_us)
    }
}

impl fmt::Debug for TrafficKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TrafficKeys")
    }
}

#[cfg(test)]
mod tests;
