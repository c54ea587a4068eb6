//! A test of a service that asks again, over a network in memory that loses, delays, reorders and parts.
//!
//! `cargo run -p cloudburst-fec --example in_memory_test`; in a crate of one's own this is a
//! `#[tokio::test(start_paused = true)]`, with tokio's feature `test-util`.

use std::{error::Error, net::IpAddr, num::NonZeroU8, time::Duration};

use cloudburst::{
    Endpoint, EndpointConfig, Key, PeerId, Received, Security,
    memory::{Link, MemoryNetwork},
};
use tokio::time::Instant;

/// The client under test: asks until there is a reply, and says how often it asked.
async fn ask(client: &Endpoint, server: PeerId) -> Result<u32, cloudburst::Error> {
    let mut asked = 1;
    loop {
        let reply = client.request(server, "lights?", Duration::from_secs(1));
        match reply.await {
            Ok(_) => return Ok(asked),
            Err(error) if asked == 10 => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
        asked += 1;
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let [client_ip, server_ip] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
    let security = Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]));
    let network = MemoryNetwork::new(7);
    let link = Link::new(Duration::from_millis(30)).with_loss(0.2)?;
    network.set_default_link(link.with_reordering(0.1, Duration::from_millis(20))?);

    let config = EndpointConfig::server(4433, security.clone()).with_local([server_ip])?;
    let server = network.bind(config).await?;
    let config = EndpointConfig::client(security).with_local([client_ip])?;
    let client = network.bind(config).await?;
    let peer = client.connect(server.local_addrs()).await?;
    let answering = server.clone();
    tokio::spawn(async move {
        let echo = |request: Received| async move { Some(request.message) };
        answering.serve(8, echo).await;
    });

    assert_eq!(
        ask(&client, peer).await?,
        1,
        "a fifth lost needs no second question"
    );
    println!("asked once where a fifth is lost");

    network.partition([client_ip], [server_ip]);
    let parted = Instant::now();
    let healing = network.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(4)).await;
        healing.heal();
    });
    let asked = ask(&client, peer).await?;
    assert!(asked > 1, "nothing passes a partition");
    assert!(parted.elapsed() >= Duration::from_secs(4));
    println!("asked again, and was answered when the partition was over");
    println!("{:?}", network.statistics());
    Ok(())
}
