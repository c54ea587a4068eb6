//! Key pairs: who an endpoint is, and whom it takes others to be.

use std::{fmt, str::FromStr};

use rand_core::CryptoRng;
use snow::{
    params::DHChoice,
    resolvers::{CryptoResolver as _, DefaultResolver},
};
use zeroize::Zeroize;

use super::key_kind::{KeyKind, PUBLIC_PREFIX, SECRET_PREFIX};

/// Bytes of a secret key and of a public one (X25519, RFC 7748 §5).
pub const IDENTITY_BYTES: usize = 32;

/// The secret half of a key pair, which names its owner to nobody and proves who it is.
///
/// As text it is `cloudburst-secret:` and 64 hexadecimal digits.
/// [`Display`](fmt::Display) writes that, secret and all; [`Debug`](fmt::Debug) writes the public
/// half instead. The memory is cleared on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey {
    secret: [u8; IDENTITY_BYTES],
    public: PublicKey,
}

/// The public half of a key pair, by which others name its owner.
///
/// As text it is `cloudburst-public:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; IDENTITY_BYTES]);

/// Why text is no half of a key pair. It tells nothing of the text: that may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It does not begin as such a key does.
    #[error("the key does not begin with `{0}`; `cloudburst keygen` makes one")]
    Prefix(&'static str),
    /// It is a key of another kind.
    #[error("this is {given}, and {wanted} is wanted")]
    OtherKind {
        /// The kind that was asked for.
        wanted: KeyKind,
        /// The kind that the text is of.
        given: KeyKind,
    },
    /// It is not as long as it must be.
    #[error("the key has {0} bytes of text after its prefix instead of 64 hexadecimal digits")]
    Length(usize),
    /// It has something else than hexadecimal digits.
    #[error("byte {0} after the key's prefix is no hexadecimal digit")]
    Digit(usize),
    /// Whatever is exchanged with it, anybody knows the result (RFC 7748 §6.1).
    #[error("the public key is one of those that belong to nobody; it was mistyped or made up")]
    Weak,
}

impl SecretKey {
    /// Takes 32 random bytes as a secret key.
    ///
    /// # Panics
    ///
    /// Never: the resolver has the curve, which this crate asks for.
    pub fn new(secret: [u8; IDENTITY_BYTES]) -> Self {
        let mut pair = DefaultResolver
            .resolve_dh(&DHChoice::Curve25519)
            .expect("the feature `use-curve25519` is on");
        pair.set(&secret);
        let mut public = [0; IDENTITY_BYTES];
        public.copy_from_slice(pair.pubkey());
        Self {
            secret,
            public: PublicKey(public),
        }
    }

    /// Draws a secret key from a random generator fit for cryptography.
    pub fn generate(random: &mut impl CryptoRng) -> Self {
        let mut secret = [0; IDENTITY_BYTES];
        random.fill_bytes(&mut secret);
        let key = Self::new(secret);
        secret.zeroize();
        key
    }

    /// Returns the public half, to be given to others.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; IDENTITY_BYTES] {
        &self.secret
    }
}

impl PublicKey {
    /// Takes the bytes of a public key.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Weak`] where what is exchanged with it would be known to anybody.
    pub fn new(bytes: [u8; IDENTITY_BYTES]) -> Result<Self, IdentityError> {
        let mut pair = DefaultResolver
            .resolve_dh(&DHChoice::Curve25519)
            .ok_or(IdentityError::Weak)?;
        pair.set(&[1; IDENTITY_BYTES]);
        let mut shared = [0; IDENTITY_BYTES];
        let exchanged = pair.dh(&bytes, &mut shared);
        if exchanged.is_err() || shared == [0; IDENTITY_BYTES] {
            return Err(IdentityError::Weak);
        }
        Ok(Self(bytes))
    }

    /// Returns the bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; IDENTITY_BYTES] {
        &self.0
    }
}

fn parse(
    text: &str,
    (wanted, prefix): (KeyKind, &'static str),
) -> Result<[u8; IDENTITY_BYTES], IdentityError> {
    let digits = text.trim().strip_prefix(prefix);
    let digits = digits.ok_or_else(|| match KeyKind::of(text) {
        Some(given) => IdentityError::OtherKind { wanted, given },
        None => IdentityError::Prefix(prefix),
    })?;
    if digits.len() != 2 * IDENTITY_BYTES {
        return Err(IdentityError::Length(digits.len()));
    }
    let mut bytes = [0; IDENTITY_BYTES];
    for (at, digit) in digits.bytes().enumerate() {
        let digit = char::from(digit).to_digit(16);
        let digit = digit.ok_or(IdentityError::Digit(at))? as u8;
        bytes[at / 2] = bytes[at / 2] << 4 | digit;
    }
    Ok(bytes)
}

fn write(bytes: &[u8], prefix: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    formatter.write_str(prefix)?;
    bytes
        .iter()
        .try_for_each(|byte| write!(formatter, "{byte:02x}"))
}

impl FromStr for SecretKey {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        parse(text, (KeyKind::Secret, SECRET_PREFIX)).map(Self::new)
    }
}

impl FromStr for PublicKey {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        parse(text, (KeyKind::Public, PUBLIC_PREFIX)).and_then(Self::new)
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.secret, SECRET_PREFIX, formatter)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, PUBLIC_PREFIX, formatter)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretKey(of {})", self.public)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_come_back_from_text(secret: [u8; IDENTITY_BYTES]) {
            let key = SecretKey::new(secret);
            prop_assert_eq!(key.to_string().parse(), Ok(key.clone()));
            prop_assert_eq!(key.public().to_string().parse(), Ok(key.public()));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<SecretKey>();
            let _ = text.parse::<PublicKey>();
        }
    }

    /// Made by another implementation: `X25519PrivateKey` of Python's `cryptography`.
    #[test]
    fn a_public_key_is_that_of_another_implementation() {
        let secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        let public = "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f";
        let key: SecretKey = format!("{SECRET_PREFIX}{secret}").parse().unwrap();
        assert_eq!(key.public().to_string(), format!("{PUBLIC_PREFIX}{public}"));
    }

    #[test]
    fn keys_that_anybody_could_hold_are_refused() {
        for weak in [[0; 32], {
            let mut one = [0; 32];
            one[0] = 1;
            one
        }] {
            assert_eq!(PublicKey::new(weak), Err(IdentityError::Weak));
        }
    }

    #[test]
    fn mistakes_are_named_and_the_text_is_not() {
        let public = SecretKey::new([1; 32]).public().to_string();
        let other = "key".parse::<SecretKey>();
        assert_eq!(other, Err(IdentityError::Prefix(SECRET_PREFIX)));
        let short = public[..public.len() - 1].parse::<PublicKey>();
        assert_eq!(short, Err(IdentityError::Length(63)));
        let spoilt = public.replace(&public[20..21], "g").parse::<PublicKey>();
        assert!(spoilt.is_err());
    }

    #[test]
    fn nobody_reads_secrets_in_a_log() {
        let key = SecretKey::new([0xab; 32]);
        assert!(!format!("{key:?}").contains("abab"));
        assert!(format!("{key:?}").contains(&key.public().to_string()));
    }
}
