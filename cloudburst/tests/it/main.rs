//! Endpoints on loopback, as users have them.

#[cfg(target_os = "linux")]
mod addresses;
mod allocations;
mod back_pressure;
#[cfg(target_os = "linux")]
mod ecn;
mod events;
mod examples;
mod first_message;
mod group;
mod in_memory;
mod lifecycle;
mod messages;
#[cfg(target_os = "linux")]
mod newcomer;
mod options;
mod peers;
#[cfg(target_os = "linux")]
mod ports;
mod requests;
mod restart;
mod runtime;
#[cfg(target_os = "linux")]
mod shared_port;
mod surface;
mod without_async;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use cloudburst::{Endpoint, EndpointConfig, Key, PeerId, Ports, Security};
use tokio::{runtime::Runtime, time::timeout};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Longer than anything here takes, also on a machine that stands still for seconds; and less than the 10 s that
/// a message lives for, as what ends by that has not ended in time.
const SOON: Duration = Duration::from_secs(8);

fn config(ports: u16) -> EndpointConfig {
    secured(ports, security())
}

fn secured(ports: u16, security: Security) -> EndpointConfig {
    let config = EndpointConfig::client(security).with_local([LOCALHOST]);
    let config = config.and_then(|it| it.with_ports(Ports::Any(ports)));
    config.expect("there are so many ports")
}

/// Of an endpoint that keeps requests until somebody takes them.
fn answering(ports: u16) -> EndpointConfig {
    config(ports).with_early_requests(true)
}

/// The same for both ends.
fn security() -> Security {
    Security::shared_key(Key::new(std::num::NonZeroU8::MIN, [42; 32]))
}

/// A client and a server that keeps what comes before it asks for it, and who the server is to the
/// client.
async fn pair(client: EndpointConfig, server: EndpointConfig) -> (Endpoint, Endpoint, PeerId) {
    let server = server.with_early_requests(true);
    let client = Endpoint::bind(client).await.unwrap();
    let server = Endpoint::bind(server).await.unwrap();
    let remotes = server.local_addrs().to_vec();
    let peer = client.connect(remotes).await.unwrap();
    (client, server, peer)
}

/// An endpoint with a runtime of its own: without that it is killed, and says nothing.
async fn elsewhere(config: EndpointConfig) -> (Runtime, Endpoint) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let endpoint = runtime.spawn(async { Endpoint::bind(config).await.unwrap() });
    let endpoint = endpoint.await.unwrap();
    (runtime, endpoint)
}

/// Kills an endpoint with its runtime, and returns a socket that has its port and says nothing.
async fn killed(runtime: Runtime, endpoint: &Endpoint) -> UdpSocket {
    let port = endpoint.local_addrs()[0].port();
    // It ends by and by.
    runtime.shutdown_background();
    within(async {
        loop {
            match UdpSocket::bind((LOCALHOST, port)) {
                Ok(socket) => return socket,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it takes no longer")
}

fn patterned(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|it| (it % 251) as u8).collect()
}

/// A peer whose datagrams go nowhere.
fn silent() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}
