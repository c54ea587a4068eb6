//! The ends of a flow, as they are named on the command line.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::Serialize;

/// An end of a flow: an address, and a port where one is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: Option<u16>,
}

impl Endpoint {
    /// Tells whether this may be the end of a flow with that address and port.
    #[must_use]
    pub fn is(&self, address: IpAddr, port: Option<u16>) -> bool {
        self.address == address && (self.port.is_none() || self.port == port)
    }
}

/// Why some text names no end of a flow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is no address.
    #[error(
        "give an address, and a port if it matters, as in 10.2.0.5, 10.2.0.5:443 or [2001:db8::5]:443"
    )]
    NoAddress,
    /// It is not the address of a host.
    #[error("no flow of a site has this address ({0}); give the address of a host")]
    NotOfHost(&'static str),
    /// No flow has this port.
    #[error("give a port from 1 to 65535, or none")]
    NoPort,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (address, port) = parts(text).ok_or(EndpointError::NoAddress)?;
        let address = address.to_canonical();
        let kind = match address {
            it if it.is_unspecified() => Some("unspecified"),
            it if it.is_loopback() => Some("loopback"),
            it if it.is_multicast() => Some("multicast"),
            IpAddr::V4(v4) if v4.is_broadcast() => Some("broadcast"),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("link-local"),
            _ => None,
        };
        match (kind, port) {
            (Some(kind), _) => Err(EndpointError::NotOfHost(kind)),
            (None, Some(0)) => Err(EndpointError::NoPort),
            (None, port) => Ok(Self { address, port }),
        }
    }
}

/// `[2001:db8::1]` is an address in brackets, and `2001:db8::1:443` an address without a port.
fn parts(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address, None));
    }
    if let Ok(both) = text.parse::<SocketAddr>() {
        return Some((both.ip(), Some(both.port())));
    }
    let bare = text.strip_prefix('[')?.strip_suffix(']')?;
    Some((bare.parse::<Ipv6Addr>().ok()?.into(), None))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}
