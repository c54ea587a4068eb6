//! A file of records, one message each, that arrive in any order and are put back into their own.
//!
//! `cargo run -p cloudburst-fec --example records [FILE]`; without a file it sends itself.

use std::{collections::BTreeMap, error::Error, time::Duration};

use cloudburst::{Endpoint, EndpointConfig, Key, Ports, Security};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1);
    let text = match &file {
        Some(file) => std::fs::read_to_string(file)?,
        None => include_str!("records.rs").to_owned(),
    };
    let records: Vec<String> = text.lines().map(str::to_owned).collect();

    let config = EndpointConfig::client(security())
        .with_local(["127.0.0.1".parse()?])?
        .with_ports(Ports::Any(4))?;
    let receiver = Endpoint::bind(config.clone()).await?;
    let sender = Endpoint::bind(config).await?;
    let peer = sender.connect(receiver.local_addrs().to_vec()).await?;

    let (sent, received) = tokio::join!(
        send(&sender, peer, &records),
        receive(&receiver, records.len())
    );
    sent?;
    let received = received?;
    assert!(received.values().eq(&records), "all are there, in order");
    println!(
        "{} records, the first is {:?}",
        received.len(),
        received[&0]
    );
    let symbols = sender.statistics().await?.protocol;
    println!(
        "{} packets for {} that the records have",
        symbols.symbols_sent, symbols.symbols_delivered
    );
    sender.close(Duration::from_secs(1)).await;
    Ok(())
}

/// Starts all, then waits for all: they do not wait for one another. Each bears its number.
async fn send(
    endpoint: &Endpoint,
    peer: cloudburst::PeerId,
    records: &[String],
) -> Result<(), Box<dyn Error>> {
    let mut under_way = Vec::new();
    for (number, record) in (0_u32..).zip(records) {
        let message = [&number.to_be_bytes()[..], record.as_bytes()].concat();
        under_way.push(endpoint.enqueue(peer, message).await?);
    }
    for sending in under_way {
        sending.await?;
    }
    Ok(())
}

async fn receive(
    endpoint: &Endpoint,
    count: usize,
) -> Result<BTreeMap<u32, String>, Box<dyn Error>> {
    let mut records = BTreeMap::new();
    while records.len() < count {
        let message = endpoint.recv().await?.message;
        let (number, record) = message
            .split_first_chunk()
            .ok_or("a record has no number")?;
        let record = String::from_utf8(record.to_vec())?;
        records.insert(u32::from_be_bytes(*number), record);
    }
    Ok(records)
}

/// Both ends have the same key. A real one is random, from a file: `cloudburst keygen --shared`.
fn security() -> Security {
    Security::shared_key(Key::new(std::num::NonZeroU8::MIN, [42; 32]))
}
