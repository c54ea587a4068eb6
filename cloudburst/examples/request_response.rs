//! A server that looks words up, without an async runtime of one's own.
//!
//! `cargo run -p cloudburst-fec --example request_response`

use std::{error::Error, num::NonZeroU8, time::Duration};

use cloudburst::{EndpointConfig, Key, Ports, Security, blocking};

fn main() -> Result<(), Box<dyn Error>> {
    // A real key is random, from a file: `cloudburst keygen`.
    let security = Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]));
    let config = EndpointConfig::server(0, security)
        .with_local(["127.0.0.1".parse()?])?
        .with_ports(Ports::Any(2))?;

    let server = blocking::BlockingEndpoint::bind(config.clone())?;
    let client = blocking::BlockingEndpoint::bind(config)?;
    let peer = client.connect(server.local_addrs().to_vec())?;

    std::thread::scope(|scope| {
        // Closing the server ends the thread.
        scope.spawn(|| {
            while let Ok(request) = server.recv() {
                if let Err(error) = server.reply(&request, look_up(&request.message)) {
                    eprintln!("a reply was not delivered: {error}");
                }
            }
        });
        let result = ask(&client, peer);
        server.close(Duration::from_secs(1));
        result
    })?;
    client.close(Duration::from_secs(1));
    Ok(())
}

fn ask(
    client: &blocking::BlockingEndpoint,
    peer: cloudburst::PeerId,
) -> Result<(), Box<dyn Error>> {
    for word in ["burst", "splitter", "nonsense"] {
        let reply = client.request(peer, word, Duration::from_secs(2))?;
        println!("{word}: {}", String::from_utf8_lossy(&reply));
    }
    Ok(())
}

fn look_up(word: &[u8]) -> &'static str {
    match word {
        b"burst" => "many at once",
        b"splitter" => "what tells short flows from long",
        _ => "not known",
    }
}
