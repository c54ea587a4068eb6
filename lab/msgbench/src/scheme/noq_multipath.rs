//! Multipath QUIC, by noq.
//!
//! One connection with a path from each of the client's addresses, as for [MPTCP](super::mptcp).
//! A message is a stream. The path to send on is noq's choice: it fills one path's congestion window
//! before it takes the next, so that most data takes one path while that has capacity.

use std::{
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use futures_util::future::LocalBoxFuture;
use noq::{
    ClientConfig, Connection, Endpoint, EndpointConfig, FourTuple, Incoming, Path, PathError,
    PathStatus, RecvStream, SendStream, ServerConfig, TokioRuntime, TransportConfig,
};
use tokio::{
    task::spawn_local,
    time::{sleep, timeout},
};

use super::{Answer, Client, REQUEST_BYTES, Scheme, Serving, certificate, quic_message};
use crate::rig::{PATHS, addresses};

const PORT: u16 = 7_002;
/// One more than the rig has: the connection starts on one that hashing chooses.
const CONNECTION_PATHS: u32 = PATHS as u32 + 1;
/// Time in which the server must have announced the connection ids that further paths need.
const PATH_LIMIT: Duration = Duration::from_secs(2);
const PATH_RETRY: Duration = Duration::from_millis(5);
/// After which a path is given up. What was sent on it goes over the others then, and not before: noq
/// does not repeat elsewhere what a path does not acknowledge, so without this limit a dead path is
/// the end of the connection.
const PATH_IDLE_LIMIT: Duration = Duration::from_millis(500);
const PATH_KEEP_ALIVE: Duration = Duration::from_millis(100);

/// The scheme of multipath QUIC.
pub(super) struct NoqMultipath;

impl Scheme for NoqMultipath {
    fn name(&self) -> &'static str {
        "quic_multipath"
    }

    fn about(&self) -> &'static str {
        "multipath QUIC (noq), one connection over all paths"
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move {
            let (certificates, key) = certificate::own()?;
            let mut config = ServerConfig::with_single_cert(certificates, key)?;
            config.transport_config(transport());
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
            let mut config = ClientConfig::with_root_certificates(certificate::trusted()?)?;
            config.transport_config(transport());
            let server = SocketAddr::from((address, PORT));
            let endpoint = endpoint((Ipv4Addr::UNSPECIFIED, 0).into(), None)?;
            let connecting = endpoint.connect_with(config, server, certificate::SERVER_NAME)?;
            let connection = connecting.await?;
            let mut paths = Vec::new();
            for own in addresses::pinned() {
                let open = open_path(&connection, FourTuple::new(server, Some(own.into())));
                let opened = timeout(PATH_LIMIT, open).await;
                paths.push(opened.with_context(|| format!("no path from {own} in time"))??);
            }
            Ok(Rc::new(Multipath {
                connection,
                _endpoint: endpoint,
                _paths: paths,
            }) as Rc<dyn Client>)
        })
    }
}

struct Multipath {
    connection: Connection,
    _endpoint: Endpoint,
    _paths: Vec<Path>,
}

impl Client for Multipath {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            ask(&self.connection, bytes).await?;
            Ok(Answer::default())
        })
    }
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_multipath_paths(CONNECTION_PATHS);
    transport.default_path_max_idle_timeout(Some(PATH_IDLE_LIMIT));
    transport.default_path_keep_alive_interval(Some(PATH_KEEP_ALIVE));
    Arc::new(transport)
}

/// Opens a path as soon as the server allows it.
async fn open_path(connection: &Connection, path: FourTuple) -> Result<Path> {
    loop {
        match connection.open_path(path, PathStatus::Available).await {
            Ok(path) => return Ok(path),
            Err(PathError::RemoteCidsExhausted) => sleep(PATH_RETRY).await,
            Err(error) => return Err(error.into()),
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

/// Sends a request on a stream of its own, and waits for all of its answer.
async fn ask(connection: &Connection, bytes: u32) -> Result<()> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&quic_message::request(bytes)).await?;
    send.finish()?;
    let mut left = bytes as usize;
    while let Some(chunk) = receive.read_chunk(usize::MAX).await? {
        left = left.saturating_sub(chunk.len());
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
