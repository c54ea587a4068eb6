//! Messages there and back, and how long they take.
//!
//! `cargo run -p cloudburst-fec --example ping [PEER]`; without a peer both ends are
//! on loopback. A peer is `cloudburst serve`.

use std::time::{Duration, Instant};

use cloudburst::{Endpoint, EndpointConfig, Key, Ports, Remotes, Security};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let remotes = match std::env::args().nth(1) {
        Some(peer) => peer.parse::<Remotes>()?.lookup().await?,
        None => serve().await?,
    };
    let endpoint = Endpoint::bind(EndpointConfig::client(security())).await?;
    let peer = endpoint.connect(remotes).await?;
    for number in 0..5 {
        let start = Instant::now();
        let reply = endpoint.request(peer, vec![number; 1_000], Duration::from_secs(2));
        assert_eq!(reply.await?, &[number; 1_000][..]);
        println!("{number}: {:?}", start.elapsed());
    }
    endpoint.close(Duration::from_secs(1)).await;
    Ok(())
}

/// Answers each request with itself.
async fn serve() -> Result<Vec<std::net::SocketAddr>, Box<dyn std::error::Error>> {
    let config = EndpointConfig::server(0, security())
        .with_local(["127.0.0.1".parse()?])?
        .with_ports(Ports::Any(1))?;
    let endpoint = Endpoint::bind(config).await?;
    let addresses = endpoint.local_addrs().to_vec();
    tokio::spawn(async move {
        endpoint
            .serve(16, |request| async { Some(request.message) })
            .await;
    });
    Ok(addresses)
}

/// Both ends have the same key. A real one is random, from a file: `cloudburst keygen --shared`.
fn security() -> Security {
    Security::shared_key(Key::new(std::num::NonZeroU8::MIN, [42; 32]))
}
