//! The task that owns the state machine and the sockets.
//!
//! It decides nothing: it carries datagrams, time, commands and events between the
//! system, the state machine and the handles, in rounds, until there is nothing
//! left to carry. No lock and, but for a message's own memory and what a request is cancelled by, no
//! allocation, unless a port is replaced.

mod changes;
mod datagrams;
mod events;
mod port_rotation;

use std::{
    collections::VecDeque,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::sync::{broadcast, mpsc};

pub(super) use self::{
    datagrams::Io,
    port_rotation::{LocalAddresses, PortRotation},
};
use super::{
    Closed, ConnectError, EndpointEvent, EndpointStatistics, Received, SendError,
    closing::{CloseReport, Closing, Farewell},
    commands::{Command, CommandReceiver, Question, Send},
    notices::Notice,
    options::CallOptions,
    outgoing::{Done, Outgoing},
    runtime::{DatagramSocket as _, Runtime, Timer as _},
    unanswered::UnansweredRequests,
};
use cloudburst_proto::{
    FourTuple, HostCapacity, MessageKind, PeerId, PublicKey, RETURN_WITHIN, SendOptions,
    SendRefused, SocketId, Time, Transport,
};

/// See the [module](self).
pub(super) struct Driver<R: Runtime> {
    pub(super) machine: Transport,
    pub(super) runtime: R,
    pub(super) sockets: Vec<R::Socket>,
    pub(super) port_rotation: PortRotation<R::Socket>,
    /// The origin of the protocol's time.
    pub(super) start: Instant,
    pub(super) commands: CommandReceiver,
    pub(super) notices: mpsc::Receiver<Notice>,
    pub(super) inbox: Inbox,
    pub(super) events: broadcast::Sender<EndpointEvent>,
    pub(super) events_missed: Arc<AtomicU64>,
    pub(super) statistics: EndpointStatistics,
    pub(super) io: Io<R::Timer>,
    pub(super) outgoing: Outgoing,
    /// The local id of the next failure that is sent; those of handles count up.
    pub(super) next_failure: u64,
    pub(super) unanswered: UnansweredRequests,
    /// Messages that the protocol had no capacity for, though there was capacity for them here.
    pub(super) parked: VecDeque<Send>,
    pub(super) closing: Option<Closing>,
    /// It has ended, and says goodbye.
    pub(super) farewell: Option<Farewell>,
    /// Requests that are being handled, and may be answered yet.
    pub(super) handling: Arc<AtomicUsize>,
    /// When a message last came: its sender may not have heard that it did.
    pub(super) last_received: Option<Time>,
}

/// Where messages go.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) messages: mpsc::Sender<Received>,
    pub(super) bytes: Arc<AtomicUsize>,
    pub(super) most_bytes: usize,
    /// Whether anybody has ever taken something.
    pub(super) has_taker: Arc<AtomicBool>,
}

impl Inbox {
    /// What may arrive. Of messages under way nobody knows how long they are, so that half of the
    /// bytes are theirs.
    fn capacity(&self) -> HostCapacity {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let messages = match self.messages.is_closed() {
            true => 0,
            false => self.messages.capacity(),
        };
        HostCapacity {
            new_messages: if bytes > self.most_bytes / 2 {
                0
            } else {
                messages
            },
            messages,
            bytes: self.most_bytes.saturating_sub(bytes),
            is_empty: bytes == 0,
        }
    }
}

/// Commands until datagrams are received again.
const COMMANDS_A_ROUND: usize = 64;
/// Rounds until other tasks of the runtime get their turn.
const ROUNDS_A_TURN: usize = 32;
/// How long an endpoint that closes goes on to answer after the last message.
const LINGER: Duration = Duration::from_millis(100);

/// Nothing in it is pinned.
impl<R: Runtime> Unpin for Driver<R> {}

impl<R: Runtime> Future for Driver<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.farewell.is_some() {
            return this.say_goodbye(context);
        }
        for _ in 0..ROUNDS_A_TURN {
            // Before the replies are taken that were put there before it came to none.
            let is_handling = this.handling.load(Ordering::SeqCst) > 0;
            let (mut is_busy, is_waiting) = match this.take_commands(context) {
                Commands::CommandReceiver { any, all } => (any, is_handling || !all),
                Commands::NoHandles => {
                    this.end();
                    return this.say_goodbye(context);
                }
            };
            is_busy |= this.take_notices(context);
            this.machine.set_host_capacity(this.capacity());
            is_busy |= this.receive(context);
            is_busy |= this.tell_time();
            is_busy |= this.transmit(context);
            is_busy |= this.take_events();
            if this.is_closed(is_waiting) {
                this.end();
                return this.say_goodbye(context);
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
    /// Any, and all there were?
    CommandReceiver {
        any: bool,
        all: bool,
    },
    NoHandles,
}

impl<R: Runtime> Driver<R> {
    fn now(&self) -> Time {
        Time::ZERO + self.runtime.now().saturating_duration_since(self.start)
    }

    /// Converts a time of the protocol into one of the runtime's clock.
    fn instant(&self, at: Time) -> Instant {
        self.start + at.since(Time::ZERO)
    }

    /// What may arrive. Nobody is left to take what begins to arrive at the end.
    fn capacity(&self) -> HostCapacity {
        let mut capacity = self.inbox.capacity();
        if self.closing.is_some() {
            capacity.new_messages = 0;
        }
        capacity
    }

    fn take_commands(&mut self, context: &mut Context<'_>) -> Commands {
        for taken in 0..COMMANDS_A_ROUND {
            match self.commands.poll_next(context) {
                Poll::Ready(Some(command)) => self.obey(command),
                Poll::Ready(None) => return Commands::NoHandles,
                Poll::Pending => {
                    return Commands::CommandReceiver {
                        any: taken > 0,
                        all: true,
                    };
                }
            }
        }
        Commands::CommandReceiver {
            any: true,
            all: false,
        }
    }

    fn obey(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Send(send) => self.send(now, send),
            Command::Cancel(local_id) => self.cancel(now, local_id),
            Command::Fail { peer, to, failure } => self.fail(now, peer, to, failure),
            Command::Query(question, place) => {
                drop(place);
                self.answer(now, question);
            }
            Command::TakeSecurity => {
                if let Some(security) = self.commands.security()
                    && let Err(error) = self.machine.set_security(security)
                {
                    tracing::error!(event = "keys_not_changed", %error, "the security stays as it was");
                }
            }
            // That may have been what the end waited for: it is looked at in each round.
            Command::Handled => {}
        }
    }

    /// Those who asked may be gone: then nobody learns of it.
    fn answer(&mut self, now: Time, question: Question) {
        match question {
            Question::Connect { remotes, key, done } => {
                let _ = done.send(self.connect(now, &remotes, key));
            }
            Question::PeerKey { peer, done } => {
                let _ = done.send(self.machine.peer_key(peer));
            }
            Question::Forget { peer, done } => {
                self.machine.forget(now, peer);
                let _ = done.send(());
            }
            Question::EndpointStatistics(done) => {
                let _ = done.send(self.statistics());
            }
            Question::Peers(done) => {
                let _ = done.send(self.machine.peers().collect());
            }
            Question::Paths { peer, done } => {
                let _ = done.send(self.machine.paths(now, peer).collect());
            }
            Question::Close { within, done } => {
                let closing = self.closing.get_or_insert_with(|| Closing {
                    deadline: now + within,
                    done: Vec::new(),
                    report: CloseReport::default(),
                });
                closing.deadline = closing.deadline.min(now + within);
                closing.done.push(done);
            }
        }
    }

    fn send(&mut self, now: Time, send: Send) {
        let is_answer = matches!(
            send.kind,
            MessageKind::Reply { .. } | MessageKind::Failure { .. }
        );
        if self.closing.is_some() && !is_answer {
            send.done.send(Err(SendError::Closed(Closed)));
            return;
        }
        if let MessageKind::Reply { to } | MessageKind::Failure { to } = send.kind {
            self.unanswered.remove(send.peer, to);
        }
        let most = send.gone.map(|_| RETURN_WITHIN);
        let options = send.options.remaining(most);
        let kind = (send.kind, options);
        let sent = match &send.shared {
            None => self.machine.send_with(now, send.peer, kind, &send.message),
            Some(message) => self.machine.send_shared(now, send.peer, options, message),
        };
        match sent {
            Ok(id) => self.outgoing.insert(id, send),
            // Something will be resolved, and make capacity.
            Err(SendRefused::Full { .. }) if !self.outgoing.is_empty() => {
                self.parked.push_back(send);
            }
            Err(error) => {
                if let Some(reply) = send.reply {
                    let _ = reply.send(Err(error.into()));
                }
                send.done.send(Err(SendError::Refused(error)));
            }
        }
    }

    /// Tells a peer that there is no reply to its request. Nobody waits for that.
    fn fail(&mut self, now: Time, peer: PeerId, to: u64, failure: Vec<u8>) {
        let local_id = self.next_failure;
        self.next_failure -= 1;
        let send = Send {
            local_id,
            peer,
            kind: MessageKind::Failure { to },
            options: CallOptions::begin(SendOptions::new()),
            message: failure.into(),
            shared: None,
            permit: None,
            done: Done::Nobody,
            reply: None,
            gone: None,
        };
        self.send(now, send);
    }

    fn cancel(&mut self, now: Time, local_id: u64) {
        self.parked.retain(|parked| parked.local_id != local_id);
        if let Some(id) = self.outgoing.forget(local_id) {
            self.machine.cancel(now, id);
        }
    }

    fn connect(
        &mut self,
        now: Time,
        remotes: &[SocketAddr],
        key: Option<PublicKey>,
    ) -> Result<PeerId, ConnectError> {
        let reaches =
            |socket: SocketId, remote| self.sockets[usize::from(socket.0)].reaches(remote);
        let sockets = (0..self.sockets.len() as u16).map(SocketId);
        let four_tuples = FourTuple::between(sockets, remotes, reaches);
        match remotes.first() {
            Some(&remote) if four_tuples.is_empty() => Err(ConnectError::NoSocket { remote }),
            _ => Ok(self.machine.connect(now, &four_tuples, key)?),
        }
    }

    fn statistics(&self) -> EndpointStatistics {
        let mut statistics = self.statistics.clone();
        statistics.protocol = self.machine.statistics();
        statistics.events_missed = self.events_missed.load(Ordering::Relaxed);
        statistics.sockets.sockets = self.sockets.len() as u64;
        let plain = self.sockets.iter().filter(|it| !it.has_offload()).count();
        statistics.sockets.plain_now = plain as u64;
        statistics
    }

    fn tell_time(&mut self) -> bool {
        let now = self.now();
        self.close_retired(now);
        let is_time = self.machine.next_deadline().is_some_and(|it| it <= now);
        if is_time {
            self.machine.handle_timeout(now);
        }
        is_time
    }

    /// Whether all is over after [`Question::Close`]. `is_waiting`: there may be replies yet.
    fn is_closed(&self, is_waiting: bool) -> bool {
        let now = self.now();
        let Some(closing) = &self.closing else {
            return false;
        };
        let is_still = !is_waiting && self.outgoing.is_empty() && self.parked.is_empty();
        let lingers = self
            .last_received
            .is_some_and(|last| now.since(last) < LINGER);
        is_still && !lingers || now >= closing.deadline
    }

    /// Whether the next deadline has come; if not, the task will be woken then.
    fn is_time(&mut self, context: &mut Context<'_>) -> bool {
        let now = self.now();
        let closing = self.closing.as_ref().map(|closing| {
            let lingered = self.last_received.map(|last| last + LINGER);
            let lingered = lingered.filter(|it| *it > now && self.outgoing.is_empty());
            lingered.unwrap_or(Time::NEVER).min(closing.deadline)
        });
        let blocked = self.io.retry_at(now);
        // What waits for a full socket cannot be hurried by the protocol's deadline.
        let protocol = match blocked {
            Some(_) => None,
            None => self.machine.next_deadline(),
        };
        let retired = self.port_rotation.next_close();
        let deadline = [protocol, closing, blocked, retired]
            .into_iter()
            .flatten()
            .min();
        match self.poll_timer(context, now, deadline) {
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
            Poll::Ready(Err(error)) => {
                tracing::error!(event = "timer_failed", %error, "cannot set a timer; polling instead");
                context.waker().wake_by_ref();
                false
            }
        }
    }

    fn poll_timer(
        &mut self,
        context: &mut Context<'_>,
        now: Time,
        deadline: Option<Time>,
    ) -> Poll<io::Result<()>> {
        let (now, deadline) = (self.instant(now), deadline.map(|it| self.instant(it)));
        self.io.timer.poll_deadline(context, now, deadline)
    }
}
