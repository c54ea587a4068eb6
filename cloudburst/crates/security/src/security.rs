//! Security of an endpoint: what it proves itself by, and whom it takes messages from.

use core::fmt;
use std::collections::BTreeSet;

use cloudburst_wire::{Key, Keyring, PublicKey, SecretKey};

/// Security of a transport: a key pair for each end, or one shared key. There is no default: each is
/// asked for by name, and so is going without.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Security {
    /// Each end has a key pair of its own (Noise IK): who speaks is known, and who may speak is
    /// on a list.
    KeyPair(Identity),
    /// All ends have the same secret (Noise NNpsk0): for small set-ups, in which everybody trusts
    /// everybody else. Who holds the secret can take the place of any other.
    SharedKeys(Keyring),
    /// Nothing is encrypted or authenticated: anybody on the way can read, forge and end messages,
    /// and only accidents are noticed. For laboratories, and for networks that are protected by
    /// other means.
    Unprotected,
}

/// Key pair of an endpoint, and the public keys of those who may speak to it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Identity {
    /// The endpoint's own key.
    pub secret: SecretKey,
    /// The public keys of those who may begin to speak to it, like `authorized_keys` of SSH. None,
    /// the default, is enough for who only connects to others.
    pub allowed: BTreeSet<PublicKey>,
}

impl Security {
    /// Returns the security of an endpoint with this key pair, to which nobody else may begin to
    /// speak.
    pub fn key_pair(secret: SecretKey) -> Self {
        Self::with_allowed(secret, [])
    }

    /// Returns the security of an endpoint with this key pair, to which the holders of these
    /// public keys may speak.
    pub fn with_allowed(secret: SecretKey, allowed: impl IntoIterator<Item = PublicKey>) -> Self {
        Self::KeyPair(Identity {
            secret,
            allowed: allowed.into_iter().collect(),
        })
    }

    /// Returns the security of an endpoint that has this secret in common with all others.
    pub fn shared_key(key: Key) -> Self {
        Self::SharedKeys(Keyring::of(key))
    }

    /// Returns whether datagrams are neither encrypted nor authenticated.
    pub const fn is_unprotected(&self) -> bool {
        matches!(self, Self::Unprotected)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Identity")
            .field("public", &self.secret.public())
            .field("allowed", &self.allowed.len())
            .finish()
    }
}
