//! Keys of hosts, as small numbers.

use std::num::NonZeroU8;

use cloudburst_proto::{Key, Keyring};

/// With this key, or none.
pub(crate) fn ring(key: Option<u8>) -> Keyring {
    rings(key.as_slice())
}

/// The first is sent with. Keys 16 apart have the same number on the wire and
/// different secrets.
pub(crate) fn rings(keys: &[u8]) -> Keyring {
    let keys = keys.iter().map(|key| {
        let id = NonZeroU8::new(key % 16).expect("no multiple of 16");
        Key::new(id, [*key; 32])
    });
    Keyring::new(keys).expect("they differ")
}
