//! One message to several peers, in a network in memory.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use cloudburst::{
    Endpoint, EndpointConfig, PeerId, Ports, Quotas, Reason, SendError, SendOptions, TrySendError,
    memory::{Link, MemoryNetwork},
};
use tokio::time::{Instant, timeout};

use super::{patterned, security};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn ip(server: usize) -> IpAddr {
    [10, 0, 1, server as u8].into()
}

fn client() -> EndpointConfig {
    EndpointConfig::client(security())
        .with_local([CLIENT])
        .and_then(|it| it.with_ports(Ports::Any(1)))
        .unwrap()
}

/// So many servers that have run for a second, and who they are to a client.
async fn group(
    network: &MemoryNetwork,
    client: EndpointConfig,
    servers: usize,
) -> (Endpoint, Vec<Endpoint>, Vec<PeerId>) {
    let client = network.bind(client).await.unwrap();
    let (mut endpoints, mut peers) = (Vec::new(), Vec::new());
    for number in 0..servers {
        let config = EndpointConfig::server(4433, security()).with_local([ip(number)]);
        let server = network.bind(config.unwrap()).await.unwrap();
        peers.push(client.connect(server.local_addrs()).await.unwrap());
        endpoints.push(server);
    }
    tokio::time::sleep(SECOND).await;
    (client, endpoints, peers)
}

async fn received(server: &Endpoint) -> Option<Vec<u8>> {
    let received = timeout(20 * SECOND, server.recv()).await.ok()?;
    Some(received.unwrap().message.to_vec())
}

#[tokio::test(start_paused = true)]
async fn each_peer_says_stop_for_itself() {
    let network = MemoryNetwork::new(1);
    let delays = [100, 10, 50].map(|ms| ms * MS);
    for (number, &delay) in delays.iter().enumerate() {
        network.set_link(CLIENT, ip(number), Link::new(delay));
        network.set_link(ip(number), CLIENT, Link::new(delay));
    }
    let (client, servers, peers) = group(&network, client(), 3).await;
    let message = patterned(1_000);
    let start = Instant::now();
    let sending = client.enqueue_group(peers.clone(), message.clone()).await;
    let mut sending = sending.unwrap();
    for number in [1, 2, 0] {
        let outcome = sending.next().await.unwrap();
        assert_eq!(outcome.peer, peers[number]);
        let completion = outcome.result.unwrap().completion;
        // It is short, and goes with the first flight; servers as young as these ask for a token. The timer
        // that paces is as coarse as a millisecond.
        let two_round_trips = 4 * delays[number];
        let expected = two_round_trips..two_round_trips + 5 * MS;
        assert!(expected.contains(&completion), "{number}: {completion:?}");
        let told = start.elapsed();
        assert!(told < two_round_trips + 10 * MS, "{number}: {told:?}");
        assert!(!sending.pending().any(|it| it == peers[number]));
    }
    assert!(sending.next().await.is_none());
    for server in &servers {
        assert_eq!(received(server).await.unwrap(), message);
    }
    // All at once, in the order in which they were given, one of them twice.
    let twice = [peers[0], peers[1], peers[0]];
    let outcomes = client.send_group(twice, "last").await.unwrap();
    let order: Vec<PeerId> = outcomes.iter().map(|it| it.peer).collect();
    assert_eq!(order, twice);
    assert!(outcomes.iter().all(|it| it.result.is_ok()), "{outcomes:?}");
    assert!(client.send_group([], "to nobody").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_fails_keeps_no_other_waiting() {
    let network = MemoryNetwork::new(1);
    network.set_default_link(Link::new(10 * MS));
    let (client, servers, mut peers) = group(&network, client(), 3).await;
    network.partition([CLIENT], [ip(1)]);
    // Another endpoint's peer stands for nobody here.
    peers.push(servers[0].connect([(CLIENT, 1).into()]).await.unwrap());
    let options = SendOptions::new().with_deadline(2 * SECOND);
    let start = Instant::now();
    let sending = client.enqueue_group_with(peers.clone(), patterned(30_000), options);
    let mut sending = sending.await.unwrap();
    let refused = sending.next().await.unwrap();
    assert_eq!(refused.peer, peers[3]);
    assert!(matches!(refused.result, Err(SendError::Refused(_))));
    for _ in 0..2 {
        let delivered = sending.next().await.unwrap();
        assert!(delivered.result.is_ok() && delivered.peer != peers[1]);
        assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    }
    let late = sending.next().await.unwrap();
    assert_eq!((late.peer, start.elapsed().as_secs()), (peers[1], 2));
    let Err(SendError::Undelivered(late)) = late.result else {
        panic!("{:?}", late.result);
    };
    assert_eq!(late.reason, Reason::TimedOut);
    assert!(sending.next().await.is_none());
    assert!(received(&servers[0]).await.is_some() && received(&servers[2]).await.is_some());
    // Outcomes of all at once are in the order of the peers, whichever came first.
    let some = [peers[0], peers[1], peers[3]];
    let outcomes = client.send_group_with(some, "all", options).await.unwrap();
    let delivered = outcomes.iter().map(|it| (it.peer, it.result.is_ok()));
    assert!(delivered.eq(some.into_iter().zip([true, false, false])));
}

#[tokio::test(start_paused = true)]
async fn a_message_is_cancelled_for_one_peer_or_for_all_that_do_not_have_it() {
    let network = MemoryNetwork::new(1);
    let (client, servers, peers) = group(&network, client(), 3).await;
    network.partition([CLIENT], [ip(1), ip(2)]);
    let mut sending = client.enqueue_group(peers.clone(), "once").await.unwrap();
    assert_eq!(sending.next().await.unwrap().peer, peers[0]);
    assert!(!sending.cancel(peers[0]), "it has it");
    assert!(sending.cancel(peers[1]));
    assert!(!sending.cancel(peers[1]), "it is cancelled");
    assert!(sending.pending().eq([peers[2]]));
    drop(sending);
    tokio::time::sleep(SECOND).await;
    let counted = client.statistics().await.unwrap().protocol;
    assert_eq!((counted.outgoing_now, counted.outgoing_bytes_now), (0, 0));
    client
        .enqueue_group(peers, "detached")
        .await
        .unwrap()
        .detach();
    tokio::time::sleep(SECOND).await;
    network.heal();
    assert_eq!(received(&servers[0]).await.unwrap(), b"once");
    for server in &servers {
        assert_eq!(received(server).await.unwrap(), b"detached");
    }
}

#[tokio::test(start_paused = true)]
async fn its_bytes_count_once_and_its_peers_each() {
    const BYTES: usize = 100_000;
    let network = MemoryNetwork::new(1);
    let mut quotas = Quotas::default();
    (quotas.outgoing_messages, quotas.outgoing_bytes) = (9, 150_000);
    let config = client().with_quotas(quotas).unwrap();
    let (client, servers, peers) = group(&network, config, 8).await;
    let all: Vec<IpAddr> = (0..8).map(ip).collect();
    network.partition([CLIENT], all);
    let sending = client.enqueue_group(peers.clone(), patterned(BYTES));
    let sending = timeout(100 * MS, sending).await.expect("there is room");
    let counted = client.statistics().await.unwrap().protocol;
    // An envelope is 17 bytes.
    let held = (counted.outgoing_now, counted.outgoing_bytes_now);
    assert_eq!(held, (8, BYTES as u64 + 17));
    let full = client.try_send(peers[0], patterned(BYTES)).unwrap_err();
    assert!(matches!(full, TrySendError::Full { .. }), "its bytes");
    let second = client.try_send(peers[0], "the ninth").unwrap();
    let full = client.try_send(peers[0], "the tenth").unwrap_err();
    assert!(matches!(full, TrySendError::Full { .. }), "its peers");
    network.heal();
    let outcomes = sending.unwrap().all().await;
    assert!(outcomes.iter().all(|it| it.result.is_ok()), "{outcomes:?}");
    second.await.unwrap();
    let counted = client.statistics().await.unwrap().protocol;
    assert_eq!((counted.outgoing_now, counted.outgoing_bytes_now), (0, 0));
    for server in &servers {
        let mut message = received(server).await.unwrap();
        // What is shorter goes first.
        if message == b"the ninth" {
            message = received(server).await.unwrap();
        }
        assert_eq!(message, patterned(BYTES));
    }
    client.send(peers[0], patterned(BYTES)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_larger_than_what_may_be_under_way_gets_its_message_by_and_by() {
    let network = MemoryNetwork::new(1);
    let mut quotas = Quotas::default();
    quotas.outgoing_messages = 3;
    let config = client().with_quotas(quotas).unwrap();
    let (client, _servers, peers) = group(&network, config, 8).await;
    let outcomes = client.send_group(peers.clone(), patterned(30_000)).await;
    let outcomes = outcomes.unwrap();
    assert_eq!(outcomes.len(), 8);
    assert!(outcomes.iter().all(|it| it.result.is_ok()), "{outcomes:?}");
    // What it has taken is free again.
    client.send_group(peers, "next").await.unwrap();
}

/// Each loses others of the symbols, so that they get different ones of those beyond the message's own.
#[tokio::test(start_paused = true)]
async fn all_have_the_same_message_whatever_each_has_lost() {
    let network = MemoryNetwork::new(9);
    let link = Link::new(10 * MS).with_loss(0.3).unwrap();
    network.set_default_link(link);
    let (client, servers, peers) = group(&network, client(), 16).await;
    for number in 1..=10 {
        let message = patterned(number * 9_000);
        let outcomes = client.send_group(peers.clone(), message.clone()).await;
        let outcomes = outcomes.unwrap();
        assert!(outcomes.iter().all(|it| it.result.is_ok()), "{outcomes:?}");
        for server in &servers {
            assert_eq!(received(server).await.unwrap(), message);
        }
    }
    for server in &servers {
        let refused = server.statistics().await.unwrap().protocol.refused;
        let spoilt = (refused.malformed, refused.bad_symbol);
        assert_eq!((spoilt, refused.corrupt_message), ((0, 0), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_learns_that_the_endpoint_is_closed_and_that_there_was_no_capacity() {
    let network = MemoryNetwork::new(1);
    let mut quotas = Quotas::default();
    quotas.outgoing_messages = 2;
    let config = client().with_quotas(quotas).unwrap();
    let (client, _servers, peers) = group(&network, config, 2).await;
    network.partition([CLIENT], [ip(0), ip(1)]);
    let sending = client.enqueue_group(peers.clone(), "waits").await.unwrap();
    let soon = SendOptions::new().with_deadline(100 * MS);
    let late = client.send_group_with(peers.clone(), "late", soon).await;
    let Err(SendError::Undelivered(late)) = late else {
        panic!("{late:?}");
    };
    assert_eq!((late.reason, late.sent), (Reason::TimedOut, 0));
    let too_long = client.send_group(peers.clone(), vec![0; 5 << 20]).await;
    assert!(matches!(too_long, Err(SendError::Refused(_))));
    client.close(Duration::ZERO).await;
    let outcomes = sending.all().await;
    assert_eq!(outcomes.len(), 2);
    let is_closed = |it: &Result<_, SendError>| matches!(it, Err(SendError::Closed(_)));
    assert!(
        outcomes.iter().all(|it| is_closed(&it.result)),
        "{outcomes:?}"
    );
    assert!(client.send_group(peers, "closed").await.is_err());
}
