//! Endpoints on loopback, as users have them.
#![cfg(feature = "tokio")]

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    num::NonZeroU8,
    time::{Duration, Instant},
};

use cloudburst::{
    Config, Endpoint, Ports, blocking,
    net::{ConnectError, ReplyError, RequestError, SendError, TrySendError},
    protocol::{self, Keyring, PeerId, Reason, packet::Key},
};
use tokio::time::timeout;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(5);

fn config(ports: u16) -> Config {
    Config::client()
        .with_local([LOCALHOST])
        .with_ports(Ports::Any(ports))
}

fn with_protocol(ports: u16, change: impl FnOnce(&mut protocol::Config)) -> Config {
    let mut config = config(ports);
    change(&mut config.protocol);
    config
}

/// A client with four ports and a server with one, and who the server is to the client.
async fn pair(client: Config, server: Config) -> (Endpoint, Endpoint, PeerId) {
    let client = Endpoint::bind(client).await.unwrap();
    let server = Endpoint::bind(server).await.unwrap();
    let remotes = server.local_addrs().to_vec();
    let peer = client.connect(remotes).await.unwrap();
    (client, server, peer)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it takes no longer")
}

fn patterned(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|it| (it % 251) as u8).collect()
}

#[tokio::test]
async fn messages_of_all_sizes_arrive_whole() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    for bytes in [1, 64, 1_400, 10_000, 300_000] {
        let message = patterned(bytes);
        let (sent, received) = tokio::join!(
            within(client.send(peer, message.clone())),
            within(server.recv())
        );
        let (receipt, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(received.message, message);
        assert!(!received.is_request());
        assert!(receipt.needed >= receipt.symbols && receipt.sent >= receipt.needed);
    }
    let statistics = client.statistics().await.unwrap();
    assert_eq!(statistics.protocol.messages_delivered, 5);
    assert_eq!(
        statistics.completion.buckets().map(|it| it.1).sum::<u64>(),
        5
    );
    assert!(!client.paths(peer).await.unwrap().is_empty());
    client.close(SOON).await;
    server.close(SOON).await;
}

#[tokio::test]
async fn many_messages_at_once_arrive_once() {
    let (client, server, peer) = pair(config(4), config(2)).await;
    let count = 500_u32;
    let sender = tokio::spawn({
        let client = client.clone();
        async move {
            let mut under_way = Vec::new();
            for number in 0..count {
                let message = number.to_be_bytes().repeat(500);
                under_way.push(client.enqueue(peer, message).await.unwrap());
            }
            for sending in under_way {
                sending.await.unwrap();
            }
        }
    });
    let mut seen = vec![false; count as usize];
    for _ in 0..count {
        let message = within(server.recv()).await.unwrap().message;
        let number = u32::from_be_bytes(*message.first_chunk().unwrap());
        assert_eq!(message, number.to_be_bytes().repeat(500));
        assert!(
            !std::mem::replace(&mut seen[number as usize], true),
            "{number} came twice"
        );
    }
    within(sender).await.unwrap();
}

#[tokio::test]
async fn requests_are_answered() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let serving = tokio::spawn({
        let server = server.clone();
        async move {
            server
                .serve(8, |request| async move {
                    let mut message = request.message;
                    message.reverse();
                    Some(message)
                })
                .await;
        }
    });
    let mut requests = Vec::new();
    for number in 0..50_u8 {
        let client = client.clone();
        requests.push(tokio::spawn(async move {
            let reply = client.request(peer, vec![number, 1, 2], SOON).await;
            assert_eq!(reply.unwrap(), [2, 1, number]);
        }));
    }
    for request in requests {
        within(request).await.unwrap();
    }
    server.close(SOON).await;
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_message_is_no_request() {
    let (client, server, peer) = pair(config(1), config(1)).await;
    within(client.send(peer, "plain")).await.unwrap();
    let received = within(server.recv()).await.unwrap();
    let error = server.reply(&received, "answer").await.unwrap_err();
    assert_eq!(error, ReplyError::NotARequest);
}

#[tokio::test]
async fn a_request_that_nobody_answers_says_whether_it_was_delivered() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let wait = Duration::from_millis(300);
    let error = client.request(peer, "?", wait).await.unwrap_err();
    let expected = RequestError::TimedOut {
        after: wait,
        delivered: true,
    };
    assert_eq!(error, expected);
    // The reply that comes too late hurts nobody.
    let request = within(server.recv()).await.unwrap();
    within(server.reply(&request, "late")).await.unwrap();
    let (sent, received) = tokio::join!(within(client.send(peer, "next")), within(server.recv()));
    sent.unwrap();
    assert_eq!(received.unwrap().message, b"next");
}

/// A peer whose datagrams go nowhere.
fn silent() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[tokio::test]
async fn dropping_a_send_cancels_it() {
    let (_socket, address) = silent();
    let client = Endpoint::bind(config(2)).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let sent = timeout(
        Duration::from_millis(100),
        client.send(peer, "nobody reads this"),
    )
    .await;
    assert!(sent.is_err(), "{sent:?}");
    let statistics = within(async {
        loop {
            let statistics = client.statistics().await.unwrap().protocol;
            if statistics.outgoing_now == 0 {
                return statistics;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(statistics.await.messages_undelivered, 1);
    // With nothing under way it closes at once.
    let start = Instant::now();
    client.close(SOON).await;
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_full_endpoint_says_so_or_waits() {
    let (_socket, address) = silent();
    let config = with_protocol(1, |it| it.quotas.outgoing_messages = 2);
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let first = client.try_send(peer, "1").unwrap();
    let _second = client.try_send(peer, "2").unwrap();
    assert_eq!(client.try_send(peer, "3").unwrap_err(), TrySendError::Full);
    let third = client.enqueue(peer, "3");
    tokio::pin!(third);
    let early = timeout(Duration::from_millis(50), third.as_mut()).await;
    assert!(early.is_err(), "there was no room");
    drop(first);
    within(third).await.unwrap().detach();
}

#[tokio::test]
async fn bytes_are_room_as_well() {
    let (_socket, address) = silent();
    let config = with_protocol(1, |it| it.quotas.outgoing_bytes = 10_000);
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let _first = client.try_send(peer, vec![0; 6_000]).unwrap();
    let full = client.try_send(peer, vec![0; 6_000]).unwrap_err();
    assert_eq!(full, TrySendError::Full);
    client.try_send(peer, vec![0; 3_000]).unwrap().detach();
}

#[tokio::test]
async fn what_can_never_be_sent_is_told_with_its_size() {
    let config = with_protocol(1, |it| it.max_message_bytes = 100);
    let (client, _server, peer) = pair(config, self::config(1)).await;
    let error = client.send(peer, vec![0; 101]).await.unwrap_err();
    assert!(error.to_string().contains("101 bytes"), "{error}");
    let error = client.send(peer, "").await.unwrap_err();
    assert!(error.to_string().contains("empty"), "{error}");
}

#[tokio::test]
async fn a_receiver_that_takes_less_refuses() {
    let config = with_protocol(1, |it| it.max_message_bytes = 100);
    let (client, server, peer) = pair(self::config(2), config).await;
    let error = within(client.send(peer, vec![0; 5_000])).await.unwrap_err();
    let SendError::Undelivered(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.reason, Reason::Refused);
    assert!(
        server
            .statistics()
            .await
            .unwrap()
            .protocol
            .refused
            .message_too_large
            > 0
    );
}

fn keys(secret: u8) -> Keyring {
    Keyring::new([Key::new(NonZeroU8::MIN, [secret; 32])]).unwrap()
}

#[tokio::test]
async fn keys_must_match() {
    let keyed = |secret| with_protocol(2, |it| it.keys = keys(secret));
    let (client, server, peer) = pair(keyed(1), keyed(1)).await;
    let (sent, received) = tokio::join!(within(client.send(peer, "sealed")), within(server.recv()));
    sent.unwrap();
    assert_eq!(received.unwrap().message, b"sealed");

    let mut config = keyed(2);
    config.protocol.budget.lifetime = Duration::from_millis(300);
    let (client, server, peer) = pair(config, keyed(1)).await;
    let error = within(client.send(peer, "sealed")).await.unwrap_err();
    let SendError::Undelivered(failure) = error else {
        panic!("{error}");
    };
    assert!(
        matches!(failure.reason, Reason::TimedOut | Reason::BudgetSpent),
        "{failure}"
    );
    assert!(
        server
            .statistics()
            .await
            .unwrap()
            .protocol
            .refused
            .not_authentic
            > 0
    );
    // Nothing of it came through.
    assert!(
        timeout(Duration::from_millis(50), server.recv())
            .await
            .is_err()
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_closed_port_is_told_soon() {
    let (socket, address) = silent();
    drop(socket);
    let client = Endpoint::bind(config(4)).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let error = within(client.send(peer, patterned(20_000)))
        .await
        .unwrap_err();
    let SendError::Undelivered(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.reason, Reason::Unreachable);
    assert!(client.statistics().await.unwrap().sockets.unreachable > 0);
}

#[tokio::test]
async fn addresses_that_cannot_be_are_refused() {
    let client = Endpoint::bind(config(1)).await.unwrap();
    let connect = |remotes: Vec<SocketAddr>| client.connect(remotes);
    assert_eq!(connect(vec![]).await.unwrap_err(), ConnectError::NoAddress);
    let nobody = connect(vec![SocketAddr::from(([0; 4], 9))])
        .await
        .unwrap_err();
    assert!(
        matches!(nobody, ConnectError::NotAnAddress { .. }),
        "{nobody}"
    );
    let far = connect(vec!["192.0.2.1:9".parse().unwrap()])
        .await
        .unwrap_err();
    assert!(matches!(far, ConnectError::NoSocket { .. }), "{far}");
}

#[tokio::test]
async fn a_port_is_bound_once() {
    let first = Endpoint::bind(config(1)).await.unwrap();
    let port = first.local_addrs()[0].port();
    let again = config(1).with_ports(Ports::one(port));
    let error = Endpoint::bind(again.clone()).await.unwrap_err();
    assert!(error.is_in_use(), "{error}");
    // After close it is free.
    first.close(SOON).await;
    within(async {
        while Endpoint::bind(again.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn close_waits_for_what_is_under_way() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let sending = client.enqueue(peer, patterned(200_000)).await.unwrap();
    client.close(SOON).await;
    within(sending).await.unwrap();
    assert_eq!(
        within(server.recv()).await.unwrap().message,
        patterned(200_000)
    );
    let after = client.send(peer, "too late").await.unwrap_err();
    assert!(matches!(after, SendError::Closed(_)), "{after}");
    assert!(client.recv().await.is_err());
}

#[tokio::test]
async fn a_full_inbox_holds_up_senders_and_loses_nothing() {
    let mut config = config(1);
    config.inbox_messages = 4;
    let (client, server, peer) = pair(self::config(2), config).await;
    let sending: Vec<_> = (0..12u8)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.send(peer, vec![number]).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let statistics = server.statistics().await.unwrap();
    assert!(statistics.protocol.messages_received < 12);
    assert!(statistics.protocol.refused.not_accepting > 0);
    let mut received = Vec::new();
    for _ in 0..12 {
        received.extend(within(server.recv()).await.unwrap().message);
    }
    received.sort_unstable();
    assert_eq!(received, (0..12).collect::<Vec<u8>>());
    for sent in sending {
        within(sent).await.unwrap().unwrap();
    }
    let statistics = server.statistics().await.unwrap();
    assert_eq!(statistics.sockets.inbox_overflows, 0);
}

#[tokio::test]
async fn recv_loses_nothing_when_dropped() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    for _ in 0..20 {
        let early = timeout(Duration::from_micros(50), server.recv()).await;
        assert!(early.is_err(), "nothing was sent");
    }
    within(client.send(peer, "there")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, b"there");
}

#[test]
fn it_works_without_a_runtime_of_ones_own() {
    let server = blocking::Endpoint::bind(config(1)).unwrap();
    let client = blocking::Endpoint::bind(config(2)).unwrap();
    let peer = client.connect(server.local_addrs().to_vec()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = server.recv_timeout(SOON).unwrap().expect("a request comes");
            assert_eq!(request.message, b"question");
            server.reply(&request, "answer").unwrap();
        });
        let reply = client.request(peer, "question", SOON).unwrap();
        assert_eq!(reply, b"answer");
    });
    client.send(peer, "message").unwrap();
    assert_eq!(server.recv().unwrap().message, b"message");
    let nothing = server.recv_timeout(Duration::from_millis(20)).unwrap();
    assert_eq!(nothing, None);
    client.close(SOON);
    assert!(client.send(peer, "too late").is_err());
    assert_eq!(server.statistics().unwrap().protocol.messages_received, 2);
}

#[tokio::test]
async fn ipv6_works_where_there_is_any() {
    let config = config(2).with_local(["::1".parse().unwrap()]);
    let Ok(server) = Endpoint::bind(config.clone()).await else {
        println!("skipped: this machine has no IPv6");
        return;
    };
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect(server.local_addrs().to_vec()).await.unwrap();
    within(client.send(peer, "six")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, b"six");
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_again() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    within(client.send(peer, "before")).await.unwrap();
    let port = server.local_addrs()[0].port();
    server.close(SOON).await;
    drop(server);
    let failed = within(client.send(peer, "meanwhile")).await;
    assert!(failed.is_err(), "{failed:?}");

    let again = config(1).with_ports(Ports::one(port));
    let server = within(async {
        loop {
            match Endpoint::bind(again.clone()).await {
                Ok(server) => return server,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await;
    // Routes that were found dead are tried again now and then.
    within(async {
        while client.send(peer, "after").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(within(server.recv()).await.unwrap().message, b"after");
}

#[tokio::test]
async fn handlers_that_panic_end_alone() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    tokio::spawn(async move {
        server
            .serve(1, |request| async move {
                assert_ne!(request.message, b"panic", "as was asked for");
                Some(request.message)
            })
            .await;
    });
    let wait = Duration::from_millis(200);
    assert!(client.request(peer, "panic", wait).await.is_err());
    assert_eq!(client.request(peer, "go on", SOON).await.unwrap(), b"go on");
}

#[tokio::test]
async fn a_requester_that_is_gone_keeps_nobody_waiting() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let remotes = server.local_addrs().to_vec();
    let serving = tokio::spawn(async move {
        let late = |request: cloudburst::Received| async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Some(request.message)
        };
        server.serve(1, late).await;
    });
    // Its runtime stands still before the reply comes; its sockets stay, so that nobody is told.
    let gone = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let endpoint = runtime.block_on(async {
            let endpoint = Endpoint::bind(config(1)).await.unwrap();
            let server = endpoint.connect(remotes).await.unwrap();
            let brief = Duration::from_millis(100);
            let result = endpoint.request(server, "?", brief).await;
            let is_delivered = matches!(
                result,
                Err(RequestError::TimedOut {
                    delivered: true,
                    ..
                })
            );
            assert!(is_delivered, "{result:?}");
            endpoint
        });
        (runtime, endpoint)
    });
    let gone = gone.await.unwrap();
    let reply = within(client.request(peer, "!", SOON)).await;
    assert_eq!(reply.unwrap(), b"!");
    serving.abort();
    tokio::task::spawn_blocking(move || drop(gone))
        .await
        .unwrap();
}
