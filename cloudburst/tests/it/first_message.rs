//! How long the first message to a peer takes, with and without a demand for a token, and to one that was restarted.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use cloudburst::{
    Endpoint, EndpointConfig, PeerId, Ports, SendOptions,
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

/// The timer that paces is as coarse as a millisecond.
const SLACK: Duration = Duration::from_millis(5);

/// A client of so many ports, connected to a server that was just bound.
async fn connected(network: &MemoryNetwork, ports: Option<u16>) -> (Endpoint, Endpoint, PeerId) {
    network.set_default_link(Link::new(ROUND_TRIP / 2));
    let mut config = EndpointConfig::client(security())
        .with_local([CLIENT])
        .unwrap();
    if let Some(ports) = ports {
        config = config.with_ports(Ports::Any(ports)).unwrap();
    }
    let client = network.bind(config).await.unwrap();
    let server = server(network).await;
    let peer = client.connect(server.local_addrs()).await.unwrap();
    (client, server, peer)
}

async fn server(network: &MemoryNetwork) -> Endpoint {
    let config = EndpointConfig::server(4433, security());
    let config = config.with_local([SERVER]).unwrap();
    network.bind(config).await.unwrap()
}

/// How long three messages took, one after the other.
async fn three_messages(client: &Endpoint, peer: PeerId) -> [Duration; 3] {
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
        let [young, old] = AGES.map(async |age| {
            let (client, _server, peer) = connected(&MemoryNetwork::new(1), ports).await;
            tokio::time::sleep(age).await;
            three_messages(&client, peer).await
        });
        let (young, old) = (young.await, old.await);
        println!("{ports:?} ports: of a young server {young:?}, of an old one {old:?}");
        assert!(young[0] <= old[0] + ROUND_TRIP + SLACK, "{young:?} {old:?}");
        for (young, old) in young.into_iter().zip(old).skip(1) {
            assert!(young <= old + SLACK, "{young:?} {old:?}");
        }
    }
}

/// How long messages take to a server, and to another in its place that was started a second ago, when for so long nobody
/// was there, and nothing was sent or a message all the time.
async fn around_a_restart(
    ports: Option<u16>,
    absence: Duration,
    is_sending: bool,
) -> [[Duration; 3]; 2] {
    let network = MemoryNetwork::new(1);
    let (client, before, peer) = connected(&network, ports).await;
    tokio::time::sleep(AGES[1]).await;
    let took = three_messages(&client, peer).await;
    // The client is at rest, and probes nothing any more. Then the server is gone without a word.
    tokio::time::sleep(Duration::from_secs(5)).await;
    network.partition([CLIENT], [SERVER]);
    before.close(Duration::ZERO).await;
    drop(before);
    if is_sending {
        let client = client.clone();
        let options = SendOptions::new().with_idempotent(true);
        let message = patterned(MESSAGE_BYTES);
        tokio::spawn(async move { client.send_with(peer, message, options).await });
    }
    tokio::time::sleep(absence).await;
    network.heal();
    let _after = server(&network).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    [took, three_messages(&client, peer).await]
}

/// What the one before took stays known: how fast the path is. The client finds out by a demand for a token, to
/// which it makes an offer; when nothing was heard of the server for a minute it makes one at once, with the message.
#[tokio::test(start_paused = true)]
async fn a_restart_of_the_receiver_costs_two_round_trips_at_most_and_no_window() {
    for ports in [Some(1), Some(4), None] {
        let cases = [(1, false, 2), (1, true, 2), (70, false, 1), (200, false, 1)];
        for (idle_s, is_sending, round_trips) in cases {
            let absence = Duration::from_secs(idle_s);
            let [before, after] = around_a_restart(ports, absence, is_sending).await;
            println!(
                "{ports:?} ports, {idle_s} s, sending {is_sending}: {before:?}, and after a restart {after:?}"
            );
            let most = before[2] + ROUND_TRIP * round_trips + SLACK;
            assert!(after[0] <= most, "{idle_s} s: {before:?} {after:?}");
            for after in &after[1..] {
                assert!(
                    *after <= before[2] + SLACK,
                    "{idle_s} s: {before:?} {after:?}"
                );
            }
        }
    }
}
