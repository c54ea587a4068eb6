//! What all commands that use the network have in common.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum, ValueHint};
use cloudburst::{
    BindError, CongestionControl, Endpoint, EndpointConfig, EndpointConfigError, IdentityError,
    Key, KeyError, Keyring, KeyringError, PeerId, Ports, PublicKey, Reservation, Schedule,
    SecretKey, Security,
};

use crate::{
    cli::{ListenArgs, PeerArg},
    values::{BitRate, Dscp, Share},
};

/// Options of the endpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct EndpointOptions {
    /// Our secret key, as `keygen` writes it; or keys shared with the peer, one a line, of which
    /// the first is spoken with.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
    /// Do without a key: anybody on the way can read, forge and end messages.
    #[arg(long, conflicts_with = "key_file")]
    pub(crate) insecure_no_key: bool,
    /// Local addresses; one of each interface makes messages take all [default: all addresses]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Vec<IpAddr>,
    /// Send a share of a link of this rate, whoever else is there, until too much is lost: for a
    /// queue of its own. Without it the rate is found out, and fair to others on any network.
    #[arg(long, value_name = "RATE")]
    reserve: Option<BitRate>,
    /// The share of the link that is reserved, above 0 and at most 1.
    #[arg(long, default_value = "1", requires = "reserve")]
    share: Share,
    /// Code point of what is sent: 0 to 63, ef, cs0 to cs7, af11 to af43.
    #[arg(long, default_value = "0")]
    pub(crate) dscp: Dscp,
    /// How packets are summed up.
    #[arg(long, value_enum, default_value_t = ScheduleName::Mds)]
    pub(crate) schedule: ScheduleName,
}

/// Schedules of the code by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleName {
    /// Exclusive or: the cheapest.
    Default,
    /// Cauchy sums over GF(256): the fewest packets.
    Mds,
    /// The Cloudburst paper's.
    Paper,
}

/// What is wrong with a key file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyFileError {
    #[error("cannot read the key file {}: {source}; `cloudburst keygen` makes one", .file.display())]
    Read { file: PathBuf, source: io::Error },
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
    #[error("--peer-key: {0}")]
    PeerKey(IdentityError),
    #[error("{}: {source}", .file.display())]
    Keyring { file: PathBuf, source: KeyringError },
    #[error("the key file {} has no key; `cloudburst keygen` makes one", .file.display())]
    Empty { file: PathBuf },
}

impl EndpointOptions {
    /// Binds an endpoint that others are to find.
    pub(crate) async fn listen(&self, listen: &ListenArgs) -> anyhow::Result<Endpoint> {
        let mut security = self.security()?;
        if let (Security::KeyPair(identity), Some(file)) = (&mut security, &self.key_file) {
            let Some(allowed) = &listen.allow else {
                let file = file.clone();
                return Err(KeyFileError::NobodyAllowed { file }.into());
            };
            identity.allowed = read_public_keys(allowed)?.into_iter().collect();
        }
        let config = self.config(&listen.ports, security)?;
        Ok(Endpoint::bind(config.with_early_requests(true)).await?)
    }

    /// Binds an endpoint and makes the peer known to it.
    pub(crate) async fn connect(
        &self,
        ports: &Ports,
        peer: &PeerArg,
    ) -> anyhow::Result<(Endpoint, PeerId)> {
        self.connect_with(ports, peer, Ok).await
    }

    /// Binds an endpoint with some settings changed, and makes the peer known to it.
    pub(crate) async fn connect_with(
        &self,
        ports: &Ports,
        peer: &PeerArg,
        change: impl FnOnce(EndpointConfig) -> Result<EndpointConfig, EndpointConfigError>,
    ) -> anyhow::Result<(Endpoint, PeerId)> {
        let security = self.security()?;
        let key = match (&security, &self.key_file, &peer.peer_key) {
            (Security::KeyPair(_), Some(file), None) => {
                let file = file.clone();
                return Err(KeyFileError::NoPeerKey { file }.into());
            }
            (_, _, key) => key.as_deref().map(peer_key).transpose()?,
        };
        let remotes = peer.peer.lookup().await?;
        let config = change(self.config(ports, security)?)?;
        let endpoint = Endpoint::bind(config).await?;
        let peer = match key {
            Some(key) => endpoint.connect_to(key, remotes).await?,
            None => endpoint.connect(remotes).await?,
        };
        Ok((endpoint, peer))
    }

    /// Congestion control as it is asked for.
    pub(crate) fn congestion(&self) -> CongestionControl {
        let reservation = |rate: BitRate| Reservation::new(rate.0).with_share(self.share.0);
        let reserved = self.reserve.map(reservation);
        reserved.map_or(CongestionControl::Adaptive, CongestionControl::Reserved)
    }

    fn security(&self) -> Result<Security, KeyFileError> {
        match &self.key_file {
            Some(file) => read_keys(file),
            None if self.insecure_no_key => Ok(Security::Unprotected),
            None => Err(KeyFileError::NoKey),
        }
    }

    fn config(&self, ports: &Ports, security: Security) -> anyhow::Result<EndpointConfig> {
        let schedule = match self.schedule {
            ScheduleName::Default => Schedule::Default,
            ScheduleName::Mds => Schedule::Mds,
            ScheduleName::Paper => Schedule::Paper(Default::default()),
        };
        let config = EndpointConfig::client(security)
            .with_congestion(self.congestion())?
            .with_schedule(schedule)
            .with_dscp(self.dscp.0)?
            .with_ports(ports.clone())?;
        if self.bind.is_empty() {
            return Ok(config);
        }
        match config.with_local(self.bind.iter().copied()) {
            // What the library knows as local addresses.
            Err(error @ EndpointConfigError::Overlap { .. }) => Err(error).context("--bind"),
            bound => Ok(bound?),
        }
    }
}

/// Contents of a key file: a secret key, or shared ones.
fn read_keys(file: &Path) -> Result<Security, KeyFileError> {
    let text = read(file)?;
    warn_if_others_may_read(file);
    if text.contains("cloudburst-secret:") {
        let mut keys = parse_lines(&text, |line, text| {
            let key = text.parse::<SecretKey>();
            key.map_err(|source| identity_error(file, line, source))
        })?;
        return match (keys.pop(), keys.pop()) {
            (Some(key), None) => Ok(Security::key_pair(key)),
            _ => Err(KeyFileError::Mixed {
                file: file.to_owned(),
            }),
        };
    }
    let keys: Vec<Key> = parse_lines(&text, |line, text| {
        text.parse().map_err(|source| KeyFileError::Key {
            file: file.to_owned(),
            line,
            source,
        })
    })?;
    if keys.is_empty() {
        // Who names a file wants a key: never go on without.
        return Err(KeyFileError::Empty {
            file: file.to_owned(),
        });
    }
    let keys = Keyring::new(keys).map_err(|source| KeyFileError::Keyring {
        file: file.to_owned(),
        source,
    })?;
    Ok(Security::SharedKeys(keys))
}

/// A list of those who may send.
fn read_public_keys(file: &Path) -> Result<Vec<PublicKey>, KeyFileError> {
    let text = read(file)?;
    parse_lines(&text, |line, text| {
        // What follows the key is for people, as in `authorized_keys`.
        let key = text.split_whitespace().next().unwrap_or_default();
        key.parse()
            .map_err(|source| identity_error(file, line, source))
    })
}

/// The peer's key: as text, or the first of a file.
fn peer_key(given: &str) -> Result<PublicKey, KeyFileError> {
    if given.starts_with("cloudburst-") {
        return given.parse().map_err(KeyFileError::PeerKey);
    }
    let file = Path::new(given);
    let keys = read_public_keys(file)?;
    keys.first().copied().ok_or_else(|| KeyFileError::Empty {
        file: file.to_owned(),
    })
}

fn identity_error(file: &Path, line: usize, source: IdentityError) -> KeyFileError {
    KeyFileError::Identity {
        file: file.to_owned(),
        line,
        source,
    }
}

fn read(file: &Path) -> Result<String, KeyFileError> {
    fs::read_to_string(file).map_err(|source| KeyFileError::Read {
        file: file.to_owned(),
        source,
    })
}

fn parse_lines<T>(
    text: &str,
    parse: impl Fn(usize, &str) -> Result<T, KeyFileError>,
) -> Result<Vec<T>, KeyFileError> {
    let lines = (1..).zip(text.lines());
    lines
        .filter(|(_, text)| !text.trim().is_empty() && !text.trim_start().starts_with('#'))
        .map(|(line, text)| parse(line, text))
        .collect()
}

#[cfg(unix)]
fn warn_if_others_may_read(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if let Ok(metadata) = fs::metadata(file)
        && metadata.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(file = %file.display(), "others may read the key file; chmod 600 it");
    }
}

#[cfg(not(unix))]
fn warn_if_others_may_read(_: &Path) {}

/// Whether an error is one of settings.
pub(crate) fn is_configuration(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<KeyFileError>()
        || error.is::<EndpointConfigError>()
        || matches!(error.downcast_ref(), Some(BindError::NotLocal { .. }))
}

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
        read_keys(file(text).path())
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
        let twice = read(&format!("{secret}\n{secret}\n")).unwrap_err();
        assert!(matches!(twice, KeyFileError::Mixed { .. }));
        let zeros = "0".repeat(64);
        let mixed = read(&format!("{secret}\n1:{zeros}\n")).unwrap_err();
        assert!(mixed.to_string().contains(":2: "), "{mixed}");
    }

    #[test]
    fn public_keys_are_read_with_names_behind_them() {
        let key = SecretKey::new([7; 32]).public();
        let list = file(&format!("# who may send\n{key} the laptop\n"));
        assert_eq!(read_public_keys(list.path()).unwrap(), [key]);
        let path = list.path().to_str().unwrap();
        assert_eq!(peer_key(path).unwrap(), key);
        assert_eq!(peer_key(&key.to_string()).unwrap(), key);
        let secret = SecretKey::new([7; 32]).to_string();
        let told = peer_key(&secret).unwrap_err().to_string();
        assert!(told.contains("cloudburst-public:"), "{told}");
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
