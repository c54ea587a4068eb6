//! Keys of hosts.

use cloudburst::protocol::Keyring;

/// With this key, or none.
pub(crate) fn ring(key: Option<u8>) -> Keyring {
    rings(key.as_slice())
}

/// The first is used to send.
pub(crate) fn rings(keys: &[u8]) -> Keyring {
    assert!(keys.is_empty(), "needs the packet layer");
    Keyring::default()
}
