//! Keys that both ends have been given beforehand.

use std::{fmt, num::NonZeroU8, str::FromStr};

use rand_core::CryptoRng;
use zeroize::Zeroize;

use super::KeyKind;

/// Bytes of a key's secret.
pub const SECRET_BYTES: usize = 32;
/// Keys that a keyring holds at most.
pub const MAX_KEYS: usize = 8;

/// A secret with the number by which datagrams name it.
///
/// As text it is the number, a colon and the secret in hexadecimal:
/// `1:` and 64 digits. [`Display`](fmt::Display) writes that, secret and all;
/// [`Debug`](fmt::Debug) leaves the secret out. The memory is cleared on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: NonZeroU8,
    secret: [u8; SECRET_BYTES],
}

/// Why text is no key. It tells nothing of the text: that may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No number and colon at the beginning.
    #[error(
        "a key is a number from 1 to 255, a colon and 64 hexadecimal digits; there is no colon"
    )]
    NoColon,
    /// It is a half of a key pair.
    #[error("this is {0}, and a shared key is wanted")]
    OtherKind(KeyKind),
    /// The number is none from 1 to 255.
    #[error("the number before the colon of a key is not one from 1 to 255")]
    Id,
    /// The secret is not as long as it must be.
    #[error("the secret of a key has 64 hexadecimal digits, this one {0} bytes of text")]
    Length(usize),
    /// The secret has something else than hexadecimal digits.
    #[error("byte {0} of a key's secret is no hexadecimal digit")]
    Digit(usize),
}

/// The keys of an endpoint, one to [`MAX_KEYS`]: handshakes begin with the first, all are
/// accepted.
///
/// To change keys without a gap: add the new key last everywhere, then make it
/// the first everywhere, then take the old one out. Associations go on meanwhile, and
/// turn to the first key when they are rekeyed.
#[derive(Clone, Debug)]
pub struct Keyring(Vec<Key>);

/// Why keys are no keyring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// There is no key at all.
    #[error("there are no keys; at least one is needed")]
    Empty,
    /// There are more keys than fit.
    #[error(
        "there are {0} keys, at most {MAX_KEYS} are possible; take out those that nobody sends with any more"
    )]
    TooMany(usize),
    /// Which of them a datagram means would be open.
    #[error("two keys have number {0}; numbers must differ")]
    SameId(u8),
}

impl Key {
    /// With this number and secret, which should be 32 random bytes.
    pub const fn new(id: NonZeroU8, secret: [u8; SECRET_BYTES]) -> Self {
        Self { id, secret }
    }

    /// A new one from a random generator fit for cryptography.
    pub fn generate(id: NonZeroU8, random: &mut impl CryptoRng) -> Self {
        let mut key = Self::new(id, [0; SECRET_BYTES]);
        random.fill_bytes(&mut key.secret);
        key
    }

    /// Returns the number of the key.
    pub const fn id(&self) -> NonZeroU8 {
        self.id
    }

    /// Returns the secret, which whoever holds it can take the place of its owner by.
    pub const fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }
}

impl Keyring {
    /// Makes a ring of these keys; the first is sent with.
    ///
    /// # Errors
    ///
    /// See [`KeyringError`].
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Result<Self, KeyringError> {
        let keys: Vec<Key> = keys.into_iter().collect();
        match keys.len() {
            0 => return Err(KeyringError::Empty),
            1..=MAX_KEYS => {}
            count => return Err(KeyringError::TooMany(count)),
        }
        for (count, key) in keys.iter().enumerate() {
            if keys[..count].iter().any(|other| other.id == key.id) {
                return Err(KeyringError::SameId(key.id.get()));
            }
        }
        Ok(Self(keys))
    }

    /// Makes a ring of one key.
    pub fn of(key: Key) -> Self {
        Self(vec![key])
    }

    /// The numbers of the keys, that which is sent with first.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = NonZeroU8> + '_ {
        self.0.iter().map(Key::id)
    }

    /// Returns the key that handshakes begin with.
    pub fn first(&self) -> Option<&Key> {
        self.0.first()
    }

    /// Returns the key of this number.
    pub fn get(&self, id: u8) -> Option<&Key> {
        self.0.iter().find(|key| key.id.get() == id)
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (id, secret) = text.trim().split_once(':').ok_or(KeyError::NoColon)?;
        let id = id.parse();
        let id =
            id.map_err(|_| KeyKind::of_half(text).map_or(KeyError::Id, KeyError::OtherKind))?;
        if secret.len() != 2 * SECRET_BYTES {
            return Err(KeyError::Length(secret.len()));
        }
        let mut key = Self::new(id, [0; SECRET_BYTES]);
        for (at, digit) in secret.bytes().enumerate() {
            let digit = char::from(digit).to_digit(16).ok_or(KeyError::Digit(at))?;
            key.secret[at / 2] = key.secret[at / 2] << 4 | digit as u8;
        }
        Ok(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.id)?;
        self.secret
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}:…)", self.id)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(id: u8) -> Key {
        Key::new(id.try_into().unwrap(), [id; SECRET_BYTES])
    }

    proptest! {
        #[test]
        fn keys_come_back_from_text(id in 1u8.., secret: [u8; SECRET_BYTES]) {
            let key = Key::new(id.try_into().unwrap(), secret);
            prop_assert_eq!(key.to_string().parse(), Ok(key.clone()));
            prop_assert_eq!(key.to_string().to_uppercase().parse(), Ok(key));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Key>();
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let parse = |text: &str| text.parse::<Key>();
        assert_eq!(parse(""), Err(KeyError::NoColon));
        assert_eq!(parse("0:00"), Err(KeyError::Id));
        assert_eq!(parse("256:00"), Err(KeyError::Id));
        assert_eq!(parse("1:00"), Err(KeyError::Length(2)));
        let text = format!("1:{}g{}", "0".repeat(10), "0".repeat(53));
        assert_eq!(parse(&text), Err(KeyError::Digit(10)));
    }

    #[test]
    fn nobody_reads_secrets_in_a_log() {
        let keys = Keyring::new([key(0xab)]).unwrap();
        assert_eq!(format!("{keys:?}"), "Keyring([Key(171:…)])");
    }

    #[test]
    fn generated_keys_differ() {
        let mut random = Counter(0);
        let id = NonZeroU8::MIN;
        assert_ne!(
            Key::generate(id, &mut random),
            Key::generate(id, &mut random)
        );
    }

    #[test]
    fn keyrings_that_are_none_are_refused() {
        let none = Keyring::new([]).unwrap_err();
        assert_eq!(none, KeyringError::Empty);
        let many = Keyring::new((1..=9).map(key)).unwrap_err();
        assert_eq!(many, KeyringError::TooMany(9));
        let same = Keyring::new([key(1), key(2), key(1)]).unwrap_err();
        assert_eq!(same, KeyringError::SameId(1));
        assert!(Keyring::new((1..=8).map(key)).is_ok());
    }

    /// As random as it takes here.
    struct Counter(u8);

    impl rand_core::TryRng for Counter {
        type Error = std::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            rand_core::utils::next_word_via_fill(self)
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            rand_core::utils::next_word_via_fill(self)
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            self.0 += 1;
            bytes.fill(self.0);
            Ok(())
        }
    }

    impl rand_core::TryCryptoRng for Counter {}
}
