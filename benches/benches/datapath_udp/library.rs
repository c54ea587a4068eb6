//! Through the library: datagrams of messages that are delivered.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU8,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use cloudburst::{
    CongestionControl, Endpoint, EndpointConfig, EndpointStatistics, Key, PeerId, Ports, Security,
};
use tokio::runtime::{Builder, Runtime};

use super::{DATAGRAM_BYTES, MESSAGE_BYTES, Measured, core_time, pin};

/// Clients, and messages of each that are under way at a time.
const CLIENTS: usize = 2;
const UNDER_WAY: usize = 4;
/// The rate that is stated to the library: somewhat more than is hoped for.
const LINK_BITS_PER_S: u64 = 20_000_000_000;
/// Shared ports are named; below those that the system chooses.
const PORT: u16 = 20_443;
/// The system chooses which endpoint of a port a client is at: so often another is tried.
const TRIALS: usize = 64;

/// With keys, as users have it.
pub(crate) fn with_keys(cores: [usize; 2], duration: Duration) -> Measured {
    measure(cores, duration, 1, &shared_key())
}

/// With keys, to two endpoints that share a port, each with a thread.
pub(crate) fn two_sockets(cores: [usize; 2], duration: Duration) -> Measured {
    measure(cores, duration, CLIENTS, &shared_key())
}

pub(crate) fn without_keys(cores: [usize; 2], duration: Duration) -> Measured {
    measure(cores, duration, 1, &Security::Unprotected)
}

fn shared_key() -> Security {
    Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]))
}

/// From two clients to so many endpoints at one port.
fn measure(
    cores: [usize; 2],
    duration: Duration,
    endpoints: usize,
    security: &Security,
) -> Measured {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (bound, addresses) = mpsc::channel();
        let receivers: Vec<_> = (0..endpoints)
            .map(|number| {
                let (bound, stop) = (bound.clone(), &stop);
                let receiver = scope.spawn(move || {
                    pin(cores[1]);
                    runtime().block_on(serve(number, security, bound, stop));
                    core_time().as_secs_f64()
                });
                let () = addresses.recv().expect("the receiver starts");
                receiver
            })
            .collect();
        let sender = scope.spawn(move || {
            pin(cores[0]);
            let address = (Ipv4Addr::LOCALHOST, PORT).into();
            let (statistics, seconds) =
                runtime().block_on(offer(address, endpoints, duration, security));
            (statistics, seconds, core_time().as_secs_f64())
        });
        let sent = sender.join();
        // Before anything else, or the receivers never end.
        stop.store(true, Ordering::Relaxed);
        let (statistics, seconds, sending_s) = sent.expect("the sender ends");
        let receiving = receivers.into_iter().map(|it| it.join().expect("it ends"));
        let receiving_s: f64 = receiving.sum();
        let sum = |figure: fn(&EndpointStatistics) -> u64| -> f64 {
            statistics.iter().map(|it| figure(it) as f64).sum()
        };
        let needed = sum(|it| it.protocol.symbols_needed);
        Measured {
            per_s: needed / seconds,
            per_core_s: [needed / sending_s, needed / receiving_s],
            sent_per_needed: sum(|it| it.protocol.symbols_sent) / needed,
            sent_per_call: sum(|it| it.protocol.datagrams_sent) / sum(|it| it.sockets.send_calls),
        }
    })
}

/// Takes messages, and answers requests with its number.
async fn serve(number: usize, security: &Security, bound: mpsc::Sender<()>, stop: &AtomicBool) {
    let config = config(Ports::one(PORT), security).with_shared_port(true);
    let endpoint = Endpoint::bind(config.with_early_requests(true)).await;
    let endpoint = endpoint.expect("loopback is there");
    bound.send(()).expect("it is waited for");
    while !stop.load(Ordering::Relaxed) {
        let received = tokio::time::timeout(Duration::from_millis(50), endpoint.recv()).await;
        if let Ok(Ok(received)) = received
            && received.message.len() < MESSAGE_BYTES
        {
            let reply = endpoint.reply(&received, vec![number as u8]).await;
            reply.expect("the client waits");
        }
    }
}

/// Keeps some messages under way, from each client.
async fn offer(
    address: SocketAddr,
    endpoints: usize,
    duration: Duration,
    security: &Security,
) -> (Vec<EndpointStatistics>, f64) {
    let clients = clients(address, endpoints, security).await;
    let start = Instant::now();
    let mut senders = tokio::task::JoinSet::new();
    for (endpoint, peer) in &clients {
        for _ in 0..UNDER_WAY {
            let (endpoint, peer) = (endpoint.clone(), *peer);
            senders.spawn(async move {
                while start.elapsed() < duration {
                    let message = vec![7; MESSAGE_BYTES];
                    endpoint.send(peer, message).await.expect("it is delivered");
                }
            });
        }
    }
    while senders.join_next().await.is_some() {}
    let seconds = start.elapsed().as_secs_f64();
    let mut statistics = Vec::new();
    for (endpoint, _) in &clients {
        statistics.push(endpoint.statistics().await.expect("it runs"));
    }
    (statistics, seconds)
}

/// As many clients at each endpoint.
async fn clients(
    address: SocketAddr,
    endpoints: usize,
    security: &Security,
) -> Vec<(Endpoint, PeerId)> {
    let mut clients = Vec::new();
    let mut at = vec![0; endpoints];
    for _ in 0..TRIALS {
        let endpoint = Endpoint::bind(config(Ports::Any(1), security)).await;
        let endpoint = endpoint.expect("loopback is there");
        let peer = endpoint.connect([address]).await.expect("there is a route");
        let number = endpoint.request(peer, "who?", Duration::from_secs(5)).await;
        let number = usize::from(number.expect("it answers")[0]);
        if at[number] < CLIENTS / endpoints {
            at[number] += 1;
            clients.push((endpoint, peer));
        }
        if clients.len() == CLIENTS {
            return clients;
        }
    }
    panic!("{TRIALS} clients are at the same endpoint")
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has what a runtime needs")
}

fn config(ports: Ports, security: &Security) -> EndpointConfig {
    EndpointConfig::client(security.clone())
        .with_local([Ipv4Addr::LOCALHOST.into()])
        .and_then(|it| it.with_ports(ports))
        .and_then(|it| it.with_congestion(CongestionControl::reserved(LINK_BITS_PER_S)))
        .and_then(|it| it.with_datagram_bytes(DATAGRAM_BYTES, DATAGRAM_BYTES))
        .expect("the settings are right")
}
