//! Ports of ours, and addresses of others with several ports.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    ops::RangeInclusive,
    str::FromStr,
};

/// Most sockets for each local address, and most ports of a peer.
pub(crate) const MAX_PORTS: u16 = 256;

/// Which ports are bound at each local address. One socket each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// So many, which the system chooses: for those who begin.
    Any(u16),
    /// These: for those who are to be found.
    Range(RangeInclusive<u16>),
}

impl Ports {
    /// Returns a range of one port.
    pub const fn one(port: u16) -> Self {
        Self::Range(port..=port)
    }

    /// Returns how many ports there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Any(count) => usize::from(*count),
            Self::Range(range) => range.len(),
        }
    }

    /// The ports to bind, 0 for one that the system chooses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let (any, range) = match self {
            Self::Any(count) => (*count, None),
            Self::Range(range) => (0, Some(range.clone())),
        };
        std::iter::repeat_n(0, usize::from(any)).chain(range.into_iter().flatten())
    }
}

impl Default for Ports {
    /// 16 that the system chooses.
    fn default() -> Self {
        Self::Any(16)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(count) => write!(formatter, "any:{count}"),
            Self::Range(range) if range.start() == range.end() => {
                write!(formatter, "{}", range.start())
            }
            Self::Range(range) => write!(formatter, "{}-{}", range.start(), range.end()),
        }
    }
}

/// Says what is wrong with ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortsError {
    /// Neither of the forms.
    #[error("`{0}` is none of `4433`, `4433-4448` and `any:16`")]
    Form(String),
    /// None, or more than are of use.
    #[error("`{given}` are {count} ports; it must be 1 to {MAX_PORTS}")]
    Count {
        /// The text that was given.
        given: String,
        /// How many these are.
        count: usize,
    },
}

impl FromStr for Ports {
    type Err = PortsError;

    /// Reads `4433`, `4433-4448` or `any:16`.
    fn from_str(given: &str) -> Result<Self, PortsError> {
        let form = || PortsError::Form(given.to_owned());
        let ports = match given.strip_prefix("any:") {
            Some(count) => Self::Any(count.parse().map_err(|_| form())?),
            None => Self::Range(range(given).ok_or_else(form)?),
        };
        match ports.count() {
            1..=MAX_PORTS_USIZE => Ok(ports),
            count => Err(PortsError::Count {
                given: given.to_owned(),
                count,
            }),
        }
    }
}

const MAX_PORTS_USIZE: usize = MAX_PORTS as usize;

/// Port 0 is no port: the system would choose another for each socket.
fn range(given: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = given.split_once('-').unwrap_or((given, given));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0).then_some(first..=last)
}

/// Names where a peer is: `host:4433`, `192.0.2.7:4433-4448`, `[2001:db8::7]:4433`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remotes {
    host: String,
    ports: RangeInclusive<u16>,
}

/// Says what is wrong with the address of a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemotesError {
    /// Neither of the forms.
    #[error(
        "`{0}` is none of `host:4433`, `192.0.2.7:4433-4448` and `[2001:db8::7]:4433`; the port cannot be 0"
    )]
    Form(String),
    /// None, or more than are of use.
    #[error("`{given}` has {count} ports; it must be 1 to {MAX_PORTS}")]
    Count {
        /// The text that was given.
        given: String,
        /// How many these are.
        count: usize,
    },
    /// The name stands for nothing.
    #[error("cannot resolve `{host}`: {source}; check the name, or give an address")]
    Resolve {
        /// The name of the host.
        host: String,
        /// The resolver's own words.
        source: io::Error,
    },
}

impl FromStr for Remotes {
    type Err = RemotesError;

    fn from_str(given: &str) -> Result<Self, RemotesError> {
        let form = || RemotesError::Form(given.to_owned());
        let (host, ports) = given.rsplit_once(':').ok_or_else(form)?;
        let host = match host.strip_prefix('[') {
            Some(inside) => inside.strip_suffix(']').ok_or_else(form)?,
            // An IPv6 address without brackets: where does its port begin?
            None if host.contains(':') => return Err(form()),
            None => host,
        };
        let ports = range(ports).ok_or_else(form)?;
        if host.is_empty() {
            return Err(form());
        }
        match ports.len() {
            1..=MAX_PORTS_USIZE => Ok(Self {
                host: host.to_owned(),
                ports,
            }),
            count => Err(RemotesError::Count {
                given: given.to_owned(),
                count,
            }),
        }
    }
}

impl fmt::Display for Remotes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, ports } = self;
        let ports = Ports::Range(ports.clone());
        if host.contains(':') {
            write!(formatter, "[{host}]:{ports}")
        } else {
            write!(formatter, "{host}:{ports}")
        }
    }
}

impl Remotes {
    /// All addresses: those of the first family that the name has, with all ports.
    /// Blocks while the name is looked up, for seconds where a name server is silent: in async
    /// code use [`lookup`](Self::lookup).
    ///
    /// # Errors
    ///
    /// [`RemotesError::Resolve`].
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, RemotesError> {
        let found = (self.host.as_str(), 0).to_socket_addrs();
        self.with_ports(found)
    }

    /// Does what [`resolve`](Self::resolve) does, without blocking the runtime of tokio that it is called in.
    ///
    /// # Errors
    ///
    /// [`RemotesError::Resolve`].
    pub async fn lookup(&self) -> Result<Vec<SocketAddr>, RemotesError> {
        let found = tokio::net::lookup_host((self.host.as_str(), 0)).await;
        self.with_ports(found)
    }

    fn with_ports(
        &self,
        found: io::Result<impl Iterator<Item = SocketAddr>>,
    ) -> Result<Vec<SocketAddr>, RemotesError> {
        let found: Vec<IpAddr> = found
            .map_err(|source| RemotesError::Resolve {
                host: self.host.clone(),
                source,
            })?
            .map(|address| address.ip())
            .collect();
        let of_first_family = |ip: &&IpAddr| ip.is_ipv4() == found[0].is_ipv4();
        let ips = found.iter().filter(of_first_family);
        Ok(ips
            .flat_map(|&ip| {
                self.ports
                    .clone()
                    .map(move |port| SocketAddr::new(ip, port))
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_written_alike() {
        for text in ["4433", "4433-4448", "any:16"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        assert_eq!("4433-4448".parse::<Ports>().unwrap().count(), 16);
        assert_eq!(Ports::Any(2).iter().collect::<Vec<_>>(), [0, 0]);
        assert_eq!(Ports::Range(5..=6).iter().collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn wrong_ports_are_named_with_their_value() {
        for text in ["", "0", "x", "1-", "70000", "any:", "any:-1", "0-3"] {
            let error = text.parse::<Ports>().unwrap_err();
            assert_eq!(error, PortsError::Form(text.to_owned()));
        }
        for (text, count) in [("any:0", 0), ("9-8", 0), ("1-257", 257)] {
            let error = text.parse::<Ports>().unwrap_err();
            assert!(error.to_string().contains(&format!("are {count} ports")));
        }
    }

    #[tokio::test]
    async fn looking_up_is_resolving() {
        for peer in ["127.0.0.1:4433-4434", "[::1]:9", "localhost:7"] {
            let peer: Remotes = peer.parse().unwrap();
            assert_eq!(peer.lookup().await.unwrap(), peer.resolve().unwrap());
        }
        let nowhere: Remotes = "nowhere.invalid:9".parse().unwrap();
        let error = nowhere.lookup().await.unwrap_err();
        assert!(error.to_string().contains("nowhere.invalid"), "{error}");
    }

    #[test]
    fn a_peer_has_all_its_ports() {
        let peer: Remotes = "127.0.0.1:4433-4434".parse().unwrap();
        let addresses = peer.resolve().unwrap();
        assert_eq!(
            addresses,
            [
                SocketAddr::from(([127, 0, 0, 1], 4433)),
                SocketAddr::from(([127, 0, 0, 1], 4434))
            ]
        );
        let peer: Remotes = "[::1]:9".parse().unwrap();
        assert_eq!(peer.to_string(), "[::1]:9");
        assert_eq!(peer.resolve().unwrap(), ["[::1]:9".parse().unwrap()]);
        for text in ["", "host", ":1", "::1:9", "host:0", "host:1-999", "[::1:9"] {
            assert!(text.parse::<Remotes>().is_err(), "{text}");
        }
    }
}
