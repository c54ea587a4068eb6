//! A service behind a virtual IP address (VIP): two servers with the same key, of which one has the address
//! at a time. When the address moves, clients go on; they know one address and one key.
//!
//! `cargo run -p cloudburst-fec --example virtual_ip`; on loopback, where a forwarder of thirty lines stands
//! for what has the address in real life: keepalived (VRRP) moves it, or a load balancer (IPVS, a cloud's)
//! translates it. Either needs nothing of Cloudburst: a server that is bound to all addresses answers from
//! the one that was asked.

use std::{
    collections::HashMap,
    error::Error,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use cloudburst::{Endpoint, EndpointConfig, PeerId, Received, SecretKey, Security, SendOptions};
use tokio::{
    net::UdpSocket,
    runtime::Runtime,
    sync::{mpsc, watch},
};

fn main() -> Result<(), Box<dyn Error>> {
    // The key is the service's and not the machine's: both servers read the same file.
    let [service_key, client_key] = [1, 2].map(|secret| SecretKey::new([secret; 32]));
    let security = Security::with_allowed(service_key.clone(), [client_key.public()]);
    // The primary has a runtime of its own, to be switched off like a machine.
    let (machine, network) = (Runtime::new()?, Runtime::new()?);
    let primary = machine.block_on(serve("primary", security.clone()))?;
    let backup = network.block_on(serve("backup", security))?;

    let (active, virtual_ip) = network.block_on(forward(primary.local_addrs()[0]))?;
    let config = EndpointConfig::client(Security::key_pair(client_key));
    let client = network.block_on(Endpoint::bind(config))?;
    let service = network.block_on(client.connect_to(service_key.public(), [virtual_ip]))?;
    println!("before: {}", network.block_on(ask(&client, service))?);

    // The primary dies without a word, which `close` or dropping it would not be, and the address moves.
    machine.shutdown_background();
    let moved = Instant::now();
    active.send_replace(backup.local_addrs()[0]);
    println!("after:  {}", network.block_on(ask(&client, service))?);
    eprintln!("answered {:?} after the address had moved", moved.elapsed());
    network.block_on(client.close(Duration::from_secs(1)));
    Ok(())
}

/// A server that says who it is.
async fn serve(name: &'static str, security: Security) -> Result<Endpoint, Box<dyn Error>> {
    // In real life all addresses, and a port that is named: EndpointConfig::server(4433, security).
    let config = EndpointConfig::server(0, security).with_local([[127, 0, 0, 1].into()])?;
    let endpoint = Endpoint::bind(config).await?;
    let serving = endpoint.clone();
    tokio::spawn(async move {
        let answer = move |request: Received| async move {
            let question = String::from_utf8_lossy(&request.message).into_owned();
            Some(format!("{question} {name}").into_bytes())
        };
        serving.serve(64, answer).await;
    });
    Ok(endpoint)
}

/// Asks for what may be asked twice: the first server may have answered, and be gone before its reply came.
async fn ask(client: &Endpoint, service: PeerId) -> Result<String, Box<dyn Error>> {
    let options = SendOptions::new().with_idempotent(true);
    let patience = Duration::from_secs(10);
    let reply = client.request_with(service, "this is", patience, options);
    Ok(String::from_utf8_lossy(&reply.await?).into_owned())
}

/// Stands for the load balancer: datagrams to the virtual address go to the server that is active, and
/// answers come from the virtual address.
async fn forward(
    server: SocketAddr,
) -> Result<(watch::Sender<SocketAddr>, SocketAddr), Box<dyn Error>> {
    let (active, mut moved) = watch::channel(server);
    let outside = Arc::new(UdpSocket::bind("127.0.0.1:0").await?);
    let address = outside.local_addr()?;
    tokio::spawn(async move {
        // As address translation does: a socket towards the server for each port of a client.
        let mut inside: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
        let mut datagram = [0; 1 << 16];
        loop {
            tokio::select! {
                received = outside.recv_from(&mut datagram) => {
                    let Ok((bytes, client)) = received else { continue };
                    let server = *moved.borrow();
                    let entry = inside.entry(client);
                    let entry = entry.or_insert_with(|| translate(client, server, &outside));
                    // What does not fit is lost, as in every network.
                    let _ = entry.try_send(datagram[..bytes].to_vec());
                }
                _ = moved.changed() => inside.clear(),
            }
        }
    });
    Ok((active, address))
}

/// Carries the datagrams of one port of a client to a server, and its answers back.
fn translate(
    client: SocketAddr,
    server: SocketAddr,
    outside: &Arc<UdpSocket>,
) -> mpsc::Sender<Vec<u8>> {
    let (sender, mut datagrams) = mpsc::channel::<Vec<u8>>(1_024);
    let outside = Arc::clone(outside);
    tokio::spawn(async move {
        let Ok(inside) = UdpSocket::bind("127.0.0.1:0").await else {
            return;
        };
        let mut answer = [0; 1 << 16];
        loop {
            let sent = tokio::select! {
                datagram = datagrams.recv() => {
                    // The address has moved, and nobody comes by this way any more.
                    let Some(datagram) = datagram else { return };
                    inside.send_to(&datagram, server).await
                }
                Ok((bytes, _)) = inside.recv_from(&mut answer) => {
                    outside.send_to(&answer[..bytes], client).await
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    sender
}
