//! One host: it listens, opens its flows on time, sends and receives.
//!
//! On a connection the initiator speaks first: four bytes with the flow's number in the schedule.
//! In an upload they are the first bytes of the payload, in a download they are the request.

use std::{
    cell::RefCell,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{Record, Transfer};
use crate::topology::Host;

pub(super) const PORT: u16 = 5001;
pub(super) const NUMBER_BYTES: usize = size_of::<u32>();

/// How long to wait when a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// What all payload consists of.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

thread_local! {
    /// Where received payload is thrown; one for all flows of a host.
    static DISCARD: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]);
}

/// A host, ready to be run inside its namespace.
pub(super) struct Station {
    /// Its place in the list of hosts.
    number: usize,
    shared: Arc<Shared>,
}

struct Shared {
    /// The address of each host.
    addresses: Vec<Ipv4Addr>,
    transfers: Arc<[Transfer]>,
    record: Arc<Record>,
}

impl Station {
    pub(super) fn new(
        number: usize,
        hosts: &[&Host],
        transfers: &Arc<[Transfer]>,
        record: &Arc<Record>,
    ) -> Self {
        let shared = Shared {
            addresses: hosts.iter().map(|host| host.ipv4).collect(),
            transfers: Arc::clone(transfers),
            record: Arc::clone(record),
        };
        Self {
            number,
            shared: Arc::new(shared),
        }
    }

    /// Works until `stop`; all connections are closed then.
    pub(super) fn run(self, stop: &CancellationToken) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind(self.shared.address(self.number)).await?;
            tokio::select! {
                () = stop.cancelled() => {}
                () = async { tokio::join!(self.open_flows(), self.accept_flows(&listener)); } => {}
            }
            Ok(())
        })
    }

    async fn open_flows(&self) {
        let transfers = self.shared.transfers.iter().enumerate();
        for (number, &transfer) in transfers.filter(|(_, it)| it.initiator == self.number) {
            sleep_until(Instant::from_std(self.shared.record.epoch + transfer.at)).await;
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                if shared.initiate(number, &transfer).await.is_err() {
                    shared.record.settle(number);
                }
            });
        }
    }

    async fn accept_flows(&self, listener: &TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // One connection broke, or descriptors are short until some flows have ended.
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                // What breaks here breaks for the initiator too, who counts it.
                let _ = shared.respond(stream).await;
            });
        }
    }
}

impl Shared {
    /// Where a host listens. Nobody does at that of one that is not there.
    fn address(&self, host: usize) -> SocketAddr {
        let address = self.addresses.get(host);
        (*address.unwrap_or(&Ipv4Addr::UNSPECIFIED), PORT).into()
    }

    async fn initiate(&self, number: usize, flow: &Transfer) -> io::Result<()> {
        let request = u32::try_from(number)
            .map_err(io::Error::other)?
            .to_be_bytes();
        self.record.start(number);
        let mut stream = TcpStream::connect(self.address(flow.responder)).await?;
        self.record.connect(number);
        // The last packet is rarely full and must not wait for acknowledgements.
        stream.set_nodelay(true)?;
        if flow.upload {
            send(&mut stream, &request, flow.bytes as usize).await?;
            // The flow is over when the receiver, which has marked its end, closes.
            receive_to_end(&stream).await?;
        } else {
            stream.write_all(&request).await?;
            receive(&stream, flow.bytes as usize).await?;
            self.record.finish(number);
            receive_to_end(&stream).await?;
        }
        Ok(())
    }

    async fn respond(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut number = [0; NUMBER_BYTES];
        stream.read_exact(&mut number).await?;
        let number = u32::from_be_bytes(number) as usize;
        let flow = self.transfers.get(number);
        let flow = flow.ok_or_else(|| io::Error::other("no such flow"))?;
        if flow.upload {
            receive(&stream, flow.bytes as usize - NUMBER_BYTES).await?;
            self.record.finish(number);
            receive_to_end(&stream).await
        } else {
            send(&mut stream, &[], flow.bytes as usize).await?;
            receive_to_end(&stream).await
        }
    }
}

/// Sends `head`, then zeros up to `bytes` in all, and closes this direction.
async fn send(stream: &mut TcpStream, head: &[u8], bytes: usize) -> io::Result<()> {
    let mut left = bytes - head.len();
    let mut chunk = Vec::with_capacity(head.len() + left.min(ZEROS.len()));
    chunk.extend_from_slice(head);
    chunk.extend_from_slice(&ZEROS[..left.min(ZEROS.len())]);
    left -= chunk.len() - head.len();
    stream.write_all(&chunk).await?;
    while left > 0 {
        let part = left.min(ZEROS.len());
        stream.write_all(&ZEROS[..part]).await?;
        left -= part;
    }
    stream.shutdown().await
}

/// Receives exactly `bytes` and throws them away.
async fn receive(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        match discard(stream, left).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left -= read,
        }
    }
    Ok(())
}

async fn receive_to_end(stream: &TcpStream) -> io::Result<()> {
    while discard(stream, usize::MAX).await? > 0 {}
    Ok(())
}

/// Receives what is there, at most `limit` bytes; 0 at the end of the stream.
async fn discard(stream: &TcpStream, limit: usize) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        let read = DISCARD.with_borrow_mut(|buffer| {
            let end = limit.min(buffer.len());
            stream.try_read(&mut buffer[..end])
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}
