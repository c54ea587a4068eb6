//! Addresses of others, with several ports.

use std::{
    fmt, io,
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    ops::RangeInclusive,
    str::FromStr,
};

use crate::ports::{MAX_PORTS, MAX_PORTS_USIZE, Ports, range};

/// Names where one peer is: `host:4433`, `192.0.2.7:4433-4448`, `[2001:db8::7]:4433`, or several of
/// them with commas between, such as a server's address at each of its providers.
///
/// All of them have to be addresses of the same machine: messages to it take paths to each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remotes(Vec<Place>);

/// One host, and its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    host: String,
    ports: RangeInclusive<u16>,
}

/// Says what is wrong with the address of a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemotesError {
    /// Neither of the forms.
    #[error(
        "`{0}` is none of `host:4433`, `192.0.2.7:4433-4448` and `[2001:db8::7]:4433`; ports are 1 to 65535, the lower one first"
    )]
    Form(String),
    /// None, or more than are of use.
    #[error("`{given}` has {count} ports; it must be 1 to {MAX_PORTS}, of all addresses together")]
    Count {
        /// The text that was given.
        given: String,
        /// How many these are.
        count: usize,
    },
    /// Looks like an address, and is none: no name server is asked for it.
    #[error(
        "`{0}` is no IP address: IPv4 has four numbers of up to 255 without leading zeros, IPv6 up to eight groups of hexadecimal digits"
    )]
    Address(String),
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
        let places = given.split(',').map(|it| Place::read(it.trim()));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        match places.iter().map(|it| it.ports.len()).sum() {
            1..=MAX_PORTS_USIZE => Ok(Self(places)),
            count => Err(RemotesError::Count {
                given: given.to_owned(),
                count,
            }),
        }
    }
}

impl Place {
    fn read(given: &str) -> Result<Self, RemotesError> {
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
        if is_mistyped_address(host) {
            return Err(RemotesError::Address(host.to_owned()));
        }
        Ok(Self {
            host: host.to_owned(),
            ports,
        })
    }

    /// The addresses of the first family that the name has, with all ports.
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
        let at = |ip: IpAddr| {
            self.ports
                .clone()
                .map(move |port| SocketAddr::new(ip, port))
        };
        Ok(ips.flat_map(|&ip| at(ip)).collect())
    }
}

impl fmt::Display for Place {
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

impl fmt::Display for Remotes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, place) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(formatter, "{comma}{place}")?;
        }
        Ok(())
    }
}

impl Remotes {
    /// All addresses, each once: of each name those of the first family that it has, with all ports.
    /// Blocks while a name is looked up, for seconds where a name server is silent: in async
    /// code use [`lookup`](Self::lookup).
    ///
    /// # Errors
    ///
    /// [`RemotesError::Resolve`].
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, RemotesError> {
        let mut all = Vec::new();
        for place in &self.0 {
            let found = (place.host.as_str(), 0).to_socket_addrs();
            add(&mut all, place.with_ports(found)?);
        }
        Ok(all)
    }

    /// Does what [`resolve`](Self::resolve) does, without blocking the runtime of tokio that it is called in.
    ///
    /// # Errors
    ///
    /// [`RemotesError::Resolve`].
    pub async fn lookup(&self) -> Result<Vec<SocketAddr>, RemotesError> {
        let mut all = Vec::new();
        for place in &self.0 {
            let found = tokio::net::lookup_host((place.host.as_str(), 0)).await;
            add(&mut all, place.with_ports(found)?);
        }
        Ok(all)
    }
}

/// Tells if it is written like an address and is none. A name server would be asked for seconds, and say that the name is
/// wrong. What follows `%` is an interface.
fn is_mistyped_address(host: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let is_like_one = match host.split_once('%') {
        Some((address, _)) => return address.parse::<Ipv6Addr>().is_err(),
        None if host.contains(':') => true,
        None => host.split('.').count() == 4 && host.split('.').all(digits),
    };
    is_like_one && host.parse::<IpAddr>().is_err()
}

/// Two names may stand for the same address.
fn add(all: &mut Vec<SocketAddr>, found: Vec<SocketAddr>) {
    for address in found {
        if !all.contains(&address) {
            all.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_address_is_refused_before_a_name_server_is_asked() {
        for (given, host) in [
            ("198.51.100.256:4433", "198.51.100.256"),
            ("192.0.2.1:1,198.51.100.07:4433", "198.51.100.07"),
            ("[2001:db8::7::1]:4433", "2001:db8::7::1"),
            ("[2001:db8::g]:4433", "2001:db8::g"),
            ("[fe80::g%eth0]:4433", "fe80::g%eth0"),
        ] {
            let error = given.parse::<Remotes>().unwrap_err();
            assert!(
                matches!(&error, RemotesError::Address(it) if it == host),
                "{given}: {error}"
            );
        }
        for given in [
            "198.51.100.255:1",
            "[::1]:1",
            "[fe80::1%eth0]:1",
            "7.example:1",
            "4.3.2.1.example:1",
        ] {
            assert!(given.parse::<Remotes>().is_ok(), "{given}");
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
        for text in [
            "",
            "host",
            ":1",
            "::1:9",
            "host:0",
            "host:70000",
            "host:9-8",
            "[::1:9",
        ] {
            let error = text.parse::<Remotes>().unwrap_err();
            assert!(matches!(error, RemotesError::Form(_)), "{text}: {error}");
        }
        let many = "host:1-999".parse::<Remotes>();
        assert!(matches!(many, Err(RemotesError::Count { count: 999, .. })));
    }

    #[test]
    fn a_peer_may_be_at_several_addresses_and_has_each_once() {
        let peer: Remotes = "127.0.0.1:7-8, [::1]:9,127.0.0.2:7,127.0.0.1:8"
            .parse()
            .unwrap();
        assert_eq!(
            peer.to_string(),
            "127.0.0.1:7-8,[::1]:9,127.0.0.2:7,127.0.0.1:8"
        );
        let addresses = ["127.0.0.1:7", "127.0.0.1:8", "[::1]:9", "127.0.0.2:7"];
        assert_eq!(
            peer.resolve().unwrap(),
            addresses.map(|it| it.parse().unwrap())
        );
        for text in ["127.0.0.1:7,", ",", "a:1,b", "a:1-200,b:1-57"] {
            let error = text.parse::<Remotes>().unwrap_err().to_string();
            assert!(
                error.contains("1 to 256") || error.contains("is none of"),
                "{error}"
            );
        }
    }
}
