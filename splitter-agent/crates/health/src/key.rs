//! The keys that both borders share, and the codes they make over probes.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Keeps this use of a key apart from any other of the same key (BLAKE3's key derivation).
const CONTEXT: &str = "splitter tunnel probe 2026 version 1";

/// Keeps what is shown of a key apart from its codes.
const FINGERPRINT_CONTEXT: &str = "splitter tunnel probe 2026 fingerprint";

/// Keeps the choice of the packets that taps time apart from probes.
const SELECTION_CONTEXT: &str = "splitter packet selection 2026 version 1";

/// Far more than a key and its comments take; a wrong path may lead to a large file.
const MAX_FILE_BYTES: u64 = 4096;

/// The length of a code, in bytes.
pub(super) const CODE_BYTES: usize = 32;

/// The keys that are valid at a time: what is sent bears the code of the first, and what comes may
/// bear that of any. All clones are changed together.
#[derive(Clone)]
pub struct KeyRing(Arc<RwLock<Keys>>);

#[derive(Clone, PartialEq, Eq)]
struct Keys {
    first: ProbeKey,
    second: Option<ProbeKey>,
}

/// Makes and checks the codes of probes: BLAKE3 in keyed mode.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ProbeKey([u8; 32]);

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read.
    #[error(
        "cannot read health.key_file {}: {source}; make one with `(umask 077; openssl rand -hex \
         32 > FILE)` and copy it to the other border", path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others could read the key.
    #[error(
        "health.key_file {} has mode {mode:04o}, so that others may read the key; chmod 600 {}, \
         and make a new key if others can have read it", path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file does not hold a key.
    #[error(
        "health.key_file {} does not hold a key: {problem}; it takes one line of 64 hexadecimal \
         digits, as `openssl rand -hex 32` prints, the same at both borders, and another one while \
         the key is changed", path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it holds instead.
        problem: &'static str,
    },
}

impl KeyRing {
    /// Reads the keys from a file that only its owner may read: one line of 64 hexadecimal digits for
    /// each, at most two. Empty lines and such that begin with `#` are passed over.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable {
            path: path.to_owned(),
            source,
        };
        // What is checked is what is read: the file could be exchanged in between.
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let malformed = |problem| KeyError::Malformed {
            path: path.to_owned(),
            problem,
        };
        if !metadata.is_file() {
            return Err(malformed("it is no regular file"));
        }
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed {
                path: path.to_owned(),
                mode,
            });
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES)
            .read_to_string(&mut text)
            .map_err(|source| match source.kind() {
                io::ErrorKind::InvalidData => malformed("it is not text"),
                _ => unreadable(source),
            })?;
        Self::parse(&text).map_err(malformed)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut keys = lines.map(ProbeKey::parse);
        let first = keys.next().ok_or("it is empty")??;
        let second = keys.next().transpose()?;
        if keys.next().is_some() {
            return Err("it has more than two lines");
        }
        if second.as_ref() == Some(&first) {
            return Err("its two lines are the same");
        }
        Ok(Self::new(Keys { first, second }))
    }

    fn new(keys: Keys) -> Self {
        Self(Arc::new(RwLock::new(keys)))
    }

    /// Goes by the keys of `other` from now on, also in all clones.
    pub fn replace(&self, other: &Self) {
        let keys = other.keys();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Returns what tells the keys from others, in their order, and nothing else about them.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<String> {
        let Keys { first, second } = self.keys();
        let keys = std::iter::once(first).chain(second);
        keys.map(|key| key.fingerprint()).collect()
    }

    /// Returns a key made of the first one, by which two borders select the same packets to time.
    #[must_use]
    pub fn selection_key(&self) -> [u64; 2] {
        let derived = blake3::derive_key(SELECTION_CONTEXT, &self.first().0);
        let word = |at: usize| {
            let bytes = derived[at..].first_chunk().copied();
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        [word(0), word(8)]
    }

    /// The key that what is sent is sealed with.
    pub(super) fn first(&self) -> ProbeKey {
        self.keys().first
    }

    /// The key of which a code over some bytes is.
    pub(super) fn of_code(&self, bytes: &[u8], code: &[u8; CODE_BYTES]) -> Option<ProbeKey> {
        let Keys { first, second } = self.keys();
        let mut keys = std::iter::once(first).chain(second);
        keys.find(|key| key.is_code(bytes, code))
    }

    fn keys(&self) -> Keys {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keys for tests.
    #[cfg(test)]
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self::new(Keys {
            first: ProbeKey::of(bytes[0]),
            second: bytes.get(1).map(|byte| ProbeKey::of(*byte)),
        })
    }
}

impl ProbeKey {
    fn parse(line: &str) -> Result<Self, &'static str> {
        if line.len() != 64 || !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("one of its lines is not 64 hexadecimal digits");
        }
        if line.bytes().all(|byte| byte == b'0') {
            return Err("its digits are all zero");
        }
        let mut key = [0; 32];
        for (byte, digits) in key.iter_mut().zip(line.as_bytes().chunks_exact(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0);
            *byte = u8::try_from(value(digits[0]) << 4 | value(digits[1])).unwrap_or(0);
        }
        Ok(Self::derive(&key))
    }

    /// Some bits of another derivation than that of codes.
    fn fingerprint(&self) -> String {
        let derived = blake3::derive_key(FINGERPRINT_CONTEXT, &self.0);
        derived[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    fn derive(key: &[u8; 32]) -> Self {
        Self(blake3::derive_key(CONTEXT, key))
    }

    /// A key for tests.
    #[cfg(test)]
    pub(super) fn of(byte: u8) -> Self {
        Self::derive(&[byte; 32])
    }

    /// The code of some bytes.
    pub(super) fn code(&self, bytes: &[u8]) -> [u8; CODE_BYTES] {
        *blake3::keyed_hash(&self.0, bytes).as_bytes()
    }

    /// Whether a code is that of these bytes, in constant time.
    pub(super) fn is_code(&self, bytes: &[u8], code: &[u8; CODE_BYTES]) -> bool {
        blake3::keyed_hash(&self.0, bytes) == blake3::Hash::from_bytes(*code)
    }
}

/// Shows nothing of the key.
impl fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProbeKey(..)")
    }
}

/// Shows nothing of the keys.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const DIGITS: &str = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

    fn load(text: &[u8], mode: u32) -> Result<KeyRing, KeyError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        KeyRing::load(&path)
    }

    #[test]
    fn key_with_comments_is_read_and_derived() {
        let keys = load(format!("# ours\n\n{DIGITS}\n").as_bytes(), 0o600).unwrap();
        let same = load(DIGITS.as_bytes(), 0o400).unwrap();
        let key = keys.first();
        assert!(key == same.first());
        assert!(!format!("{keys:?} {key:?}").contains("17"));
    }

    #[test]
    fn file_that_others_may_read_is_refused() {
        for mode in [0o640, 0o604, 0o620, 0o660] {
            let error = load(DIGITS.as_bytes(), mode).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{mode:04o}")) && error.contains("chmod 600"),
                "{error}"
            );
        }
    }

    #[test]
    fn packets_are_selected_by_the_first_key_and_not_by_the_bytes_of_probes() {
        let selection = KeyRing::of(&[1, 2]).selection_key();
        assert_eq!(selection, KeyRing::of(&[1]).selection_key());
        assert_ne!(selection, KeyRing::of(&[2]).selection_key());
        let [first, second] = selection;
        assert_ne!(first, second);
        let key = KeyRing::of(&[1]).first().0;
        assert!(!key.windows(8).any(|it| it == first.to_le_bytes()));
    }

    #[test]
    fn first_of_two_keys_sends_and_both_are_accepted() {
        let other = DIGITS.replace('0', "1");
        let both = load(format!("{other}\n# old\n{DIGITS}").as_bytes(), 0o600).unwrap();
        let [new, old] = [&other, DIGITS].map(|it| load(it.as_bytes(), 0o600).unwrap());
        assert_eq!(both.first(), new.first());
        for ring in [&new, &old] {
            let key = ring.first();
            assert_eq!(both.of_code(b"x", &key.code(b"x")), Some(key));
        }
        let foreign = KeyRing::of(&[3]).first().code(b"x");
        assert_eq!(both.of_code(b"x", &foreign), None);
        // Whoever has a clone goes by the others, too.
        let clone = both.clone();
        assert_eq!(both.fingerprints().len(), 2);
        both.replace(&new);
        assert_eq!(clone.fingerprints(), new.fingerprints());
        assert_ne!(clone.fingerprints(), old.fingerprints());
        let code = old.first().code(b"x");
        assert_eq!(clone.of_code(b"x", &code), None);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let cases: [(&[u8], &str); 6] = [
            (b"", "empty"),
            (b"# only a comment\n", "empty"),
            (b"0011", "not 64 hexadecimal digits"),
            (&[b'g'; 64], "not 64 hexadecimal digits"),
            (&[b'0'; 64], "all zero"),
            (&[0xff; 64], "not text"),
        ];
        for (text, expected) in cases {
            let error = load(text, 0o600).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let other = DIGITS.replace('0', "1");
        let third = DIGITS.replace('0', "2");
        for (lines, expected) in [
            (vec![DIGITS, DIGITS], "the same"),
            (vec![DIGITS, &other, &third], "more than two"),
            (vec![DIGITS, "00"], "not 64"),
        ] {
            let error = load(lines.join("\n").as_bytes(), 0o600).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(matches!(
            KeyRing::load(Path::new("/nonexistent/key")),
            Err(KeyError::Unreadable { .. })
        ));
    }
}
