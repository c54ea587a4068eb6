//! How an endpoint begins and ends.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cloudburst::{Endpoint, Ports, RequestError, SendError};
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
    let asked = tokio::spawn(async move { client.request(peer, "?", SOON).await });
    within(taken.notified()).await;
    let start = Instant::now();
    server.close(Duration::from_millis(200)).await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    asked.abort();
}
