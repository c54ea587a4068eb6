//! A network in memory, for tests of programs that use Cloudburst.
//!
//! Endpoints that a [`MemoryNetwork`] binds are [`Endpoint`]s as any others, with the same protocol,
//! keys and driver; only their datagrams go through memory instead of sockets of the system. Links
//! between addresses have a delay, and lose, repeat, reorder and queue what they are told to;
//! partitions part groups of addresses. No privilege, no port and no real time is needed: these
//! endpoints live by the clock of tokio, so that under `start_paused` a test of minutes takes
//! milliseconds, and does not hang on how busy the machine is.
//!
//! ```
//! use std::{num::NonZeroU8, time::Duration};
//! use cloudburst::{EndpointConfig, Key, Security, memory::{Link, MemoryNetwork}};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a test: #[tokio::test(start_paused = true)], with tokio's feature `test-util`.
//! let security = Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]));
//! let network = MemoryNetwork::new(1);
//! network.set_default_link(Link::new(Duration::from_millis(20)).with_loss(0.1)?);
//!
//! let server = EndpointConfig::server(4433, security.clone()).with_local([[10, 0, 0, 2].into()])?;
//! let server = network.bind(server).await?;
//! let client = EndpointConfig::client(security).with_local([[10, 0, 0, 1].into()])?;
//! let client = network.bind(client).await?;
//!
//! let peer = client.connect(server.local_addrs()).await?;
//! let receipt = client.send(peer, "made to arrive soon").await?;
//! assert!(receipt.completion >= Duration::from_millis(40), "a round trip");
//! assert_eq!(server.recv().await?.message, "made to arrive soon");
//! # Ok(())
//! # }
//! ```
//!
//! # Where it differs from a network
//!
//! - Each link is one path, whatever ports are used: give endpoints several addresses
//!   ([`EndpointConfig::with_local`]) to have several.
//! - Timers of tokio count milliseconds. What takes less than one here takes one, and figures of
//!   speed are not to be taken from it.
//! - Nobody says that a port is closed (ICMP): what is sent there vanishes, and is
//!   [counted](MemoryNetworkStatistics::nobody). The longest datagram is not limited.
//! - A server holds a port that was named for 100 ms before it starts, as on sockets. Over links that
//!   take longer back than that, what is sent to one that has just started ends as
//!   [`Reason::Unknown`](crate::Reason::Unknown), for another might have run there before: let it run
//!   for as long as the way back takes first, or mark what is sent as idempotent.
//! - Endpoints draw from the network's seed, their secrets included: use it for tests alone.

mod link;
mod socket;
mod state;

use std::{
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

pub use self::{
    link::{Link, LinkError},
    socket::MemorySocket,
};
use self::{
    link::{LinkState, mix},
    state::State,
};
use crate::{
    BindError, Endpoint, EndpointConfig,
    runtime::{Runtime, SocketOptions, TokioTimer},
};

/// A network in memory that endpoints are bound in; a handle, cheap to clone.
///
/// See the [module](self). The same program with the same seed sees the same losses on a runtime of
/// one thread whose time stands still, as far as the program itself does the same each time.
#[derive(Clone, Debug)]
pub struct MemoryNetwork(Arc<Mutex<State>>);

/// Counts what became of datagrams in a [`MemoryNetwork`].
///
/// `sent + duplicated` is the sum of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryNetworkStatistics {
    /// Datagrams that endpoints have sent.
    pub sent: u64,
    /// Copies that links have made.
    pub duplicated: u64,
    /// Datagrams that an endpoint has read.
    pub delivered: u64,
    /// Datagrams that a link has lost by chance.
    pub lost: u64,
    /// Datagrams that found the queue of a link, or the buffer of a socket, full.
    pub dropped: u64,
    /// Datagrams that a partition has kept back.
    pub parted: u64,
    /// Datagrams to ports that nobody had, or had any longer when they arrived.
    pub nobody: u64,
    /// Datagrams that have not been read yet.
    pub under_way: u64,
}

impl MemoryNetwork {
    /// Makes an empty network in which all that is random comes from this number. All links are
    /// perfect at first.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State::new(seed))))
    }

    /// Sets how all links are, in both directions, that [`set_link`](Self::set_link) is not told about.
    pub fn set_default_link(&self, link: Link) {
        let mut state = self.state();
        // Links in use keep their queues and their chance.
        for used in state.links.values_mut().filter(|it| !it.is_stated) {
            used.link = link.clone();
        }
        state.default_link = link;
    }

    /// Sets how what is sent from one address to another fares from now on; what is under way arrives
    /// as it would have. The other direction is a link of its own.
    pub fn set_link(&self, from: IpAddr, to: IpAddr, link: Link) {
        let mut state = self.state();
        let seed = state.seed;
        let used = state.links.entry((from, to));
        let used = used.or_insert_with(|| LinkState::new(link.clone(), seed, from, to));
        (used.link, used.is_stated) = (link, true);
    }

    /// Parts two groups of addresses: nothing sent from one to the other arrives, in both directions,
    /// until [`heal`](Self::heal). What is under way still does. Partitions add up.
    pub fn partition(
        &self,
        left: impl IntoIterator<Item = IpAddr>,
        right: impl IntoIterator<Item = IpAddr>,
    ) {
        let sides = [left.into_iter().collect(), right.into_iter().collect()];
        self.state().partitions.push(sides);
    }

    /// Ends all partitions at once.
    pub fn heal(&self) {
        self.state().partitions.clear();
    }

    /// Returns what was counted so far.
    pub fn statistics(&self) -> MemoryNetworkStatistics {
        self.state().statistics
    }

    /// Binds an endpoint at the addresses of [`EndpointConfig::with_local`], of which it needs at
    /// least one, and starts it on the runtime of tokio that this is called in. It lives by the time of
    /// that runtime; no DSCP is set.
    ///
    /// # Errors
    ///
    /// A [`BindError`] when another endpoint has the port, or no address is stated.
    ///
    /// # Panics
    ///
    /// Without a runtime, or in one without time enabled.
    pub async fn bind(&self, config: EndpointConfig) -> Result<Endpoint, BindError> {
        Endpoint::bind_with(self.clone(), config).await
    }

    /// The state is whole whoever has panicked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Endpoints live by the clock of tokio, draw their secrets from the network's seed, and find a calendar
/// that begins when the first one of them is bound.
impl Runtime for MemoryNetwork {
    type Socket = MemorySocket;
    type Timer = TokioTimer;

    fn bind(&self, options: &SocketOptions) -> Result<MemorySocket, BindError> {
        let address = options.address;
        if address.ip().is_unspecified() {
            let reason =
                "in memory an endpoint needs addresses of its own; give some by with_local";
            let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
            return Err(BindError::new(address, source));
        }
        let local = self.state().bind(address, options.buffer_bytes);
        let local = local.ok_or(BindError::InUse { address })?;
        Ok(MemorySocket::new(self.clone(), local))
    }

    fn timer(&self) -> io::Result<TokioTimer> {
        Ok(TokioTimer::new())
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }

    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(tokio::task::unconstrained(driver));
    }

    fn unix_time(&self) -> Option<Duration> {
        let now = Instant::now();
        let began = *self.state().began.get_or_insert(now);
        Some(CALENDAR + now.duration_since(began))
    }

    fn secret_seed(&self) -> Option<[u8; 32]> {
        let mut state = self.state();
        state.endpoints += 1;
        let mut number = mix(state.seed) ^ state.endpoints;
        let mut seed = [0; 32];
        for bytes in seed.chunks_mut(8) {
            number = mix(number);
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        Some(seed)
    }
}

/// When the calendar of a network begins: the year 2026.
const CALENDAR: Duration = Duration::from_secs(56 * 31_556_952);

#[cfg(test)]
mod tests;
