//! Bulk transfers on given paths.
//!
//! One TCP cubic connection for each path and direction, which sends as much as it can. Their path
//! is known by the server's port, unless a splitter at the routers chooses.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use flow_testbed::namespace::{Namespace, NamespaceError};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Rig, addresses};

const FIRST_PORT: u16 = 6_000;
const CHUNK_BYTES: usize = 64 * 1024;
/// How long to wait before trying to connect again.
const RETRY: Duration = Duration::from_millis(5);

/// Transfers that go on until this value is dropped.
#[derive(Debug)]
pub struct Bulk {
    received_bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<io::Result<()>, NamespaceError>>>,
    stop: Option<DropGuard>,
}

/// The directions in which transfers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkDirections {
    /// From servers to clients, as answers.
    ToClient,
    /// Both directions, by connections of their own.
    Both,
}

/// The server's port of transfers over a path.
pub(super) fn port(path: usize) -> u16 {
    FIRST_PORT + path as u16
}

impl Bulk {
    /// Starts transfers on each of `paths`.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        rig: &Rig,
        paths: &[usize],
        directions: BulkDirections,
    ) -> Result<Self, NamespaceError> {
        let stop = CancellationToken::new();
        let mut bulk = Self {
            received_bytes: Arc::default(),
            threads: Vec::new(),
            stop: Some(stop.clone().drop_guard()),
        };
        for (namespace, end) in [
            (&rig.server, End::Server),
            (&rig.client, End::Client(directions)),
        ] {
            bulk.start_end(namespace, end, paths.to_vec(), stop.clone())?;
        }
        Ok(bulk)
    }

    /// Payload that has arrived, all directions together.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    fn start_end(
        &mut self,
        namespace: &Namespace,
        end: End,
        paths: Vec<usize>,
        stop: CancellationToken,
    ) -> Result<(), NamespaceError> {
        let received = Arc::clone(&self.received_bytes);
        let thread = namespace.spawn(move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                tokio::select! {
                    () = stop.cancelled() => Ok(()),
                    ended = transfer(end, &paths, &received) => ended,
                }
            })
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // What broke shows in the figures: there was no bulk traffic.
            let _ = thread.join();
        }
    }
}

/// Who is at an end of all transfers.
#[derive(Clone, Copy, Debug)]
enum End {
    Server,
    Client(BulkDirections),
}

/// One end of all transfers. The client opens a connection for each path and direction, and says
/// with its first byte whether it wants data or brings some.
async fn transfer(end: End, paths: &[usize], received: &Arc<AtomicU64>) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    for path in paths {
        let address = SocketAddr::from((addresses::SERVER, port(*path)));
        let wants: &[bool] = match end {
            End::Server => {
                tasks.spawn(accept(listen(address)?, Arc::clone(received)));
                continue;
            }
            End::Client(BulkDirections::ToClient) => &[true],
            End::Client(BulkDirections::Both) => &[true, false],
        };
        for wants in wants {
            tasks.spawn(ask(address, *wants, Arc::clone(received)));
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn accept(listener: TcpListener, received: Arc<AtomicU64>) -> io::Result<()> {
    let mut transfers = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await?;
        let received = Arc::clone(&received);
        transfers.spawn(async move {
            let wants = stream.read_u8().await? != 0;
            carry(stream, wants, &received).await
        });
    }
}

async fn ask(address: SocketAddr, wants: bool, received: Arc<AtomicU64>) -> io::Result<()> {
    let mut stream = loop {
        match connect(address).await {
            Ok(stream) => break stream,
            // The server's thread may not listen yet.
            Err(_) => sleep(RETRY).await,
        }
    };
    stream.write_u8(u8::from(wants)).await?;
    carry(stream, !wants, &received).await
}

async fn carry(mut stream: TcpStream, sends: bool, received: &AtomicU64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if sends {
            stream.write_all(&chunk).await?;
        } else {
            match stream.read(&mut chunk).await? {
                0 => return Ok(()),
                bytes => received.fetch_add(bytes as u64, Ordering::Relaxed),
            };
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = cubic()?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(8)?;
    TcpListener::from_std(socket.into())
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpSocket::from_std_stream(cubic()?.into())
        .connect(address)
        .await
}

fn cubic() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_congestion(b"cubic")?;
    Ok(socket)
}
