//! Whom one can talk to.

use std::{
    net::SocketAddr,
    num::NonZeroU8,
    time::{Duration, Instant},
};

use cloudburst::{
    ConnectError, ConnectRefused, Endpoint, ForeignPeer, GoneReason, Key, PeerError, Ports, Reason,
    ReplyError, RequestError, SecretKey, Security, SendError, SendRefused,
};
use tokio::time::timeout;

use super::{SOON, config, pair, patterned, secured, silent, within};

fn shared(secret: u8) -> Security {
    Security::shared_key(Key::new(NonZeroU8::MIN, [secret; 32]))
}

/// Who it is to others is told by the key: a client's, on the server's list, and the server's, as
/// the client was told.
#[tokio::test]
async fn key_pairs_say_who_speaks() {
    let [ours, theirs, stranger] = [1, 2, 3].map(|number| SecretKey::new([number; 32]));
    let client = secured(2, Security::key_pair(ours.clone()));
    let listed = Security::with_allowed(theirs.clone(), [ours.public()]);
    let server = secured(1, listed);
    let (client, server) = (
        Endpoint::bind(client).await.unwrap(),
        Endpoint::bind(server).await.unwrap(),
    );
    let remotes = server.local_addrs();
    let unnamed = client.connect(remotes.clone()).await;
    let no_key = ConnectError::Protocol(ConnectRefused::NoPeerKey);
    assert_eq!(unnamed, Err(no_key));
    let peer = client
        .connect_to(theirs.public(), remotes.clone())
        .await
        .unwrap();
    let begun = Instant::now();
    let (sent, received) = tokio::join!(within(client.send(peer, "sealed")), within(server.recv()));
    sent.unwrap();
    let received = received.unwrap();
    assert_eq!(received.identity, Some(ours.public()));
    assert!(client.local_addrs().contains(&received.path.remote));
    assert!((begun..=Instant::now()).contains(&received.received_at));
    let who = server.peer_key(received.peer).await.unwrap();
    assert_eq!(
        (who, &received.message[..]),
        (Some(ours.public()), &b"sealed"[..])
    );

    // Nobody else can be taken for the server, and nobody else may speak to it.
    for (own, peer_key) in [(&ours, stranger.public()), (&stranger, theirs.public())] {
        let config = secured(2, Security::key_pair(own.clone()));
        let config = config.with_lifetime(Duration::from_millis(300)).unwrap();
        let client = Endpoint::bind(config).await.unwrap();
        let peer = client.connect_to(peer_key, remotes.clone()).await.unwrap();
        assert!(within(client.send(peer, "sealed")).await.is_err());
    }
    let refused = server.statistics().await.unwrap().protocol.refused;
    assert!(
        refused.not_authentic > 0 && refused.not_allowed > 0,
        "{refused:?}"
    );
    assert!(
        timeout(Duration::from_millis(50), server.recv())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn keys_must_match() {
    let keyed = |secret| secured(2, shared(secret));
    let (client, server, peer) = pair(keyed(1), keyed(1)).await;
    let (sent, received) = tokio::join!(within(client.send(peer, "sealed")), within(server.recv()));
    sent.unwrap();
    assert_eq!(received.unwrap().message, "sealed");

    let config = keyed(2).with_lifetime(Duration::from_millis(300)).unwrap();
    let (client, server, peer) = pair(config, keyed(1)).await;
    let error = within(client.send(peer, "sealed")).await.unwrap_err();
    let SendError::Undelivered(failure) = error else {
        panic!("{error}");
    };
    assert!(
        matches!(failure.reason, Reason::TimedOut | Reason::BudgetSpent),
        "{failure}"
    );
    let refused = server.statistics().await.unwrap().protocol.refused;
    assert!(refused.not_authentic > 0, "{refused:?}");
    // Nothing of it came through.
    assert!(
        timeout(Duration::from_millis(50), server.recv())
            .await
            .is_err()
    );
}

/// Its host is this one, which says so of the first datagram.
#[cfg(target_os = "linux")]
#[test]
fn a_closed_port_is_told_in_100_ms_on_sockets() {
    use flow_testbed::timed::{Bounds, Claim, decide};

    const TOLD: Claim = Claim {
        law: "a closed port is told within 100 ms, whatever the number of ports",
        twin: "a_closed_port_is_told_in_100_ms_at_any_number_of_ports",
        bounds: Bounds {
            // 60 ms of it are the wait for an answer.
            late: Duration::from_millis(15),
            pressure: 0.1,
            ..Bounds::DEFAULT
        },
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    decide(&TOLD, || {
        for ports in [1, 4, 16, 64] {
            let took = runtime.block_on(time_of_closed_port(ports));
            println!("{ports} ports: {took:?}");
            if took > Duration::from_millis(100) {
                return Err(format!("with {ports} ports it took {took:?}"));
            }
        }
        Ok(())
    });
}

#[cfg(target_os = "linux")]
async fn time_of_closed_port(ports: u16) -> Duration {
    use std::net::{Ipv4Addr, UdpSocket};

    // Of another address: one of the client's own ports may come to be the one that has just been closed.
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let client = Endpoint::bind(config(ports)).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let begun = Instant::now();
    let error = within(client.send(peer, patterned(20_000))).await;
    let took = begun.elapsed();
    let SendError::Undelivered(failure) = error.unwrap_err() else {
        panic!("nobody has it");
    };
    assert_eq!(failure.reason, Reason::Unreachable);
    assert!(client.statistics().await.unwrap().sockets.unreachable > 0);
    took
}

#[tokio::test]
async fn addresses_that_cannot_be_are_refused() {
    let client = Endpoint::bind(config(1)).await.unwrap();
    let connect = |remotes: Vec<SocketAddr>| client.connect(remotes);
    assert_eq!(connect(vec![]).await.unwrap_err(), ConnectError::NoAddress);
    // Nobody's, a group's and everybody's.
    for address in [
        "0.0.0.0:9",
        "224.0.0.1:9",
        "[ff02::1]:9",
        "255.255.255.255:9",
    ] {
        let refused = connect(vec![address.parse().unwrap()]).await.unwrap_err();
        assert!(
            matches!(refused, ConnectError::NotAnAddress { .. }),
            "{address}: {refused}"
        );
    }
    let far = connect(vec!["192.0.2.1:9".parse().unwrap()])
        .await
        .unwrap_err();
    assert!(matches!(far, ConnectError::NoSocket { .. }), "{far}");
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

    let again = config(1).with_ports(Ports::one(port)).unwrap();
    let server = within(async {
        loop {
            match Endpoint::bind(again.clone()).await {
                Ok(server) => return server,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await;
    // Paths that were found dead are tried again now and then.
    within(async {
        while client.send(peer, "after").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(within(server.recv()).await.unwrap().message, "after");
}

/// Each client knows one server: the first peer of the one is not the first peer of the other.
#[tokio::test]
async fn the_id_of_a_peer_is_refused_at_another_endpoint() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    let (other, other_server, foreign) = pair(config(2), config(1)).await;
    let refused = SendRefused::ForeignPeer(ForeignPeer);
    let sent = within(client.send(foreign, "to the other server")).await;
    assert_eq!(sent, Err(SendError::Refused(refused)));
    let asked = within(client.request(foreign, "to the other server", SOON)).await;
    assert_eq!(asked, Err(RequestError::Refused(refused)));
    let no_answer = PeerError::ForeignPeer(ForeignPeer);
    assert_eq!(client.paths(foreign).await, Err(no_answer));
    assert_eq!(client.peer_key(foreign).await, Err(no_answer));
    assert_eq!(client.forget(foreign).await, Err(no_answer));
    let asks = other.request(foreign, "who answers?", SOON);
    let answers = async {
        let request = within(other_server.recv()).await.unwrap();
        let misled = within(server.reply(&request, "not I")).await;
        let refused = ReplyError::Send(SendError::Refused(refused));
        assert_eq!(misled, Err(refused));
        within(other_server.reply(&request, "I")).await.unwrap();
    };
    let (answered, ()) = tokio::join!(within(asks), answers);
    assert_eq!(answered.unwrap(), "I");

    // Its own peer is neither forgotten nor sent anything.
    within(client.send(peer, "to its own")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, "to its own");
    assert_eq!(other.peers().await.unwrap(), [foreign]);
}

#[tokio::test]
async fn a_peer_that_is_forgotten_stands_for_nobody() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    within(client.send(peer, "before")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, "before");
    let (_socket, address) = silent();
    let other = client.connect([address]).await.unwrap();
    let sending = client.enqueue(other, "nobody reads this").await.unwrap();
    for peer in [peer, other, other] {
        client.forget(peer).await.unwrap();
    }
    assert!(client.peers().await.unwrap().is_empty());
    let error = within(sending).await.unwrap_err();
    let SendError::Undelivered(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.reason, Reason::Cancelled);
    let error = client.send(peer, "after").await.unwrap_err();
    assert!(error.to_string().contains("not known"), "{error}");
    // The same address is somebody new.
    let again = client.connect(server.local_addrs().to_vec()).await.unwrap();
    assert_ne!(again, peer);
    within(client.send(again, "again")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, "again");
    assert_eq!(client.statistics().await.unwrap().protocol.peers_now, 1);
}

#[tokio::test]
async fn a_request_to_who_is_forgotten_ends() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    let (_socket, address) = silent();
    let other = client.connect([address]).await.unwrap();
    let asks = client.request(peer, "are you there?", 10 * SOON);
    let asks_other = client.request(other, "and you?", 10 * SOON);
    let forgets = async {
        // It is delivered, and nobody answers.
        let request = within(server.recv()).await.unwrap();
        let delivered = async || {
            client
                .statistics()
                .await
                .unwrap()
                .protocol
                .messages_delivered
        };
        within(async {
            while delivered().await == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        client.forget(peer).await.unwrap();
        request
    };
    let ((answered, request), asks_other) = tokio::join!(
        async {
            let (answered, request) = tokio::join!(within(asks), forgets);
            // Who asked somebody else waits on, until that one is forgotten, too.
            client.forget(other).await.unwrap();
            (answered, request)
        },
        within(asks_other)
    );
    assert_eq!(answered, Err(RequestError::PeerGone(GoneReason::Forgotten)));
    let Err(RequestError::Undelivered(failure)) = asks_other else {
        panic!("{asks_other:?}");
    };
    assert_eq!(failure.reason, Reason::Cancelled);
    // A reply that comes after all is nobody's.
    let _ = timeout(Duration::from_millis(200), server.reply(&request, "late")).await;
    let again = client.connect(server.local_addrs().to_vec()).await.unwrap();
    within(client.send(again, "again")).await.unwrap();
}
