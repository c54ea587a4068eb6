//! How an endpoint begins and ends.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cloudburst::{
    CloseReport, Endpoint, GoneReason, Ports, Reason, RequestError, SendError, SendOptions,
};
use tokio::{sync::Notify, time::timeout};

use super::{SOON, config, pair, patterned, within};

#[tokio::test]
async fn a_port_is_bound_once() {
    let first = Endpoint::bind(config(1)).await.unwrap();
    let port = first.local_addrs()[0].port();
    let again = config(1).with_ports(Ports::one(port)).unwrap();
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
async fn close_waits_for_what_is_in_flight() {
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
async fn close_waits_for_replies_that_are_being_made() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let (taken, released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let serving = tokio::spawn({
        let (server, taken, released) = (server.clone(), taken.clone(), released.clone());
        async move {
            let slow = move |request: cloudburst::Received| {
                let (taken, released) = (taken.clone(), released.clone());
                async move {
                    taken.notify_one();
                    released.notified().await;
                    Some(request.message)
                }
            };
            server.serve(4, slow).await;
        }
    });
    let request = |message: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.request(peer, message, SOON).await })
    };
    let asked = request("in time");
    within(taken.notified()).await;
    let closing = server.close(SOON);
    tokio::pin!(closing);
    // It has begun to close before anything else is asked.
    assert!(timeout(Duration::ZERO, closing.as_mut()).await.is_err());
    let brief = Duration::from_millis(100);
    let late = client.request(peer, "too late", brief).await;
    let early = timeout(Duration::ZERO, closing.as_mut()).await;
    assert!(early.is_err(), "it waits for the reply");
    released.notify_one();
    within(closing).await;
    assert_eq!(within(asked).await.unwrap().unwrap(), "in time");
    // It was never taken, so that its sender may try elsewhere.
    assert!(
        matches!(
            late,
            Err(RequestError::TimedOut {
                delivered: false,
                ..
            })
        ),
        "{late:?}"
    );
    within(serving).await.unwrap();
}

#[tokio::test]
async fn close_waits_no_longer_than_it_may() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let taken = Arc::new(Notify::new());
    tokio::spawn({
        let (server, taken) = (server.clone(), taken.clone());
        async move {
            let never = move |_| {
                taken.notify_one();
                std::future::pending::<Option<Vec<u8>>>()
            };
            server.serve(4, never).await;
        }
    });
    let asked = tokio::spawn(async move { client.request(peer, "?", 20 * SOON).await });
    within(taken.notified()).await;
    within(server.close(Duration::from_millis(200))).await;
    asked.abort();
}

/// Asks for longer than a test takes, and says how long it took until the peer was gone.
async fn is_told<T: std::fmt::Debug>(asked: impl Future<Output = Result<T, RequestError>>) {
    let start = Instant::now();
    let gone = asked.await.unwrap_err();
    assert_eq!(gone, RequestError::PeerGone(GoneReason::Closed));
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn who_waits_for_an_endpoint_that_closes_is_told() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let address = server.local_addrs();
    let asked = {
        let client = client.clone();
        tokio::spawn(async move { is_told(client.request(peer, "?", 20 * SOON)).await })
    };
    let request = within(server.recv()).await.unwrap();
    server.close(Duration::ZERO).await;
    within(asked).await.unwrap();
    drop(request);
    drop(server);
    // It is there again, and answers under the id that it had.
    let port = address[0].port();
    let again = config(1).with_ports(Ports::one(port)).unwrap();
    let server = within(async {
        loop {
            match Endpoint::bind(again.clone()).await {
                Ok(server) => break server,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await;
    let (sent, received) = tokio::join!(
        within(client.send(peer, "are you there?")),
        within(server.recv())
    );
    sent.unwrap();
    assert_eq!(&received.unwrap().message[..], b"are you there?");
}

#[tokio::test]
async fn what_is_under_way_to_who_closes_ends_at_once() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let taken = Arc::new(Notify::new());
    tokio::spawn({
        let (server, taken) = (server.clone(), taken.clone());
        async move {
            let never = move |_| {
                taken.notify_one();
                std::future::pending::<Vec<u8>>()
            };
            server.serve(4, never).await;
        }
    });
    let asked = tokio::spawn({
        let client = client.clone();
        async move { is_told(client.request(peer, "?", 20 * SOON)).await }
    });
    within(taken.notified()).await;
    let closing = server.close(Duration::from_millis(300));
    tokio::pin!(closing);
    assert!(timeout(Duration::ZERO, closing.as_mut()).await.is_err());
    // From here on others are answered with Busy.
    let (sent, _) = tokio::join!(within(client.send(peer, "late")), closing);
    let Err(SendError::Undelivered(failure)) = sent else {
        panic!("{sent:?}");
    };
    assert_eq!(failure.reason, Reason::PeerClosed);
    within(asked).await.unwrap();
}

/// As in the field: eight clients that ended normally left hundreds of dead paths.
#[tokio::test]
async fn clients_that_end_leave_no_dead_paths() {
    let (first, server, peer) = pair(config(4), config(1)).await;
    let mut clients = vec![(first, peer)];
    for _ in 0..7 {
        let client = Endpoint::bind(config(4)).await.unwrap();
        let peer = client.connect(server.local_addrs()).await.unwrap();
        clients.push((client, peer));
    }
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(8, |it| async { Some(it.message) }).await }
    });
    for (client, peer) in &clients {
        let reply = within(client.request(*peer, vec![7; 20_000], SOON)).await;
        assert_eq!(reply.unwrap().len(), 20_000);
    }
    assert_eq!(server.statistics().await.unwrap().protocol.peers_now, 8);
    for (number, (client, _)) in clients.into_iter().enumerate() {
        // By closing it, or by letting it go.
        if number % 2 == 0 {
            client.close(SOON).await;
        }
    }
    within(async {
        while server.statistics().await.unwrap().protocol.peers_now > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // A machine with much to do may have paths die of those who are there: what counts is what dies
    // from now on, for as long as paths of who is gone would be probed.
    let died = server.statistics().await.unwrap().protocol.paths_died;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(server.statistics().await.unwrap().protocol.paths_died, died);
    serving.abort();
}

#[tokio::test]
async fn close_says_what_has_become_of_what_was_under_way() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let sending = client.enqueue(peer, patterned(200_000)).await.unwrap();
    let report = client.close(SOON).await;
    assert_eq!(
        (report.delivered.messages, report.delivered.bytes),
        (1, 200_000)
    );
    assert_eq!(report.lost.messages + report.unknown.messages, 0);
    within(sending).await.unwrap();
    assert_eq!(client.close(SOON).await, CloseReport::default());
    drop(server);

    // Nobody answers: what was sent may be there, and what was not is not.
    let client = Endpoint::bind(config(1)).await.unwrap();
    let (_socket, silent) = super::silent();
    let peer = client.connect([silent]).await.unwrap();
    let _first = client.enqueue(peer, patterned(1_000)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let report = client.close(Duration::from_millis(50)).await;
    assert_eq!((report.unknown.messages, report.unknown.bytes), (1, 1_000));
    assert_eq!(report.delivered.messages + report.lost.messages, 0);
}

/// A server that takes a request, closes without a reply, and is started again so much later if at all.
/// What the request comes to, and how long it takes.
async fn asked_over_a_restart(
    options: SendOptions,
    back_after: Option<Duration>,
) -> (Result<bytes::Bytes, RequestError>, Duration) {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let port = server.local_addrs()[0].port();
    let start = Instant::now();
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.request_with(peer, "?", 20 * SOON, options).await }
    });
    let taken = within(server.recv()).await.unwrap();
    server.close(Duration::ZERO).await;
    drop((server, taken));
    let serving = tokio::spawn(async move {
        tokio::time::sleep(back_after?).await;
        let again = config(1).with_ports(Ports::one(port)).unwrap();
        let server = loop {
            match Endpoint::bind(again.clone()).await {
                Ok(server) => break server,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        server.serve(4, |it| async { Some(it.message) }).await;
        Some(())
    });
    let reply = within(asked).await.unwrap();
    serving.abort();
    (reply, start.elapsed())
}

#[tokio::test]
async fn what_a_server_has_taken_and_may_take_twice_is_asked_again_when_it_is_back() {
    let idempotent = SendOptions::new().with_idempotent(true);
    let pause = Duration::from_millis(300);
    let (reply, took) = asked_over_a_restart(idempotent, Some(pause)).await;
    assert_eq!(reply.unwrap(), "?");
    assert!(took >= pause, "{took:?}");
    let (reply, took) = asked_over_a_restart(idempotent, None).await;
    assert_eq!(reply, Err(RequestError::PeerGone(GoneReason::Closed)));
    assert!(took >= Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn what_a_server_has_taken_and_may_not_take_twice_is_not_asked_again() {
    let (reply, _) = asked_over_a_restart(SendOptions::new(), Some(Duration::ZERO)).await;
    assert_eq!(reply, Err(RequestError::PeerGone(GoneReason::Closed)));
}
