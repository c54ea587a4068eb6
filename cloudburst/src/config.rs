//! Configuration of an endpoint on sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{BindError, Ports, ports::MAX_PORTS};
use cloudburst_proto as protocol;

/// Settings of an [`Endpoint`](super::Endpoint).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Keys, rate, budget, quotas: what does not depend on sockets.
    pub protocol: protocol::TransportConfig,
    /// Addresses to bind. On a machine with several interfaces, one of each lets
    /// messages take all of them. Default: all addresses, of IPv4 and, where the machine
    /// has it, of IPv6; the system then chooses the address that datagrams come from, but
    /// for those to peers that came by themselves: these leave from the address that was asked.
    pub local: Vec<IpAddr>,
    /// Ports to bind at each address: more ports, more paths, more paths where
    /// the network spreads by ports. Default 16 that the system chooses.
    pub ports: Ports,
    /// Differentiated services code point of what is sent (RFC 2474), 0 to 63.
    /// Default 0.
    pub dscp: u8,
    /// Buffer that the kernel is asked for, each way and each socket, in bytes.
    /// Default 4 MiB; what it gives less is warned of once.
    pub socket_buffer_bytes: usize,
    /// Messages that have arrived and may wait for
    /// [`recv`](super::Endpoint::recv). Default 16,384.
    pub inbox_messages: usize,
    /// Their bytes. Default 256 MiB.
    pub inbox_bytes: usize,
}

impl EndpointConfig {
    /// For those who begin: 16 ports that the system chooses.
    ///
    /// There is no default for the security:
    /// [`Security::key_pair`](protocol::Security::key_pair) is right where it is open who else is on
    /// the network, [`Security::shared_key`](protocol::Security::shared_key) for a few machines of
    /// one owner.
    pub fn client(security: protocol::Security) -> Self {
        Self {
            protocol: protocol::TransportConfig::new(security),
            local: vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            ports: Ports::default(),
            dscp: 0,
            socket_buffer_bytes: 4 << 20,
            inbox_messages: 16_384,
            inbox_bytes: 256 << 20,
        }
    }

    /// For those who are to be found at a port.
    pub fn server(port: u16, security: protocol::Security) -> Self {
        Self {
            ports: Ports::one(port),
            ..Self::client(security)
        }
    }

    /// Returns these settings with other local addresses.
    #[must_use]
    pub fn with_local(mut self, local: impl IntoIterator<Item = IpAddr>) -> Self {
        self.local = local.into_iter().collect();
        self
    }

    /// Returns these settings with other ports.
    #[must_use]
    pub fn with_ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self
    }

    /// Returns these settings with others of the protocol.
    #[must_use]
    pub fn with_protocol(mut self, protocol: protocol::TransportConfig) -> Self {
        self.protocol = protocol;
        self
    }

    pub(super) fn validate(&self) -> Result<(), BindError> {
        self.protocol.validate()?;
        if self.dscp > 63 {
            return Err(BindError::Dscp(self.dscp));
        }
        let sockets = self.ports.count() * self.local.len();
        if sockets == 0 || self.ports.count() > usize::from(MAX_PORTS) || sockets > MAX_SOCKETS {
            return Err(BindError::Sockets {
                addresses: self.local.len(),
                ports: self.ports.clone(),
                most: MAX_SOCKETS,
            });
        }
        self.check_overlap()?;
        for (name, value) in [
            ("inbox_messages", self.inbox_messages),
            ("inbox_bytes", self.inbox_bytes),
            ("socket_buffer_bytes", self.socket_buffer_bytes),
        ] {
            if value == 0 {
                return Err(BindError::Zero(name));
            }
        }
        Ok(())
    }
}

impl EndpointConfig {
    /// The system would say of the second that somebody else has its port.
    fn check_overlap(&self) -> Result<(), BindError> {
        let is_fixed = matches!(self.ports, Ports::Range(_));
        for (index, &first) in self.local.iter().enumerate() {
            let overlaps = |second: &&IpAddr| {
                let is_all = first.is_unspecified() || second.is_unspecified();
                first == **second || is_fixed && is_all && first.is_ipv4() == second.is_ipv4()
            };
            if let Some(&second) = self.local[index + 1..].iter().find(overlaps) {
                return Err(BindError::Overlap { first, second });
            }
        }
        Ok(())
    }
}

/// Each costs a descriptor and, on Linux, a task that hears of unreachable paths.
const MAX_SOCKETS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const TWICE: protocol::CongestionControl = protocol::CongestionControl::Reserved(
        protocol::Reservation::new(1_000_000).with_share(2.0),
    );

    #[test]
    fn defaults_are_valid_and_mistakes_are_named() {
        let security = || protocol::Security::Unprotected;
        EndpointConfig::client(security()).validate().unwrap();
        EndpointConfig::server(4433, security()).validate().unwrap();
        let reported = |change: fn(&mut EndpointConfig)| {
            let mut config = EndpointConfig::client(security());
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        let undecided = |it: &mut EndpointConfig| it.protocol.security = Default::default();
        assert!(reported(undecided).contains("no security is set"));
        assert!(reported(|it| it.dscp = 64).contains("64"));
        assert!(reported(|it| it.local.clear()).contains("no local address"));
        assert!(
            reported(|it| it.local.push(Ipv4Addr::UNSPECIFIED.into())).contains("0.0.0.0 alone")
        );
        let overlapping = |it: &mut EndpointConfig| {
            it.ports = Ports::one(4433);
            it.local.push(Ipv4Addr::LOCALHOST.into());
        };
        assert!(reported(overlapping).contains("0.0.0.0 and 127.0.0.1 overlap"));
        assert!(reported(|it| it.ports = Ports::Any(0)).contains("any:0"));
        assert!(reported(|it| it.ports = Ports::Any(700)).contains("any:700"));
        assert!(reported(|it| it.inbox_bytes = 0).contains("inbox_bytes"));
        assert!(reported(|it| it.protocol.congestion = TWICE).contains("share is 2"));
    }
}
