//! Keys of hosts, as small numbers.

use std::num::NonZeroU8;

use cloudburst_proto::{Key, Keyring, SecretKey, Security};

use super::scenario::Scenario;

/// What a host is started with.
pub(crate) fn of(scenario: &Scenario, host: usize) -> Security {
    if !scenario.has_key_pairs {
        return ring(scenario.hosts[host].key);
    }
    let all = (0..scenario.hosts.len()).map(|host| pair(host).public());
    Security::with_allowed(pair(host), all)
}

/// The key pair of a host.
pub(crate) fn pair(host: usize) -> SecretKey {
    SecretKey::new([host as u8 + 1; 32])
}

/// With this shared key, or unprotected.
pub(crate) fn ring(key: Option<u8>) -> Security {
    match key {
        Some(key) => rings(&[key]),
        None => Security::Unprotected,
    }
}

/// Handshakes begin with the first. Keys 16 apart have the same number on the wire and
/// different secrets.
pub(crate) fn rings(keys: &[u8]) -> Security {
    if keys.is_empty() {
        return Security::Unprotected;
    }
    let keys = keys.iter().map(|key| {
        let id = NonZeroU8::new(key % 16).expect("no multiple of 16");
        Key::new(id, [*key; 32])
    });
    Security::SharedKeys(Keyring::new(keys).expect("they differ"))
}
