//! The handle that users hold.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinSet,
};

use super::{
    BindError, Closed, Config, ConnectError, ReplyError, RequestError, SendError, Sending,
    Statistics, TrySendError,
    bind::bind_sockets,
    driver::{self, Command, Driver, Inbox, Io},
    outgoing::{Outgoing, Permit, ReplySender, Room},
    socket::Socket,
};
use crate::protocol::{
    self, Keyring, Kind, PathReport, PeerId, Receipt, SendError as MachineSendError, Time,
};

/// An endpoint on UDP sockets. A handle, cheap to clone; see the [module](super).
///
/// When the last handle and the last [`Sending`] are dropped, the endpoint ends at
/// once and what is under way is cancelled; [`close`](Self::close) waits for it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: mpsc::UnboundedSender<Command>,
    next_ticket: AtomicU64,
    room: Room,
    most_bytes: usize,
    inbox: Mutex<mpsc::Receiver<Received>>,
    inbox_bytes: Arc<AtomicUsize>,
    local_addrs: Vec<SocketAddr>,
}

/// A message that arrived.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// From whom.
    pub peer: PeerId,
    /// What it says.
    pub message: Vec<u8>,
    pub(super) request: Option<u64>,
}

impl Received {
    /// Whether its sender waits for a [`reply`](Endpoint::reply).
    pub const fn is_request(&self) -> bool {
        self.request.is_some()
    }
}

impl Endpoint {
    /// Binds sockets and starts the driver on the runtime of tokio that this is called in.
    ///
    /// # Errors
    ///
    /// A [`BindError`] when the settings are wrong or a port cannot be had.
    ///
    /// # Panics
    ///
    /// Without a runtime, or in one without input and output enabled.
    pub async fn bind(config: Config) -> Result<Self, BindError> {
        config.validate()?;
        let sockets = bind_sockets(&config)?;
        let system = |what| move |source| BindError::System { what, source };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(std::io::Error::other)
            .map_err(system("draw random numbers"))?;
        let (commands, asked) = mpsc::unbounded_channel();
        let (inbox, arrived) = mpsc::channel(config.inbox_messages.min(MAX_INBOX));
        let inbox_bytes = Arc::new(AtomicUsize::new(0));
        let shared = Arc::new(Shared {
            commands,
            next_ticket: AtomicU64::new(0),
            room: Room::new(&config.protocol.quotas),
            most_bytes: config.protocol.max_message_bytes,
            inbox: Mutex::new(arrived),
            inbox_bytes: Arc::clone(&inbox_bytes),
            local_addrs: sockets.iter().map(Socket::local).collect(),
        });
        let room = shared.room.clone();
        let mut watchers = JoinSet::new();
        let driver = Driver {
            machine: protocol::Endpoint::new(config.protocol, seed, Time::ZERO)?,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            notices: super::bind::watch_notices(&sockets, &mut watchers),
            sockets,
            start: Instant::now(),
            commands: asked,
            inbox: Inbox {
                messages: inbox,
                bytes: inbox_bytes,
                most_bytes: config.inbox_bytes,
            },
            statistics: Statistics::default(),
            io: Io::new().map_err(system("make a timer"))?,
            outgoing: Outgoing::default(),
            parked: Default::default(),
            closing: None,
            last_received: None,
        };
        // The driver yields by itself, after more work than the runtime would let it do.
        tokio::spawn(tokio::task::unconstrained(async move {
            let _closes = CloseOnDrop(room);
            driver.await;
            watchers.abort_all();
        }));
        Ok(Self { shared })
    }

    /// Addresses of the sockets, with the ports that the system chose.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.shared.local_addrs
    }

    /// A peer at these addresses, whom messages can be sent to. Nothing is sent yet.
    ///
    /// Each pair of a socket of ours and one of the addresses is a route; more routes
    /// make it likelier that some avoid whatever is slow.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`] when there is no route.
    pub async fn connect(
        &self,
        remotes: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<PeerId, ConnectError> {
        let remotes: Vec<SocketAddr> = remotes.into_iter().collect();
        if remotes.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        let is_nobody = |remote: &&SocketAddr| remote.port() == 0 || remote.ip().is_unspecified();
        if let Some(&remote) = remotes.iter().find(is_nobody) {
            return Err(ConnectError::NotAnAddress { remote });
        }
        self.ask(|done| Command::Connect { remotes, done }).await?
    }

    /// Sends a message and waits until the peer has it.
    ///
    /// It waits for room first, while as much is under way as
    /// [`Quotas`](protocol::Quotas) allow. Dropping the future cancels the message; the
    /// peer may have it or get it all the same.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it was not taken, or was given up.
    pub async fn send(
        &self,
        peer: PeerId,
        message: impl Into<Vec<u8>>,
    ) -> Result<Receipt, SendError> {
        self.enqueue(peer, message).await?.await
    }

    /// Waits for room and starts to send a message; what is returned waits for its delivery.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it is not taken.
    pub async fn enqueue(
        &self,
        peer: PeerId,
        message: impl Into<Vec<u8>>,
    ) -> Result<Sending, SendError> {
        let message = self.check(message.into())?;
        let permit = self.shared.room.wait(message.len()).await?;
        Ok(self.start(peer, Kind::Message, message, permit, None).0)
    }

    /// Starts to send a message if there is room.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] when there is none; the message is lost to the caller then,
    /// so keep a copy if it matters.
    pub fn try_send(
        &self,
        peer: PeerId,
        message: impl Into<Vec<u8>>,
    ) -> Result<Sending, TrySendError> {
        let message = self.check(message.into())?;
        let permit = self.shared.room.try_take(message.len())?;
        Ok(self.start(peer, Kind::Message, message, permit, None).0)
    }

    /// Sends a request and waits for the reply, for `timeout` in all. Dropping the future
    /// cancels the request and forgets its reply.
    ///
    /// # Errors
    ///
    /// A [`RequestError`] that says whether the peer had the request at least.
    pub async fn request(
        &self,
        peer: PeerId,
        message: impl Into<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Vec<u8>, RequestError> {
        let message = self.check(message.into())?;
        let mut delivered = false;
        let exchange = self.exchange(peer, message, &mut delivered);
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(RequestError::TimedOut {
                after: timeout,
                delivered,
            }),
        }
    }

    async fn exchange(
        &self,
        peer: PeerId,
        message: Vec<u8>,
        delivered: &mut bool,
    ) -> Result<Vec<u8>, RequestError> {
        let permit = self.shared.room.wait(message.len()).await?;
        let (reply, mut replied) = oneshot::channel();
        let (mut sending, ticket) = self.start(peer, Kind::Request, message, permit, Some(reply));
        let _forget = ForgetOnDrop(self, ticket);
        let mut is_sent = false;
        poll_fn(|context| {
            if !is_sent && let Poll::Ready(sent) = Pin::new(&mut sending).poll(context) {
                is_sent = true;
                *delivered = sent.is_ok();
            }
            // A failure to send comes by this way too.
            Pin::new(&mut replied).poll(context)
        })
        .await
        .unwrap_or(Err(RequestError::Closed(Closed)))
    }

    /// Answers a request, and waits until the peer has the answer.
    ///
    /// # Errors
    ///
    /// [`ReplyError::NotARequest`] for a plain message, else as with
    /// [`send`](Self::send).
    pub async fn reply(
        &self,
        request: &Received,
        message: impl Into<Vec<u8>>,
    ) -> Result<Receipt, ReplyError> {
        Ok(self.enqueue_reply(request, message.into()).await?.await?)
    }

    /// As [`enqueue`](Self::enqueue), for a reply.
    pub(super) async fn enqueue_reply(
        &self,
        request: &Received,
        message: Vec<u8>,
    ) -> Result<Sending, ReplyError> {
        let to = request.request.ok_or(ReplyError::NotARequest)?;
        let message = self.check(message).map_err(SendError::from)?;
        let permit = self.shared.room.wait(message.len()).await;
        let permit = permit.map_err(SendError::from)?;
        let kind = Kind::Reply { to };
        Ok(self.start(request.peer, kind, message, permit, None).0)
    }

    /// The next message or request that arrives. Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Closed`] when none will come any more.
    pub async fn recv(&self) -> Result<Received, Closed> {
        let received = self.shared.inbox.lock().await.recv().await.ok_or(Closed)?;
        let bytes = received.message.len();
        self.shared.inbox_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(received)
    }

    /// What was counted since the start.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub async fn statistics(&self) -> Result<Statistics, Closed> {
        self.ask(Command::Statistics).await
    }

    /// Everybody known now: those connected to, and those who sent something.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub async fn peers(&self) -> Result<Vec<PeerId>, Closed> {
        self.ask(Command::Peers).await
    }

    /// What is known of the paths to a peer; nothing if there is no such peer.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub async fn paths(&self, peer: PeerId) -> Result<Vec<PathReport>, Closed> {
        self.ask(|done| Command::Paths { peer, done }).await
    }

    /// Replaces the keys. What peers seal with a key that is still there goes on.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn set_keys(&self, keys: Keyring) -> Result<(), Closed> {
        let command = Command::SetKeys(keys);
        self.shared.commands.send(command).map_err(|_| Closed)
    }

    /// Takes no new messages, waits until those under way are delivered or given up and
    /// peers have heard what has arrived here, but not longer than `within`, and ends.
    /// Everything that waits on this endpoint then gets [`Closed`].
    pub async fn close(&self, within: Duration) {
        self.shared.room.close();
        // An endpoint that is closed already is what was asked for.
        let _ = self.ask(|done| Command::Close { within, done }).await;
    }

    fn check(&self, message: Vec<u8>) -> Result<Vec<u8>, MachineSendError> {
        let (given, most) = (message.len(), self.shared.most_bytes);
        match given {
            0 => Err(MachineSendError::Empty),
            _ if given > most => Err(MachineSendError::TooLarge { given, most }),
            _ => Ok(message),
        }
    }

    fn start(
        &self,
        peer: PeerId,
        kind: Kind,
        message: Vec<u8>,
        permit: Permit,
        reply: Option<ReplySender>,
    ) -> (Sending, u64) {
        let ticket = self.shared.next_ticket.fetch_add(1, Ordering::Relaxed);
        let (done, result) = oneshot::channel();
        let commands = &self.shared.commands;
        let send = driver::Send {
            ticket,
            peer,
            kind,
            message,
            permit,
            done,
            reply,
        };
        // A driver that is gone drops `done`, which whoever waits takes for closed.
        let _ = commands.send(Command::Send(send));
        (Sending::new(ticket, result, commands.clone()), ticket)
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Closed> {
        let (done, answer) = oneshot::channel();
        self.shared
            .commands
            .send(command(done))
            .map_err(|_| Closed)?;
        answer.await.map_err(|_| Closed)
    }
}

/// The channel sets aside a little memory for what it may hold.
const MAX_INBOX: usize = 1 << 20;

/// Nobody waits for room at an endpoint whose driver is gone, for whatever reason.
struct CloseOnDrop(Room);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A request whose reply nobody waits for.
struct ForgetOnDrop<'a>(&'a Endpoint, u64);

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        let _ = self.0.shared.commands.send(Command::Cancel(self.1));
    }
}
