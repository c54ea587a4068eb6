//! Configuration of an endpoint on sockets.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use super::{EndpointConfigError, Ports, ports::MAX_PORTS};
use cloudburst_code::Schedule;
use cloudburst_proto::{
    self as protocol, CongestionControl, PathChoice, Quotas, Security, SendOptions,
};

/// Settings of an [`Endpoint`](super::Endpoint), each checked when it is set.
///
/// Security alone has no default; all else has one that needs no thought on the Internet. What is
/// wrong is refused by the method that sets it, so that settings that exist are right, and
/// [`Endpoint::bind`](super::Endpoint::bind) fails for what the machine lacks and for nothing else.
///
/// ```
/// use std::time::Duration;
/// use cloudburst::{EndpointConfig, EndpointConfigError, Ports, SecretKey, Security};
///
/// # fn main() -> Result<(), EndpointConfigError> {
/// let security = Security::key_pair(SecretKey::new([7; 32]));
/// let config = EndpointConfig::client(security)
///     .with_ports(Ports::Any(4))?
///     .with_lifetime(Duration::from_secs(2))?
///     .with_dscp(46)?;
/// assert!(config.with_lifetime(Duration::from_secs(3_600)).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    pub(super) protocol: protocol::TransportConfig,
    pub(super) local: Vec<IpAddr>,
    pub(super) ports: Ports,
    pub(super) dscp: u8,
    pub(super) socket_buffer_bytes: usize,
    pub(super) shares_port: bool,
    pub(super) inbox_messages: usize,
    pub(super) inbox_bytes: usize,
    pub(super) keep_early_requests: bool,
    pub(super) send_options: SendOptions,
}

type Checked = Result<EndpointConfig, EndpointConfigError>;

impl EndpointConfig {
    /// Returns the settings of who begins: 16 ports that the system chooses.
    ///
    /// There is no default for the security: [`Security::key_pair`] is right where it is open who
    /// else is on the network, [`Security::shared_key`] for a few machines of one owner.
    pub fn client(security: Security) -> Self {
        Self {
            protocol: protocol::TransportConfig::new(security),
            local: vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            ports: Ports::default(),
            dscp: 0,
            socket_buffer_bytes: 4 << 20,
            shares_port: false,
            inbox_messages: 16_384,
            inbox_bytes: 256 << 20,
            keep_early_requests: false,
            send_options: SendOptions::new(),
        }
    }

    /// Returns the settings of who is to be found at a port; 0 is one that the system chooses.
    pub fn server(port: u16, security: Security) -> Self {
        Self {
            ports: Ports::one(port),
            keep_early_requests: true,
            ..Self::client(security)
        }
    }

    /// Binds these addresses instead. On a machine with several interfaces, one of each lets
    /// messages take all of them. Default: all addresses, of IPv4 and, where the machine has it, of
    /// IPv6; the system then chooses the address that datagrams come from, but for those to peers
    /// that came by themselves: these leave from the address that was asked.
    ///
    /// # Errors
    ///
    /// [`EndpointConfigError::Sockets`] if there is none, or too many for the ports;
    /// [`EndpointConfigError::Overlap`] if one is given twice, or beside all addresses.
    pub fn with_local(mut self, local: impl IntoIterator<Item = IpAddr>) -> Checked {
        self.local = local.into_iter().collect();
        self.check_sockets()
    }

    /// Binds these ports at each address instead. More ports are more paths where networks spread by
    /// ports; each costs a socket. Default 16 that the system chooses.
    ///
    /// # Errors
    ///
    /// [`EndpointConfigError::Sockets`] and [`EndpointConfigError::Overlap`].
    pub fn with_ports(mut self, ports: Ports) -> Checked {
        self.ports = ports;
        self.check_sockets()
    }

    /// Marks what is sent with this differentiated services code point (RFC 2474), 0 to 63. Default
    /// 0; others are of use where the network knows them. Linux and Android alone take others: elsewhere
    /// [`Endpoint::bind`](super::Endpoint::bind) refuses them.
    ///
    /// # Errors
    ///
    /// [`EndpointConfigError::Dscp`].
    pub fn with_dscp(mut self, dscp: u8) -> Checked {
        if dscp > 63 {
            return Err(EndpointConfigError::Dscp(dscp));
        }
        self.dscp = dscp;
        Ok(self)
    }

    /// Asks the kernel for buffers of so many bytes, each way and each socket. Default 4 MiB; what it
    /// gives less is warned of once. Larger ones hold longer bursts.
    ///
    /// # Errors
    ///
    /// [`EndpointConfigError::Zero`].
    pub fn with_socket_buffer_bytes(mut self, bytes: usize) -> Checked {
        self.socket_buffer_bytes = above_zero("socket_buffer_bytes", bytes)?;
        Ok(self)
    }

    /// Lets other endpoints of this user bind the same named ports (`SO_REUSEPORT`), so that a server has an endpoint
    /// and a thread for each processor. Linux gives each peer to one of them, by its address and port: peers need
    /// one port each (`Ports::Any(1)`), for paths that reach another endpoint find it without their keys. With
    /// each endpoint that begins or ends, peers may find themselves at another, as if theirs had been restarted; but
    /// that one may hand over once more what the other had taken. Recorded first flights are not taken again by
    /// another: validation is required ([`with_validation_required`](Self::with_validation_required)), which costs the
    /// first message of a peer a round trip. Any program of the same user can bind the port as well and gets a part of
    /// the peers. Ports that the system chooses are not shared. Default false; elsewhere than on Linux and Android
    /// [`Endpoint::bind`](super::Endpoint::bind) refuses it.
    #[must_use]
    pub fn with_shared_port(mut self, is_shared: bool) -> Self {
        self.shares_port = is_shared;
        self
    }

    /// Lets so many messages that have arrived, of so many bytes, wait for
    /// [`recv`](super::Endpoint::recv); others are asked to try again later. Default 16,384 of 256
    /// MiB. It is memory, for peace when `recv` is not called for a while.
    ///
    /// # Errors
    ///
    /// [`EndpointConfigError::Zero`].
    pub fn with_inbox(mut self, messages: usize, bytes: usize) -> Checked {
        self.inbox_messages = above_zero("inbox_messages", messages)?;
        self.inbox_bytes = above_zero("inbox_bytes", bytes)?;
        Ok(self)
    }

    /// Keeps requests that come before anybody has called [`recv`](super::Endpoint::recv) or
    /// [`serve`](super::Endpoint::serve) for the first time, or not. If not, each is answered at once
    /// that nobody is there to handle it, so that whoever asks an endpoint that only asks others does
    /// not wait in vain; messages are kept in any case. Default: [`server`](Self::server) keeps them,
    /// [`client`](Self::client) does not. An endpoint that both asks and answers should.
    #[must_use]
    pub fn with_early_requests(mut self, are_kept: bool) -> Self {
        self.keep_early_requests = are_kept;
        self
    }

    /// Sends as fast as this says. Default [`CongestionControl::Adaptive`], which needs nothing stated
    /// and may be used on the Internet; [`CongestionControl::Reserved`] is faster at once, for a
    /// queue of its own only.
    ///
    /// # Errors
    ///
    /// A rate below 8,000 bit/s, and a share or loss that is not above 0 and at most 1.
    pub fn with_congestion(self, congestion: CongestionControl) -> Checked {
        self.with_protocol(|it| it.congestion = congestion)
    }

    /// Takes the round trip to a peer that nothing was heard of yet to be this long, 10 us to 1 s.
    /// Default 5 ms. Too short, and first messages are asked about, or sent more of, before an
    /// answer can be there; too long, and what a first message loses costs it this time, which inside
    /// a data centre is all of it.
    ///
    /// # Errors
    ///
    /// A time outside of these bounds.
    pub fn with_initial_round_trip(self, round_trip: Duration) -> Checked {
        self.with_protocol(|it| it.initial_round_trip = round_trip)
    }

    /// Sums source symbols up by this schedule. Default [`Schedule::Mds`]: no symbol is sent in vain,
    /// at some microseconds more per message than [`Schedule::Default`] takes.
    #[must_use]
    pub fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.protocol.schedule = schedule;
        self
    }

    /// Chooses the paths of symbols in this way. Default [`PathChoice::EarliestArrival`], Cloudburst's own; the others
    /// are there to be compared with it.
    #[must_use]
    pub fn with_path_choice(mut self, choice: PathChoice) -> Self {
        self.protocol.path_choice = choice;
        self
    }

    /// Sends and takes messages of so many bytes at most, up to 32 MiB less 17 bytes. Default 4 MiB.
    ///
    /// # Errors
    ///
    /// No bytes, or more than the code carries.
    pub fn with_max_message_bytes(self, bytes: usize) -> Checked {
        self.with_protocol(|it| it.max_message_bytes = bytes)
    }

    /// Abandons messages that are not delivered within this time from their first transmission, 10 ms to
    /// 60 s. Default 10 s. While a message waits for its turn the time runs only if the peer answers
    /// nothing, and after 60 s it is abandoned in any case. A time from the call on is
    /// [an option of messages](SendOptions::deadline).
    ///
    /// # Errors
    ///
    /// A time outside of these bounds: receivers remember for 60 s what they have handed over.
    pub fn with_lifetime(self, lifetime: Duration) -> Checked {
        self.with_protocol(|it| it.budget.lifetime = lifetime)
    }

    /// Treats messages, requests and replies so that are given no options of their own, by
    /// [`send`](super::Endpoint::send) for one. Default [`SendOptions::new`].
    #[must_use]
    pub fn with_send_options(mut self, options: SendOptions) -> Self {
        self.send_options = options;
        self
    }

    /// Abandons messages of which `factor` times their symbols and `extra` more were sent. Default 8
    /// times and 64. A larger budget outlasts more loss, and costs the network more while nobody
    /// answers.
    ///
    /// # Errors
    ///
    /// A factor below 2.
    pub fn with_symbol_budget(self, factor: f64, extra: u32) -> Checked {
        self.with_protocol(|it| {
            (it.budget.symbols_factor, it.budget.symbols_extra) = (factor, extra);
        })
    }

    /// Sends datagrams of `initial` bytes of UDP payload before anything is known of a path, and tries
    /// for up to `most` (DPLPMTUD, RFC 8899). Default 1,200, which every path of the Internet carries
    /// (RFC 9000 §14), and 1,452: Ethernet's 1,500 less IPv6 and UDP. 256 to 9,000.
    ///
    /// # Errors
    ///
    /// Lengths outside of these bounds, or the first above the second.
    pub fn with_datagram_bytes(self, initial: usize, most: usize) -> Checked {
        self.with_protocol(|it| {
            (it.datagrams.initial, it.datagrams.most) = (initial, most);
        })
    }

    /// Limits the memory, peers and answers that others may take up, and what may be under way.
    ///
    /// # Errors
    ///
    /// A quota of 0, which would let nothing in.
    pub fn with_quotas(self, quotas: Quotas) -> Checked {
        self.with_protocol(|it| it.quotas = quotas)
    }

    /// Takes messages only from addresses that have shown a token, which costs the first message of a
    /// peer a round trip. With keys it makes sure that a recorded first flight is not taken once
    /// more even if the calendar was set back and this endpoint restarted; without, that none is
    /// taken once more after a restart. Default false.
    #[must_use]
    pub fn with_validation_required(mut self, required: bool) -> Self {
        self.protocol.require_validation = required;
        self
    }

    /// Lets ports that the system chose, and that do not deliver while others do, be abandoned for
    /// others. It finds a way around a link that is dead where networks choose links by ports; a
    /// firewall that lets certain ports through only is a reason against it. Ports that were named
    /// stay in any case. Default true.
    #[must_use]
    pub fn with_port_rotation(mut self, rotates: bool) -> Self {
        self.protocol.rotate_ports = rotates;
        self
    }

    /// Pings peers that were connected to when nothing was sent to them for so long, 15 s to 100 s, as
    /// long as they answer: for applications whose peers send by themselves, through address
    /// translators and firewalls that forget a path after 30 s or more (RFC 4787 §4.3). Default: none
    /// is sent but while messages are under way, and a few while a reply is awaited (RFC 8085 §3.5).
    ///
    /// # Errors
    ///
    /// [`EndpointConfigError::Protocol`].
    pub fn with_keepalive(self, interval: Duration) -> Checked {
        self.with_protocol(|it| it.keepalive = Some(interval))
    }

    /// The configuration of the protocol, with what the sockets ask of it.
    pub(super) fn to_protocol(&self) -> protocol::TransportConfig {
        let mut protocol = self.protocol.clone();
        // The caller that named ports is to be found there.
        protocol.rotate_ports &= matches!(self.ports, Ports::Any(_));
        // A first flight that was recorded is new to the other endpoints of the port, but their tokens are not its.
        protocol.require_validation |= self.shares_port;
        protocol
    }

    fn with_protocol(mut self, change: impl FnOnce(&mut protocol::TransportConfig)) -> Checked {
        change(&mut self.protocol);
        self.protocol.validate()?;
        Ok(self)
    }

    fn check_sockets(self) -> Checked {
        let sockets = self.ports.count() * self.local.len();
        if sockets == 0 || self.ports.count() > usize::from(MAX_PORTS) || sockets > MAX_SOCKETS {
            return Err(EndpointConfigError::Sockets {
                addresses: self.local.len(),
                ports: self.ports,
                most: MAX_SOCKETS,
            });
        }
        self.check_overlap()?;
        Ok(self)
    }

    /// The system would say of the second that somebody else has its port.
    fn check_overlap(&self) -> Result<(), EndpointConfigError> {
        let is_fixed = matches!(self.ports, Ports::Range(_));
        for (index, &first) in self.local.iter().enumerate() {
            let overlaps = |second: &&IpAddr| {
                let is_all = first.is_unspecified() || second.is_unspecified();
                first == **second || is_fixed && is_all && first.is_ipv4() == second.is_ipv4()
            };
            if let Some(&second) = self.local[index + 1..].iter().find(overlaps) {
                return Err(EndpointConfigError::Overlap { first, second });
            }
        }
        Ok(())
    }
}

fn above_zero(setting: &'static str, value: usize) -> Result<usize, EndpointConfigError> {
    match value {
        0 => Err(EndpointConfigError::Zero(setting)),
        _ => Ok(value),
    }
}

/// Each costs a descriptor and, on Linux, a task that hears of unreachable paths.
const MAX_SOCKETS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Reservation;

    fn client() -> EndpointConfig {
        EndpointConfig::client(Security::Unprotected)
    }

    #[test]
    fn defaults_are_what_each_setter_would_take() {
        let all = [
            client(),
            EndpointConfig::server(4433, Security::Unprotected),
        ];
        for config in all {
            let unchanged = config.with_protocol(|_| ()).unwrap();
            unchanged.check_sockets().unwrap();
        }
    }

    #[test]
    fn port_that_is_shared_takes_no_first_flight_without_a_token() {
        let requires = |config: EndpointConfig| config.to_protocol().require_validation;
        let server = EndpointConfig::server(4433, Security::Unprotected);
        assert!(!requires(server.clone()));
        let shared = server.with_shared_port(true);
        assert!(requires(shared.with_validation_required(false)));
    }

    #[test]
    fn a_setting_that_is_wrong_is_refused_with_its_value() {
        const ALL: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        const SECOND: Duration = Duration::from_secs(1);
        let twice = Reservation::new(1_000_000).with_share(2.0);
        let lossless = Reservation::new(1_000_000).with_most_loss(0.0);
        let mut no_peers = Quotas::default();
        no_peers.peers = 0;
        let reserved = |it| client().with_congestion(CongestionControl::Reserved(it));
        let fixed = client().with_ports(Ports::one(4433)).unwrap();
        for (refused, says) in [
            (client().with_dscp(64), "64"),
            (client().with_local([]), "no local address"),
            (client().with_local([ALL, ALL]), "0.0.0.0 alone"),
            (
                fixed.with_local([ALL, LOCALHOST]),
                "0.0.0.0 and 127.0.0.1 overlap",
            ),
            (client().with_ports(Ports::Any(0)), "any:0"),
            (client().with_ports(Ports::Any(700)), "any:700"),
            (client().with_inbox(1, 0), "inbox_bytes"),
            (client().with_inbox(0, 1), "inbox_messages"),
            (client().with_socket_buffer_bytes(0), "socket_buffer_bytes"),
            (reserved(twice), "share is 2"),
            (reserved(lossless), "most_loss is 0"),
            (reserved(Reservation::new(1)), "link_bits_per_s is 1"),
            (client().with_initial_round_trip(2 * SECOND), "2s"),
            (client().with_max_message_bytes(0), "max_message_bytes is 0"),
            (client().with_max_message_bytes(1 << 30), "1073741824"),
            (client().with_lifetime(61 * SECOND), "61s"),
            (client().with_lifetime(SECOND / 1_000), "1ms"),
            (client().with_symbol_budget(f64::NAN, 0), "NaN"),
            (client().with_datagram_bytes(1_200, 1_000), "1200 to 1000"),
            (client().with_datagram_bytes(1_200, 9_001), "9001"),
            (client().with_quotas(no_peers), "quota peers"),
        ] {
            let refused = refused.expect_err(says).to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }

    /// Each alone is right.
    #[test]
    fn addresses_and_ports_are_checked_together_whichever_comes_last() {
        let all = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST].map(IpAddr::from);
        let chosen = client().with_local(all).unwrap();
        assert!(chosen.with_ports(Ports::one(4433)).is_err());
        let many = client().with_ports(Ports::Any(256)).unwrap();
        let five = (1..6).map(|it| IpAddr::from([127, 0, 0, it]));
        assert!(many.with_local(five).is_err());
    }
}
