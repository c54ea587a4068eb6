//! How long the first message to a peer takes, with and without a demand for a token.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use cloudburst::{
    Endpoint, EndpointConfig, Ports,
    memory::{Link, MemoryNetwork},
};

use super::{patterned, security};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// More than a first window, and less than two.
const MESSAGE_BYTES: usize = 30_000;
/// A server asks for tokens while it is as young as that, and not at the other age.
const AGES: [Duration; 2] = [Duration::ZERO, Duration::from_secs(15)];

/// How long three messages took, one after the other.
async fn three_messages(ports: Option<u16>, age: Duration) -> [Duration; 3] {
    let network = MemoryNetwork::new(1);
    network.set_default_link(Link::new(ROUND_TRIP / 2));
    let mut config = EndpointConfig::client(security())
        .with_local([CLIENT])
        .unwrap();
    if let Some(ports) = ports {
        config = config.with_ports(Ports::Any(ports)).unwrap();
    }
    let client: Endpoint = network.bind(config).await.unwrap();
    let config = EndpointConfig::server(4433, security())
        .with_local([SERVER])
        .unwrap();
    let server = network.bind(config).await.unwrap();
    let peer = client.connect(server.local_addrs()).await.unwrap();
    tokio::time::sleep(age).await;
    let mut took = [Duration::ZERO; 3];
    for took in &mut took {
        let receipt = client.send(peer, patterned(MESSAGE_BYTES)).await;
        *took = receipt.unwrap().completion;
    }
    took
}

#[tokio::test(start_paused = true)]
async fn a_demand_for_a_token_costs_a_round_trip_and_no_window() {
    for ports in [Some(1), Some(4), None] {
        let [young, old] = AGES.map(|age| three_messages(ports, age));
        let (young, old) = (young.await, old.await);
        println!("{ports:?} ports: of a young server {young:?}, of an old one {old:?}");
        // The timer that paces is as coarse as a millisecond.
        let slack = Duration::from_millis(5);
        assert!(young[0] <= old[0] + ROUND_TRIP + slack, "{young:?} {old:?}");
        for (young, old) in young.into_iter().zip(old).skip(1) {
            assert!(young <= old + slack, "{young:?} {old:?}");
        }
    }
}
