//! Sends a message and a request to `server` on another machine. The README shows it.

use std::time::Duration;

use cloudburst::{Endpoint, EndpointConfig, PublicKey, Remotes, SecretKey, Security};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ours: SecretKey = read("client.key")?.parse()?;
    let server: PublicKey = read("server.pub")?.parse()?;
    let name = std::env::args().nth(1);
    let name = name.as_deref().unwrap_or("server.example:4433-4436");
    let remotes = name.parse::<Remotes>()?.lookup().await?;
    let endpoint = Endpoint::bind(EndpointConfig::client(Security::key_pair(ours))).await?;
    let peer = endpoint.connect_to(server, remotes).await?;

    let soon = Duration::from_secs(2);
    let reply = endpoint.request(peer, "are you there?", soon).await?;
    assert_eq!(reply, "are you there?");
    let receipt = endpoint.send(peer, vec![7; 100_000]).await?;
    println!("delivered after {:?}", receipt.completion);
    endpoint.close(soon).await;
    Ok(())
}

/// Names the file that cannot be read, which the error of the system does not.
fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))
}
