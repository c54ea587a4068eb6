//! The seam between an endpoint and the system: sockets, time, timers and the task of the driver.
//!
//! An [`Endpoint`](super::Endpoint) is written against two traits. A [`Runtime`] binds sockets, says what
//! time it is and runs the driver; a [`DatagramSocket`] carries datagrams with their addresses and their
//! ECN mark. There are two runtimes here: [`TokioRuntime`], UDP sockets of the system with offload, which
//! [`Endpoint::bind`](super::Endpoint::bind) takes, and [`MemoryNetwork`](super::memory::MemoryNetwork),
//! for tests. [`Endpoint::bind_with`](super::Endpoint::bind_with) takes any: to count or spoil datagrams that
//! are sent, to send them through something that is no UDP socket, to run the driver on another thread.
//!
//! The traits are not sealed, as others are what they are for. Methods that are added later have a
//! default, and the structs are built by functions, so that a runtime that compiles goes on to do so.
//! The driver is compiled for each runtime: nothing is boxed, and no call for a datagram is dynamic.
//!
//! # Wrapping a runtime
//!
//! This one loses every tenth train of datagrams of a real socket. One that is to keep all that the socket can
//! do (offload, answers from the address that was asked, notices of the network) forwards the methods that have
//! a default, too. What was received it reads by [`ReceiveBuffers::iter`]:
//!
//! ```
//! use std::{io, net::SocketAddr, task::{Context, Poll}, time::Instant};
//! use cloudburst::{
//!     BindError, Endpoint, EndpointConfig, Key, Security,
//!     runtime::{
//!         DatagramSocket, Datagrams, ReceiveBuffers, Runtime, SocketOptions, SystemTimer, TokioRuntime,
//!         UdpSocket,
//!     },
//! };
//!
//! #[derive(Clone, Debug)]
//! struct Lossy;
//!
//! #[derive(Debug)]
//! struct LossySocket(UdpSocket, u32);
//!
//! impl Runtime for Lossy {
//!     type Socket = LossySocket;
//!     type Timer = SystemTimer;
//!
//!     fn bind(&self, options: &SocketOptions) -> Result<LossySocket, BindError> {
//!         Ok(LossySocket(TokioRuntime.bind(options)?, 0))
//!     }
//!
//!     fn timer(&self) -> io::Result<SystemTimer> {
//!         TokioRuntime.timer()
//!     }
//!
//!     fn now(&self) -> Instant {
//!         TokioRuntime.now()
//!     }
//!
//!     fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
//!         TokioRuntime.spawn(driver);
//!     }
//! }
//!
//! impl DatagramSocket for LossySocket {
//!     fn local_addr(&self) -> SocketAddr {
//!         self.0.local_addr()
//!     }
//!
//!     fn poll_send(
//!         &mut self, context: &mut Context<'_>, datagrams: &Datagrams<'_>,
//!     ) -> Poll<io::Result<usize>> {
//!         self.1 += 1;
//!         if self.1 % 10 == 0 {
//!             return Poll::Ready(Ok(datagrams.contents.len()));
//!         }
//!         self.0.poll_send(context, datagrams)
//!     }
//!
//!     fn poll_receive(
//!         &mut self, context: &mut Context<'_>, buffers: &mut ReceiveBuffers,
//!     ) -> Poll<io::Result<()>> {
//!         self.0.poll_receive(context, buffers)
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let security = Security::shared_key(Key::new(std::num::NonZeroU8::MIN, [42; 32]));
//! let local = [[127, 0, 0, 1].into()];
//! let server = EndpointConfig::server(0, security.clone()).with_local(local)?;
//! let server = Endpoint::bind(server).await?;
//! let client = EndpointConfig::client(security).with_local(local)?;
//! let client = Endpoint::bind_with(Lossy, client).await?;
//! let peer = client.connect(server.local_addrs()).await?;
//! for _ in 0..20 {
//!     client.send(peer, vec![7; 20_000]).await?;
//! }
//! # Ok(())
//! # }
//! ```

mod buffers;
mod tokio_runtime;

use std::{
    fmt,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

pub use cloudburst_proto::{Ecn, IcmpKind};

pub(super) use self::buffers::{RECEIVE_BUFFERS, RECEIVE_BYTES, code_point};
pub use self::{
    buffers::{Arrival, ReceiveBuffers},
    tokio_runtime::TokioRuntime,
};
use super::BindError;
pub use super::{
    notices::NoticeSender,
    socket::UdpSocket,
    timer::{SystemTimer, TokioTimer},
};

/// Binds sockets, tells the time, makes timers and runs the driver of an endpoint.
///
/// It is a handle, cheap to clone.
///
/// Handles of endpoints use tokio besides: [`serve`](super::Endpoint::serve) spawns its handlers there, and the time of
/// a [`request`](super::Endpoint::request) and of messages that wait for capacity with a deadline is that
/// of its timers. So an endpoint is bound and used in a runtime of tokio, whatever this is.
pub trait Runtime: Clone + fmt::Debug + Send + Sync + 'static {
    /// The sockets that it binds.
    type Socket: DatagramSocket;
    /// The timers that it makes.
    type Timer: Timer;

    /// Binds a socket. Port 0 stands for one that the runtime chooses.
    ///
    /// The driver calls it as well, when a port is replaced: it must not block, and has to work where
    /// [`spawn`](Self::spawn) runs the driver.
    ///
    /// # Errors
    ///
    /// A [`BindError`]; [`BindError::new`] makes one of what the system says. An address that is
    /// unspecified and that [`BindError::NotLocal`] is said of is left out, if there are others.
    fn bind(&self, options: &SocketOptions) -> Result<Self::Socket, BindError>;

    /// Makes a timer for the driver.
    ///
    /// # Errors
    ///
    /// What the system lacks.
    fn timer(&self) -> io::Result<Self::Timer>;

    /// Returns the time that the endpoint lives by, which never goes back.
    fn now(&self) -> Instant;

    /// Runs the driver until it ends. It yields by itself.
    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static);

    /// Returns the time since 1970 by the calendar, which recorded first flights are told apart by.
    /// Default: the system's, if it has one.
    fn unix_time(&self) -> Option<Duration> {
        SystemTime::now().duration_since(UNIX_EPOCH).ok()
    }

    /// Returns what all secrets of an endpoint come from, where a test is to be the same each time. Default:
    /// nothing, which leaves them to the system. Who knows the seed knows the secrets.
    fn secret_seed(&self) -> Option<[u8; 32]> {
        None
    }
}

/// A bound socket that carries datagrams for an endpoint.
///
/// It is polled by the driver alone, in rounds, and has to return at once.
pub trait DatagramSocket: fmt::Debug + Send + 'static {
    /// Returns the address that it is bound to, with its port.
    fn local_addr(&self) -> SocketAddr;

    /// Sends as many datagrams from the beginning as one call takes, and returns the bytes that they are: those
    /// of one at least, and of whole ones.
    ///
    /// Pending is a socket that is full. It may have the task woken when there is room again, and need not:
    /// the driver tries again by its timer, and drops datagrams after 5 ms.
    ///
    /// # Errors
    ///
    /// A failure to send the first datagram. Of some kinds the path is probed: `AddrNotAvailable`,
    /// `HostUnreachable`, `NetworkDown`, `NetworkUnreachable`, `PermissionDenied`; the system's own error
    /// for a message that is too long has shorter datagrams sent; others are counted.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        datagrams: &Datagrams<'_>,
    ) -> Poll<io::Result<usize>>;

    /// Receives as many datagrams as are there and as there is room for, in place of what is in the buffers.
    /// Pending, with the task to be woken, where there are none.
    ///
    /// # Errors
    ///
    /// A failure to receive, which is counted; it is polled again.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut ReceiveBuffers,
    ) -> Poll<io::Result<()>>;

    /// Returns true if a datagram can go from here to there. Default: within a family of addresses.
    fn reaches(&self, remote: SocketAddr) -> bool {
        self.local_addr().is_ipv4() == remote.is_ipv4()
    }

    /// Returns the address that answers leave from to a datagram that was sent to `asked`, if the socket has
    /// several to choose from. Default: none.
    fn reply_address(&self, _asked: IpAddr) -> Option<IpAddr> {
        None
    }

    /// Sends each datagram by a call of its own from now on, as one of many together failed. Returns
    /// false if that is what it does already. Default: false.
    fn stop_offload(&mut self) -> bool {
        false
    }

    /// Tries to send many datagrams together again: a call failed for another reason. Default: nothing.
    fn retry_offload(&mut self) {}

    /// Returns true if one call sends many datagrams. Default: true.
    fn has_offload(&self) -> bool {
        true
    }

    /// Returns the smaller one of its two buffers, in bytes, if it has any that may be too small.
    fn buffer_bytes(&self) -> Option<usize> {
        None
    }

    /// Reports what the network says of datagrams from now on, or no longer. Default: nothing ever.
    fn set_notices(&mut self, _notices: Option<NoticeSender>) {}
}

/// A timer that wakes the task of the driver.
pub trait Timer: fmt::Debug + Send + 'static {
    /// Returns ready if `deadline` has come, and perhaps earlier. If not, the task is woken at that time or
    /// before; without a deadline it may sleep on. `now` is [`Runtime::now`].
    ///
    /// # Errors
    ///
    /// A failure to set the timer; the driver is then polled all the time.
    fn poll_deadline(
        &mut self,
        context: &mut Context<'_>,
        now: Instant,
        deadline: Option<Instant>,
    ) -> Poll<io::Result<()>>;
}

/// Settings of a socket to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// The address to bind, with port 0 for any.
    pub address: SocketAddr,
    /// The differentiated services code point of what is sent, 0 to 63; 0 is none.
    pub dscp: u8,
    /// Bytes that are asked for, for each of its two buffers.
    pub buffer_bytes: usize,
    /// Sockets of other endpoints may have the same address and port (`SO_REUSEPORT`).
    pub shares_port: bool,
}

impl SocketOptions {
    /// Returns settings of a socket that has this address alone, without a code point, with buffers of 4 MiB.
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            dscp: 0,
            buffer_bytes: 4 << 20,
            shares_port: false,
        }
    }
}

/// Datagrams that go the same way, one after the other in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagrams<'d> {
    /// The address that they go to.
    pub remote: SocketAddr,
    /// The address of ours that they leave from; none leaves it to the socket.
    pub local: Option<IpAddr>,
    /// Their mark.
    pub ecn: Ecn,
    /// The length of each but the last, which may be shorter: 1 at least.
    pub segment_bytes: usize,
    /// All of them; never empty.
    pub contents: &'d [u8],
}

impl<'d> Datagrams<'d> {
    /// Returns one datagram to this address, without a mark.
    pub const fn one(remote: SocketAddr, contents: &'d [u8]) -> Self {
        Self {
            remote,
            local: None,
            ecn: Ecn::NotCapable,
            segment_bytes: if contents.is_empty() {
                1
            } else {
                contents.len()
            },
            contents,
        }
    }

    /// Returns each datagram by itself.
    pub fn iter(&self) -> impl Iterator<Item = &'d [u8]> + use<'d> {
        self.contents.chunks(self.segment_bytes.max(1))
    }
}
