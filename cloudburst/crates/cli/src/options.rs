//! What all commands that use the network have in common.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum, ValueHint};
use cloudburst::{
    BindError, Endpoint, EndpointConfig, Ports, Remotes,
    code::Schedule,
    protocol::{
        self, CongestionControl, Key, KeyError, Keyring, KeyringError, PeerId, Reservation,
    },
};

use crate::values::{BitRate, Dscp, Share};

/// Options of the endpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct EndpointOptions {
    /// Keys shared with the peer, one a line, as `keygen` writes them; the first is sent with.
    /// Without it nothing is encrypted or authenticated.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
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
    #[error("{}: {source}", .file.display())]
    Keyring { file: PathBuf, source: KeyringError },
    #[error("the key file {} has no key; `cloudburst keygen` makes one", .file.display())]
    Empty { file: PathBuf },
}

impl EndpointOptions {
    /// Binds an endpoint.
    pub(crate) async fn bind(&self, ports: &Ports) -> anyhow::Result<Endpoint> {
        match Endpoint::bind(self.config(ports)?).await {
            // What the library knows as local addresses.
            Err(error @ BindError::Overlap { .. }) => Err(error).context("--bind"),
            bound => Ok(bound?),
        }
    }

    /// Binds an endpoint and makes the peer known to it.
    pub(crate) async fn connect(
        &self,
        ports: &Ports,
        peer: &Remotes,
    ) -> anyhow::Result<(Endpoint, PeerId)> {
        let remotes = peer.lookup().await?;
        let endpoint = self.bind(ports).await?;
        let peer = endpoint.connect(remotes).await?;
        Ok((endpoint, peer))
    }

    /// Congestion control as it is asked for.
    pub(crate) fn congestion(&self) -> CongestionControl {
        let reservation = |rate: BitRate| Reservation::new(rate.0).with_share(self.share.0);
        let reserved = self.reserve.map(reservation);
        reserved.map_or(CongestionControl::Adaptive, CongestionControl::Reserved)
    }

    fn config(&self, ports: &Ports) -> Result<EndpointConfig, KeyFileError> {
        let mut protocol = protocol::TransportConfig::default();
        protocol.congestion = self.congestion();
        protocol.schedule = match self.schedule {
            ScheduleName::Default => Schedule::Default,
            ScheduleName::Mds => Schedule::Mds,
            ScheduleName::Paper => Schedule::Paper(Default::default()),
        };
        if let Some(file) = &self.key_file {
            protocol.keys = read_keys(file)?;
        }
        let mut config = EndpointConfig::client()
            .with_protocol(protocol)
            .with_ports(ports.clone());
        if !self.bind.is_empty() {
            config.local.clone_from(&self.bind);
        }
        config.dscp = self.dscp.0;
        Ok(config)
    }
}

fn read_keys(file: &Path) -> Result<Keyring, KeyFileError> {
    let text = fs::read_to_string(file).map_err(|source| KeyFileError::Read {
        file: file.to_owned(),
        source,
    })?;
    warn_if_others_may_read(file);
    let lines = (1..).zip(text.lines());
    let keys: Result<Vec<Key>, KeyFileError> = lines
        .filter(|(_, text)| !text.trim().is_empty() && !text.trim_start().starts_with('#'))
        .map(|(line, text)| {
            text.parse().map_err(|source| KeyFileError::Key {
                file: file.to_owned(),
                line,
                source,
            })
        })
        .collect();
    let keys = keys?;
    if keys.is_empty() {
        // Who names a file wants a key: never go on without.
        return Err(KeyFileError::Empty {
            file: file.to_owned(),
        });
    }
    Keyring::new(keys).map_err(|source| KeyFileError::Keyring {
        file: file.to_owned(),
        source,
    })
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
        || error.is::<protocol::ConfigError>()
        || matches!(
            error.downcast_ref(),
            Some(
                BindError::EndpointConfig(_)
                    | BindError::Dscp(_)
                    | BindError::Sockets { .. }
                    | BindError::Zero(_)
                    | BindError::Overlap { .. }
                    | BindError::NotLocal { .. }
            )
        )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read(text: &str) -> Result<Keyring, KeyFileError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        read_keys(file.path())
    }

    #[test]
    fn key_files_have_comments_and_several_keys() {
        let zeros = "0".repeat(64);
        let keys = read(&format!("# ours\n\n1:{zeros}\n2:{zeros}\n")).unwrap();
        assert_eq!(keys.ids().map(u8::from).collect::<Vec<_>>(), [1, 2]);
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
