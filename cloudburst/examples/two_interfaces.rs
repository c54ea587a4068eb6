//! Two interfaces at once: messages take both, and go on when one is lost.
//!
//! `cargo run -p cloudburst-fec --example two_interfaces [ADDRESS ADDRESS PEER]`; without
//! arguments two addresses of loopback stand for the interfaces.

use std::{error::Error, net::IpAddr, time::Duration};

use cloudburst::{Endpoint, EndpointConfig, Key, Ports, Remotes, Security};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (local, remotes) = match arguments.as_slice() {
        [] => (two_addresses(), serve().await?),
        [first, second, peer] => (
            vec![first.parse()?, second.parse()?],
            peer.parse::<Remotes>()?.lookup().await?,
        ),
        _ => return Err("give two local addresses and a peer, or nothing".into()),
    };
    // Four ports on each interface: if networks behind them spread by ports, so many more paths.
    let config = EndpointConfig::client(security())
        .with_local(local)?
        .with_ports(Ports::Any(4))?;
    let endpoint = Endpoint::bind(config).await?;
    let peer = endpoint.connect(remotes).await?;
    for _ in 0..20 {
        let reply = endpoint.request(peer, vec![7; 20_000], Duration::from_secs(2));
        assert_eq!(reply.await?.len(), 20_000);
    }
    for path in endpoint.paths(peer).await? {
        let local = endpoint.local_addrs()[usize::from(path.four_tuple.socket.0)];
        println!(
            "{local} to {}: {:?}, {} sent, {:.1} % lost, round trip {:?}",
            path.four_tuple.remote,
            path.health,
            path.sent,
            path.loss * 100.0,
            path.rtt.unwrap_or_default()
        );
    }
    endpoint.close(Duration::from_secs(1)).await;
    Ok(())
}

/// Loopback has many addresses on Linux, and one elsewhere.
fn two_addresses() -> Vec<IpAddr> {
    let second = if cfg!(target_os = "linux") { 2 } else { 1 };
    vec![[127, 0, 0, 1].into(), [127, 0, 0, second].into()]
}

async fn serve() -> Result<Vec<std::net::SocketAddr>, Box<dyn Error>> {
    let config = EndpointConfig::server(0, security())
        .with_local([[127, 0, 0, 1].into()])?
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
