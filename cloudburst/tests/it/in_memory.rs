//! Endpoints in a network in memory, in time that stands still but where all wait.

use std::{net::IpAddr, num::NonZeroU64, time::Duration};

use cloudburst::{
    Endpoint, EndpointConfig, PeerId, Ports, Reason, SecretKey, Security, SendError, SendOptions,
    memory::{Link, MemoryNetwork, MemoryNetworkStatistics},
};

use super::{patterned, security};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

fn config(ip: IpAddr, ports: Ports) -> EndpointConfig {
    let config = EndpointConfig::server(0, security()).with_local([ip]);
    config.and_then(|it| it.with_ports(ports)).unwrap()
}

pub(super) async fn pair(network: &MemoryNetwork) -> (Endpoint, Endpoint, PeerId) {
    let client = network.bind(config(CLIENT, Ports::Any(2))).await.unwrap();
    let server = network.bind(config(SERVER, Ports::one(4433))).await;
    let server = server.unwrap();
    let peer = client.connect(server.local_addrs()).await.unwrap();
    (client, server, peer)
}

/// 600 ms there, 300 ms back.
fn far() -> MemoryNetwork {
    let network = MemoryNetwork::new(1);
    network.set_link(CLIENT, SERVER, Link::new(Duration::from_millis(600)));
    network.set_link(SERVER, CLIENT, Link::new(Duration::from_millis(300)));
    network
}

fn is_balanced(it: MemoryNetworkStatistics) -> bool {
    let ends = it.delivered + it.lost + it.dropped + it.parted + it.nobody + it.under_way;
    it.sent + it.duplicated == ends
}

/// Fifty messages through all that links do to datagrams.
async fn storm(seed: u64) -> MemoryNetworkStatistics {
    let network = MemoryNetwork::new(seed);
    let link = Link::new(Duration::from_millis(10)).with_loss(0.1).unwrap();
    let link = link.with_duplication(0.05).unwrap();
    let link = link
        .with_reordering(0.2, Duration::from_millis(15))
        .unwrap();
    network.set_default_link(link.with_rate(NonZeroU64::new(20_000_000).unwrap(), 60_000));
    let (client, server, peer) = pair(&network).await;
    for number in 1..=50 {
        let message = patterned(number * 400);
        client.send(peer, message.clone()).await.unwrap();
        assert_eq!(server.recv().await.unwrap().message, message);
    }
    network.statistics()
}

#[tokio::test(start_paused = true)]
async fn messages_arrive_whole_and_every_datagram_is_accounted_for() {
    let counted = storm(3).await;
    assert!(is_balanced(counted), "{counted:?}");
    assert!(counted.lost > 0 && counted.duplicated > 0, "{counted:?}");
    assert_eq!((counted.parted, counted.nobody), (0, 0), "{counted:?}");
}

#[test]
fn the_seed_decides_what_is_lost() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(storm(seed))
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

/// With key pairs the calendar is part of what is sent.
#[test]
fn the_seed_decides_when_messages_arrive_between_key_pairs() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async move {
            let network = MemoryNetwork::new(seed);
            let link = Link::new(Duration::from_millis(10)).with_loss(0.2).unwrap();
            network.set_default_link(link.with_jitter(Duration::from_millis(7)));
            let [ours, theirs] = [1, 2].map(|number| SecretKey::new([number; 32]));
            let listed = Security::with_allowed(theirs.clone(), [ours.public()]);
            let server = EndpointConfig::server(4433, listed).with_local([SERVER]);
            let server = network.bind(server.unwrap()).await.unwrap();
            let client = EndpointConfig::client(Security::key_pair(ours)).with_local([CLIENT]);
            let client = network.bind(client.unwrap()).await.unwrap();
            let addresses = server.local_addrs();
            let peer = client.connect_to(theirs.public(), addresses).await.unwrap();
            let mut completions = Vec::new();
            for number in 1..=20 {
                let receipt = client.send(peer, patterned(number * 400)).await.unwrap();
                completions.push((receipt.completion, receipt.sent));
            }
            completions
        })
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

/// Sends so many messages of 20 kB over a link, and returns the symbols that were sent beyond those needed.
async fn sent_in_vain(link: Link) -> u32 {
    let network = MemoryNetwork::new(5);
    network.set_default_link(link);
    let (client, server, peer) = pair(&network).await;
    let mut beyond = 0;
    for _ in 0..20 {
        let message = patterned(20_000);
        let receipt = client.send(peer, message.clone()).await.unwrap();
        assert_eq!(server.recv().await.unwrap().message, message);
        beyond += receipt.sent - receipt.symbols;
    }
    let counted = client.statistics().await.unwrap().protocol;
    assert_eq!(
        counted.symbols_sent - counted.symbols_delivered,
        u64::from(beyond)
    );
    beyond
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_made_up_for_and_counted() {
    let perfect = Link::new(Duration::from_millis(10));
    let lossy = perfect.clone().with_loss(0.3).unwrap();
    let (without, with) = (sent_in_vain(perfect).await, sent_in_vain(lossy).await);
    // Of 17 symbols in 20 kB, 20 times, 0.3 / 0.7 more are needed: 146, less five standard deviations.
    assert!(
        with >= without + 80,
        "{with} with losses, {without} without"
    );
}

#[tokio::test(start_paused = true)]
async fn jitter_and_late_datagrams_take_time_and_break_nothing() {
    let link = Link::new(Duration::from_millis(10));
    let jittered = link.clone().with_jitter(Duration::from_millis(30));
    let late = link.clone().with_reordering(0.5, Duration::from_millis(30));
    let mut completions = Vec::new();
    for link in [link, jittered, late.unwrap()] {
        let network = MemoryNetwork::new(5);
        network.set_default_link(link);
        let (client, server, peer) = pair(&network).await;
        let mut sum = Duration::ZERO;
        for number in 1..=50 {
            let message = patterned(number * 400);
            sum += client.send(peer, message.clone()).await.unwrap().completion;
            assert_eq!(server.recv().await.unwrap().message, message);
        }
        completions.push(sum / 50);
    }
    let [plain, jittered, late] = completions[..] else {
        panic!("three links");
    };
    assert!(jittered > plain + Duration::from_millis(15), "{jittered:?}");
    assert!(late > plain + Duration::from_millis(5), "{late:?}");
}

/// A server that has just started has the first message sent again, with a token.
#[tokio::test(start_paused = true)]
async fn each_direction_has_a_delay_of_its_own() {
    for (age_s, completion_ms) in [(1, 1_800), (11, 900)] {
        let (client, _server, peer) = pair(&far()).await;
        tokio::time::sleep(Duration::from_secs(age_s)).await;
        let receipt = client.send(peer, "far away").await.unwrap();
        let least = Duration::from_millis(completion_ms);
        let taken = least..least + Duration::from_millis(10);
        assert!(
            taken.contains(&receipt.completion),
            "{age_s} s: {receipt:?}"
        );
    }
}

/// The way back takes 300 ms, of which the server has held its port for 100 ms before it started. For
/// 200 ms more its sender cannot tell that it was running when the message was accepted.
#[tokio::test(start_paused = true)]
async fn a_message_to_who_started_later_than_its_answer_tells_is_unknown() {
    for (age_ms, may_be_another) in [(190, true), (210, false)] {
        let (client, _server, peer) = pair(&far()).await;
        tokio::time::sleep(Duration::from_millis(age_ms)).await;
        let reason = match client.send(peer, "once").await {
            Err(SendError::Undelivered(undelivered)) => Some(undelivered.reason),
            ending => ending.map(|_| None).unwrap(),
        };
        let expected = may_be_another.then_some(Reason::Unknown);
        assert_eq!(reason, expected, "{age_ms} ms");
    }
    let (client, server, peer) = pair(&far()).await;
    let twice = SendOptions::new().with_idempotent(true);
    client
        .send_with(peer, "perhaps twice", twice)
        .await
        .unwrap();
    assert_eq!(server.recv().await.unwrap().message, "perhaps twice");
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_a_partition_until_it_is_healed() {
    let network = MemoryNetwork::new(1);
    let (client, server, peer) = pair(&network).await;
    client.send(peer, "before").await.unwrap();
    assert_eq!(server.recv().await.unwrap().message, "before");
    network.partition([CLIENT], [SERVER]);
    let sending = client.enqueue(peer, "meanwhile").await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(3), server.recv()).await;
    assert!(waited.is_err(), "it passed");
    assert!(network.statistics().parted > 0);
    network.heal();
    let healed = tokio::time::timeout(Duration::from_secs(6), server.recv()).await;
    assert_eq!(healed.unwrap().unwrap().message, "meanwhile");
    sending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_of_two_interfaces_may_be_dead() {
    let network = MemoryNetwork::new(1);
    let second = IpAddr::from([10, 0, 1, 1]);
    let dead = Link::default().with_loss(1.0).unwrap();
    network.set_link(second, SERVER, dead);
    let both = config(CLIENT, Ports::Any(1)).with_local([CLIENT, second]);
    let client = network.bind(both.unwrap()).await.unwrap();
    let server = network.bind(config(SERVER, Ports::one(4433))).await;
    let server = server.unwrap();
    let peer = client.connect(server.local_addrs()).await.unwrap();
    for _ in 0..10 {
        client.send(peer, patterned(20_000)).await.unwrap();
        assert_eq!(server.recv().await.unwrap().path.remote.ip(), CLIENT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_is_one_endpoints_alone_and_free_after_it() {
    let network = MemoryNetwork::new(1);
    let named = || config(SERVER, Ports::one(4433));
    let first = network.bind(named()).await.unwrap();
    let error = network.bind(named()).await.unwrap_err();
    assert!(error.is_in_use(), "{error}");
    first.close(Duration::from_secs(1)).await;
    drop(first);
    tokio::time::sleep(Duration::from_millis(1)).await;
    network.bind(named()).await.unwrap();
    let anywhere = EndpointConfig::client(security());
    let error = network.bind(anywhere).await.unwrap_err().to_string();
    assert!(error.contains("with_local"), "{error}");
}
