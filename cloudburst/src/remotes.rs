//! Addresses of others, with several ports.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    ops::RangeInclusive,
    str::FromStr,
};

use crate::ports::{MAX_PORTS, MAX_PORTS_USIZE, Ports, range};

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
