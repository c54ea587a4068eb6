//! Configuration of a transport.

use core::time::Duration;

use cloudburst_code::{MAX_MESSAGE_BYTES, Schedule};
use cloudburst_congestion::{
    CongestionControl, DEFAULT_INITIAL_ROUND_TRIP, MAX_KEEPALIVE, MIN_DATAGRAM_BYTES,
    MIN_KEEPALIVE, PathChoice, Reservation,
};
use cloudburst_security::Security;

/// Shortest time that a message may be tried for.
const MIN_LIFETIME: Duration = Duration::from_millis(10);
/// Longest: receivers remember at least for so long what they have handed over.
pub const MAX_LIFETIME: Duration = Duration::from_secs(60);
/// The shortest and the longest that may be said.
const INITIAL_ROUND_TRIPS: [Duration; 2] = [Duration::from_micros(10), Duration::from_secs(1)];
/// The longest datagram that is tried.
pub const MAX_DATAGRAM_BYTES: usize = 9_000;

/// Settings of an [`Transport`](super::Transport).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransportConfig {
    /// Keys, or none. There is no default: each is asked for by name.
    pub security: Security,
    /// What the time is by the calendar when the transport starts, since 1970. With it, the first
    /// messages of who has keys are taken without a round trip before them; 10 s after the start at
    /// the earliest, and if the clocks of both ends differ by no more than that. Default none: then
    /// each first contact takes the round trip.
    pub unix_time: Option<Duration>,
    /// For how long before its start nobody has run at this endpoint's addresses with the same key. What
    /// was sent there earlier, and may have been handed over by another, ends as [`Reason::Unknown`] at
    /// its sender, so that it is not handed over twice. Default 0. An endpoint on sockets holds ports that
    /// were named for 100 ms before it starts, so that who sends to it at once is not taken for who sent to
    /// another; where the system has just chosen the ports, it is [`Duration::MAX`].
    ///
    /// [`Reason::Unknown`]: super::Reason::Unknown
    pub quiet_before: Duration,
    /// How fast peers are sent to. Default [`CongestionControl::Adaptive`], which needs nothing
    /// stated.
    pub congestion: CongestionControl,
    /// The round trip to a peer that nothing was heard of yet, 10 us to 1 s; measured ones take its
    /// place. A message that has lost symbols waits so long before it is helped along. Too short, and first messages are asked about, or sent more of, before an
    /// answer can be there; too long, and what a first message loses costs it this time, which
    /// inside a data centre is all of it. Default [`DEFAULT_INITIAL_ROUND_TRIP`], 5 ms.
    pub initial_round_trip: Duration,
    /// How source symbols are summed up. Default [`Schedule::Mds`]: no symbol is sent in vain,
    /// at some microseconds more per message than [`Schedule::Default`] takes.
    pub schedule: Schedule,
    /// How the path of symbols is chosen. Default [`PathChoice::EarliestArrival`].
    pub path_choice: PathChoice,
    /// The longest message that is sent or taken, in bytes. Default 4 MiB.
    pub max_message_bytes: usize,
    /// Limits of symbols and time, after which a message is abandoned.
    pub budget: Budget,
    /// Lengths of datagrams, at first and at most.
    pub datagrams: Datagrams,
    /// Limits of memory and peers that others may take up.
    pub quotas: Quotas,
    /// Takes messages only from addresses that have shown a token. It costs the
    /// first message of a peer a round trip. With keys it makes sure that a recorded first flight
    /// is not taken once more even if the calendar was set back and this endpoint restarted;
    /// without, that none is taken once more after a restart. Default false.
    pub require_validation: bool,
    /// Lets ports of ours that do not deliver be abandoned for others
    /// ([`Event::RotatePort`](super::Event::RotatePort)). It finds a way around a link that is
    /// dead, or loses much, where networks choose links by ports; a firewall on the way that
    /// allows certain ports only is a reason against it. Default true. An endpoint on sockets
    /// keeps ports that were named (`Ports::Range` of the socket driver) in any case.
    pub rotate_ports: bool,
    /// Pings a peer that we connected to by two of its paths when nothing was sent to it for so long,
    /// 15 s (RFC 8085 §3.5) to 100 s, as long as it answers. Address translators and firewalls then go on
    /// to let in what the peer sends by itself; many forget a path after 30 s. It costs four
    /// datagrams of some 100 bytes each time, and wakes radios. Default none: without it, pings
    /// are sent only while messages are under way, and a few while a reply is awaited.
    pub keepalive: Option<Duration>,
}

/// Limits of symbols and time that a message may cost its sender.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Budget {
    /// Symbols, as a multiple of what the message has, and so many more.
    /// Default 8 times and 64.
    pub symbols_factor: f64,
    /// Symbols beyond that multiple; see [`Self::symbols_factor`].
    pub symbols_extra: u32,
    /// Time from the first transmission. Default 10 s, at most [`MAX_LIFETIME`]. While a message waits for
    /// its turn it runs only if the peer answers nothing, and after [`MAX_LIFETIME`] the message is
    /// abandoned in any case. A bound from the call on is an option of each message,
    /// [`SendOptions::deadline`](super::SendOptions::deadline).
    pub lifetime: Duration,
}

/// Lengths of datagrams, as UDP payload in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagrams {
    /// Length that is sent before anything is known. Default 1,200, which every path
    /// on the internet carries (RFC 9000 §14).
    pub initial: usize,
    /// Length that path MTU discovery tries for (DPLPMTUD, RFC 8899). Default 1,452: Ethernet's
    /// 1,500 less IPv6 and UDP.
    pub most: usize,
}

/// Limits of memory, peers and answers that others may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Peers in all. Default 16,384.
    pub peers: usize,
    /// Peers among these whose address is not validated. Default 1,024.
    pub unvalidated_peers: usize,
    /// Incomplete messages in all. Default 65,536.
    pub messages: usize,
    /// Incomplete messages of a peer. Default 16,384.
    pub peer_messages: usize,
    /// Memory of incomplete messages in all, in bytes. Default 256 MiB.
    pub bytes: usize,
    /// Memory of incomplete messages of a peer, in bytes. Default 64 MiB.
    pub peer_bytes: usize,
    /// Memory of incomplete messages of all peers together whose address is not validated, in bytes.
    /// Default 8 MiB.
    pub unvalidated_bytes: usize,
    /// Answers (stop, have, busy, pong, challenge) per second to an IP address. Default 100,000.
    pub answers_per_s: u32,
    /// Outgoing messages that wait for their turn or for a stop. Default 16,384.
    pub outgoing_messages: usize,
    /// Bytes of outgoing messages that wait. Default 256 MiB.
    pub outgoing_bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            symbols_factor: 8.0,
            symbols_extra: 64,
            lifetime: Duration::from_secs(10),
        }
    }
}

impl Budget {
    /// Returns how many symbols may be sent of a message that has `n`.
    pub fn symbols(&self, n: usize) -> u32 {
        let most = self.symbols_factor * n as f64;
        (most as u32).saturating_add(self.symbols_extra)
    }
}

impl Default for Datagrams {
    fn default() -> Self {
        Self {
            initial: MIN_DATAGRAM_BYTES,
            most: 1_452,
        }
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            peers: 16_384,
            unvalidated_peers: 1_024,
            messages: 65_536,
            peer_messages: 16_384,
            bytes: 256 << 20,
            peer_bytes: 64 << 20,
            unvalidated_bytes: 8 << 20,
            answers_per_s: 100_000,
            outgoing_messages: 16_384,
            outgoing_bytes: 256 << 20,
        }
    }
}

/// Capacity of the host for messages that have arrived (back-pressure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCapacity {
    /// Messages that may begin to arrive. Beyond that, peers that came by themselves are asked to
    /// try again later; a peer that we are connected to may still send, for it may be a reply
    /// that is waited for.
    pub new_messages: usize,
    /// Messages and requests that it takes now. Replies are taken always.
    pub messages: usize,
    /// Bytes of these messages and requests.
    pub bytes: usize,
    /// The host has none at all: then it takes one, however long that is.
    pub is_empty: bool,
}

impl HostCapacity {
    /// Takes everything, as a host does that hands messages on at once.
    pub const UNLIMITED: Self = Self {
        new_messages: usize::MAX,
        messages: usize::MAX,
        bytes: usize::MAX,
        is_empty: true,
    };

    /// Returns true if a message of this length would be taken.
    pub(super) const fn takes(&self, bytes: usize) -> bool {
        self.messages > 0 && (self.is_empty || bytes <= self.bytes)
    }

    /// A message was handed over.
    pub(super) const fn use_up(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_empty = false;
    }
}

/// Names the setting of a [`TransportConfig`] that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Security of another kind cannot be taken over while a transport runs.
    #[error("the security is of another kind than the transport was started with; start another")]
    OtherSecurity,
    /// The link is so slow that nothing could be sent.
    #[error("link_bits_per_s is {0}; at least 8,000 are needed")]
    Link(u64),
    /// The share is none, or more than all.
    #[error("share is {0}; it must be above 0 and at most 1")]
    Share(f64),
    /// Nothing could be lost, or more than all.
    #[error("most_loss is {0}; it must be above 0 and at most 1")]
    MostLoss(f64),
    /// Nothing comes back so fast, or nobody waits so long.
    #[error("initial_round_trip is {0:?}; it must be 10 us to 1 s")]
    InitialRoundTrip(Duration),
    /// No message, or one that no header can state.
    #[error("max_message_bytes is {given}; it must be 1 to {most}")]
    MaxMessage {
        /// Bytes that were asked for.
        given: usize,
        /// Bytes that are possible at most.
        most: usize,
    },
    /// A message could not be sent even once, or for longer than receivers remember.
    #[error(
        "the budget is {symbols_factor} times the symbols for {lifetime:?}; it must be at least 2 times, for 10 ms to 60 s"
    )]
    Budget {
        /// The value that was given.
        symbols_factor: f64,
        /// The value that was given.
        lifetime: Duration,
    },
    /// Datagrams too short for a header, or longer than any link's.
    #[error(
        "datagrams of {initial} to {most} bytes; it must be 256 to 9,000, the first not above the second"
    )]
    Datagrams {
        /// The value that was given.
        initial: usize,
        /// The value that was given.
        most: usize,
    },
    /// Translators of addresses are forgetful, but not so much; or a peer is forgotten meanwhile.
    #[error("keepalive is {0:?}; it must be 15 s to 100 s")]
    Keepalive(Duration),
    /// A quota is 0 and lets nothing in.
    #[error("the quota {0} is 0")]
    Quota(&'static str),
}

impl TransportConfig {
    /// Returns the defaults with this security.
    pub fn new(security: Security) -> Self {
        Self {
            security,
            unix_time: None,
            quiet_before: Duration::ZERO,
            congestion: CongestionControl::default(),
            initial_round_trip: DEFAULT_INITIAL_ROUND_TRIP,
            schedule: Schedule::Mds,
            path_choice: PathChoice::default(),
            max_message_bytes: 4 << 20,
            budget: Budget::default(),
            datagrams: Datagrams::default(),
            quotas: Quotas::default(),
            require_validation: false,
            rotate_ports: true,
            keepalive: None,
        }
    }

    /// Returns the defaults for a transport whose datagrams are neither encrypted nor
    /// authenticated; see [`Security::Unprotected`].
    pub fn unprotected() -> Self {
        Self::new(Security::Unprotected)
    }

    /// Checks all settings for mistakes.
    ///
    /// # Errors
    ///
    /// The first one.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let CongestionControl::Reserved(reservation) = self.congestion {
            validate(reservation)?;
        }
        let [least, longest] = INITIAL_ROUND_TRIPS;
        if !(least..=longest).contains(&self.initial_round_trip) {
            return Err(ConfigError::InitialRoundTrip(self.initial_round_trip));
        }
        let most = MAX_MESSAGE_BYTES - super::envelope::ENVELOPE_BYTES;
        let given = self.max_message_bytes;
        if given == 0 || given > most {
            return Err(ConfigError::MaxMessage { given, most });
        }
        let Budget {
            symbols_factor,
            lifetime,
            ..
        } = self.budget;
        if symbols_factor.is_nan()
            || symbols_factor < 2.0
            || lifetime < MIN_LIFETIME
            || lifetime > MAX_LIFETIME
        {
            return Err(ConfigError::Budget {
                symbols_factor,
                lifetime,
            });
        }
        let Datagrams { initial, most } = self.datagrams;
        if initial < 256 || initial > most || most > MAX_DATAGRAM_BYTES {
            return Err(ConfigError::Datagrams { initial, most });
        }
        let is_kept = |it: &Duration| (MIN_KEEPALIVE..=MAX_KEEPALIVE).contains(it);
        if let Some(given) = self.keepalive.filter(|it| !is_kept(it)) {
            return Err(ConfigError::Keepalive(given));
        }
        self.quotas.validate()
    }
}

impl Quotas {
    /// Whether another outgoing message of `bytes` may wait, besides so many of
    /// `held` bytes.
    pub(super) fn hold(&self, messages: usize, held: usize, bytes: usize) -> bool {
        messages < self.outgoing_messages && held.saturating_add(bytes) <= self.outgoing_bytes
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let all = [
            ("peers", self.peers),
            ("unvalidated_peers", self.unvalidated_peers),
            ("messages", self.messages),
            ("peer_messages", self.peer_messages),
            ("bytes", self.bytes),
            ("peer_bytes", self.peer_bytes),
            ("unvalidated_bytes", self.unvalidated_bytes),
            ("answers_per_s", self.answers_per_s as usize),
            ("outgoing_messages", self.outgoing_messages),
            ("outgoing_bytes", self.outgoing_bytes),
        ];
        match all.iter().find(|(_, quota)| *quota == 0) {
            Some((name, _)) => Err(ConfigError::Quota(name)),
            None => Ok(()),
        }
    }
}

fn validate(reservation: Reservation) -> Result<(), ConfigError> {
    let Reservation {
        link_bits_per_s,
        share,
        most_loss,
        ..
    } = reservation;
    if link_bits_per_s < 8_000 {
        return Err(ConfigError::Link(link_bits_per_s));
    }
    if !(share > 0.0 && share <= 1.0) {
        return Err(ConfigError::Share(share));
    }
    if !(most_loss > 0.0 && most_loss <= 1.0) {
        return Err(ConfigError::MostLoss(most_loss));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_assumed_within_bounds() {
        let validate = |initial_round_trip| {
            let config = TransportConfig {
                initial_round_trip,
                ..TransportConfig::unprotected()
            };
            config.validate()
        };
        let [least, longest] = INITIAL_ROUND_TRIPS;
        assert_eq!(validate(least), Ok(()));
        assert_eq!(validate(longest), Ok(()));
        for wrong in [least / 2, longest * 2] {
            assert_eq!(validate(wrong), Err(ConfigError::InitialRoundTrip(wrong)));
        }
    }
}
