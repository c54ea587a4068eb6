//! Endpoints on runtimes of one's own.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use cloudburst::{
    BindError, Endpoint,
    runtime::{
        DatagramSocket, Datagrams, NoticeSender, ReceiveBuffers, Runtime, SocketOptions,
        TokioRuntime,
    },
};

use super::{config, patterned, silent, within};

/// Sockets of the system that fail as they are told to.
#[derive(Clone, Debug)]
struct Failing {
    drivers: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
    every: u64,
    failure: fn() -> Option<io::Error>,
}

#[derive(Debug)]
struct FailingSocket(<TokioRuntime as Runtime>::Socket, Failing);

impl Failing {
    /// Each call to send of so many fails so, and none is a socket that is full.
    fn each(every: u64, failure: fn() -> Option<io::Error>) -> Self {
        Self {
            drivers: Arc::default(),
            calls: Arc::default(),
            every,
            failure,
        }
    }
}

impl Runtime for Failing {
    type Socket = FailingSocket;
    type Timer = <TokioRuntime as Runtime>::Timer;

    fn bind(&self, options: &SocketOptions) -> Result<FailingSocket, BindError> {
        Ok(FailingSocket(TokioRuntime.bind(options)?, self.clone()))
    }

    fn timer(&self) -> io::Result<Self::Timer> {
        TokioRuntime.timer()
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }

    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
        let drivers = Arc::clone(&self.drivers);
        drivers.fetch_add(1, Ordering::Relaxed);
        TokioRuntime.spawn(async move {
            driver.await;
            drivers.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl DatagramSocket for FailingSocket {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        datagrams: &Datagrams<'_>,
    ) -> Poll<io::Result<usize>> {
        let Failing { every, calls, .. } = &self.1;
        let call = calls.fetch_add(1, Ordering::Relaxed);
        if (call + 1).is_multiple_of(*every) {
            return match (self.1.failure)() {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            };
        }
        self.0.poll_send(context, datagrams)
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut ReceiveBuffers,
    ) -> Poll<io::Result<()>> {
        self.0.poll_receive(context, buffers)
    }

    fn set_notices(&mut self, notices: Option<NoticeSender>) {
        self.0.set_notices(notices);
    }
}

/// A socket whose other methods are those that the trait has by itself.
#[tokio::test]
async fn messages_pass_a_socket_that_fails_and_one_that_is_full_and_wakes_nobody() {
    let other: fn() -> _ = || Some(io::ErrorKind::Other.into());
    for failure in [
        other,
        || Some(io::ErrorKind::HostUnreachable.into()),
        || None,
    ] {
        let runtime = Failing::each(3, failure);
        let client = Endpoint::bind_with(runtime.clone(), config(2)).await;
        let (client, server) = (client.unwrap(), Endpoint::bind(config(2)).await.unwrap());
        assert_eq!(runtime.drivers.load(Ordering::Relaxed), 1, "it is run");
        let peer = client.connect(server.local_addrs()).await.unwrap();
        for number in 1..=20 {
            let message = patterned(number * 1_000);
            within(client.send(peer, message.clone())).await.unwrap();
            assert_eq!(within(server.recv()).await.unwrap().message, message);
        }
        let sockets = client.statistics().await.unwrap().sockets;
        match failure() {
            None => assert!(sockets.send_waits > 0, "{sockets:?}"),
            // The second attempt does it.
            Some(_) => assert_eq!(sockets.send_drops, 0, "{sockets:?}"),
        }
        client.close(Duration::from_secs(1)).await;
        assert_eq!(runtime.drivers.load(Ordering::Relaxed), 0, "it has ended");
    }
}

/// Sockets without offload of their own fail for each datagram, and not for ever.
#[tokio::test]
async fn a_socket_that_always_fails_takes_no_turn_for_ever() {
    let runtime = Failing::each(1, || Some(io::ErrorKind::Other.into()));
    let client = Endpoint::bind_with(runtime, config(1)).await;
    let client = client.unwrap();
    let (_silent, remote) = silent();
    let peer = client.connect([remote]).await.unwrap();
    let sending = client.try_send(peer, patterned(100_000)).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let sockets = within(client.statistics()).await.unwrap().sockets;
    assert!(sockets.send_errors > 0, "{sockets:?}");
    drop(sending);
}
