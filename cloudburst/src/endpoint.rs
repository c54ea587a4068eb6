//! The handle that users hold.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot, watch};

use super::{
    CloseReport, Closed, ConnectError, EndpointStatistics, PeerError, Received, SendError, Sending,
    TrySendError,
    commands::{Commands, Question, Send},
    driver::LocalAddresses,
    events::{EndpointEvent, Events},
    options::CallOptions,
    outgoing::{Done, Permit, ReplySender, SendBudget},
};
use cloudburst_proto::{
    ForeignPeer, MessageKind, PathReport, PeerId, PublicKey, Receipt, Security, SendOptions,
    SendRefused, TransportId,
};

/// An endpoint on UDP sockets. A handle, cheap to clone; see the [module](super).
///
/// The [`PeerId`]s that it gives are its own: at another endpoint they stand for nobody, and are
/// refused as [`ForeignPeer`].
///
/// When the last handle and the last [`Sending`] are dropped, the endpoint ends at
/// once and what is under way is cancelled; [`close`](Self::close) waits for it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) commands: Commands,
    /// The ids of this endpoint's peers bear it.
    pub(super) transport: TransportId,
    pub(super) next_ticket: AtomicU64,
    pub(super) room: SendBudget,
    pub(super) most_bytes: usize,
    /// Options of messages that are given none.
    pub(super) send_options: SendOptions,
    pub(super) inbox: Mutex<mpsc::Receiver<Received>>,
    /// Whether anybody has ever taken something out of the inbox.
    pub(super) has_taker: Arc<AtomicBool>,
    pub(super) inbox_bytes: Arc<AtomicUsize>,
    pub(super) closing: watch::Sender<bool>,
    /// Requests that [`Endpoint::serve`] is handling.
    pub(super) handling: Arc<AtomicUsize>,
    pub(super) local_addrs: Arc<LocalAddresses>,
    /// The driver alone keeps the channel: what listens hears when it is gone.
    pub(super) events: broadcast::WeakSender<EndpointEvent>,
    pub(super) events_missed: Arc<AtomicU64>,
}

impl Endpoint {
    /// Addresses of the sockets as they are now, with the ports that the system chose, by the
    /// sockets' numbers ([`FourTuple::socket`](super::FourTuple::socket)).
    ///
    /// A port that the system chose, and that does not deliver while others do, is abandoned for
    /// another; see [`EndpointConfig::with_port_rotation`](super::EndpointConfig::with_port_rotation).
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.shared.local_addrs.all()
    }

    /// A peer at these addresses, whom messages can be sent to. Nothing is sent yet.
    ///
    /// Each pair of a socket of ours and one of the addresses is a path; more paths
    /// make it likelier that some avoid whatever is slow.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`] when there is no path, or a key is needed.
    pub async fn connect(
        &self,
        remotes: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<PeerId, ConnectError> {
        self.connect_by(remotes, None).await
    }

    /// Makes a peer known at these addresses that has this public key, as endpoints with a key pair
    /// have to; see [`connect`](Self::connect). Nobody else is sent anything that can be read.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`] when there is no path.
    pub async fn connect_to(
        &self,
        key: PublicKey,
        remotes: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<PeerId, ConnectError> {
        self.connect_by(remotes, Some(key)).await
    }

    async fn connect_by(
        &self,
        remotes: impl IntoIterator<Item = SocketAddr>,
        key: Option<PublicKey>,
    ) -> Result<PeerId, ConnectError> {
        let remotes: Vec<SocketAddr> = remotes.into_iter().collect();
        if remotes.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        if let Some(&remote) = remotes.iter().find(|it| !is_of_one_host(it)) {
            return Err(ConnectError::NotAnAddress { remote });
        }
        self.shared
            .commands
            .ask(|done| Question::Connect { remotes, key, done })
            .await?
    }

    /// Returns the public key of a peer, where key pairs say who it is.
    ///
    /// # Errors
    ///
    /// A [`PeerError`].
    pub async fn peer_key(&self, peer: PeerId) -> Result<Option<PublicKey>, PeerError> {
        self.ask_about(peer, |done| Question::PeerKey { peer, done })
            .await
    }

    /// Sends a message and waits until the peer has it.
    ///
    /// What is given is taken without a copy from [`Bytes`], `Vec<u8>`, `String` and what is static, and
    /// copied once, by the driver, to where it is coded together with its envelope.
    ///
    /// It waits for capacity first, while as much is under way as
    /// [`Quotas`](super::Quotas) allow. Dropping the future cancels the message; the
    /// peer may have it or get it all the same.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it was not taken, or was abandoned.
    pub async fn send(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
    ) -> Result<Receipt, SendError> {
        let options = self.shared.send_options;
        self.send_with(peer, message, options).await
    }

    /// Waits for capacity and starts to send a message; what is returned waits for its delivery.
    ///
    /// # Errors
    ///
    /// A [`SendError`] when it is not taken.
    pub async fn enqueue(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
    ) -> Result<Sending, SendError> {
        let options = self.shared.send_options;
        self.enqueue_with(peer, message, options).await
    }

    /// Starts to send a message if there is capacity.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`], which gives the message back, when there is none.
    pub fn try_send(
        &self,
        peer: PeerId,
        message: impl Into<Bytes>,
    ) -> Result<Sending, TrySendError> {
        let message = self.check(message.into())?;
        let permit = self.shared.room.try_take(message.len())?;
        if permit.is_none() {
            return Err(TrySendError::Full { message });
        }
        let kind = (MessageKind::Message, self.default_options());
        Ok(self.start(peer, kind, message, permit, None).0)
    }

    /// The next message or request that arrives. Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Closed`] when none will come any more.
    pub async fn recv(&self) -> Result<Received, Closed> {
        self.shared.has_taker.store(true, Ordering::Relaxed);
        let received = self.shared.inbox.lock().await.recv().await.ok_or(Closed)?;
        let bytes = received.message.len();
        self.shared.inbox_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(received)
    }

    /// Returns what happens to peers and paths from now on, for logs, and for programs that follow who
    /// is there. Each caller gets all of it, and none is waited for.
    ///
    /// ```no_run
    /// # async fn example(endpoint: cloudburst::Endpoint) -> Result<(), cloudburst::Closed> {
    /// use cloudburst::EndpointEvent;
    ///
    /// let mut events = endpoint.events()?;
    /// while let Some(event) = events.next().await {
    ///     match event {
    ///         EndpointEvent::PeerKnown { peer, .. } => println!("{peer:?} is here"),
    ///         EndpointEvent::PathDown { path, .. } => println!("nothing arrives at {}", path.remote),
    ///         EndpointEvent::Lagged { missed } => println!("{missed} events are missing"),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn events(&self) -> Result<Events, Closed> {
        let events = self.shared.events.upgrade().ok_or(Closed)?.subscribe();
        Ok(Events::new(events, Arc::clone(&self.shared.events_missed)))
    }

    /// Returns what was counted since the start.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub async fn statistics(&self) -> Result<EndpointStatistics, Closed> {
        self.shared.commands.ask(Question::EndpointStatistics).await
    }

    /// Everybody known now: those connected to, and those who sent something.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub async fn peers(&self) -> Result<Vec<PeerId>, Closed> {
        self.shared.commands.ask(Question::Peers).await
    }

    /// Returns what is known of the paths to a peer; nothing if the peer is gone.
    ///
    /// # Errors
    ///
    /// A [`PeerError`].
    pub async fn paths(&self, peer: PeerId) -> Result<Vec<PathReport>, PeerError> {
        self.ask_about(peer, |done| Question::Paths { peer, done })
            .await
    }

    /// Replaces the keys, or the list of those who may speak. What goes on under a key that is still
    /// there is not disturbed. Security of another kind than before is not taken, and logged.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn set_security(&self, security: Security) -> Result<(), Closed> {
        self.shared.commands.set_security(security)
    }

    /// Forgets a peer: what is under way to it is abandoned
    /// ([`Reason::Cancelled`](super::Reason::Cancelled)), what is incomplete of it dropped, and
    /// its memory freed. A request that it has not answered yet
    /// ends with [`RequestError::PeerGone`](super::RequestError::PeerGone). To forget somebody
    /// who is gone already is nothing.
    ///
    /// Those who came by themselves are forgotten after two minutes of silence; those
    /// [connected](Self::connect) to never are but by this. Let some seconds pass after the last
    /// message: what is still on its way from a peer comes as from somebody new, and may be taken
    /// once more.
    ///
    /// # Errors
    ///
    /// A [`PeerError`].
    pub async fn forget(&self, peer: PeerId) -> Result<(), PeerError> {
        self.ask_about(peer, |done| Question::Forget { peer, done })
            .await
    }

    /// Asks the driver about a peer, if it is one of this endpoint's.
    async fn ask_about<T>(
        &self,
        peer: PeerId,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, PeerError> {
        if peer.transport() != self.shared.transport {
            return Err(ForeignPeer.into());
        }
        Ok(self.shared.commands.ask(question).await?)
    }

    /// Takes no new messages, waits until those under way are delivered or abandoned,
    /// requests that [`serve`](Self::serve) is handling are answered and
    /// peers have heard what has arrived here, but not longer than `within`, and ends.
    /// Everything that waits on this endpoint then gets [`Closed`]. Peers are told that it is gone:
    /// what they wait for from it ends at once ([`GoneReason::Closed`](super::GoneReason::Closed)). To
    /// thousands of peers that takes some seconds more, as it leaves in bursts: 5 ms for 24 peers, 4 s at
    /// most.
    ///
    /// Returns what has become of the messages that were under way, replies among them: nothing, if
    /// the endpoint had ended before.
    ///
    /// Meanwhile [`reply`](Self::reply) still sends, and others who want to send something here
    /// are answered with Busy.
    pub async fn close(&self, within: Duration) -> CloseReport {
        self.shared.closing.send_replace(true);
        self.shared.room.close();
        // An endpoint that is closed already is what was asked for.
        let close = |done| Question::Close { within, done };
        self.shared.commands.ask(close).await.unwrap_or_default()
    }

    pub(super) fn check(&self, message: Bytes) -> Result<Bytes, SendRefused> {
        let (given, most) = (message.len(), self.shared.most_bytes);
        match given > most {
            true => Err(SendRefused::TooLarge { given, most }),
            false => Ok(message),
        }
    }

    pub(super) fn start(
        &self,
        peer: PeerId,
        (kind, options): (MessageKind, CallOptions),
        message: Bytes,
        permit: Option<Permit>,
        reply: Option<ReplySender>,
    ) -> (Sending, u64) {
        let local_id = self.shared.next_ticket.fetch_add(1, Ordering::Relaxed);
        let (done, result) = oneshot::channel();
        let commands = &self.shared.commands;
        commands.send(Send {
            local_id,
            peer,
            kind,
            options,
            message,
            shared: None,
            permit,
            done: Done::Alone(done),
            reply,
            gone: None,
        });
        (Sending::new(local_id, result, commands.clone()), local_id)
    }
}

/// Tells whether one host can have an address: not nobody's, nor that of a group or of everybody.
fn is_of_one_host(address: &SocketAddr) -> bool {
    let ip = address.ip();
    let is_everybody = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_everybody
}
