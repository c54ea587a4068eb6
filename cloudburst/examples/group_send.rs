//! A value for three replicas, of which a majority is enough: one message, encoded once.
//!
//! `cargo run -p cloudburst-fec --example group_send`

use std::{error::Error, num::NonZeroU8, time::Duration};

use cloudburst::{Endpoint, EndpointConfig, Key, Security, SendOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let security = Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]));
    let local = [[127, 0, 0, 1].into()];
    let config = EndpointConfig::client(security.clone()).with_local(local)?;
    let client = Endpoint::bind(config).await?;
    let (mut replicas, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let config = EndpointConfig::server(0, security.clone()).with_local(local)?;
        let replica = Endpoint::bind(config).await?;
        peers.push(client.connect(replica.local_addrs()).await?);
        replicas.push(replica);
    }
    // The third is down: nobody answers at its port.
    let down = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
    peers.push(client.connect([down.local_addr()?]).await?);

    // It is of no use later than that.
    let options = SendOptions::new().with_deadline(Duration::from_secs(1));
    let mut sending = client
        .enqueue_group_with(peers.clone(), "x = 5", options)
        .await?;
    let mut have_it = 0;
    while let Some(outcome) = sending.next().await {
        match outcome.result {
            Ok(_) => have_it += 1,
            Err(error) => {
                let number = 1 + peers.iter().take_while(|it| **it != outcome.peer).count();
                println!("replica {number} does not have it: {error}");
            }
        }
        let may_get_it = sending.pending().count();
        println!("{have_it} have it, {may_get_it} may get it yet");
        if have_it == 2 && may_get_it == 1 {
            println!("that is a majority");
        }
    }
    for replica in &replicas {
        assert_eq!(replica.recv().await?.message, "x = 5");
    }
    Ok(())
}
