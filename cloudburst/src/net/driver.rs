//! The task that owns the state machine and the sockets.
//!
//! It decides nothing: it carries datagrams, time, commands and events between the
//! system, the state machine and the handles, in rounds, until there is nothing
//! left to carry. No lock and, but for a message's own memory, no allocation.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::icmp::{Notice, What};
use super::{
    Closed, ConnectError, Received, SendError, Statistics,
    outgoing::{Outgoing, Permit, ReplySender},
    socket::{Buffers, Socket, TRAIN_BYTES, Train},
    timer::Timer,
};
use crate::protocol::{
    Endpoint as Machine, Event, Keyring, Kind, MAX_DATAGRAM_BYTES, PathReport, PeerId, Receipt,
    Route, SendError as MachineSendError, SocketId, Time,
};

/// What handles ask for.
#[derive(Debug)]
pub(super) enum Command {
    Send(Send),
    /// Nobody waits for the message, or for the reply to it.
    Cancel(u64),
    Connect {
        remotes: Vec<SocketAddr>,
        done: oneshot::Sender<Result<PeerId, ConnectError>>,
    },
    SetKeys(Keyring),
    Statistics(oneshot::Sender<Statistics>),
    Peers(oneshot::Sender<Vec<PeerId>>),
    Paths {
        peer: PeerId,
        done: oneshot::Sender<Vec<PathReport>>,
    },
    Close {
        within: Duration,
        done: oneshot::Sender<()>,
    },
}

/// A message to be sent, with the room it takes.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) ticket: u64,
    pub(super) peer: PeerId,
    pub(super) kind: Kind,
    pub(super) message: Vec<u8>,
    pub(super) permit: Permit,
    pub(super) done: oneshot::Sender<Result<Receipt, SendError>>,
    pub(super) reply: Option<ReplySender>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) machine: Machine,
    pub(super) sockets: Vec<Socket>,
    /// The moment that the protocol's time counts from.
    pub(super) start: Instant,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) notices: mpsc::Receiver<Notice>,
    pub(super) inbox: Inbox,
    pub(super) statistics: Statistics,
    pub(super) io: Io,
    pub(super) outgoing: Outgoing,
    /// Messages that the protocol had no room for, though there was room for them here.
    pub(super) parked: VecDeque<Send>,
    pub(super) closing: Option<Closing>,
    /// When a message last came: its sender may not have heard that it did.
    pub(super) last_received: Option<Time>,
}

/// Where messages go.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) messages: mpsc::Sender<Received>,
    pub(super) bytes: Arc<AtomicUsize>,
    pub(super) most_bytes: usize,
}

/// Memory and time of the sockets.
#[derive(Debug)]
pub(super) struct Io {
    timer: Timer,
    receive: Buffers,
    transmit: Vec<u8>,
    /// Datagrams in `transmit` that are being sent.
    train: Option<(SocketId, Train)>,
    /// The next, which goes another way.
    next: Option<(SocketId, Train)>,
    /// Since when they have waited for their socket.
    blocked_since: Option<Time>,
}

#[derive(Debug)]
pub(super) struct Closing {
    deadline: Time,
    done: Vec<oneshot::Sender<()>>,
}

impl Io {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            timer: Timer::new()?,
            receive: Buffers::new(),
            // Behind a train that is full there is room for the next.
            transmit: vec![0; 2 * TRAIN_BYTES],
            train: None,
            next: None,
            blocked_since: None,
        })
    }
}

/// Commands, and trains to be sent, until datagrams are received again: a stop that
/// is not read in time costs symbols that nobody needs.
const COMMANDS_A_ROUND: usize = 64;
const TRAINS_A_ROUND: usize = 2;
/// Rounds until other tasks of the runtime get their turn.
const ROUNDS_A_TURN: usize = 32;
/// How long a full socket is waited for before its datagrams are dropped.
const BLOCKED_AT_MOST: Duration = Duration::from_millis(5);
/// Where the runtime's word on whether a socket can be written to is not to be relied on.
const BLOCKED_RETRY: Duration = Duration::from_micros(500);
/// How long an endpoint that closes goes on to answer after the last message.
const LINGER: Duration = Duration::from_millis(100);

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        for _ in 0..ROUNDS_A_TURN {
            let mut is_busy = match this.take_commands(context) {
                Commands::Taken(is_busy) => is_busy,
                Commands::NoHandles => return Poll::Ready(()),
            };
            is_busy |= this.take_notices(context);
            is_busy |= this.receive(context);
            is_busy |= this.tell_time();
            is_busy |= this.transmit(context);
            is_busy |= this.take_events();
            if this.is_closed() {
                return Poll::Ready(());
            }
            if !is_busy && !this.is_time(context) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

enum Commands {
    Taken(bool),
    NoHandles,
}

impl Driver {
    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    fn take_commands(&mut self, context: &mut Context<'_>) -> Commands {
        for taken in 0..COMMANDS_A_ROUND {
            match self.commands.poll_recv(context) {
                Poll::Ready(Some(command)) => self.obey(command),
                Poll::Ready(None) => return Commands::NoHandles,
                Poll::Pending => return Commands::Taken(taken > 0),
            }
        }
        Commands::Taken(true)
    }

    fn obey(&mut self, command: Command) {
        let now = self.now();
        // Those who asked may be gone: then nobody is told.
        match command {
            Command::Send(send) => self.send(now, send),
            Command::Cancel(ticket) => self.cancel(now, ticket),
            Command::Connect { remotes, done } => {
                let _ = done.send(self.connect(now, &remotes));
            }
            Command::SetKeys(keys) => self.machine.set_keys(keys),
            Command::Statistics(done) => {
                let _ = done.send(self.statistics());
            }
            Command::Peers(done) => {
                let _ = done.send(self.machine.peers().collect());
            }
            Command::Paths { peer, done } => {
                let _ = done.send(self.machine.paths(now, peer).collect());
            }
            Command::Close { within, done } => {
                let closing = self.closing.get_or_insert_with(|| Closing {
                    deadline: now + within,
                    done: Vec::new(),
                });
                closing.deadline = closing.deadline.min(now + within);
                closing.done.push(done);
            }
        }
    }

    fn send(&mut self, now: Time, send: Send) {
        if self.closing.is_some() {
            let _ = send.done.send(Err(SendError::Closed(Closed)));
            return;
        }
        match self.machine.send(now, send.peer, send.kind, &send.message) {
            Ok(id) => {
                let Send {
                    ticket,
                    permit,
                    done,
                    reply,
                    ..
                } = send;
                self.outgoing.insert(id, ticket, done, permit, reply);
            }
            // Something will be resolved, and make room.
            Err(MachineSendError::Full { .. }) if !self.outgoing.is_empty() => {
                self.parked.push_back(send);
            }
            Err(error) => {
                if let Some(reply) = send.reply {
                    let _ = reply.send(Err(error.into()));
                }
                let _ = send.done.send(Err(SendError::Refused(error)));
            }
        }
    }

    fn cancel(&mut self, now: Time, ticket: u64) {
        self.parked.retain(|parked| parked.ticket != ticket);
        if let Some(id) = self.outgoing.forget(ticket) {
            self.machine.cancel(now, id);
        }
    }

    fn connect(&mut self, now: Time, remotes: &[SocketAddr]) -> Result<PeerId, ConnectError> {
        let routes = routes(&self.sockets, remotes);
        match remotes.first() {
            Some(&remote) if routes.is_empty() => Err(ConnectError::NoSocket { remote }),
            _ => Ok(self.machine.connect(now, &routes)?),
        }
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = self.statistics.clone();
        statistics.protocol = self.machine.statistics();
        statistics.sockets.sockets = self.sockets.len() as u64;
        let plain = self.sockets.iter().filter(|it| it.segments() == 1).count();
        statistics.sockets.plain_now = plain as u64;
        statistics
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn take_notices(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_busy = false;
        while let Poll::Ready(Some(Notice { route, what })) = self.notices.poll_recv(context) {
            is_busy = true;
            let now = self.now();
            match what {
                What::Unreachable => {
                    self.statistics.sockets.unreachable += 1;
                    self.machine.handle_unreachable(now, route);
                }
                What::TooBig { mtu } => {
                    self.statistics.sockets.too_big += 1;
                    // RFC 791, RFC 8200 and RFC 768: headers of IP and UDP.
                    let headers = if route.remote.is_ipv4() { 28 } else { 48 };
                    let longest = (mtu as usize).saturating_sub(headers);
                    self.machine.handle_too_big(now, route, longest + 1);
                }
            }
        }
        is_busy
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn take_notices(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    /// One call for each socket that has something.
    fn receive(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_busy = false;
        for index in 0..self.sockets.len() {
            let socket = &self.sockets[index];
            if socket.io().poll_recv_ready(context).is_pending() {
                continue;
            }
            match socket.receive(&mut self.io.receive) {
                Ok(filled) => {
                    is_busy = true;
                    self.statistics.sockets.receive_calls += 1;
                    let now = self.now();
                    let socket = SocketId(index as u16);
                    for (remote, ecn, datagram) in self.io.receive.datagrams(filled) {
                        let route = Route { socket, remote };
                        self.machine.handle_datagram(now, route, ecn, datagram);
                    }
                }
                // Readiness is forgotten with this answer: ask for the next.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    is_busy |= socket.io().poll_recv_ready(context).is_ready();
                }
                // A notice that its task has read, or will.
                Err(_) => {
                    is_busy = true;
                    self.statistics.sockets.receive_errors += 1;
                }
            }
        }
        is_busy
    }

    fn tell_time(&mut self) -> bool {
        let now = self.now();
        let is_time = self.machine.next_deadline().is_some_and(|it| it <= now);
        if is_time {
            self.machine.handle_timeout(now);
        }
        is_time
    }

    fn transmit(&mut self, context: &mut Context<'_>) -> bool {
        for sent in 0..TRAINS_A_ROUND {
            let now = self.now();
            if !self.couple(now) || !self.send_train(context, now) {
                return sent > 0;
            }
        }
        true
    }

    /// Makes a train ready, of all that goes the same way next: a call of the system for many
    /// datagrams costs little more than one for few. False if there is nothing to send.
    fn couple(&mut self, now: Time) -> bool {
        if self.io.train.is_some() {
            return true;
        }
        let next = self.io.next.take();
        let Some((id, mut train)) = next.or_else(|| self.next_train(now, 0)) else {
            return false;
        };
        let is_whole =
            |train: &Train| (train.end - train.offset).is_multiple_of(train.segment_bytes);
        while is_whole(&train)
            && train.end - train.offset + train.segment_bytes <= TRAIN_BYTES
            && train.end + MAX_DATAGRAM_BYTES <= self.io.transmit.len()
            && let Some((other, more)) = self.next_train(now, train.end)
        {
            let is_alike = (other, more.remote, more.segment_bytes, more.ecn)
                == (id, train.remote, train.segment_bytes, train.ecn);
            if !is_alike || more.end - train.offset > TRAIN_BYTES {
                self.io.next = Some((other, more));
                break;
            }
            train.end = more.end;
        }
        self.io.train = Some((id, train));
        true
    }

    /// What the protocol wants to be sent next, written at `start` of the buffer.
    fn next_train(&mut self, now: Time, start: usize) -> Option<(SocketId, Train)> {
        let room = &mut self.io.transmit[start..];
        let most = room.len().min(TRAIN_BYTES);
        let transmit = self.machine.poll_transmit(now, &mut room[..most])?;
        let train = Train {
            remote: transmit.route.remote,
            ecn: transmit.ecn,
            segment_bytes: transmit.segment_bytes.max(1),
            offset: start,
            end: start + transmit.bytes,
        };
        Some((transmit.route.socket, train))
    }

    /// Sends what waits in the buffer; false if the socket is full.
    fn send_train(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        let mut retries = 0;
        while let Some((id, mut train)) = self.io.train.take() {
            let Some(socket) = self.sockets.get_mut(usize::from(id.0)) else {
                break;
            };
            let rest = train.end - train.offset;
            let step = match socket.send(&train, &self.io.transmit) {
                Ok(bytes) => {
                    self.statistics.sockets.send_calls += 1;
                    retries = 0;
                    bytes
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.waits_for(context, now, id) {
                        self.io.train = Some((id, train));
                        return false;
                    }
                    let datagrams = rest.div_ceil(train.segment_bytes);
                    self.statistics.sockets.send_drops += datagrams as u64;
                    rest
                }
                Err(_) if retries == 0 => {
                    // It may tell of an earlier datagram, of offload or of neither.
                    retries = 1;
                    0
                }
                Err(_) if socket.segments() > 1 && rest > train.segment_bytes => {
                    socket.stop_offload();
                    0
                }
                Err(error) => {
                    let route = Route {
                        socket: id,
                        remote: train.remote,
                    };
                    self.cannot_send(now, route, rest.min(train.segment_bytes), &error);
                    rest.min(train.segment_bytes)
                }
            };
            train.offset += step;
            self.io.blocked_since = None;
            if train.offset < train.end {
                self.io.train = Some((id, train));
            }
        }
        true
    }

    /// Whether a socket that is full is worth waiting for any longer.
    fn waits_for(&mut self, context: &mut Context<'_>, now: Time, id: SocketId) -> bool {
        let since = *self.io.blocked_since.get_or_insert_with(|| {
            self.statistics.sockets.send_waits += 1;
            now
        });
        // After an error of the socket the runtime may call it writable for good; then,
        // and when this wakes nobody, the timer does.
        let _ = self.sockets[usize::from(id.0)]
            .io()
            .poll_send_ready(context);
        now.since(since) < BLOCKED_AT_MOST
    }

    fn cannot_send(&mut self, now: Time, route: Route, bytes: usize, error: &io::Error) {
        use io::ErrorKind::{
            AddrNotAvailable, HostUnreachable, NetworkDown, NetworkUnreachable, PermissionDenied,
        };
        let counters = &mut self.statistics.sockets;
        match error.kind() {
            _ if quinn_udp::is_msg_size_err(error) => {
                counters.too_big += 1;
                self.machine.handle_too_big(now, route, bytes);
            }
            // A packet filter refuses by EPERM.
            AddrNotAvailable | HostUnreachable | NetworkDown | NetworkUnreachable
            | PermissionDenied => {
                counters.unreachable += 1;
                self.machine.handle_unreachable(now, route);
            }
            _ => {
                counters.send_errors += 1;
                tracing::debug!(%error, remote = %route.remote, bytes, "cannot send");
            }
        }
    }

    fn take_events(&mut self) -> bool {
        let mut is_busy = false;
        while let Some(event) = self.machine.poll_event() {
            is_busy = true;
            match event {
                Event::Received {
                    peer,
                    id,
                    kind,
                    message,
                } => self.deliver(peer, id, kind, message),
                Event::Delivered { id, receipt } => {
                    self.statistics.completion.record(receipt.completion);
                    self.outgoing.resolve(id, Ok(receipt));
                    self.unpark();
                }
                Event::Undelivered { id, failure } => {
                    self.outgoing
                        .resolve(id, Err(SendError::Undelivered(failure)));
                    self.unpark();
                }
                Event::PeerGone { .. } => {}
            }
        }
        is_busy
    }

    fn unpark(&mut self) {
        if let Some(send) = self.parked.pop_front() {
            let now = self.now();
            self.send(now, send);
        }
    }

    fn deliver(&mut self, peer: PeerId, id: u64, kind: Kind, message: Vec<u8>) {
        let now = self.now();
        self.last_received = Some(now);
        let request = match kind {
            Kind::Reply { to } => return self.outgoing.reply(to, message),
            Kind::Request => Some(id),
            Kind::Message => None,
        };
        let bytes = message.len();
        let before = self.inbox.bytes.fetch_add(bytes, Ordering::Relaxed);
        let received = Received {
            peer,
            message,
            request,
        };
        // A single message always has room, so that one longer than the inbox gets through.
        let has_room = before == 0 || before + bytes <= self.inbox.most_bytes;
        if !has_room || self.inbox.messages.try_send(received).is_err() {
            self.inbox.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.statistics.sockets.inbox_overflows += 1;
        }
    }

    /// Whether all is over after [`Command::Close`].
    fn is_closed(&mut self) -> bool {
        let now = self.now();
        let Some(closing) = &mut self.closing else {
            return false;
        };
        let is_still = self.outgoing.is_empty() && self.parked.is_empty();
        let lingers = self
            .last_received
            .is_some_and(|last| now.since(last) < LINGER);
        let is_over = is_still && !lingers || now >= closing.deadline;
        if is_over {
            for done in closing.done.drain(..) {
                let _ = done.send(());
            }
        }
        is_over
    }

    /// Whether the next deadline has come; if not, the task will be woken then.
    fn is_time(&mut self, context: &mut Context<'_>) -> bool {
        let now = self.now();
        let closing = self.closing.as_ref().map(|closing| {
            let lingered = self.last_received.map(|last| last + LINGER);
            let lingered = lingered.filter(|it| *it > now && self.outgoing.is_empty());
            lingered.unwrap_or(Time::NEVER).min(closing.deadline)
        });
        let blocked = self.io.blocked_since.map(|_| now + BLOCKED_RETRY);
        // What waits for a full socket cannot be hurried by the protocol's deadline.
        let protocol = match blocked {
            Some(_) => None,
            None => self.machine.next_deadline(),
        };
        let deadline = [protocol, closing, blocked].into_iter().flatten().min();
        match self.io.timer.poll(context, now, deadline) {
            Ok(is_time) => is_time,
            Err(error) => {
                tracing::error!(%error, "cannot set a timer; polling instead");
                context.waker().wake_by_ref();
                false
            }
        }
    }
}

/// Most routes to a peer.
const MAX_ROUTES: usize = 256;

/// All pairs of a socket and an address, those first that share neither with the
/// one before: whoever takes the first few takes several of both.
fn routes(sockets: &[Socket], remotes: &[SocketAddr]) -> Vec<Route> {
    let diagonals = 0..remotes.len();
    diagonals
        .flat_map(|shift| {
            (0..sockets.len()).map(move |index| (index, remotes[(index + shift) % remotes.len()]))
        })
        .filter(|&(index, remote)| sockets[index].reaches(remote))
        .map(|(index, remote)| Route {
            socket: SocketId(index as u16),
            remote,
        })
        .take(MAX_ROUTES)
        .collect()
}
