//! Files of keys: our own, and those of others.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use cloudburst::{
    IdentityError, Key, KeyError, KeyKind, Keyring, KeyringError, PublicKey, SecretKey, Security,
};

/// What is wrong with a key file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyFileError {
    #[error("{option}: cannot read {}: {source}; {}", .file.display(), .option.remedy())]
    Read {
        option: KeyOption,
        file: PathBuf,
        source: io::Error,
    },
    #[error("{option}: {} is no text, and no file of keys; {}", .file.display(), .option.remedy())]
    NoText { option: KeyOption, file: PathBuf },
    #[error("{option}: {}:{line} is {given}: {}", .file.display(), .option.instead_of(*.given))]
    Misplaced {
        option: KeyOption,
        file: PathBuf,
        line: usize,
        given: KeyKind,
    },
    #[error("{}:{line}: {source}", .file.display())]
    Key {
        file: PathBuf,
        line: usize,
        source: KeyError,
    },
    #[error("{}:{line}: {source}", .file.display())]
    Identity {
        file: PathBuf,
        line: usize,
        source: IdentityError,
    },
    #[error(
        "no key is given: --key-file names one (`cloudburst keygen` makes it), --insecure-no-key does without"
    )]
    NoKey,
    #[error("{} has a secret key and something else; a key pair has a file to itself", .file.display())]
    Mixed { file: PathBuf },
    #[error(
        "{} has a secret key of ours: --allow names a file with the public keys of those who may send", .file.display()
    )]
    NobodyAllowed { file: PathBuf },
    #[error("{} has a secret key of ours: --peer-key names the peer's public key", .file.display())]
    NoPeerKey { file: PathBuf },
    #[error(
        "{0} names public keys, which are known by a secret key of our own: without one in --key-file nobody is held against them; leave {0} out, or make a key pair (`cloudburst keygen`)"
    )]
    NoPair(KeyOption),
    #[error("--peer-key: this is {given}: {}", KeyOption::PeerKey.instead_of(*.given))]
    GivenMisplaced { given: KeyKind },
    #[error("--peer-key: {0}")]
    PeerKey(IdentityError),
    #[error("{}: {source}", .file.display())]
    Keyring { file: PathBuf, source: KeyringError },
    #[error("{option}: {} has no key; {}", .file.display(), .option.remedy())]
    Empty { option: KeyOption, file: PathBuf },
}

/// Options that name keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOption {
    KeyFile,
    PeerKey,
    Allow,
}

impl KeyOption {
    /// What to name instead of nothing.
    const fn remedy(self) -> &'static str {
        match self {
            Self::KeyFile => "`cloudburst keygen` makes one",
            Self::PeerKey => {
                "it takes the line that `cloudburst keygen` printed on the peer's host"
            }
            Self::Allow => {
                "it takes the lines that `cloudburst keygen` printed on the hosts of those who may send"
            }
        }
    }

    /// What to name instead of a key of another kind, which has its place elsewhere.
    const fn instead_of(self, given: KeyKind) -> &'static str {
        match (self, given) {
            (Self::KeyFile, _) => {
                "here goes the file that `cloudburst keygen` wrote on this host, which has our secret key; public keys of others go to --peer-key, or into the list of --allow"
            }
            (Self::PeerKey, KeyKind::Shared) => {
                "with one, both ends name it by --key-file, and there is no --peer-key"
            }
            (Self::PeerKey, _) => {
                "it is to stay on its own host; here goes the peer's public key, the line that `cloudburst keygen` printed there"
            }
            (Self::Allow, KeyKind::Shared) => {
                "with one, both ends name it by --key-file, and there is no --allow"
            }
            (Self::Allow, _) => {
                "it is to stay on its own host; here go public keys, the lines that `cloudburst keygen` printed on the hosts of those who may send"
            }
        }
    }
}

impl fmt::Display for KeyOption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::KeyFile => "--key-file",
            Self::PeerKey => "--peer-key",
            Self::Allow => "--allow",
        })
    }
}

/// Contents of our own key file: a secret key, or shared ones.
pub(crate) fn read_own(file: &Path) -> Result<Security, KeyFileError> {
    let option = KeyOption::KeyFile;
    let text = read(option, file)?;
    warn_if_others_may_read(file);
    let lines: Vec<_> = keys_in(&text).collect();
    let kinds = || lines.iter().map(|(_, text)| KeyKind::of(text));
    if let Some(at) = kinds().position(|kind| kind == Some(KeyKind::Public)) {
        return Err(misplaced((option, file), lines[at].0, KeyKind::Public));
    }
    if kinds().any(|kind| kind == Some(KeyKind::Secret)) {
        let [(line, text)] = lines[..] else {
            return Err(KeyFileError::Mixed {
                file: file.to_owned(),
            });
        };
        let key = text.parse::<SecretKey>();
        let key = key.map_err(|source| identity_error((option, file), line, source));
        return key.map(Security::key_pair);
    }
    let keys: Vec<Key> = lines
        .iter()
        .map(|(line, text)| {
            text.parse().map_err(|source| KeyFileError::Key {
                file: file.to_owned(),
                line: *line,
                source,
            })
        })
        .collect::<Result<_, _>>()?;
    if keys.is_empty() {
        // Who names a file wants a key: never go on without.
        return Err(empty(option, file));
    }
    let keys = Keyring::new(keys).map_err(|source| KeyFileError::Keyring {
        file: file.to_owned(),
        source,
    })?;
    Ok(Security::SharedKeys(keys))
}

/// A list of those who may send. With none on it the program would serve nobody: it is not read again.
pub(crate) fn read_allowed(file: &Path) -> Result<Vec<PublicKey>, KeyFileError> {
    let option = KeyOption::Allow;
    let keys = read_public_keys(option, file)?;
    match keys.is_empty() {
        true => Err(empty(option, file)),
        false => Ok(keys),
    }
}

/// The peer's key: as text, or the first of a file.
pub(crate) fn peer_key(given: &str) -> Result<PublicKey, KeyFileError> {
    let is_key = KeyKind::of(given).is_some() || given.starts_with("cloudburst-");
    if is_key && !Path::new(given).exists() {
        return given.parse().map_err(|error| match error {
            IdentityError::OtherKind { given, .. } => KeyFileError::GivenMisplaced { given },
            error => KeyFileError::PeerKey(error),
        });
    }
    let (option, file) = (KeyOption::PeerKey, Path::new(given));
    let keys = read_public_keys(option, file)?;
    keys.first().copied().ok_or_else(|| empty(option, file))
}

fn read_public_keys(option: KeyOption, file: &Path) -> Result<Vec<PublicKey>, KeyFileError> {
    let text = read(option, file)?;
    let keys = keys_in(&text).map(|(line, text)| {
        // What follows the key is for people, as in `authorized_keys`.
        let key = text.split_whitespace().next().unwrap_or_default();
        key.parse()
            .map_err(|source| identity_error((option, file), line, source))
    });
    keys.collect()
}

/// Lines that are neither empty nor comments, with their numbers.
fn keys_in(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
}

fn identity_error(
    (option, file): (KeyOption, &Path),
    line: usize,
    source: IdentityError,
) -> KeyFileError {
    match source {
        IdentityError::OtherKind { given, .. } => misplaced((option, file), line, given),
        source => KeyFileError::Identity {
            file: file.to_owned(),
            line,
            source,
        },
    }
}

fn misplaced((option, file): (KeyOption, &Path), line: usize, given: KeyKind) -> KeyFileError {
    KeyFileError::Misplaced {
        option,
        file: file.to_owned(),
        line,
        given,
    }
}

fn empty(option: KeyOption, file: &Path) -> KeyFileError {
    KeyFileError::Empty {
        option,
        file: file.to_owned(),
    }
}

fn read(option: KeyOption, file: &Path) -> Result<String, KeyFileError> {
    fs::read_to_string(file).map_err(|source| {
        let file = file.to_owned();
        match source.kind() {
            io::ErrorKind::InvalidData => KeyFileError::NoText { option, file },
            _ => KeyFileError::Read {
                option,
                file,
                source,
            },
        }
    })
}

#[cfg(unix)]
fn warn_if_others_may_read(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if let Ok(metadata) = fs::metadata(file)
        && metadata.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(event = "key_file_open", file = %file.display(), "others may read the key file; chmod 600 it");
    }
}

#[cfg(not(unix))]
fn warn_if_others_may_read(_: &Path) {}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn read(text: &str) -> Result<Security, KeyFileError> {
        read_own(file(text).path())
    }

    #[test]
    fn key_files_have_comments_and_several_keys() {
        let zeros = "0".repeat(64);
        let keys = read(&format!("# ours\n\n1:{zeros}\n2:{zeros}\n")).unwrap();
        let Security::SharedKeys(keys) = keys else {
            panic!("{keys:?}");
        };
        assert_eq!(keys.ids().map(u8::from).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_secret_key_has_its_file_to_itself() {
        let secret = SecretKey::new([7; 32]);
        let own = read(&format!("# of this host\n{secret}\n")).unwrap();
        assert!(matches!(own, Security::KeyPair(_)));
        let zeros = "0".repeat(64);
        for other in [secret.to_string(), format!("1:{zeros}"), "x".to_owned()] {
            let mixed = read(&format!("{secret}\n{other}\n")).unwrap_err();
            assert!(matches!(mixed, KeyFileError::Mixed { .. }), "{mixed}");
        }
    }

    #[test]
    fn public_keys_are_read_with_names_behind_them() {
        let key = SecretKey::new([7; 32]).public();
        let list = file(&format!("# who may send\n{key} the laptop\n"));
        assert_eq!(read_allowed(list.path()).unwrap(), [key]);
        let path = list.path().to_str().unwrap();
        assert_eq!(peer_key(path).unwrap(), key);
        assert_eq!(peer_key(&key.to_string()).unwrap(), key);
    }

    #[test]
    fn a_list_that_names_nobody_and_a_file_that_is_no_text_are_refused() {
        let nobody = file("# who may send\n\n");
        let error = read_allowed(nobody.path()).unwrap_err();
        assert!(matches!(error, KeyFileError::Empty { .. }), "{error}");
        let mut no_text = tempfile::NamedTempFile::new().unwrap();
        no_text.write_all(&[0xff, 0xfe, b'\n']).unwrap();
        let no_text = no_text.path();
        for error in [
            read_own(no_text).unwrap_err(),
            read_allowed(no_text).unwrap_err(),
            peer_key(no_text.to_str().unwrap()).unwrap_err(),
        ] {
            assert!(matches!(error, KeyFileError::NoText { .. }), "{error}");
        }
    }

    /// The file and its line are named, what it is, and never the key.
    #[test]
    fn keys_of_each_kind_are_known_where_another_is_wanted() {
        let secret = SecretKey::new([7; 32]);
        let (public, shared) = (secret.public(), format!("1:{}", "ab".repeat(32)));
        let said = |error: KeyFileError, file: &Path, kind: &str| {
            let said = error.to_string();
            let place = format!("{}:2 is {kind}: ", file.display());
            assert!(said.contains(&place), "{said}");
            assert!(!said.contains("abab") && !said.contains("0707"), "{said}");
        };
        let list = file(&format!("# of the server\n{public}\n"));
        said(
            read_own(list.path()).unwrap_err(),
            list.path(),
            "a public key",
        );
        for (key, kind) in [
            (secret.to_string(), "a secret key"),
            (shared, "a shared key"),
        ] {
            let list = file(&format!("# whose is it?\n{key}\n"));
            said(read_allowed(list.path()).unwrap_err(), list.path(), kind);
            let path = list.path().to_str().unwrap();
            said(peer_key(path).unwrap_err(), list.path(), kind);
            let given = peer_key(&key).unwrap_err().to_string();
            assert!(
                given.starts_with(&format!("--peer-key: this is {kind}: ")),
                "{given}"
            );
        }
    }

    #[test]
    fn mistakes_are_reported_by_line_and_never_with_the_key() {
        let zeros = "0".repeat(64);
        let reported = read(&format!("1:{zeros}\nx:secret\n"))
            .unwrap_err()
            .to_string();
        assert!(
            reported.contains(":2: ") && !reported.contains("secret"),
            "{reported}"
        );
        assert!(
            read("# nothing\n")
                .unwrap_err()
                .to_string()
                .contains("no key")
        );
        let reported = read(&format!("1:{zeros}\n1:{zeros}\n"))
            .unwrap_err()
            .to_string();
        assert!(reported.contains("number 1"), "{reported}");
    }
}
