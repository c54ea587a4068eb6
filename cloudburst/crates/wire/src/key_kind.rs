//! Kinds of keys as text, so that one in the place of another is called by its name.

use std::fmt;

use super::Key;

/// How the halves of a key pair begin as text, so that nobody takes one for the other.
pub(super) const SECRET_PREFIX: &str = "cloudburst-secret:";
pub(super) const PUBLIC_PREFIX: &str = "cloudburst-public:";

/// Kind of a key, as its text shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyKind {
    /// The secret half of a key pair, [`SecretKey`](super::SecretKey).
    Secret,
    /// The public half of a key pair, [`PublicKey`](super::PublicKey).
    Public,
    /// A key that both ends have, [`Key`].
    Shared,
}

impl KeyKind {
    /// Returns the kind that text claims to be of: it may be mistyped all the same. `None` of what is
    /// like no key.
    pub fn of(text: &str) -> Option<Self> {
        let is_shared = || text.parse::<Key>().is_ok();
        Self::of_half(text).or_else(|| is_shared().then_some(Self::Shared))
    }

    /// Which half of a key pair text claims to be.
    pub(super) fn of_half(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with(SECRET_PREFIX) {
            Some(Self::Secret)
        } else if text.starts_with(PUBLIC_PREFIX) {
            Some(Self::Public)
        } else {
            None
        }
    }
}

/// With its article: "a public key".
impl fmt::Display for KeyKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Secret => "a secret key",
            Self::Public => "a public key",
            Self::Shared => "a shared key",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IdentityError, KeyError, PublicKey, SecretKey};

    #[test]
    fn a_key_in_the_place_of_another_is_called_by_its_name() {
        let secret = SecretKey::new([1; 32]);
        let (public, shared) = (secret.public().to_string(), format!("1:{}", "0".repeat(64)));
        let secret = secret.to_string();
        let other = |wanted, given| IdentityError::OtherKind { wanted, given };
        use KeyKind::{Public, Secret, Shared};
        assert_eq!(public.parse::<SecretKey>(), Err(other(Secret, Public)));
        assert_eq!(shared.parse::<SecretKey>(), Err(other(Secret, Shared)));
        assert_eq!(secret.parse::<PublicKey>(), Err(other(Public, Secret)));
        assert_eq!(shared.parse::<PublicKey>(), Err(other(Public, Shared)));
        assert_eq!(public.parse::<Key>(), Err(KeyError::OtherKind(Public)));
        assert_eq!(secret.parse::<Key>(), Err(KeyError::OtherKind(Secret)));
        let said = public.parse::<SecretKey>().unwrap_err().to_string();
        assert_eq!(said, "this is a public key, and a secret key is wanted");
        for text in ["", "1", "cloudburst", "1:00"] {
            assert_eq!(KeyKind::of(text), None, "{text}");
        }
    }
}
