//! Readings of many sensors, collected at one place: each has a key of its own, sends what may be taken
//! twice, and lets a reading go that is old.
//!
//! `cargo run -p cloudburst-fec --example telemetry`; 32 sensors and the collector are on loopback. In a program
//! of your own have dependencies optimised in development builds, as the README says: otherwise so many
//! handshakes at once take longer than a reading is of use.

use std::{collections::BTreeMap, error::Error, time::Duration};

use cloudburst::{
    Endpoint, EndpointConfig, Ports, Priority, PublicKey, SecretKey, Security, SendOptions,
};
use tokio::task::JoinSet;

const SENSORS: u8 = 32;
const READINGS: u32 = 20;
/// Between two readings of a sensor.
const INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Real keys are random, and each is in a file of its own machine: `cloudburst keygen`.
    let collector_key = SecretKey::new([255; 32]);
    let sensor_keys = (0..SENSORS).map(|number| SecretKey::new([number; 32]));
    let sensor_keys: Vec<SecretKey> = sensor_keys.collect();

    // The list of those who may report says by what name each is known.
    let names = (0..).zip(&sensor_keys);
    let names = names.map(|(number, key)| (key.public(), format!("sensor {number}")));
    let names: BTreeMap<PublicKey, String> = names.collect();
    let security = Security::with_allowed(collector_key.clone(), names.keys().copied());
    let config = EndpointConfig::server(0, security).with_local([[127, 0, 0, 1].into()])?;
    let collector = Endpoint::bind(config).await?;
    let address = collector.local_addrs()[0];

    let mut sensors = JoinSet::new();
    for key in sensor_keys {
        sensors.spawn(report(key, collector_key.public(), address));
    }
    let expected = usize::from(SENSORS) * READINGS as usize;
    let readings = collect(&collector, &names, expected).await?;
    let mut late = 0;
    while let Some(sensor) = sensors.join_next().await {
        late += sensor?.map_err(|error| error.to_string())?;
    }

    if readings.is_empty() {
        return Err("no reading has come in time; are dependencies optimised, as above?".into());
    }
    let last: f32 = readings.values().map(|(_, celsius)| celsius).sum();
    println!(
        "{} sensors, {} readings, {late} too late, mean of the last {:.1} C",
        readings.len(),
        readings.values().map(|(count, _)| count).sum::<u32>(),
        last / readings.len() as f32
    );
    collector.close(Duration::from_secs(1)).await;
    Ok(())
}

/// A sensor: says how many of its readings were of no use any more before they arrived.
async fn report(
    key: SecretKey,
    collector: PublicKey,
    address: std::net::SocketAddr,
) -> Result<u32, cloudburst::Error> {
    // Two ports are two paths where networks spread by ports; a sensor needs no more.
    let config = EndpointConfig::client(Security::key_pair(key))
        .with_ports(Ports::Any(2))?
        .with_send_options(
            SendOptions::new()
                // After a restart of the collector it is sent again: the same reading twice does no harm.
                .with_idempotent(true)
                .with_deadline(Duration::from_secs(2))
                .with_priority(Priority::Background),
        );
    let endpoint = Endpoint::bind(config).await?;
    let peer = endpoint.connect_to(collector, [address]).await?;
    let mut late = 0;
    let mut timer = tokio::time::interval(INTERVAL);
    for number in 0..READINGS {
        timer.tick().await;
        let celsius = 20.0 + number as f32 / 10.0;
        let reading = [number.to_be_bytes(), celsius.to_be_bytes()].concat();
        // The next reading says more than this one: a failure is counted, and no reason to stop.
        late += u32::from(endpoint.send(peer, reading).await.is_err());
    }
    endpoint.close(Duration::from_secs(1)).await;
    Ok(late)
}

/// How many readings of each sensor have come, and the newest one.
type Readings = BTreeMap<String, (u32, f32)>;

/// The collector: takes readings until so many are there, or none comes any more.
async fn collect(
    collector: &Endpoint,
    names: &BTreeMap<PublicKey, String>,
    expected: usize,
) -> Result<Readings, Box<dyn Error>> {
    let mut readings = Readings::new();
    let mut newest: BTreeMap<PublicKey, u32> = BTreeMap::new();
    for _ in 0..expected {
        let Ok(received) = tokio::time::timeout(Duration::from_secs(5), collector.recv()).await
        else {
            break;
        };
        let received = received?;
        let key = received.identity.ok_or("with key pairs each has a key")?;
        let (Some((number, celsius)), Some(name)) = (read(&received.message), names.get(&key))
        else {
            eprintln!("no reading: {:?}", received.message);
            continue;
        };
        let (count, last) = readings.entry(name.clone()).or_default();
        *count += 1;
        // Messages may overtake each other.
        let newest = newest.entry(key).or_default();
        if number >= *newest {
            (*newest, *last) = (number, celsius);
        }
    }
    Ok(readings)
}

fn read(message: &[u8]) -> Option<(u32, f32)> {
    let (number, celsius) = message.split_first_chunk()?;
    let celsius = celsius.try_into().ok()?;
    Some((u32::from_be_bytes(*number), f32::from_be_bytes(celsius)))
}
