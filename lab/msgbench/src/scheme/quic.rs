//! QUIC over one path, by quinn.
//!
//! ECMP by ports pins a connection to a path, so the client has several, each with a UDP port of its
//! own. A message is a stream, and takes the connection with the fewest messages in flight.

use std::{
    cell::{Cell, RefCell},
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use futures_util::future::{LocalBoxFuture, try_join_all};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream,
    ServerConfig, TokioRuntime,
};
use tokio::{task::spawn_local, time::sleep};

use super::{Answer, Client, REQUEST_BYTES, Scheme, Serving, certificate, quic_message};

const PORT: u16 = 7_001;
const CONNECTIONS: usize = 8;
/// How long to wait before trying to open a connection again.
const RETRY: Duration = Duration::from_millis(100);
/// Time after which opening a connection is tried from another port.
const CONNECT_LIMIT: Duration = Duration::from_millis(1_500);

/// QUIC over several connections.
pub(super) struct Quic;

impl Scheme for Quic {
    fn name(&self) -> &'static str {
        "quic"
    }

    fn about(&self) -> &'static str {
        "QUIC (quinn, cubic), 8 connections, each message a stream on the least busy one"
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move {
            let (certificates, key) = certificate::own()?;
            let config = ServerConfig::with_single_cert(certificates, key)?;
            let endpoint = endpoint((address, PORT).into(), Some(config))?;
            let serving: Serving = Box::pin(async move {
                while let Some(incoming) = endpoint.accept().await {
                    // What breaks here breaks for the client too, who counts it.
                    spawn_local(async move { accept(incoming).await.ok() });
                }
            });
            Ok(serving)
        })
    }

    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>> {
        Box::pin(async move {
            let config = ClientConfig::with_root_certificates(certificate::trusted()?)?;
            let server = SocketAddr::from((address, PORT));
            let slots = (0..CONNECTIONS).map(|_| ConnectionSlot::open(server, config.clone()));
            let slots = try_join_all(slots).await?;
            Ok(Rc::new(QuicClient(slots)) as Rc<dyn Client>)
        })
    }
}

/// Connections of the client.
struct QuicClient(Vec<Rc<ConnectionSlot>>);

/// One connection, replaced when a request on it was given up.
struct ConnectionSlot {
    server: SocketAddr,
    config: ClientConfig,
    current: RefCell<Rc<(Endpoint, Connection)>>,
    in_flight: Cell<usize>,
}

impl Client for QuicClient {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            let slots = self.0.iter();
            let slot = slots
                .min_by_key(|slot| slot.in_flight.get())
                .context("there are no connections")?;
            let mut guard = SlotGuard::new(slot);
            ask(&guard.connection.1, bytes).await?;
            guard.succeeded = true;
            Ok(Answer::default())
        })
    }
}

impl ConnectionSlot {
    async fn open(server: SocketAddr, config: ClientConfig) -> Result<Rc<Self>> {
        let connection = connect(server, config.clone()).await?;
        Ok(Rc::new(Self {
            server,
            config,
            current: RefCell::new(Rc::new(connection)),
            in_flight: Cell::new(0),
        }))
    }

    /// Opens another connection in place of `broken`, unless that has been done.
    async fn replace(self: Rc<Self>, broken: Rc<(Endpoint, Connection)>) {
        while Rc::ptr_eq(&*self.current.borrow(), &broken) {
            match connect(self.server, self.config.clone()).await {
                Ok(connection) => *self.current.borrow_mut() = Rc::new(connection),
                Err(_) => sleep(RETRY).await,
            }
        }
    }
}

/// Keeps count of a slot's messages, and replaces its connection unless all went well.
struct SlotGuard {
    slot: Rc<ConnectionSlot>,
    connection: Rc<(Endpoint, Connection)>,
    succeeded: bool,
}

impl SlotGuard {
    fn new(slot: &Rc<ConnectionSlot>) -> Self {
        slot.in_flight.set(slot.in_flight.get() + 1);
        Self {
            slot: Rc::clone(slot),
            connection: Rc::clone(&*slot.current.borrow()),
            succeeded: false,
        }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slot.in_flight.set(self.slot.in_flight.get() - 1);
        if !self.succeeded {
            let slot = Rc::clone(&self.slot);
            spawn_local(slot.replace(Rc::clone(&self.connection)));
        }
    }
}

fn endpoint(address: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = quic_message::socket(address)?;
    let config = EndpointConfig::default();
    Ok(Endpoint::new(
        config,
        server,
        socket,
        Arc::new(TokioRuntime),
    )?)
}

async fn connect(server: SocketAddr, config: ClientConfig) -> Result<(Endpoint, Connection)> {
    let endpoint = endpoint((Ipv4Addr::UNSPECIFIED, 0).into(), None)?;
    let connecting = endpoint.connect_with(config, server, certificate::SERVER_NAME)?;
    let connection = tokio::time::timeout(CONNECT_LIMIT, connecting).await??;
    Ok((endpoint, connection))
}

/// Sends a request on a stream of its own, and waits for all of its answer.
async fn ask(connection: &Connection, bytes: u32) -> Result<()> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&quic_message::request(bytes)).await?;
    send.finish()?;
    let mut left = bytes as usize;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        left = left.saturating_sub(chunk.bytes.len());
    }
    if left > 0 {
        bail!("the answer is {left} bytes short");
    }
    Ok(())
}

async fn accept(incoming: Incoming) -> Result<()> {
    let connection = incoming.await?;
    loop {
        let (send, receive) = connection.accept_bi().await?;
        spawn_local(async move { answer(send, receive).await.ok() });
    }
}

async fn answer(mut send: SendStream, mut receive: RecvStream) -> Result<()> {
    let mut request = [0; REQUEST_BYTES];
    receive.read_exact(&mut request).await?;
    for part in quic_message::answer(request) {
        send.write_all(part).await?;
    }
    send.finish()?;
    Ok(())
}
