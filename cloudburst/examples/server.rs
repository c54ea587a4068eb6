//! Answers each request of `client` on another machine with itself. The README shows it.

use cloudburst::{Endpoint, EndpointConfig, PublicKey, Received, SecretKey, Security};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ours: SecretKey = read("server.key")?.parse()?;
    let client: PublicKey = read("client.pub")?.parse()?;
    let security = Security::with_allowed(ours, [client]);
    let config = EndpointConfig::server(4433, security).with_ports("4433-4436".parse()?)?;
    let server = Endpoint::bind(config).await?;
    println!("listening on {:?}", server.local_addrs());
    let echo = |request: Received| async move { Some(request.message) };
    server.serve(64, echo).await;
    Ok(())
}

/// Names the file that cannot be read, which the error of the system does not.
fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))
}
