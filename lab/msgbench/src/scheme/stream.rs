//! Requests and answers over TCP and MPTCP connections.
//!
//! A request starts with two numbers: how long it is, and how long the answer is to be. The rest of
//! both is zeros. One connection carries one request at a time.

use std::{
    cell::RefCell,
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    task::spawn_local,
    time::{sleep, timeout},
};

use super::Serving;

const PORT: u16 = 7_000;
/// More than connections are ever opened at once.
const BACKLOG: i32 = 1_024;
/// After which a client tries another port. A SYN is sent again after 1 s, so this waits for one.
const CONNECT_LIMIT: Duration = Duration::from_millis(1_500);
/// How long to wait when a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
/// Two numbers of 4 bytes.
const HEAD_BYTES: usize = 8;

/// Zeros, of which all payload consists.
static ZEROS: [u8; 128 * 1024] = [0; 128 * 1024];

thread_local! {
    /// Buffer into which received payload is discarded.
    static DISCARD: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]);
}

/// The kind of connections that a scheme uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) protocol: Protocol,
    pub(super) congestion_control: &'static str,
}

impl Kind {
    pub(super) const fn tcp(congestion_control: &'static str) -> Self {
        Self {
            protocol: Protocol::TCP,
            congestion_control,
        }
    }

    /// Listens, and answers requests from then on.
    pub(super) fn serve(self, address: Ipv4Addr) -> io::Result<Serving> {
        let socket = self.socket()?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((address, PORT)).into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        Ok(Box::pin(accept(listener)))
    }

    /// Opens a connection, from an address of the client's choice if one is given.
    pub(super) async fn connect(
        self,
        server: Ipv4Addr,
        from: Option<Ipv4Addr>,
    ) -> io::Result<TcpStream> {
        let socket = self.socket()?;
        if let Some(from) = from {
            socket.bind(&SocketAddr::from((from, 0)).into())?;
        }
        let socket = TcpSocket::from_std_stream(socket.into());
        let stream = timeout(CONNECT_LIMIT, socket.connect((server, PORT).into())).await??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn socket(self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(self.protocol))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_congestion(self.congestion_control.as_bytes())?;
        Ok(socket)
    }
}

/// Sends a request of `request_bytes` and waits for all of its answer.
pub(super) async fn ask(
    stream: &mut TcpStream,
    request_bytes: usize,
    answer_bytes: u32,
) -> io::Result<()> {
    let mut request = vec![0; request_bytes.max(HEAD_BYTES)];
    let request_length = u32::try_from(request.len()).map_err(io::Error::other)?;
    request[..4].copy_from_slice(&request_length.to_be_bytes());
    request[4..HEAD_BYTES].copy_from_slice(&answer_bytes.to_be_bytes());
    stream.write_all(&request).await?;
    discard(stream, answer_bytes as usize).await
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // What breaks here breaks for the client too, who counts it.
                spawn_local(async move { answer(stream).await.ok() });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Answers one request after the other.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let request_bytes = stream.read_u32().await? as usize;
        let mut left = stream.read_u32().await? as usize;
        discard(&stream, request_bytes.saturating_sub(HEAD_BYTES)).await?;
        while left > 0 {
            let part = left.min(ZEROS.len());
            stream.write_all(&ZEROS[..part]).await?;
            left -= part;
        }
    }
}

/// Receives exactly `bytes` and throws them away.
async fn discard(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        stream.readable().await?;
        let read = DISCARD.with_borrow_mut(|buffer| {
            let end = left.min(buffer.len());
            stream.try_read(&mut buffer[..end])
        });
        match read {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => left -= read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
