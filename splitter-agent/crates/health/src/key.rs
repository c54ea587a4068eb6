//! The key that both borders share, and the codes it makes over probes.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Keeps this use of a key apart from any other of the same key (BLAKE3's key derivation).
const CONTEXT: &str = "splitter tunnel probe 2026 version 1";

/// Far more than a key and its comments take; a wrong path may lead to a large file.
const MAX_FILE_BYTES: u64 = 4096;

/// The length of a code, in bytes.
pub(super) const CODE_BYTES: usize = 32;

/// Makes and checks the codes of probes: BLAKE3 in keyed mode.
#[derive(Clone)]
pub struct ProbeKey([u8; 32]);

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
         digits, as `openssl rand -hex 32` prints, the same at both borders", path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it holds instead.
        problem: &'static str,
    },
}

impl ProbeKey {
    /// Reads the key from a file that only its owner may read: one line of 64 hexadecimal digits.
    /// Empty lines and such that begin with `#` are passed over.
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
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = lines.next().ok_or("it is empty")?;
        if lines.next().is_some() {
            return Err("it has more than one line");
        }
        if line.len() != 64 || !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("its line is not 64 hexadecimal digits");
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const DIGITS: &str = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

    fn load(text: &[u8], mode: u32) -> Result<ProbeKey, KeyError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        ProbeKey::load(&path)
    }

    #[test]
    fn key_with_comments_is_read_and_derived() {
        let key = load(format!("# ours\n\n{DIGITS}\n").as_bytes(), 0o600).unwrap();
        assert_eq!(
            key.code(b"x"),
            load(DIGITS.as_bytes(), 0o400).unwrap().code(b"x")
        );
        assert!(!format!("{key:?}").contains("17"));
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
        let two = format!("{DIGITS}\n{DIGITS}\n");
        assert!(
            load(two.as_bytes(), 0o600)
                .unwrap_err()
                .to_string()
                .contains("more than one")
        );
        assert!(matches!(
            ProbeKey::load(Path::new("/nonexistent/key")),
            Err(KeyError::Unreadable { .. })
        ));
    }
}
